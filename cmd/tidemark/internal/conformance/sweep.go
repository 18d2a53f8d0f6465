package conformance

import (
	"net/http"
	"time"
)

const sweepTypes = "sweep.types"

var sweepChecks = []Check{
	{ID: sweepTypes, Level: Must, Source: kep5504 + ", Test Plan (every built-in type)",
		About: "The version of an object is well-formed and increases from its creation to its update to its deletion. This runs for every writable type in discovery.",
		run:   func(p *probe) { p.sweep(p.resource) }},
	{ID: "sweep.custom", Level: Must, Source: kep5504 + ", Test Plan",
		About: "The version of a custom resource increases in the same way.", run: func(p *probe) { p.sweep(p.custom()) }},
}

// sweep follows one object of a type from its creation to its deletion.
func (p *probe) sweep(r *resourceType) {
	p.resource = r
	o := p.bed.template(r)
	if o.name() == "" {
		o.metadata()["name"] = p.named("swept")
	}
	o.label(markLabel, "1")
	var before list
	if r.allows("list") {
		before = p.list("")
		p.wantWellFormed("the list", before.version)
	}
	a := p.send(p.posting(o, ""))
	switch a.code {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusConflict:
		p.skipf("no object of this type is known that the server takes: %s", a.describe())
	}
	p.want(a, http.StatusCreated)
	made := p.object(a)
	p.wantWellFormed("the created object", made.version())
	if before.version != "" {
		p.wantNewer("the created object", made.version(), before.version)
	}
	changed := p.updateRacing(made)
	p.wantWellFormed("the updated object", changed.version())
	p.wantNewer("the updated object", changed.version(), made.version())
	gone := p.sweepAway(changed)
	p.wantWellFormed("the deletion", gone)
	p.wantNewer("the deletion", gone, changed.version())
}

// updateRacing changes the mark of an object that a controller may write too.
func (p *probe) updateRacing(o object) object {
	path := p.path(o.name())
	for range 10 {
		o = o.copied()
		o.label(markLabel, "2")
		a := p.send(request{method: http.MethodPut, path: path, body: o.encode()})
		if a.code == http.StatusOK {
			return p.object(a)
		}
		if a.code != http.StatusConflict {
			p.want(a, http.StatusOK)
		}
		a = p.send(request{method: http.MethodGet, path: path})
		p.want(a, http.StatusOK)
		o = p.object(a)
	}
	p.failf("ten updates in a row met a conflict")
	return nil
}

// sweepAway deletes an object and its finalizers, and returns the version of the deletion.
// It comes from the DELETED event, or from a list if the type has no watch.
func (p *probe) sweepAway(o object) string {
	var s *stream
	if p.resource.allows("watch") {
		s = p.watch("resourceVersion=" + o.version() + "&fieldSelector=metadata.name%3D" + o.name())
		defer s.close()
	}
	path := p.path(o.name())
	a := p.send(request{method: http.MethodDelete, path: path, query: "gracePeriodSeconds=0&propagationPolicy=Background"})
	if a.code == http.StatusNotImplemented {
		a = p.send(request{method: http.MethodDelete, path: path})
	}
	p.want(a, http.StatusOK, http.StatusAccepted)
	p.finalize(path)
	if s == nil {
		return p.list("").version
	}
	for {
		e := s.next("DELETED of " + o.name())
		if e.Type == deleted && e.Object.name() == o.name() {
			return e.Object.version()
		}
		if e.Type == failure {
			p.failf("an ERROR came instead of DELETED: %d %s", e.code(), clip(e.Object.text("message")))
		}
	}
}

// finalize removes the finalizers of an object that is being deleted.
func (p *probe) finalize(path string) {
	for range 10 {
		a := p.send(request{method: http.MethodGet, path: path})
		if a.code == http.StatusNotFound {
			return
		}
		p.want(a, http.StatusOK)
		o := p.object(a)
		switch {
		case len(o.finalizers()) > 0:
			delete(o.metadata(), "finalizers")
			a = p.send(request{method: http.MethodPut, path: path, body: o.encode()})
		case o.text("kind") == "Namespace":
			delete(child(o, "spec"), "finalizers")
			a = p.send(request{method: http.MethodPut, path: path + "/finalize", body: o.encode()})
		default:
			return // it goes by itself
		}
		if a.code != http.StatusConflict && a.code != http.StatusNotFound {
			p.want(a, http.StatusOK)
		}
	}
}

// custom makes a type by a CustomResourceDefinition, and returns it when it is
// served. It is removed in the end.
func (p *probe) custom() *resourceType {
	definitions, err := find(p.bed.types, resourceName{resource: "customresourcedefinitions", group: "apiextensions.k8s.io"})
	if err != nil {
		p.absentf("%v", err)
	}
	r := &resourceType{
		group: p.named("tidemark.dev"), version: "v1", resource: "things", kind: "Thing", namespaced: true,
		verbs: []string{"create", "delete", "get", "list", "update", "watch"},
	}
	crd := object{
		"kind": definitions.kind, "apiVersion": definitions.apiVersion(),
		"metadata": map[string]any{"name": r.resource + "." + r.group},
		"spec": map[string]any{
			"group": r.group, "scope": "Namespaced",
			"names": map[string]any{"plural": r.resource, "singular": "thing", "kind": r.kind},
			"versions": []any{map[string]any{
				"name": r.version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}},
			}},
		},
	}
	p.remember(definitions, crd.name())
	path := definitions.collection("")
	a := p.send(request{method: http.MethodPost, path: path, body: crd.encode(), makes: created{definitions, crd.name()}})
	p.want(a, http.StatusCreated)
	p.awaitServed(r, path+"/"+crd.name())
	return r
}

// noticed is the time that a server has to set the status of a definition. kube-apiserver
// needs milliseconds. A server that stores definitions without serving them never does.
const noticed = 2 * time.Second

// awaitServed waits until a custom resource is served, which is a moment after its
// definition.
func (p *probe) awaitServed(r *resourceType, definition string) {
	began, seen := time.Now(), false
	for {
		a := p.send(request{method: http.MethodGet, path: r.collection(p.bed.namespace)})
		switch waited := time.Since(began); {
		case a.code == http.StatusOK:
			return
		case waited > p.bed.options.Timeout:
			p.absentf("a custom resource is not served within %v of its definition: %s", p.bed.options.Timeout, a.describe())
		case waited > noticed && !seen:
			of := p.send(request{method: http.MethodGet, path: definition})
			p.want(of, http.StatusOK)
			conditions, _ := p.object(of).at("status", "conditions").([]any)
			if seen = len(conditions) > 0; !seen {
				p.absentf("the server stores a definition, and says nothing of it within %v: custom resources are not served (%s)", noticed, a.describe())
			}
		}
		p.pause()
	}
}

// pause waits a moment before something is asked again.
func (p *probe) pause() {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.ctx.Done():
		p.interrupted()
	}
}
