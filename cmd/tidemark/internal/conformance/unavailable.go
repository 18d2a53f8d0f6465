package conformance

import (
	"net/http"
	"strings"
	"time"
)

const (
	tooLargeSource = concepts + ", Unavailable resource versions"
	goneSource     = concepts + ", 410 Gone responses"
	waitsFuture    = "3 s, which kube-apiserver waits for a version to come"
)

var unavailableChecks = []Check{
	{ID: "unavailable.future-get", Level: Must, Source: tooLargeSource,
		About: "A get at a future version is 504 or asks the client to retry. It never returns an older state.", Waits: waitsFuture, run: futureGet},
	{ID: "unavailable.future-list", Level: Must, Source: tooLargeSource,
		About: "The same holds for a list with NotOlderThan a future version.", Waits: waitsFuture, run: futureList},
	{ID: "unavailable.future-exact", Level: Must, Source: tooLargeSource,
		About: "The same holds for a list at exactly a future version.", Waits: waitsFuture, run: futureExact},
	{ID: "unavailable.future-stream", Level: Must, Source: tooLargeSource,
		About: "A streaming list with a future version sends no bookmark before that version is reached.", Waits: waitsFuture, run: futureStream},
	{ID: "unavailable.future-watch", Level: Must, Source: tooLargeSource,
		About: "A watch from a future version waits or is refused. It sends no earlier change.", Waits: "2 s for a watch to end", run: futureWatch},
	{ID: "unavailable.future-reached", Level: Must, Source: tooLargeSource + " (wait briefly)",
		About: "A list with NotOlderThan succeeds once its version is reached.", run: futureReached},
	{ID: "unavailable.retry-after", Level: May, Source: tooLargeSource,
		About: "The response for a future version has a Retry-After.", Waits: waitsFuture, run: futureRetryAfter},
	{ID: "unavailable.message", Level: Should, Source: tooLargeSource,
		About: "The response for a future version contains the words \"Too large resource version\".", Waits: waitsFuture, run: futureMessage},
	{ID: "unavailable.gone-list", Level: Must, Source: goneSource,
		About: "A list at a very old version is exact, or 410.", run: goneList},
	{ID: "unavailable.gone-chunk", Level: Must, Source: goneSource,
		About: "A list with a limit at a very old version is exact, or 410.", run: goneChunk},
	{ID: "unavailable.gone-watch", Level: Must, Source: goneSource + "; Efficient detection of changes",
		About: "A watch from a very old version gets all changes since then, or 410 (as response or as ERROR event).", run: goneWatch},
	{ID: "unavailable.gone-status", Level: Should, Source: goneSource,
		About: "A 410 response has a Status whose code is 410, so that clients recognise it.", run: goneStatus},
}

// future returns a version that no write will reach while the check runs.
func (p *probe) future() string {
	version := p.list("").version
	p.compare(version, version)
	return version + "0000"
}

// wantLater holds a response to say that a version is not there yet.
func (p *probe) wantLater(a *response) {
	if a.code == http.StatusGatewayTimeout || a.code >= 400 && a.header.Get("Retry-After") != "" {
		return
	}
	p.failf("got %s, want 504 or a Retry-After", a.describe())
}

func (p *probe) futureResponse(path, query string) *response {
	return p.send(request{method: http.MethodGet, path: path, query: query})
}

func futureGet(p *probe) {
	o := p.create("a", "1")
	p.wantLater(p.futureResponse(p.path(o.name()), "resourceVersion="+p.future()))
}

func futureList(p *probe) {
	p.wantLater(p.futureResponse(p.all(), atLeast(p.future())))
}

func futureExact(p *probe) {
	a := p.futureResponse(p.all(), exact(p.future()))
	if a.code == http.StatusGone { // which Exact says of all that is unavailable
		return
	}
	p.wantLater(a)
}

func futureStream(p *probe) {
	p.create("a", "1")
	p.stream("").close()
	version := p.future()
	s, a := p.openWatch(nil, p.all(), streamingQuery+"&timeoutSeconds=5&resourceVersion="+version)
	if s == nil {
		p.wantLater(a)
		return
	}
	defer s.close()
	for {
		e, ok := s.maybe(5*time.Second + p.bed.options.Timeout)
		switch {
		case !ok || e.Type == failure:
			return
		case e.Type == bookmark:
			p.wantNotOlder("the bookmark", e.Object.version(), version)
		}
	}
}

func futureWatch(p *probe) {
	s, a := p.openWatch(nil, p.all(), "timeoutSeconds=2&resourceVersion="+p.future())
	if s == nil {
		p.wantLater(a)
		return
	}
	defer s.close()
	p.create("a", "1")
	for _, e := range s.rest(2*time.Second + p.bed.options.Timeout) {
		if e.Type != failure && e.Type != bookmark {
			p.failf("the event %s came, which is of before the watch begins", e)
		}
	}
}

// futureReached asks for a version that is being written.
func futureReached(p *probe) {
	o := p.create("a", "0")
	for range 5 {
		version := following(o.version())
		var l list
		p.together(
			func() { o = p.update(o, o.version()) },
			func() {
				a := p.futureResponse(p.all(), atLeast(version))
				if a.code == http.StatusOK {
					l = p.listIn(a)
				} else {
					p.wantLater(a)
				}
			},
		)
		if l.version != "" {
			p.wantNotOlder("the list that must not be older than "+version, l.version, version)
		}
		// By now it is there; others may have written between the two.
		p.wantNotOlder("the response to the update", o.version(), version)
		l = p.list(atLeast(o.version()))
		p.wantNotOlder("the list that must not be older than "+o.version(), l.version, o.version())
		p.wantState("the list", p.mine(l), states(o))
	}
}

// following returns the number after a version.
func following(version string) string {
	digits := []byte(version)
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] != '9' {
			digits[i]++
			return string(digits)
		}
		digits[i] = '0'
	}
	return "1" + string(digits)
}

func futureRetryAfter(p *probe) {
	o := p.create("a", "1")
	a := p.futureResponse(p.path(o.name()), "resourceVersion="+p.future())
	p.wantLater(a)
	if a.header.Get("Retry-After") == "" {
		p.failf("got %s without Retry-After", a.describe())
	}
}

func futureMessage(p *probe) {
	a := p.futureResponse(p.all(), atLeast(p.future()))
	if !strings.Contains(strings.ToLower(a.status().text("message")), "too large resource version") {
		p.failf("the message is %q", clip(a.status().text("message")))
	}
}

// longAgo is the oldest version that there can be: etcd's first write has it.
const longAgo = "1"

func goneList(p *probe) { p.wantGone(exact(longAgo)) }

func goneChunk(p *probe) { p.wantGone("limit=5&resourceVersion=" + longAgo) }

func (p *probe) wantGone(query string) {
	p.create("a", "1")
	a := p.send(request{method: http.MethodGet, path: p.all(), query: query})
	if a.code == http.StatusGone {
		return
	}
	if a.code != http.StatusOK {
		p.failf("got %s, want 410", a.describe())
	}
	l := p.listIn(a)
	if l.version != longAgo {
		p.failf("the list is of version %s, want exactly %s, or 410", l.version, longAgo)
	}
	p.wantState("the list at "+longAgo, p.mine(l), state{})
}

// goneWatch watches from a version before all objects of the check. A server that has all
// changes since then sends them from the first one on.
func goneWatch(p *probe) {
	a := p.create("a", "1")
	a2 := p.update(a, "2")
	s, refused := p.openWatch(nil, p.all(), "timeoutSeconds=10&resourceVersion="+longAgo)
	if s == nil {
		if refused.code != http.StatusGone {
			p.failf("got %s, want 410", refused.describe())
		}
		return
	}
	defer s.close()
	for _, want := range []event{{added, a}, {modified, a2}} {
		for {
			e := s.next("the ERROR 410, or " + want.String())
			if e.Type == failure {
				if e.code() != http.StatusGone {
					p.failf("an ERROR came with code %d, want 410", e.code())
				}
				return
			}
			if e.Type == bookmark || !p.owns(e) {
				continue
			}
			if e.Type != want.Type || e.Object.version() != want.Object.version() {
				p.failf("got the event %s, want the ERROR 410, or %s", e, want)
			}
			break
		}
	}
}

func goneStatus(p *probe) {
	a := p.send(request{method: http.MethodGet, path: p.all(), query: exact(longAgo)})
	if a.code != http.StatusGone {
		p.skipf("the server has version %s, or does not say 410: %s", longAgo, a.describe())
	}
	status := a.status()
	if code, _ := status.at("code").(float64); status.text("kind") != "Status" || code != http.StatusGone {
		p.failf("the response is a %q with the code %v, want a Status with 410", status.text("kind"), status.at("code"))
	}
	s, refused := p.openWatch(nil, p.all(), "timeoutSeconds=10&resourceVersion="+longAgo)
	if s == nil {
		if refused.status().text("kind") != "Status" {
			p.failf("the refusal of the watch is no Status")
		}
		return
	}
	defer s.close()
	e := s.next("an ERROR with 410")
	if e.Type != failure || e.Object.text("kind") != "Status" || e.code() != http.StatusGone {
		p.failf("got %s with a %q of code %d, want an ERROR with a Status of 410", e, e.Object.text("kind"), e.code())
	}
}
