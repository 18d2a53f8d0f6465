package conformance

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	watchSource    = concepts + ", Efficient detection of changes"
	watchSemantics = concepts + ", Semantics for watch"
)

var watchChecks = []Check{
	{ID: "watch.events", Level: Must, Source: watchSource,
		About: "Creates, updates and deletes come as ADDED, MODIFIED and DELETED, in order, with the objects that the writes returned.", run: watchEvents},
	{ID: "watch.documents", Level: Must, Source: watchSource,
		About: "A watch is a series of JSON documents, and each object has its kind and version.", run: watchDocuments},
	{ID: "watch.list-then-watch", Level: Must, Source: watchSource,
		About: "A watch from a list's version begins with the first change after the list.", run: watchListThenWatch},
	{ID: "watch.get-then-watch", Level: Must, Source: watchSource,
		About: "A watch of one name from the version of its get sends the changes of that object only.", run: watchGetThenWatch},
	{ID: "watch.exact", Level: Must, Source: watchSemantics + " (Start at Exact)",
		About: "A watch from a version has no synthetic events: it sends all later changes and no earlier one.", run: watchExact},
	{ID: "watch.unset", Level: Must, Source: watchSemantics + " (Get State and Start at Most Recent)",
		About: "A watch without a version begins with an ADDED for each object of the most recent state.", run: watchUnset},
	{ID: "watch.zero", Level: Must, Source: watchSemantics + " (Get State and Start at Any)",
		About: "A watch from version 0 begins with an ADDED for each object of any state, and continues from that state.", run: watchZero},
	{ID: "watch.resume", Level: Must, Source: watchSource,
		About: "A watch can resume from the version of the last event without missing or repeating an event.", run: watchResume},
	{ID: "watch.deleted", Level: Must, Source: watchSource + " (from the last returned resourceVersion)",
		About: "DELETED has the object's last state with the version of the deletion. A watch from that version does not repeat it.", run: watchDeleted},
	{ID: "watch.selector", Level: Must, Source: watchSource,
		About: "With a selector, an object that starts to match is ADDED, and one that stops matching is DELETED.", run: watchSelector},
	{ID: "watch.namespace", Level: Must, Source: concepts + ", Resource URIs",
		About: "A watch of all namespaces sends the changes in each of them, with the same versions.", run: watchNamespace},
	{ID: "watch.timeout", Level: May, Source: concepts + ", Unavailable resource versions (until the request timeout)",
		About: "timeoutSeconds ends a watch without an error.", Waits: "a second for a watch to end", run: watchTimeout},
}

func watchEvents(p *probe) {
	s := p.watch("resourceVersion=" + p.list("").version)
	defer s.close()
	a := p.create("a", "1")
	b := p.create("b", "1")
	a2 := p.update(a, "2")
	p.remove("b")
	a3 := p.update(a2, "3")
	for _, want := range []struct {
		kind   string
		object object
		mark   string
	}{{added, a, "1"}, {added, b, "1"}, {modified, a2, "2"}, {deleted, b, "1"}, {modified, a3, "3"}} {
		version := want.object.version()
		if want.kind == deleted {
			version = "" // the version of the deletion
		}
		e := s.want(want.kind, strings.TrimPrefix(want.object.name(), p.prefix), version)
		if e.Object.mark() != want.mark {
			p.failf("the object of the event %s has the label %q, want %q", e, e.Object.mark(), want.mark)
		}
	}
}

func watchDocuments(p *probe) {
	s := p.watch("resourceVersion=" + p.list("").version)
	defer s.close()
	if kind, _, _ := strings.Cut(s.header.Get("Content-Type"), ";"); kind != asJSON {
		p.failf("the watch's Content-Type is %q, want %s", s.header.Get("Content-Type"), asJSON)
	}
	o := p.create("a", "1")
	p.update(o, "2")
	p.remove("a")
	for _, kind := range []string{added, modified, deleted} {
		e := s.want(kind, "a", "")
		if e.Object.text("kind") != p.resource.kind || e.Object.text("apiVersion") != p.resource.apiVersion() {
			p.failf("the object of the event %s is a %q of %q, want %s of %s", e,
				e.Object.text("kind"), e.Object.text("apiVersion"), p.resource.kind, p.resource.apiVersion())
		}
		if e.Object.uid() != o.uid() {
			p.failf("the object of the event %s has the uid %q, want %s", e, e.Object.uid(), o.uid())
		}
	}
}

func watchListThenWatch(p *probe) {
	a := p.create("a", "1")
	l := p.list("")
	a2 := p.update(a, "2")
	b := p.create("b", "1")
	s := p.watch("resourceVersion=" + l.version)
	defer s.close()
	s.want(modified, "a", a2.version())
	s.want(added, "b", b.version())
	c := p.create("c", "1")
	s.want(added, "c", c.version())
}

func watchGetThenWatch(p *probe) {
	a := p.create("a", "1")
	b := p.create("b", "1")
	a2 := p.update(a, "2")
	p.update(b, "2")
	p.remove("a")
	s := p.watch("resourceVersion=" + a.version() + "&fieldSelector=metadata.name%3D" + a.name())
	defer s.close()
	s.want(modified, "a", a2.version())
	s.want(deleted, "a", "")
}

func watchExact(p *probe) {
	a := p.create("a", "1")
	a2 := p.update(a, "2")
	b := p.create("b", "1")
	s := p.watch("resourceVersion=" + a2.version())
	defer s.close()
	s.want(added, "b", b.version())
	a3 := p.update(a2, "3")
	s.want(modified, "a", a3.version())
}

// wantState reads synthetic events until each object of a state has come once.
func (s *stream) wantState(want state) {
	p := s.p
	got := state{}
	for len(got) < len(want) {
		e := s.change(fmt.Sprintf("a synthetic event for each of %d objects (%d came)", len(want), len(got)))
		if err := got.apply(e); err != nil {
			p.failf("among the synthetic events: %v", err)
		}
		if e.Type != added {
			p.failf("among the synthetic events: %s, want ADDED alone", e)
		}
	}
	p.wantState("the synthetic events", got, want)
}

func watchUnset(p *probe) {
	a, b := p.create("a", "1"), p.create("b", "1")
	a2 := p.update(a, "2")
	s := p.watch("")
	defer s.close()
	s.wantState(states(a2, b))
	b2 := p.update(b, "2")
	s.want(modified, "b", b2.version())
	p.remove("a")
	s.want(deleted, "a", "")
}

func watchZero(p *probe) {
	a, b := p.create("a", "1"), p.create("b", "1")
	a2 := p.update(a, "2")
	s := p.watch("resourceVersion=0")
	defer s.close()
	b2 := p.update(b, "2")
	// The state may be an older one; later events lead to the most recent one.
	got := state{}
	want := states(a2, b2)
	for got.difference(want) != "" {
		e := s.change("the state " + want.String() + " (it is at " + got.String() + ")")
		if err := got.apply(e); err != nil {
			p.failf("%v", err)
		}
	}
	p.remove("a")
	s.want(deleted, "a", "")
}

func watchResume(p *probe) {
	o := p.create("a", "0")
	last := o.version()
	var want []string
	for i := range 6 {
		o = p.update(o, fmt.Sprint(i+1))
		want = append(want, o.version())
	}
	for len(want) > 0 { // two events of each watch, then the next one
		s := p.watch("resourceVersion=" + last)
		for range 2 {
			last = s.want(modified, "a", want[0]).Object.version()
			want = want[1:]
		}
		s.close()
	}
}

func watchDeleted(p *probe) {
	a := p.create("a", "1")
	s := p.watch("resourceVersion=" + a.version())
	defer s.close()
	p.remove("a")
	e := s.want(deleted, "a", "")
	if e.Object.version() == a.version() {
		p.failf("the event %s has the version of the last state, want the version of the deletion", e)
	}
	if e.Object.mark() != "1" {
		p.failf("the object of the event %s has the label %q, want its last state", e, e.Object.mark())
	}
	b := p.create("b", "1")
	again := p.watch("resourceVersion=" + e.Object.version())
	defer again.close()
	again.want(added, "b", b.version())
}

func watchSelector(p *probe) {
	s := p.watch("resourceVersion=" + p.list("").version + "&labelSelector=" + url.QueryEscape(markLabel+"=in"))
	defer s.close()
	a := p.create("a", "out")
	in := p.update(a, "in")
	s.want(added, "a", in.version())
	p.update(in, "out")
	s.want(deleted, "a", "")
	b := p.create("b", "in")
	s.want(added, "b", b.version())
}

func watchNamespace(p *probe) {
	l := p.list("")
	s, a := p.openWatch(nil, p.resource.collection(""), "resourceVersion="+l.version)
	if s == nil {
		p.want(a, http.StatusOK)
	}
	defer s.close()
	o := p.create("a", "1")
	s.want(added, "a", o.version())
	o = p.update(o, "2")
	e := s.want(modified, "a", o.version())
	if ns := e.Object.text("metadata", "namespace"); ns != p.bed.namespace {
		p.failf("the object of the event %s is in the namespace %q, want %q", e, ns, p.bed.namespace)
	}
}

func watchTimeout(p *probe) {
	s := p.watch("timeoutSeconds=1&resourceVersion=" + p.list("").version)
	defer s.close()
	for _, e := range s.rest(time.Second + p.bed.options.Timeout) {
		if e.Type == failure {
			p.failf("the watch ended with %s %d", e, e.code())
		}
	}
}
