package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The scenario outage measures what clients notice of a failure, and proves that no
// acknowledged write is lost.
//
//	writers create ConfigMaps   ──────────────┬───┬─ ✗ ✗ ✗ ─ ✓ ─────────────┐
//	                                half the  │   │ half the  until each    │
//	                                duration  │   │ duration  writer has a  │
//	                          --outage-command┘   └ its end   response again  └ --repair-command, then the checks
//
// The longest gap is the longest time without an acknowledged write, from the start of the
// command to the end of the writes. A writer uses a new name for each request, so a
// request without a response may or may not have created its ConfigMap. After the repair, a
// LIST must have each acknowledged ConfigMap. Each watch must have had exactly one event of
// it, or have listed it if the server could not continue the watch.

const (
	outageWriters = 4
	// outageWatches is the number of watches at each server.
	outageWatches = 4
	// outageEnds bounds the time until each writer has a response again, and the time until
	// the watches have all events.
	outageEnds = time.Minute
	// outageRequestTimeout bounds a request other than a watch: a server that hangs does
	// not refuse it.
	outageRequestTimeout = 10 * time.Second
	// outagePause is between a request that failed and the next one of the client.
	outagePause = 10 * time.Millisecond
	// outagePings and outagePingTimeout are those of client-go: they end a watch at a server
	// that hangs.
	outagePings       = 30 * time.Second
	outagePingTimeout = 15 * time.Second
)

// Measurements of the scenario outage.
const (
	longestGap       = "longestGapMillis"
	longestClientGap = "longestGapOfOneClientMillis"
	failedRequests   = "failedRequests"
	httpErrors       = "httpErrors"
	timedOutRequests = "timedOutRequests"
	relistedWatches  = "relistedWatches"
)

// outage is a round of the scenario.
type outage struct {
	bed *bed
	// servers are the server and, if there is one, the other server of the cluster.
	servers []*bed
	ns      string
	writers []*outageWriter
	watches []*outageWatch

	// number counts the creates that were begun. It is part of the names.
	number atomic.Int64
	// stopped ends the writers after their requests.
	stopped atomic.Bool
	// began is the start of the command; zero until then. ended is when each writer had a
	// response again.
	began, ended time.Time

	mu                         sync.Mutex // guards the fields below, and the acks of the writers
	failed, refused, outOfTime int64
	lastFailure                error
	latencies                  histogram
}

// ack is a write that a server acknowledged.
type ack struct {
	number      int64
	sent, given time.Time
}

// outageRound measures once.
func outageRound(ctx context.Context, b *bed) ([]row, error) {
	switch {
	case b.server.OutageCommand == "":
		return nil, &skipError{"no --outage-command is given"}
	case runtime.GOOS == "windows":
		return nil, &skipError{"there is no /bin/sh on Windows"}
	}
	ns, err := b.namespace(ctx, "outage")
	if err != nil {
		return nil, err
	}
	o := &outage{bed: b, servers: []*bed{b}, ns: ns}
	if b.other != nil {
		o.servers = append(o.servers, b.other)
	}
	defer o.close()
	if err := o.open(ctx); err != nil {
		return nil, err
	}
	if err := o.run(ctx); err != nil {
		return nil, err
	}
	return []row{{loop: loopName(0, len(o.writers)) + fmt.Sprintf(", %d watches", len(o.watches)), Measurements: o.measurements()}}, nil
}

// open makes the clients. They are spread over the servers.
func (o *outage) open(ctx context.Context) error {
	rv, err := o.bed.revision(ctx, o.ns, configMapsOf)
	if err != nil {
		return err
	}
	writers := outageWriters
	if n := o.bed.options.Clients; n > 0 {
		writers = n
	}
	for i := range writers {
		r, err := newRoamer(o.servers, i)
		if err != nil {
			return err
		}
		o.writers = append(o.writers, &outageWriter{outage: o, roamer: r})
	}
	for i := range o.bed.watchers(outageWatches * len(o.servers)) {
		r, err := newRoamer(o.servers, i)
		if err != nil {
			return err
		}
		w := &outageWatch{outage: o, roamer: r, events: map[int64]int{}, listed: map[int64]bool{}}
		w.revision.Store(rv)
		o.watches = append(o.watches, w)
	}
	return nil
}

// close closes the connections.
func (o *outage) close() {
	for _, w := range o.writers {
		w.close()
	}
	for _, w := range o.watches {
		w.close()
	}
}

// run runs the clients and the commands, and checks the final state.
func (o *outage) run(ctx context.Context) error {
	watching, end := context.WithCancelCause(ctx) // ends also when a watch fails
	defer end(nil)
	var watches sync.WaitGroup
	for _, w := range o.watches {
		watches.Go(func() {
			if err := w.run(watching); err != nil {
				end(err)
			}
		})
	}
	defer watches.Wait()
	defer end(nil)
	err := o.write(watching)
	if o.bed.server.RepairCommand != "" && !o.began.IsZero() {
		err = errors.Join(err, shell(context.WithoutCancel(ctx), "repair", o.bed.server.RepairCommand))
	}
	if err != nil {
		return err
	}
	up, stored, err := o.stored(watching)
	if err != nil {
		return err
	}
	if err := o.awaitWatches(watching); err != nil {
		return err
	}
	end(nil)
	watches.Wait()
	if err := o.verify(stored); err != nil {
		return err
	}
	return up.empty(ctx, o.ns, configMapsOf)
}

// write runs the writers, and the command in their middle.
func (o *outage) write(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx) // ends also when a writer fails
	defer end(nil)
	var writers sync.WaitGroup
	for _, w := range o.writers {
		writers.Go(func() {
			if err := w.run(ctx); err != nil {
				end(err)
			}
		})
	}
	defer writers.Wait()
	defer o.stopped.Store(true)
	half := o.bed.options.Duration / 2
	if sleepUntil(ctx, time.Now().Add(half)); ctx.Err() != nil {
		return context.Cause(ctx)
	}
	o.began = time.Now()
	if err := shell(ctx, "outage", o.bed.server.OutageCommand); err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	sleepUntil(ctx, time.Now().Add(half))
	if err := o.awaitWriters(ctx); err != nil {
		return err
	}
	o.ended = time.Now()
	o.stopped.Store(true)
	writers.Wait()
	return context.Cause(ctx)
}

// awaitWriters waits until each writer has a response to a request that it sends from now on.
func (o *outage) awaitWriters(ctx context.Context) error {
	since := time.Now()
	deadline := since.Add(outageEnds)
	waits := func() int { // the first writer that waits, or -1
		o.mu.Lock()
		defer o.mu.Unlock()
		return slices.IndexFunc(o.writers, func(w *outageWriter) bool {
			return len(w.acks) == 0 || w.acks[len(w.acks)-1].sent.Before(since)
		})
	}
	for {
		i := waits()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case i < 0:
			return nil
		case time.Now().After(deadline):
			o.mu.Lock()
			defer o.mu.Unlock()
			return fmt.Errorf("client %d had no acknowledged write within %v after the outage; the last failure of a client: %w", i, outageEnds, o.lastFailure)
		}
		sleepUntil(ctx, time.Now().Add(time.Millisecond))
	}
}

// failure counts a request that failed, or that got no response in time.
func (o *outage) failure(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failed++
	o.lastFailure = err
	var refused *responseError
	switch {
	case errors.As(err, &refused):
		o.refused++
	case errors.Is(err, context.DeadlineExceeded):
		o.outOfTime++
	}
}

// stored returns the numbers of the ConfigMaps in a LIST at a server that responds.
func (o *outage) stored(ctx context.Context) (*bed, map[int64]bool, error) {
	var errs []error
	for deadline := time.Now().Add(outageEnds); time.Now().Before(deadline) && ctx.Err() == nil; sleepUntil(ctx, time.Now().Add(outagePause)) {
		errs = nil
		for _, b := range o.servers {
			_, numbers, err := listOutage(ctx, b.admin, b, o.ns)
			if err == nil {
				return b, numbers, nil
			}
			errs = append(errs, err)
		}
	}
	return nil, nil, fmt.Errorf("the acknowledged writes could not be listed: %w", errors.Join(append(errs, context.Cause(ctx))...))
}

// awaitWatches waits until each watch has come to the last acknowledged write.
func (o *outage) awaitWatches(ctx context.Context) error {
	var last uint64
	for _, w := range o.writers {
		last = max(last, w.client.revision)
	}
	for deadline := time.Now().Add(outageEnds); time.Now().Before(deadline); sleepUntil(ctx, time.Now().Add(time.Millisecond)) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !slices.ContainsFunc(o.watches, func(w *outageWatch) bool { return w.revision.Load() < last }) {
			return nil
		}
	}
	return nil // verify names missing ones
}

// verify requires each acknowledged ConfigMap in the list and in each watch. The clients
// must have ended.
func (o *outage) verify(stored map[int64]bool) error {
	var acked []int64
	for _, w := range o.writers {
		for _, a := range w.acks {
			acked = append(acked, a.number)
		}
	}
	slices.Sort(acked)
	errs := []error{lost("not in the list", acked, func(number int64) bool { return !stored[number] })}
	for i, w := range o.watches {
		errs = append(errs,
			lost(fmt.Sprintf("not seen by watch %d, which listed %d times again", i, w.relists), acked, func(number int64) bool { return w.events[number] == 0 && !w.listed[number] }),
			lost(fmt.Sprintf("seen more than once by watch %d", i), slices.Sorted(maps.Keys(w.events)), func(number int64) bool { return w.events[number] > 1 }))
	}
	return errors.Join(errs...)
}

// lost returns an error that names some of the ConfigMaps that are not as they should be.
func lost(how string, numbers []int64, wrong func(number int64) bool) error {
	const shown = 3
	var names []string
	n := 0
	for _, number := range numbers {
		if wrong(number) {
			if n++; n <= shown {
				names = append(names, outageName(number))
			}
		}
	}
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d acknowledged ConfigMaps are %s, such as %s", n, len(numbers), how, strings.Join(names, ", "))
}

// measurements sums up the round. The clients must have ended.
func (o *outage) measurements() Measurements {
	f := Measurements{Extra: map[string]float64{
		failedRequests: float64(o.failed), httpErrors: float64(o.refused), timedOutRequests: float64(o.outOfTime),
		relistedWatches: 0, "watches": float64(len(o.watches)),
	}}
	first := o.began
	var all []time.Time
	for _, w := range o.writers {
		var own []time.Time
		for _, a := range w.acks {
			own = append(own, a.given)
			if a.sent.Before(first) {
				first = a.sent
			}
		}
		all = append(all, own...)
		f.Extra[longestClientGap] = max(f.Extra[longestClientGap], millis(gapOf(own, o.began, o.ended)))
	}
	f.Ops, f.Seconds, f.Latency = int64(len(all)), o.ended.Sub(first).Seconds(), o.latencies.latency()
	f.Extra[longestGap] = millis(gapOf(all, o.began, o.ended))
	for _, w := range o.watches {
		if w.relists > 0 {
			f.Extra[relistedWatches]++
		}
	}
	return f
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// gapOf returns the longest time between begin and end without an acknowledgement, given
// the times of all of them in any order.
func gapOf(acks []time.Time, begin, end time.Time) time.Duration {
	var gap time.Duration
	last := begin
	for _, t := range append(slices.SortedFunc(slices.Values(acks), time.Time.Compare), end) {
		if t.Before(begin) || t.After(end) {
			continue
		}
		gap = max(gap, t.Sub(last))
		last = t
	}
	return gap
}

// outageName is the name of a ConfigMap.
func outageName(number int64) string { return fmt.Sprintf("outage-%09d", number) }

// outageMap is a small ConfigMap. Watches and lists read its number from it.
func outageMap(number int64) []byte {
	return fmt.Appendf(nil, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q,"annotations":{"bench.tidemark.dev/mark":"%s"}},"data":{%s}}`,
		outageName(number), mark, sentMember(number))
}

// outageWriter creates ConfigMaps, one after the other.
type outageWriter struct {
	outage *outage
	*roamer
	acks []ack // in order; guarded by outage.mu
}

// run creates ConfigMaps until the outage stops the writers. An error means that a response
// was wrong, not that a request failed.
func (w *outageWriter) run(ctx context.Context) error {
	o := w.outage
	for ctx.Err() == nil && !o.stopped.Load() {
		number := o.number.Add(1)
		if limit := o.bed.options.MaxOps; number > limit {
			return fmt.Errorf("%d ConfigMaps were created before the outage was over: want a shorter --duration, or more than --max-ops=%d", limit, limit)
		}
		sent := time.Now()
		response, err := w.ask(ctx, http.MethodPost, w.at().collection(o.ns, configMapsOf, ""), outageMap(number))
		given := time.Now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			o.failure(err)
			w.roam(err)
			sleepUntil(ctx, given.Add(outagePause))
			continue
		}
		if err := errors.Join(holds(response, sentMember(number)), w.client.advance("POST "+outageName(number), response, true)); err != nil {
			return err
		}
		o.mu.Lock()
		w.acks = append(w.acks, ack{number, sent, given})
		o.mu.Unlock()
		o.latencies.record(given.Sub(sent))
	}
	return nil
}

// A roamer is a client behind a load balancer. It stays at a server until it cannot reach
// it, and goes on at the next one. It is used by one goroutine.
type roamer struct {
	servers []*bed
	conns   []*conn // one for each server
	client  *client // of the server that it is at
	now     int     // the number of that server
}

// newRoamer returns a client that begins at one of the servers.
func newRoamer(servers []*bed, number int) (*roamer, error) {
	r := &roamer{servers: servers, now: number % len(servers)}
	for _, b := range servers {
		c, err := b.target.dial(nil)
		if err != nil {
			return nil, err
		}
		c.transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: outagePings, PingTimeout: outagePingTimeout}
		r.conns = append(r.conns, c)
	}
	r.client = newClient(r.conns[r.now], number, r.at().json)
	return r, nil
}

// close closes the connections.
func (r *roamer) close() {
	for _, c := range r.conns {
		c.close()
	}
}

// at is the server that the client is at.
func (r *roamer) at() *bed { return r.servers[r.now] }

// roam goes on at the next server, unless the error is a response of this one.
func (r *roamer) roam(err error) {
	var refused *responseError
	if errors.As(err, &refused) {
		return
	}
	r.now = (r.now + 1) % len(r.servers)
	r.client.conn, r.client.json = r.conns[r.now], r.at().json
}
