package conformance

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// The load across a restart.
//
// Writers, watchers and listers run all the time, and the server is restarted in the
// middle. Requests fail meanwhile. A failed write may or may not have been stored: it is a
// maybe, and its writer reads the object before it continues. A watcher resumes from its
// last event. If that is 410, it lists, and a new part begins with the state of the list.
//
//	part 1: state at R1, events ...     restart, 410     part 2: state at R2, events ...
//
// At the end:
//
//   - Every acknowledged write is stored, and no version is used twice.
//   - In each part, each acknowledged write is one event, each event is an acknowledged
//     write or a maybe, and versions grow. They also grow from part to part.
//   - Two lists of one part differ by the events between them.
//   - A request sent after a response returns nothing older than that response.

// outage is a storm across a restart, and its observations.
type outage struct {
	*probe
	ready   sync.WaitGroup // of writers that have not written enough before the restart
	stopped chan struct{}  // closed when all is written
	end     object         // made last

	mu       sync.Mutex
	phase    phase           // guarded by mu
	over     time.Time       // guarded by mu: when the restart was over
	newest   string          // guarded by mu: the newest version in a response
	acks     map[ack]bool    // guarded by mu: acknowledged writes
	maybes   map[ack]bool    // guarded by mu: writes that may have been made, without a version
	doubtful map[string]bool // guarded by mu: their names
	states   []state         // guarded by mu: the final state of each writer
	lists    []seen          // guarded by mu
}

type phase int

const (
	beforeRestart phase = iota
	duringRestart
	afterRestart
)

// part is the events of a watcher without a gap.
type part struct {
	version string
	state   state
	events  []event
}

// How much is written before the restart and after it, by each writer, and how often
// each lister lists in each of the three phases.
const (
	outageWrites = 12
	outageLists  = 15
)

func restartConsistency(p *probe) {
	p.needsRestart()
	from := p.list("")
	o := &outage{
		probe: p, newest: from.version, stopped: make(chan struct{}),
		acks: map[ack]bool{}, maybes: map[ack]bool{}, doubtful: map[string]bool{},
	}
	tracks := make([][]part, 3)
	var written sync.WaitGroup
	o.ready.Add(stormWriters)
	written.Add(stormWriters + 1)
	parts := []func(){
		func() { defer written.Done(); o.restartThem() },
		func() {
			written.Wait()
			defer close(o.stopped)
			o.end = p.create("end", "1")
			o.responded(ack{added, o.end.name(), o.end.version()})
		},
	}
	for w := range stormWriters {
		r := rand.New(rand.NewPCG(p.rand.Uint64(), 0))
		parts = append(parts, func() { defer written.Done(); o.write(w, r) })
	}
	for t := range tracks {
		r := rand.New(rand.NewPCG(p.rand.Uint64(), 0))
		parts = append(parts, func() { tracks[t] = o.follow(from, t == 0, r) })
	}
	for range 2 {
		r := rand.New(rand.NewPCG(p.rand.Uint64(), 0))
		parts = append(parts, func() { o.listOften(r) })
	}
	p.race(parts...)
	o.verify(tracks)
}

// restartThem restarts the server once all writers have written.
func (o *outage) restartThem() {
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		o.ready.Wait()
	}()
	o.await(ready)
	o.enter(duringRestart)
	o.restart()
	o.enter(afterRestart)
}

func (o *outage) enter(p phase) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.phase, o.over = p, time.Now()
}

func (o *outage) now() phase {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.phase
}

// bear waits a moment after something has failed, if it may fail: while the server
// restarts, and for some time after its first response.
func (o *outage) bear(a *response, err error) {
	o.interrupted()
	if err == nil && a.code < 500 && a.code != http.StatusTooManyRequests && a.code != http.StatusNotFound && !noRight(a.code) {
		o.want(a, http.StatusOK)
	}
	o.mu.Lock()
	phase, over := o.phase, o.over
	o.mu.Unlock()
	if phase == beforeRestart || phase == afterRestart && time.Since(over) > o.bed.options.Timeout {
		if err == nil {
			o.want(a, http.StatusOK)
		}
		o.failf("a request failed: %v", err)
	}
	o.pause()
}

// ask sends a request, which may fail.
func (o *outage) ask(r request) (*response, error) {
	var a *response
	err := try(func() { a = o.send(r) })
	return a, err
}

// floor is the newest version in a response so far.
func (o *outage) floor() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newest
}

func (o *outage) reached(version string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.compare(version, o.newest) > 0 {
		o.newest = version
	}
}

// responded notes a write.
func (o *outage) responded(a ack) {
	if a.version != "" {
		o.reached(a.version)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.acks[a] = true
}

// write writes at random, before, during and after the restart.
func (o *outage) write(writer int, r *rand.Rand) {
	ready := sync.OnceFunc(o.ready.Done)
	defer ready()
	objects := map[string]object{}
	for n, left := 0, 2*outageWrites; left > 0; n++ {
		name := fmt.Sprintf("w%d-%d", writer, r.IntN(stormNames))
		o.writeOne(objects, name, fmt.Sprint(n), r.IntN(4) == 0)
		switch phase := o.now(); {
		case phase == beforeRestart && left > outageWrites, phase == afterRestart:
			left--
		case phase == beforeRestart: // enough: the restart comes
			ready()
			o.pause()
		default:
			left = min(left, outageWrites)
			o.pause()
		}
	}
	left := state{}
	for _, object := range objects {
		left[object.name()] = object.version()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.states = append(o.states, left)
}

// writeOne creates, updates or deletes one object.
func (o *outage) writeOne(objects map[string]object, name, mark string, remove bool) {
	old, there := objects[name]
	w, r := ack{modified, o.named(name), ""}, request{method: http.MethodPut, path: o.path(o.named(name))}
	switch {
	case !there:
		w.kind, r = added, o.posting(o.fresh(name, mark), "")
	case remove:
		w.kind, r = deleted, request{method: http.MethodDelete, path: r.path}
	default:
		changed := old.copied()
		changed.label(markLabel, mark)
		r.body = changed.encode()
	}
	floor := o.floor()
	a, err := o.ask(r)
	if err != nil || a.code >= 300 {
		known := err == nil && (a.code == http.StatusConflict || a.code == http.StatusNotFound) && o.inDoubt(w.name)
		if !known { // a write of before was carried out after all
			o.doubt(w)
			o.bear(a, err)
		}
		o.resolve(objects, name, mark, w)
		return
	}
	if w.kind == deleted {
		delete(objects, name)
	} else {
		object := o.object(a)
		o.wantNewer("the response to a write", object.version(), floor)
		objects[name], w.version = object, object.version()
	}
	o.responded(w)
}

func (o *outage) doubt(w ack) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.maybes[w], o.doubtful[w.name] = true, true
}

func (o *outage) inDoubt(name string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.doubtful[name]
}

// resolve reads an object after a write of it that may have been carried out.
func (o *outage) resolve(objects map[string]object, name, mark string, w ack) {
	for {
		a, err := o.ask(request{method: http.MethodGet, path: o.path(w.name)})
		switch {
		case err == nil && a.code == http.StatusOK:
			object := o.object(a)
			objects[name] = object
			if w.kind != deleted && object.mark() == mark {
				w.version = object.version()
				o.responded(w)
			}
			return
		case err == nil && a.code == http.StatusNotFound:
			delete(objects, name)
			return
		}
		o.bear(a, err)
	}
}

// listOften lists in the ways that need no version, in all phases, and once more
// when all is written.
func (o *outage) listOften(r *rand.Rand) {
	c, err := o.bed.endpoint.dial()
	if err != nil {
		o.failf("%v", err)
	}
	defer c.close()
	count := map[phase]int{}
	for {
		last, now := isClosed(o.stopped), o.now()
		if count[now]++; count[now] > outageLists && !last || now == duringRestart {
			o.pause()
		}
		if count[now] > outageLists && !last {
			continue
		}
		query := []string{"", "", "resourceVersion=0"}[r.IntN(3)]
		floor := o.floor()
		a, err := o.ask(request{method: http.MethodGet, path: o.all(), query: query, conn: c})
		if err != nil || a.code != http.StatusOK {
			o.bear(a, err)
			continue
		}
		l := o.listIn(a)
		if query == "" {
			o.wantNotOlder("a most recent list that was asked for after "+floor, l.version, floor)
			o.reached(l.version)
		}
		o.mu.Lock()
		o.lists = append(o.lists, seen{"the list with " + query, l.version, o.mine(l)})
		o.mu.Unlock()
		if last {
			return
		}
	}
}

// follow watches from a list to the object that is written last. One that is not
// steady ends its watches again and again.
func (o *outage) follow(from list, steady bool, r *rand.Rand) []part {
	c, err := o.bed.endpoint.dial()
	if err != nil {
		o.failf("%v", err)
	}
	defer c.close()
	at, parts := from.version, []part{{version: from.version, state: o.mine(from)}}
	for {
		events, gone, ended := o.followOnce(c, at, steady, r)
		current := &parts[len(parts)-1]
		current.events = append(current.events, events...)
		switch {
		case ended:
			return parts
		case gone:
			l := o.listAgain(c)
			parts = append(parts, part{version: l.version, state: o.mine(l)})
			at = l.version
			if _, last := parts[len(parts)-1].state[o.named("end")]; last {
				return parts
			}
		case len(events) > 0:
			at = events[len(events)-1].Object.version()
		}
		if len(current.events) > maxEvents {
			o.failf("%d events came, but the event of the last write is missing", len(current.events))
		}
	}
}

// followOnce is one watch. Gone says that it is 410; ended that the last write came.
func (o *outage) followOnce(c *conn, at string, steady bool, r *rand.Rand) (events []event, gone, ended bool) {
	s, refused, err := o.dialStream(request{method: http.MethodGet, path: o.all(), query: "watch=1&resourceVersion=" + at, conn: c})
	switch {
	case err == nil && s == nil && refused.code == http.StatusGone:
		return nil, true, false
	case s == nil:
		o.bear(refused, err)
		return nil, false, false
	}
	defer s.close()
	n := maxEvents
	if !steady {
		n = 1 + r.IntN(12)
	}
	for len(events) < n {
		e, ok := s.maybe(o.bed.options.Timeout)
		switch {
		case !ok:
			o.pause()
			return events, false, false
		case e.Type == failure && e.code() == http.StatusGone:
			return events, true, false
		case e.Type == failure:
			o.bear(&response{x: &exchange{}, code: e.code(), body: e.Object.encode()}, nil)
			return events, false, false
		case e.Type == bookmark || !o.owns(e):
			continue
		}
		events = append(events, e)
		if e.Object.name() == o.named("end") {
			return events, false, true
		}
	}
	return events, false, false
}

// listAgain lists the most recent state.
func (o *outage) listAgain(c *conn) list {
	for {
		a, err := o.ask(request{method: http.MethodGet, path: o.all(), conn: c})
		if err == nil && a.code == http.StatusOK {
			return o.listIn(a)
		}
		o.bear(a, err)
	}
}

// verify checks the observations.
func (o *outage) verify(tracks [][]part) {
	want := states(o.end)
	for _, s := range o.states {
		maps.Copy(want, s)
	}
	got := o.mine(o.list(""))
	for name := range o.doubtful { // a write may have been carried out late
		delete(got, name)
		delete(want, name)
	}
	o.wantState("the list after all writes, across the restart", got, want)
	for _, track := range tracks {
		o.verifyTrack(track)
	}
	slices.SortFunc(o.lists, func(a, b seen) int { return o.compare(a.version, b.version) })
	for n, part := range tracks[0] {
		open := n == len(tracks[0])-1 // nothing was written after it
		lists := []seen{{"the list before the watch", part.version, part.state}}
		for _, l := range o.lists {
			if o.compare(l.version, part.version) >= 0 && (open || o.compare(l.version, part.last()) <= 0) {
				lists = append(lists, l)
			}
		}
		o.wantReplays(lists, part.events)
		o.wantExact(part)
	}
}

// last is the version up to which a part is known.
func (x part) last() string {
	if len(x.events) == 0 {
		return x.version
	}
	return x.events[len(x.events)-1].Object.version()
}

// verifyTrack compares the events of one watcher with the writes.
func (o *outage) verifyTrack(track []part) {
	at := ""
	for _, part := range track {
		if at != "" {
			o.wantNotOlder("the list after 410, across the restart,", part.version, at)
		}
		at = part.version
		current, told := maps.Clone(part.state), map[ack]bool{}
		for _, e := range part.events {
			o.wantNewer(fmt.Sprintf("the event %s of a watch that goes on across the restart", e), e.Object.version(), at)
			at = e.Object.version()
			if err := current.apply(e); err != nil {
				o.failf("a watch that goes on across the restart: %v", err)
			}
			a := ack{e.Type, e.Object.name(), e.Object.version()}
			told[a] = true
			if e.Type == deleted {
				a.version = ""
			}
			if maybe := (ack{a.kind, a.name, ""}); !o.acks[a] && !o.maybes[maybe] {
				o.failf("a watch resumed after the restart sent %s, which no client wrote", e)
			}
		}
		for a := range o.acks {
			if a.version != "" && !told[a] && o.compare(a.version, part.version) > 0 && o.compare(a.version, at) <= 0 {
				o.failf("a watch that goes on across the restart does not tell a write that got a response: %s %s@%s", a.kind, a.name, a.version)
			}
		}
	}
}

// wantExact lists at versions of some events: exactly that state may come, or 410.
func (o *outage) wantExact(x part) {
	for range min(10, len(x.events)) {
		n := o.rand.IntN(len(x.events))
		want := maps.Clone(x.state)
		for _, e := range x.events[:n+1] {
			want.apply(e) // which was seen to work
		}
		version := x.events[n].Object.version()
		a := o.send(request{method: http.MethodGet, path: o.all(), query: exact(version)})
		if a.code == http.StatusGone {
			continue
		}
		o.want(a, http.StatusOK)
		l := o.listIn(a)
		if l.version != version {
			o.failf("the list across the restart is of version %s, want exactly %s", l.version, version)
		}
		o.wantState("the list across the restart at exactly "+version, o.mine(l), want)
	}
}
