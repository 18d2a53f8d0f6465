package conformance

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
)

const chunkSource = concepts + ", Retrieving large results sets in chunks"

var chunkChecks = []Check{
	{ID: "chunking.limit", Level: Must, Source: chunkSource,
		About: "A chunk has at most as many objects as the limit says.", run: chunkingLimit},
	{ID: "chunking.complete", Level: Must, Source: chunkSource,
		About: "The chunks add up to the collection: no object is missing or repeated, and the last chunk has an empty continue.", run: chunkingComplete},
	{ID: "chunking.constant", Level: Must, Source: chunkSource,
		About: "All chunks have the same version, even if objects change in between.", run: chunkingConstant},
	{ID: "chunking.snapshot", Level: Must, Source: chunkSource,
		About: "Later chunks do not show creates, updates and deletes that happened after the first chunk.", run: chunkingSnapshot},
	{ID: "chunking.watch", Level: Must, Source: chunkSource,
		About: "A watch from the chunks' version misses no update.", run: chunkingWatch},
	{ID: "chunking.remaining", Level: Should, Source: chunkSource,
		About: "remainingItemCount is the number of objects in the remaining chunks.", run: chunkingRemaining},
	{ID: "chunking.remaining-selector", Level: Must, Source: chunkSource,
		About: "A list with a selector has no remainingItemCount.", run: chunkingRemainingSelector},
	{ID: "chunking.remaining-last", Level: Must, Source: chunkSource,
		About: "A complete list and a last chunk have no remainingItemCount.", run: chunkingRemainingLast},
	{ID: "chunking.bad-token", Level: Should, Source: chunkSource,
		About: "A continue token that the server did not make is refused (400 to 499).", run: chunkingBadToken},
}

// seven makes as many objects, and returns their state.
func (p *probe) seven() state {
	s := state{}
	for i := range 7 {
		o := p.create(fmt.Sprint(i), "1")
		s[o.name()] = o.version()
	}
	return s
}

// chunks follows a list in chunks, and gives each to a function.
func (p *probe) chunks(query string, limit int, each func(n int, l list)) {
	next := ""
	for n := range maxPages {
		q := joinQuery(query, "limit="+strconv.Itoa(limit))
		if next != "" {
			q += "&continue=" + url.QueryEscape(next)
		}
		l := p.list(q)
		each(n, l)
		if next = l.next; next == "" {
			return
		}
	}
	p.failf("the list in chunks of %d did not end after %d chunks", limit, maxPages)
}

func chunkingLimit(p *probe) {
	p.seven()
	p.chunks("", 2, func(n int, l list) {
		if len(l.items) > 2 {
			p.failf("chunk %d has %d objects, want 2 at most", n+1, len(l.items))
		}
		if n == 0 && l.next == "" {
			p.failf("the first chunk of 7 objects or more has no continue")
		}
	})
}

func chunkingComplete(p *probe) {
	want := p.seven()
	got := state{}
	p.chunks("", 2, func(n int, l list) {
		for name, version := range p.mine(l) {
			if _, twice := got[name]; twice {
				p.failf("chunk %d has %s again", n+1, name)
			}
			got[name] = version
		}
	})
	p.wantState("all chunks", got, want)
}

func chunkingConstant(p *probe) {
	p.seven()
	version := ""
	p.chunks("", 2, func(n int, l list) {
		if version != "" && l.version != version {
			p.failf("chunk %d is of version %s, those before of %s", n+1, l.version, version)
		}
		version = l.version
		p.create(fmt.Sprintf("new-%d", n), "1")
	})
}

func chunkingSnapshot(p *probe) {
	want := p.seven()
	got := state{}
	p.chunks("", 2, func(n int, l list) {
		for name, version := range p.mine(l) {
			got[name] = version
		}
		if n > 0 {
			return
		}
		p.create("5-new", "1")
		p.update(p.read("4", ""), "2")
		p.remove("6")
	})
	p.wantState("all chunks", got, want)
}

func chunkingWatch(p *probe) {
	p.seven()
	var version string
	p.chunks("", 4, func(n int, l list) {
		if n == 0 {
			p.create("new", "1")
			p.remove("0")
		}
		version = l.version
	})
	s := p.watch("resourceVersion=" + version)
	defer s.close()
	s.want(added, "new", "")
	s.want(deleted, "0", "")
}

func chunkingRemaining(p *probe) {
	p.seven()
	type chunk struct {
		items     int
		remaining *int64
	}
	var all []chunk
	p.chunks("", 2, func(_ int, l list) { all = append(all, chunk{len(l.items), l.remaining}) })
	left := int64(0)
	for i := len(all) - 1; i >= 0; i-- {
		switch {
		case i == len(all)-1: // which has a check of its own
		case all[i].remaining == nil:
			p.failf("chunk %d has no remainingItemCount", i+1)
		case *all[i].remaining != left:
			p.failf("chunk %d says that %d objects remain, and %d came", i+1, *all[i].remaining, left)
		}
		left += int64(all[i].items)
	}
}

func chunkingRemainingSelector(p *probe) {
	p.seven()
	l := p.list("limit=2&labelSelector=" + url.QueryEscape(markLabel+"=1"))
	if l.next == "" {
		p.failf("a list of 7 objects with limit=2 has no continue")
	}
	if l.remaining != nil {
		p.failf("a list with a selector has a remainingItemCount of %d", *l.remaining)
	}
}

func chunkingRemainingLast(p *probe) {
	p.seven()
	if l := p.list(""); l.remaining != nil || l.next != "" {
		p.failf("a list without limit has remainingItemCount or continue")
	}
	p.chunks("", 4, func(n int, l list) {
		if l.next == "" && l.remaining != nil {
			p.failf("the last chunk has a remainingItemCount of %d", *l.remaining)
		}
	})
}

func chunkingBadToken(p *probe) {
	p.wantRefusal(p.send(request{method: http.MethodGet, path: p.all(), query: "limit=2&continue=bm9uZQ"}))
}
