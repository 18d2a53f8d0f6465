package projects

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
	asTable        = "application/json;as=Table;v=v1;g=meta.k8s.io"
	lastApplied    = "kubectl.kubernetes.io/last-applied-configuration"
)

// walk takes one object through the verbs on both servers.
type walk struct {
	servers [2]sender // kube-apiserver, Tidemark
	r       *rand.Rand
	found   *findings
	mutants int

	collection, at string
	name           string
	dry            bool // the object would disturb others: dry-run only
}

// same sends a request to both servers, and records how the responses differ. It reports whether the servers still agree, and
// whether the request succeeded.
func (w *walk) same(fault string, r request) (agree, taken bool) {
	return w.each(fault, [2]request{r, r})
}

func (w *walk) each(fault string, r [2]request) (agree, taken bool) {
	got := w.both(r)
	w.found.requests++
	differ := compare(got[0], got[1], r[0].accept == asTable)
	if len(differ) == 0 {
		return true, got[0].code < 300
	}
	for try := 0; try < 5 && len(differ) > 0 && got[0].code >= 400; try++ { // kube-apiserver reports some errors in random order
		got[0] = w.servers[0].send(r[0])
		differ = compare(got[0], got[1], false)
	}
	if len(differ) == 0 {
		return true, false
	}
	w.found.add(fault, r[0], documented(r[0], got[0], got[1], differ), differ)
	return false, got[0].code < 300 || got[1].code < 300
}

// query is the query of a write by a manager.
func (w *walk) query(manager string, more ...string) string {
	q := "?fieldManager=" + manager
	if w.dry {
		more = append(more, "dryRun=All")
	}
	for _, m := range more {
		q += "&" + m
	}
	return q
}

// object takes an object through create, get, tables, both applies, diff, replace and delete.
func (w *walk) object(o tree) {
	configured := clone(o)
	annotate(configured, o)
	agree, taken := w.same("none", request{"create", "POST", w.collection + w.query("create", "fieldValidation=Strict"), "", "", configured})
	if !taken || w.dry {
		for range w.mutants {
			w.mutant(o, false)
		}
		return
	}
	gone := request{method: "DELETE", path: w.at + "?gracePeriodSeconds=0"}
	defer func() { w.both([2]request{gone, gone}) }()
	if !agree {
		return
	}
	steps := []func(o tree) bool{w.read, w.clientApply, w.serverApply, w.mutated, w.replace, w.status, w.read, w.remove}
	for _, step := range steps {
		if !step(o) {
			return
		}
	}
}

// read reads the object, and its row.
func (w *walk) read(tree) bool {
	agree, _ := w.same("none", request{"get", "GET", w.at, "", "", nil})
	w.same("none", request{"table", "GET", w.collection + "?fieldSelector=metadata.name%3D" + w.name, "", asTable, nil})
	return agree
}

// annotate adds the annotation of kubectl apply.
func annotate(o, configuration tree) {
	metadata := o["metadata"].(tree)
	annotations, _ := metadata["annotations"].(tree)
	if annotations == nil {
		annotations = tree{}
	}
	text, _ := json.Marshal(configuration)
	annotations[lastApplied] = string(text) + "\n"
	metadata["annotations"] = annotations
}

// clientApply applies a change as kubectl apply does, and then the first object again.
func (w *walk) clientApply(o tree) bool {
	changed := clone(o)
	mutate(w.r, changed, []string{"changed", "missing", "shorter list"}[w.r.IntN(3)])
	for _, next := range []tree{changed, o} {
		var r [2]request
		for i := range r {
			now := w.servers[i].send(request{method: "GET", path: w.at}).body
			modified := clone(next)
			annotate(modified, next)
			patch, media, err := threeWay(original(now), modified, now)
			if err != nil {
				return true // kubectl refuses it
			}
			r[i] = request{"apply (client)", "PATCH", w.at + w.query("kubectl-client-side-apply", "fieldValidation=Strict"), media, "", patch}
		}
		if agree, _ := w.each("changed", r); !agree {
			return false
		}
	}
	return true
}

// original is the configuration that was applied last.
func original(now tree) (o tree) {
	metadata, _ := now["metadata"].(tree)
	annotations, _ := metadata["annotations"].(tree)
	text, _ := annotations[lastApplied].(string)
	if json.Unmarshal([]byte(text), &o) != nil {
		return tree{}
	}
	return o
}

// threeWay is the patch that kubectl apply sends.
func threeWay(before, after, now tree) (patch []byte, media string, err error) {
	var texts [3][]byte
	for i, o := range []tree{before, after, now} {
		if texts[i], err = json.Marshal(o); err != nil {
			return nil, "", err
		}
	}
	gv, _ := schema.ParseGroupVersion(fmt.Sprint(now["apiVersion"]))
	typed, err := scheme.Scheme.New(gv.WithKind(fmt.Sprint(now["kind"])))
	if err != nil {
		patch, err = jsonmergepatch.CreateThreeWayJSONMergePatch(texts[0], texts[1], texts[2])
		return patch, mergePatch, err
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(typed)
	if err != nil {
		return nil, "", err
	}
	patch, err = strategicpatch.CreateThreeWayMergePatch(texts[0], texts[1], texts[2], meta, true)
	return patch, strategicPatch, err
}

// serverApply applies the object, a part of it, and a change by another manager, with conflicts.
func (w *walk) serverApply(o tree) bool {
	part, changed := clone(o), clone(o)
	mutate(w.r, part, "missing")
	mutate(w.r, changed, "changed")
	for _, step := range []struct {
		manager, force string
		o              tree
	}{{"one", "", o}, {"one", "&force=true", o}, {"one", "", part}, {"two", "", changed}, {"two", "&force=true", changed}, {"one", "&force=true", part}, {"one", "&force=true", o}} {
		agree, _ := w.same("none", request{"apply (server)", "PATCH", w.at + w.query(step.manager, "fieldValidation=Strict") + step.force, applyPatch, "", step.o})
		if !agree {
			return false
		}
	}
	return true
}

// mutated sends mutants as dry-runs, by several verbs.
func (w *walk) mutated(o tree) bool {
	for range w.mutants {
		w.mutant(o, true)
	}
	return true
}

// mutant sends one. A diff is a dry-run of an apply.
func (w *walk) mutant(o tree, stored bool) {
	fault := faults[w.r.IntN(len(faults))]
	changed := clone(o)
	path, ok := mutate(w.r, changed, fault)
	if !ok {
		return
	}
	validation := "&fieldValidation=" + []string{"Strict", "Warn", "Ignore"}[w.r.IntN(3)]
	r := request{"create", "POST", w.collection + "?dryRun=All" + validation, "", "", nil}
	if stored {
		switch w.r.IntN(4) {
		case 0:
			r = request{"diff", "PATCH", w.at + "?dryRun=All&fieldManager=one&force=true" + validation, applyPatch, "", nil}
		case 1:
			r = request{"replace", "PUT", w.at + "?dryRun=All" + validation, "", "", nil}
		case 2:
			r = request{"patch", "PATCH", w.at + "?dryRun=All" + validation, mergePatch, "", nil}
		default:
			changed["metadata"].(tree)["name"] = w.name + "-m"
		}
	}
	requests := [2]request{r, r}
	for i := range requests {
		body := clone(changed)
		if r.verb == "replace" {
			w.current(i, body)
		}
		requests[i].body = body
	}
	w.found.at = path
	w.each(fault, requests)
}

// current gives an object the version that a server has.
func (w *walk) current(server int, o tree) {
	now, _ := w.servers[server].send(request{method: "GET", path: w.at}).body["metadata"].(tree)
	o["metadata"].(tree)["resourceVersion"] = now["resourceVersion"]
}

// replace puts a changed object, and the first one again.
func (w *walk) replace(o tree) bool {
	changed := clone(o)
	mutate(w.r, changed, []string{"changed", "missing", "twice"}[w.r.IntN(3)])
	for _, next := range []tree{changed, o} {
		var r [2]request
		for i := range r {
			body := clone(next)
			w.current(i, body)
			r[i] = request{"replace", "PUT", w.at + w.query("replace", "fieldValidation=Strict"), "", "", body}
		}
		if agree, _ := w.each("changed", r); !agree {
			return false
		}
	}
	return true
}

// status writes the status that the sample has.
func (w *walk) status(o tree) bool {
	if o["status"] == nil {
		return true
	}
	agree, _ := w.same("none", request{"status", "PATCH", w.at + "/status" + w.query("status"), mergePatch, "", tree{"status": o["status"]}})
	return agree
}

// remove deletes the object.
func (w *walk) remove(tree) bool {
	agree, _ := w.same("none", request{"delete", "DELETE", w.at + "?propagationPolicy=Background", "", "", nil})
	w.same("none", request{"get", "GET", w.at, "", "", nil})
	return agree
}

// prepare makes an object fit for a test: its name, its namespace, nothing that others would see.
func prepare(o tree, namespace, name string) tree {
	o = clone(o)
	was, _ := o["metadata"].(tree)
	metadata := tree{"name": name}
	if namespace != "" {
		metadata["namespace"] = namespace
	}
	for _, member := range []string{"labels", "annotations"} {
		if was[member] != nil {
			metadata[member] = was[member]
		}
	}
	if annotations, ok := metadata["annotations"].(tree); ok {
		delete(annotations, lastApplied)
		for name := range annotations {
			if strings.HasSuffix(name, "is-default-class") {
				delete(annotations, name)
			}
		}
	} else {
		delete(metadata, "annotations")
	}
	o["metadata"] = metadata
	return o
}
