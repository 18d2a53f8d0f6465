package conformance

import (
	"net/http"
	"net/url"
	"slices"
)

const deletionSource = concepts + ", Resource deletion"

var deletionChecks = []Check{
	{ID: "deletion.removal", Level: Must, Source: deletionSource,
		About: "An object without finalizers is gone once its delete gets a response.", run: deletionRemoval},
	{ID: "deletion.finalization", Level: Must, Source: deletionSource,
		About: "Deleting an object with finalizers sets deletionTimestamp and keeps the object.", run: deletionFinalization},
	{ID: "deletion.last-finalizer", Level: Must, Source: deletionSource,
		About: "An object that is being deleted goes away when its last finalizer is removed, and not before.", run: deletionLastFinalizer},
	{ID: "deletion.any-order", Level: Must, Source: deletionSource,
		About: "Finalizers can be removed in any order.", run: deletionAnyOrder},
	{ID: "deletion.events", Level: Must, Source: deletionSource + "; Efficient detection of changes",
		About: "Watches show the start of a deletion and each removed finalizer as MODIFIED, and the removal as DELETED.", run: deletionEvents},
	{ID: "deletion.collection", Level: Must, Source: concepts + ", Single resource API",
		About: "deletecollection deletes exactly the objects that it selects.", run: deletionCollection},
}

func (p *probe) wantAbsent(name string) {
	p.want(p.send(request{method: http.MethodGet, path: p.path(p.named(name))}), http.StatusNotFound)
}

func deletionRemoval(p *probe) {
	p.create("a", "1")
	p.remove("a")
	p.wantAbsent("a")
	p.wantState("the list after the delete", p.mine(p.list("")), state{})
	p.want(p.send(request{method: http.MethodDelete, path: p.path(p.named("a"))}), http.StatusNotFound)
}

// Finalizers of the checks.
const (
	oneFinalizer   = "conformance.tidemark.dev/one"
	otherFinalizer = "conformance.tidemark.dev/other"
)

// finalizing creates an object with finalizers, and deletes it.
func (p *probe) finalizing(name string, finalizers ...any) object {
	o := p.fresh(name, "1")
	o.metadata()["finalizers"] = finalizers
	made := p.post(o, "")
	if len(made.finalizers()) != len(finalizers) {
		p.failf("the created object has the finalizers %v, want %v", made.finalizers(), finalizers)
	}
	p.remove(name)
	return p.read(name, "")
}

func deletionFinalization(p *probe) {
	o := p.finalizing("a", oneFinalizer)
	if o.text("metadata", "deletionTimestamp") == "" {
		p.failf("the deleted object has no deletionTimestamp")
	}
	if _, listed := p.mine(p.list(""))[o.name()]; !listed {
		p.failf("the object that is being deleted is not in the list")
	}
}

// release removes a finalizer.
func (p *probe) release(o object, finalizer string) {
	left := slices.DeleteFunc(o.finalizers(), func(f string) bool { return f == finalizer })
	var all []any
	for _, f := range left {
		all = append(all, f)
	}
	o = o.copied()
	o.metadata()["finalizers"] = all
	p.put(o, "")
}

func deletionLastFinalizer(p *probe) {
	o := p.finalizing("a", oneFinalizer, otherFinalizer)
	p.release(o, oneFinalizer)
	o = p.read("a", "")
	if got := o.finalizers(); !slices.Equal(got, []string{otherFinalizer}) {
		p.failf("the finalizers are %v, want %s alone", got, otherFinalizer)
	}
	p.release(o, otherFinalizer)
	p.wantAbsent("a")
}

func deletionAnyOrder(p *probe) {
	for name, order := range map[string][]string{"a": {oneFinalizer, otherFinalizer}, "b": {otherFinalizer, oneFinalizer}} {
		o := p.finalizing(name, oneFinalizer, otherFinalizer)
		p.release(o, order[0])
		p.release(p.read(name, ""), order[1])
		p.wantAbsent(name)
	}
}

func deletionEvents(p *probe) {
	s := p.watch("resourceVersion=" + p.list("").version)
	defer s.close()
	o := p.finalizing("a", oneFinalizer)
	p.release(o, oneFinalizer)
	s.want(added, "a", "")
	if e := s.want(modified, "a", ""); e.Object.text("metadata", "deletionTimestamp") == "" {
		p.failf("the object of the event %s has no deletionTimestamp", e)
	}
	for {
		e := s.change("DELETED")
		if e.Type == deleted {
			return
		}
		if e.Type != modified { // the finalizer may go in a step of its own
			p.failf("got the event %s, want DELETED", e)
		}
	}
}

func deletionCollection(p *probe) {
	p.create("a", "selected")
	kept := p.create("b", "kept")
	p.create("c", "selected")
	a := p.send(request{method: http.MethodDelete, path: p.all(), query: "labelSelector=" + url.QueryEscape(markLabel+"=selected")})
	p.want(a, http.StatusOK)
	p.wantState("the list afterwards", p.mine(p.list("")), states(kept))
}
