package conformance

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

const (
	bookmarkSource  = concepts + ", Watch bookmarks"
	streamingSource = concepts + ", Streaming lists"
)

// bookmarkWatch is how long a watch lasts for its server to send a bookmark before
// the end; a minute is how often kube-apiserver sends one otherwise.
const (
	bookmarkWatch  = "timeoutSeconds=5"
	bookmarkSoon   = 5 * time.Second
	bookmarkMinute = 75 * time.Second
	waitsSoon      = "5 s for a watch to end: kube-apiserver sends a bookmark 2 s before"
)

var bookmarkChecks = []Check{
	{ID: "bookmarks.sent", Level: May, Source: bookmarkSource,
		About: "A watch that asks for bookmarks gets one before it ends.", Waits: waitsSoon, run: bookmarksSent},
	{ID: "bookmarks.periodic", Level: May, Source: bookmarkSource,
		About: "A watch that asks for bookmarks gets one about every minute.", Waits: "up to 75 s for a bookmark: kube-apiserver sends one each minute", run: bookmarksPeriodic},
	{ID: "bookmarks.content", Level: Must, Source: bookmarkSource,
		About: "A bookmark has the requested kind and a version, and nothing else.", Waits: waitsSoon, run: bookmarksContent},
	{ID: "bookmarks.complete", Level: Must, Source: bookmarkSource,
		About: "All changes up to a bookmark's version have been sent before it, and none of them comes after it.", Waits: waitsSoon, run: bookmarksComplete},
	{ID: "bookmarks.resume", Level: Must, Source: bookmarkSource,
		About: "A watch can go on from a bookmark's version.", Waits: waitsSoon, run: bookmarksResume},
	{ID: "bookmarks.unasked", Level: Must, Source: bookmarkSource,
		About: "A watch that does not ask for bookmarks gets none.", Waits: waitsSoon, run: bookmarksUnasked},
}

// untilBookmark returns the events of a watch up to and with its first bookmark. If none
// comes, the feature is absent.
func (s *stream) untilBookmark(within time.Duration) []event {
	var all []event
	deadline := time.Now().Add(within + s.p.bed.options.Timeout)
	for {
		e, ok := s.maybe(time.Until(deadline))
		if !ok {
			s.p.absentf("no bookmark came within %v", within)
		}
		if all = append(all, e); e.Type == bookmark {
			return all
		}
		if e.Type == failure {
			s.p.failf("%s %d after %d events, and no bookmark", e, e.code(), len(all))
		}
	}
}

func bookmarksSent(p *probe) {
	s := p.watch("allowWatchBookmarks=true&" + bookmarkWatch + "&resourceVersion=" + p.list("").version)
	defer s.close()
	all := s.untilBookmark(bookmarkSoon)
	if all[len(all)-1].Object.version() == "" {
		p.failf("the bookmark has no version")
	}
}

func bookmarksPeriodic(p *probe) {
	s := p.watch("allowWatchBookmarks=true&timeoutSeconds=300&resourceVersion=" + p.list("").version)
	defer s.close()
	all := s.untilBookmark(bookmarkMinute)
	if all[len(all)-1].Object.version() == "" {
		p.failf("the bookmark has no version")
	}
}

func bookmarksContent(p *probe) {
	p.create("a", "1")
	s := p.watch("allowWatchBookmarks=true&" + bookmarkWatch + "&resourceVersion=" + p.list("").version)
	defer s.close()
	all := s.untilBookmark(bookmarkSoon)
	p.wantBookmark(all[len(all)-1].Object)
}

// wantBookmark checks the object of a bookmark. Annotations are allowed: the one at the end
// of the initial events is newer than the document.
func (p *probe) wantBookmark(o object) {
	if o.text("kind") != p.resource.kind || o.text("apiVersion") != p.resource.apiVersion() {
		p.failf("the bookmark is a %q of %q, want %s of %s as requested", o.text("kind"), o.text("apiVersion"), p.resource.kind, p.resource.apiVersion())
	}
	p.wantWellFormed("the bookmark", o.version())
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if key != "kind" && key != "apiVersion" && key != "metadata" {
			p.failf("the bookmark has %q: want only metadata.resourceVersion", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(o.metadata())) {
		if value := o.metadata()[key]; key != "resourceVersion" && key != "annotations" && value != nil && value != "" {
			p.failf("the bookmark has metadata.%s: want only resourceVersion", key)
		}
	}
}

func bookmarksComplete(p *probe) {
	a := p.create("a", "1")
	l := p.list("")
	s := p.watch("allowWatchBookmarks=true&" + bookmarkWatch + "&resourceVersion=" + l.version)
	defer s.close()
	p.update(a, "2")
	p.create("b", "1")
	all := s.untilBookmark(bookmarkSoon)
	mark := all[len(all)-1].Object.version()
	got := p.mine(l)
	for _, e := range all[:len(all)-1] {
		if !p.owns(e) {
			continue
		}
		if err := got.apply(e); err != nil {
			p.failf("%v", err)
		}
		if p.compare(e.Object.version(), mark) > 0 {
			p.failf("the bookmark is of version %s, and came after the event %s", mark, e)
		}
	}
	at := p.list(exact(mark))
	if at.version != mark {
		p.skipf("needs a list at exactly the bookmark's version %s; the server lists %s", mark, at.version)
	}
	p.wantState("the events up to the bookmark at "+mark+" against the list at it", got, p.mine(at))
	// Later events are past the bookmark.
	p.create("c", "1")
	e := s.change("the change after the bookmark")
	p.wantNewer("the event after the bookmark", e.Object.version(), mark)
}

func bookmarksResume(p *probe) {
	p.create("a", "1")
	s := p.watch("allowWatchBookmarks=true&" + bookmarkWatch + "&resourceVersion=" + p.list("").version)
	defer s.close()
	all := s.untilBookmark(bookmarkSoon)
	b := p.create("b", "1")
	again := p.watch("resourceVersion=" + all[len(all)-1].Object.version())
	defer again.close()
	again.want(added, "b", b.version())
}

func bookmarksUnasked(p *probe) {
	s := p.watch(bookmarkWatch + "&resourceVersion=" + p.list("").version)
	defer s.close()
	p.create("a", "1")
	for _, e := range s.rest(bookmarkSoon + p.bed.options.Timeout) {
		if e.Type == bookmark {
			p.failf("a bookmark at %s came, which was not asked for", e.Object.version())
		}
	}
}

// endAnnotation marks the bookmark that ends the initial events.
const endAnnotation = "k8s.io/initial-events-end"

var streamingChecks = []Check{
	{ID: "streaming.state", Level: Must, Source: streamingSource,
		About: "sendInitialEvents=true begins a watch with an ADDED for each object, and then a bookmark.", run: streamingState},
	{ID: "streaming.consistent", Level: Must, Source: streamingSource + " (consistent read)",
		About: "Without a version, the bookmark is at least as new as the request.", run: streamingConsistent},
	{ID: "streaming.not-older", Level: Must, Source: streamingSource,
		About: "With a version, the bookmark is not older than that version.", run: streamingNotOlder},
	{ID: "streaming.goes-on", Level: Must, Source: streamingSource,
		About: "After the bookmark, the watch continues from the bookmark's version like any other watch.", run: streamingGoesOn},
	{ID: "streaming.list", Level: Must, Source: streamingSource,
		About: "The state at the bookmark is the list at its version.", run: streamingList},
	{ID: "streaming.match", Level: Must, Source: streamingSource,
		About: "sendInitialEvents=true without resourceVersionMatch=NotOlderThan is refused.", run: streamingMatch},
	{ID: "streaming.unasked", Level: Must, Source: streamingSource + " (if requested via allowWatchBookmarks=true)",
		About: "Without allowWatchBookmarks, the initial events come without a bookmark.", Waits: "a second for a watch to end", run: streamingUnasked},
	{ID: "streaming.annotation", Level: Should, Source: streamingSource + " (the annotation came after the document; client-go needs it)",
		About: "Only the bookmark that ends the initial events has the annotation " + endAnnotation + ".", run: streamingAnnotation},
}

const streamingQuery = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

// stream opens a streaming list.
func (p *probe) stream(query string) *stream {
	s, a := p.openWatch(nil, p.all(), joinQuery(streamingQuery, query))
	if s == nil {
		if a.code == http.StatusUnprocessableEntity || a.code == http.StatusBadRequest {
			p.absentf("%s", a.describe())
		}
		p.want(a, http.StatusOK)
	}
	return s
}

// initial reads a streaming list up to its bookmark, which has to come, and returns
// the state of this check's objects at it.
func (s *stream) initial() (state, event) {
	got := state{}
	for n := 0; ; n++ {
		e := s.next("the bookmark after the initial events")
		switch {
		case e.Type == bookmark:
			return got, e
		case e.Type == failure:
			s.p.failf("%s %d after %d events, and no bookmark", e, e.code(), n)
		case s.p.owns(e):
			if err := got.apply(e); err != nil {
				s.p.failf("among the initial events: %v", err)
			}
			if e.Type != added {
				s.p.failf("among the initial events: %s, want ADDED alone", e)
			}
		}
	}
}

func streamingState(p *probe) {
	a, b := p.create("a", "1"), p.create("b", "1")
	a2 := p.update(a, "2")
	s := p.stream("resourceVersion=")
	defer s.close()
	got, end := s.initial()
	p.wantState("the initial events", got, states(a2, b))
	p.wantBookmark(end.Object)
}

func streamingConsistent(p *probe) {
	for _, name := range []string{"a", "b", "c"} {
		o := p.create(name, "1")
		s := p.stream("")
		got, end := s.initial()
		s.close()
		p.wantNotOlder("the bookmark", end.Object.version(), o.version())
		if got[o.name()] != o.version() {
			p.failf("the initial events %v lack the last write, %s@%s", got, o.name(), o.version())
		}
	}
}

func streamingNotOlder(p *probe) {
	a := p.create("a", "1")
	l := p.list("")
	b := p.create("b", "1")
	s := p.stream("resourceVersion=" + b.version())
	defer s.close()
	got, end := s.initial()
	p.wantNotOlder("the bookmark", end.Object.version(), b.version())
	p.wantState("the initial events", got, states(a, b))
	older := p.stream("resourceVersion=" + l.version)
	defer older.close()
	_, end = older.initial()
	p.wantNotOlder("the bookmark", end.Object.version(), l.version)
}

func streamingGoesOn(p *probe) {
	a := p.create("a", "1")
	s := p.stream("")
	defer s.close()
	_, end := s.initial()
	a2 := p.update(a, "2")
	b := p.create("b", "1")
	p.wantNewer("the event after the bookmark", s.want(modified, "a", a2.version()).Object.version(), end.Object.version())
	s.want(added, "b", b.version())
	p.remove("a")
	s.want(deleted, "a", "")
}

func streamingList(p *probe) {
	p.seven()
	s := p.stream("")
	defer s.close()
	got, end := s.initial()
	l := p.list(exact(end.Object.version()))
	if l.version != end.Object.version() {
		p.skipf("needs a list at exactly the bookmark's version")
	}
	p.wantState("the initial events against the list at the bookmark's version", got, p.mine(l))
}

func streamingMatch(p *probe) {
	p.stream("").close() // streaming lists are there
	s, a := p.openWatch(nil, p.all(), "sendInitialEvents=true&allowWatchBookmarks=true&timeoutSeconds=1")
	if s != nil {
		s.close()
		p.failf("got a watch, want a refusal (400 to 499)")
	}
	p.wantRefusal(a)
}

func streamingUnasked(p *probe) {
	a, b := p.create("a", "1"), p.create("b", "1")
	p.stream("").close()
	s := p.watch("sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=1")
	defer s.close()
	got := state{}
	for _, e := range s.rest(time.Second + p.bed.options.Timeout) {
		switch {
		case e.Type == bookmark:
			p.failf("a bookmark at %s came, which was not asked for", e.Object.version())
		case p.owns(e):
			if err := got.apply(e); err != nil {
				p.failf("%v", err)
			}
		}
	}
	p.wantState("the initial events", got, states(a, b))
}

func streamingAnnotation(p *probe) {
	p.create("a", "1")
	s := p.stream("")
	defer s.close()
	if _, end := s.initial(); end.Object.text("metadata", "annotations", endAnnotation) != "true" {
		p.failf("the bookmark lacks the annotation %s", endAnnotation)
	}
}
