package conformance

import (
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const waitsWindow = "the history window to end"

// These checks send requests while their version leaves the history window. Each response
// must be right, or 410.
var windowChecks = []Check{
	{ID: "window.list", Level: Must, Source: listTable + " (Exact); " + goneSource,
		About: "A list at a version that leaves the window is exact, then 410, and stays 410.", Waits: waitsWindow, run: windowList},
	{ID: "window.chunks", Level: Must, Source: chunkSource,
		About: "A continue token whose version leaves the window continues the same list, then is 410; a token that comes with the 410 continues with the current state.", Waits: waitsWindow, run: windowChunks},
	{ID: "window.watch", Level: Must, Source: watchSource + "; " + goneSource,
		About: "A watch from a version that leaves the window gets all changes since then, then 410, and stays 410.", Waits: waitsWindow, run: windowWatch},
	{ID: "window.follow", Level: Must, Source: watchSource,
		About: "A watch that keeps up gets every change, even after its start version has left the window.", Waits: waitsWindow, run: windowFollow},
}

// needsWindow ends a check before it does anything for nothing.
func (p *probe) needsWindow() {
	if p.bed.options.Window == 0 {
		p.skipf("needs to know how long the server keeps its history")
	}
}

// stillGone is how often a version is asked for after its first 410.
const stillGone = 3

// untilGone writes, and asks each time until the response is 410. A server may keep more
// than it has to: one that does so for long is not checked.
func (p *probe) untilGone(what string, ask func(clock object) (gone bool)) {
	clock := p.create("clock", "0")
	until := time.Now().Add(2*p.bed.options.Window + p.bed.options.Timeout)
	for gone, n := 0, 1; gone < stillGone; n++ {
		switch {
		case ask(clock):
			gone++
		case gone > 0:
			p.failf("%s was 410, and is served again", what)
		case time.Now().After(until):
			p.skipf("%s is still served after more than twice the window of %v", what, p.bed.options.Window)
		}
		p.pause()
		clock = p.update(clock, strconv.Itoa(n))
	}
}

// isExpired reports whether a response is 410, which has to come with a Status that says
// so.
func (p *probe) isExpired(a *response) bool {
	if a.code != http.StatusGone {
		return false
	}
	p.wantExpired(a.status())
	return true
}

func (p *probe) wantExpired(status object) {
	code, _ := status.at("code").(float64)
	reason := status.text("reason")
	if status.text("kind") != "Status" || code != http.StatusGone || reason != "Expired" && reason != "Gone" {
		p.failf("410 came with a %q of code %v and reason %q, want a Status with 410 and Expired", status.text("kind"), status.at("code"), reason)
	}
}

func windowList(p *probe) {
	p.needsWindow()
	h := p.makePast()
	p.untilGone("the list at exactly "+h.first.version, func(object) bool {
		a := p.send(request{method: http.MethodGet, path: p.all(), query: exact(h.first.version)})
		if p.isExpired(a) {
			return true
		}
		p.want(a, http.StatusOK)
		l := p.listIn(a)
		if l.version != h.first.version {
			p.failf("the list is of version %s, want exactly %s, or 410", l.version, h.first.version)
		}
		p.wantState("the list at exactly "+l.version, p.mine(l), h.atFirst)
		return false
	})
}

func windowChunks(p *probe) {
	p.needsWindow()
	want := p.seven()
	first := p.list("limit=3")
	if first.next == "" {
		p.skipf("the server does not list in chunks")
	}
	p.remove("6")
	from := func(token string) *response {
		return p.send(request{method: http.MethodGet, path: p.all(), query: "limit=500&continue=" + url.QueryEscape(token)})
	}
	p.untilGone("the continue token of version "+first.version, func(clock object) bool {
		a := from(first.next)
		if !p.isExpired(a) {
			p.want(a, http.StatusOK)
			rest := p.listIn(a)
			if rest.version != first.version {
				p.failf("the chunk is of version %s, the first one of %s", rest.version, first.version)
			}
			p.wantState("both chunks", p.mine(list{items: append(first.items[:len(first.items):len(first.items)], rest.items...)}), want)
			return false
		}
		token := a.status().at("metadata", "continue")
		if token, ok := token.(string); ok && token != "" {
			p.goesOn(first, from(token), clock)
		}
		return true
	})
}

// goesOn checks the chunk for a token that came with a 410: the current objects after the
// last object of the first chunk.
func (p *probe) goesOn(first list, a *response, clock object) {
	p.want(a, http.StatusOK)
	rest := p.listIn(a)
	p.wantNotOlder("the chunk of the token that came with 410", rest.version, clock.version())
	last := first.items[len(first.items)-1].name()
	behind := state{}
	for name, version := range p.mine(p.list("")) {
		if name > last {
			behind[name] = version
		}
	}
	p.wantState("the chunk of the token that came with 410", p.mine(rest), behind)
}

func windowWatch(p *probe) {
	p.needsWindow()
	a := p.create("a", "1")
	next := event{modified, p.update(a, "2")}
	p.untilGone("the watch from "+a.version(), func(object) bool {
		s, refused := p.openWatch(nil, p.all(), "timeoutSeconds=10&resourceVersion="+a.version())
		if s == nil {
			if !p.isExpired(refused) {
				p.failf("got %s, want the watch, or 410", refused.describe())
			}
			return true
		}
		defer s.close()
		for {
			e := s.next(next.String() + ", or the ERROR 410")
			switch {
			case e.Type == failure:
				p.wantExpired(e.Object)
				return true
			case e.Type == bookmark || !p.owns(e):
			case e.String() != next.String():
				p.failf("got the event %s, want %s, or the ERROR 410", e, next)
			default:
				return false
			}
		}
	})
}

func windowFollow(p *probe) {
	p.needsWindow()
	began := p.create("a", "1").version()
	s := p.watch("resourceVersion=" + began)
	defer s.close()
	created := false
	p.untilGone("the list at exactly "+began, func(clock object) bool {
		want := event{modified, clock}
		if !created {
			want.Type, created = added, true
		}
		for {
			e := s.next(want.String())
			if e.Type == bookmark || e.Type != failure && !p.owns(e) {
				continue
			}
			if e.String() != want.String() {
				p.failf("got the event %s, want %s", e, want)
			}
			break
		}
		return p.isExpired(p.send(request{method: http.MethodGet, path: p.all(), query: exact(began)}))
	})
}
