package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

var consistencyChecks = []Check{
	{ID: "consistency.complete", Level: Must, Source: watchSource + " (without missing any events)",
		About: "Every write causes exactly one event, with the version of the write's response. There are no other events.", run: consistencyComplete},
	{ID: "consistency.order", Level: Must, Source: watchSource + "; " + kep5504 + ", Motivation",
		About: "The versions of a watch's events increase.", run: consistencyOrder},
	{ID: "consistency.agree", Level: Must, Source: watchSource,
		About: "All watches from one version get the same events, even a watch that is interrupted and resumed repeatedly.", run: consistencyAgree},
	{ID: "consistency.lists", Level: Must, Source: watchSource + "; " + chunkSource,
		About: "For any two lists: the older one plus the events up to the newer one's version equals the newer one.", run: consistencyLists},
	{ID: "consistency.exact", Level: Must, Source: listTable + " (Exact)",
		About: "The list at exactly the version of an event is the state after that event.", run: consistencyExact},
	{ID: "consistency.chunks", Level: Must, Source: chunkSource,
		About: "A list in chunks is the state at its version, even if objects change in between.", run: consistencyChunks},
	{ID: "consistency.monotonic", Level: Must, Source: listTable + " (Most recent)",
		About: "Most recent lists never go back in time, across all connections.", run: consistencyMonotonic},
}

// The number of writes in a storm, and of concurrent reads.
const (
	stormWriters = 4
	stormNames   = 5  // of each writer
	stormWrites  = 30 // of each writer
	stormLists   = 40 // of each lister, at most
)

// ack is an acknowledged write. The response to a deletion has no version.
type ack struct{ kind, name, version string }

// storm has the writes of some writers, and the observations of the watches and lists.
type storm struct {
	from    list
	end     object // made last, after all writers
	acks    []ack
	watches [][]event // each up to the end
	lists   []seen
}

// seen is a list that was read.
type seen struct {
	how     string
	version string
	state   state
}

// storm writes at random from some clients at once, while others watch and list. Lister is one of
// the latter, called repeatedly; nil: there is none.
func (p *probe) storm(lister func(c *conn, r *rand.Rand) seen) *storm {
	s := &storm{from: p.list(""), watches: make([][]event, 3)}
	var mu sync.Mutex
	done := make(chan struct{})
	var writers, parts []func()
	for w := range stormWriters {
		r := rand.New(rand.NewPCG(p.rand.Uint64(), 0))
		writers = append(writers, func() {
			acks := p.writeAtRandom(w, r)
			mu.Lock()
			defer mu.Unlock()
			s.acks = append(s.acks, acks...)
		})
	}
	parts = append(parts, func() {
		defer close(done)
		p.together(writers...)
		s.end = p.create("end", "1")
		s.acks = append(s.acks, ack{added, s.end.name(), s.end.version()})
	})
	for w := range s.watches {
		r := rand.New(rand.NewPCG(p.rand.Uint64(), 0))
		parts = append(parts, func() { s.watches[w] = p.follow(s.from.version, w == 0, r) })
	}
	for range 2 {
		if lister == nil {
			break
		}
		r := rand.New(rand.NewPCG(p.rand.Uint64(), 0))
		parts = append(parts, func() {
			c, err := p.bed.endpoint.dial()
			if err != nil {
				p.failf("%v", err)
			}
			defer c.close()
			for n := 1; ; n++ { // the last one when all is written
				if n > stormLists {
					p.await(done)
				}
				last := isClosed(done)
				l := lister(c, r)
				mu.Lock()
				s.lists = append(s.lists, l)
				mu.Unlock()
				if last {
					return
				}
			}
		})
	}
	p.race(parts...)
	return s
}

// await waits for a part of the check to end.
func (p *probe) await(done <-chan struct{}) {
	select {
	case <-done:
	case <-p.ctx.Done():
		p.interrupted()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// writeAtRandom creates, updates and deletes objects of one writer.
func (p *probe) writeAtRandom(writer int, r *rand.Rand) []ack {
	var acks []ack
	objects := map[string]object{}
	for n := range stormWrites {
		name := fmt.Sprintf("w%d-%d", writer, r.IntN(stormNames))
		o, there := objects[name]
		switch {
		case !there:
			o = p.create(name, fmt.Sprint(n))
			objects[name] = o
			acks = append(acks, ack{added, o.name(), o.version()})
		case r.IntN(4) == 0:
			p.remove(name)
			delete(objects, name)
			acks = append(acks, ack{deleted, o.name(), ""})
		default:
			o = p.update(o, fmt.Sprint(n))
			objects[name] = o
			acks = append(acks, ack{modified, o.name(), o.version()})
		}
	}
	return acks
}

// follow watches from a version to the object that is written last. One that
// reconnects goes on from the last event again and again.
func (p *probe) follow(version string, steady bool, r *rand.Rand) []event {
	c, err := p.bed.endpoint.dial()
	if err != nil {
		p.failf("%v", err)
	}
	defer c.close()
	var all []event
	for len(all) < maxEvents {
		s, a := p.openWatch(c, p.all(), "resourceVersion="+version)
		if s == nil {
			p.failf("the watch from %s: %s", version, a.describe())
		}
		n := maxEvents
		if !steady {
			n = 1 + r.IntN(12)
		}
		for range n {
			e := s.change("an event of the writers")
			all, version = append(all, e), e.Object.version()
			if e.Object.name() == p.named("end") {
				s.close()
				return all
			}
		}
		s.close()
	}
	p.failf("%d events came, but the event of the last write is missing", len(all))
	return nil
}

// timeline are the events of the steady watch, in their order.
func (s *storm) timeline() []event { return s.watches[0] }

// at returns the state at a version.
func (s *storm) at(p *probe, version string) state {
	st := state{}
	for _, e := range s.timeline() {
		if p.compare(e.Object.version(), version) > 0 {
			break
		}
		if err := st.apply(e); err != nil {
			p.failf("%v", err)
		}
	}
	return st
}

func consistencyComplete(p *probe) {
	s := p.storm(nil)
	open := map[ack]int{}
	for _, a := range s.acks {
		open[a]++
	}
	for _, e := range s.timeline() {
		a := ack{e.Type, e.Object.name(), e.Object.version()}
		if e.Type == deleted {
			a.version = ""
		}
		if open[a]--; open[a] < 0 {
			p.failf("the event %s came, and no write got a response so, or it came before", e)
		}
	}
	for a, n := range open {
		if n > 0 {
			p.failf("no event came for a write that got a response as %s %s@%s", a.kind, a.name, a.version)
		}
	}
	st := state{}
	for _, e := range s.timeline() {
		if err := st.apply(e); err != nil {
			p.failf("%v", err)
		}
	}
}

func consistencyOrder(p *probe) {
	s := p.storm(nil)
	for _, w := range s.watches {
		for i := 1; i < len(w); i++ {
			if p.compare(w[i-1].Object.version(), w[i].Object.version()) >= 0 {
				p.failf("the event %s came after %s", w[i], w[i-1])
			}
		}
	}
}

func consistencyAgree(p *probe) {
	s := p.storm(nil)
	for n, w := range s.watches[1:] {
		for i := range max(len(w), len(s.timeline())) {
			if i >= len(w) || i >= len(s.timeline()) || w[i].String() != s.timeline()[i].String() {
				p.failf("event %d of the watch that reconnects (%d) is %s, and %s of the one that does not", i+1, n+1, eventAt(w, i), eventAt(s.timeline(), i))
			}
		}
	}
}

func eventAt(all []event, i int) string {
	if i >= len(all) {
		return "none"
	}
	return all[i].String()
}

// listAny lists in one of the ways that need no version.
func (p *probe) listAny(c *conn, r *rand.Rand) seen {
	query := []string{"", "", "resourceVersion=0", "resourceVersion=0&resourceVersionMatch=NotOlderThan"}[r.IntN(4)]
	l := p.listOn(c, query)
	return seen{"the list with " + query, l.version, p.mine(l)}
}

func consistencyLists(p *probe) {
	s := p.storm(p.listAny)
	slices.SortFunc(s.lists, func(a, b seen) int { return p.compare(a.version, b.version) })
	p.wantGrowing(s.timeline())
	p.wantReplays(slices.DeleteFunc(s.lists, func(l seen) bool {
		return p.compare(l.version, s.from.version) < 0 // any state may come, and the events begin later
	}), s.timeline())
}

// wantReplays holds lists, the oldest first, to differ by the events between them,
// for every pair.
func (p *probe) wantReplays(lists []seen, events []event) {
	for i, from := range lists {
		st := state{}
		for name, version := range from.state {
			st[name] = version
		}
		next := 0
		for _, to := range lists[i:] {
			for ; next < len(events); next++ {
				e := events[next]
				if p.compare(e.Object.version(), to.version) > 0 {
					break
				}
				if p.compare(e.Object.version(), from.version) <= 0 {
					continue
				}
				if err := st.apply(e); err != nil {
					p.failf("%s at %s and the events after it: %v", from.how, from.version, err)
				}
			}
			p.wantState(fmt.Sprintf("%s at %s, against that at %s and the events between", to.how, to.version, from.version), to.state, st)
		}
	}
}

// wantGrowing holds the versions of events to grow, without which they cannot be
// replayed.
func (p *probe) wantGrowing(all []event) {
	if !slices.IsSortedFunc(all, func(a, b event) int {
		order, _ := resourceversion.Compare(a.Object.version(), b.Object.version())
		return order
	}) {
		p.failf("the versions of the events do not grow")
	}
}

func consistencyExact(p *probe) {
	s := p.storm(nil)
	all := s.timeline()
	p.wantGrowing(all)
	for range 25 {
		version := all[p.rand.IntN(len(all))].Object.version()
		l := p.list(exact(version))
		if l.version != version {
			p.failf("the list is of version %s, want exactly %s", l.version, version)
		}
		p.wantState("the list at exactly "+version, p.mine(l), s.at(p, version))
	}
}

func consistencyChunks(p *probe) {
	s := p.storm(func(c *conn, r *rand.Rand) seen {
		l := p.pages("", 2+r.IntN(5))
		if st := p.mine(l); len(st) < p.countMine(l) {
			p.failf("an object came twice in the chunks of version %s", l.version)
		}
		return seen{"the list in chunks", l.version, p.mine(l)}
	})
	p.wantGrowing(s.timeline())
	for _, l := range s.lists {
		p.wantState(l.how+" at "+l.version, l.state, s.at(p, l.version))
	}
}

// countMine counts the items of this check.
func (p *probe) countMine(l list) int {
	n := 0
	for _, o := range l.items {
		if p.owns(event{Object: o}) {
			n++
		}
	}
	return n
}

func consistencyMonotonic(p *probe) {
	var conns []*conn
	for range 3 {
		c, err := p.bed.endpoint.dial()
		if err != nil {
			p.failf("%v", err)
		}
		defer c.close()
		conns = append(conns, c)
	}
	o := p.create("a", "0")
	last := p.list("").version
	for n := range 15 {
		o = p.update(o, fmt.Sprint(n+1))
		p.wantNewer("a write after a list", o.version(), last)
		last = o.version()
		for _, c := range conns {
			l := p.listOn(c, "")
			p.wantNotOlder("a most recent list that was asked for after "+last, l.version, last)
			last = l.version
		}
	}
}
