package tidemarktest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

const (
	// settleQuiet is how long a settled world has had no writes.
	settleQuiet = 300 * time.Millisecond
	// idleQuiet is how long a run of a search has had no requests in the end.
	idleQuiet = 100 * time.Millisecond
	// pollQuiet is how long a run without writes may have requests.
	pollQuiet = 3 * time.Second
	// settleLimit is how long a world may take to settle.
	settleLimit = 30 * time.Second
	// settleMargin is the time for the server's response at the end of the limit.
	settleMargin = 500 * time.Millisecond
)

// Settle waits until the cluster has settled: the server has nothing left to do, its watches have
// delivered everything, and no object has changed for 300 milliseconds. A controller that waits longer
// before its next write counts as settled. The test fails after 30 seconds. Updates of Leases count: with a leader election
// that renews its Lease more often than that, it fails.
func (e *Env) Settle(t TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	revision, err := e.settle(ctx, settleQuiet)
	if err != nil {
		t.Fatalf("tidemarktest: Settle: %v%s", err, e.busiest())
	}
	e.root().settled.Store(revision)
}

// root returns the Env that owns the world.
func (e *Env) root() *Env {
	if e.owner != nil {
		return e.owner
	}
	return e
}

// settled is a world that has settled.
type settled struct {
	Revision uint64 `json:"revision"`
	Requests uint64 `json:"requests"` // that have begun so far
}

// settle waits until the world has settled and has then had no write for the duration of quiet, and
// returns its revision. The server does not know the work of a client between two requests.
func (e *Env) settle(ctx context.Context, quiet time.Duration) (uint64, error) {
	s, err := e.settleFor(ctx, quiet)
	return s.Revision, err
}

// settleFor is settle with all that the server says. The quiet is time in which this process could run: on a machine
// that is overloaded, a controller in this process that has not had its turn yet is not quiet.
func (e *Env) settleFor(ctx context.Context, quiet time.Duration) (settled, error) {
	var last settled
	for ran := time.Duration(0); ; {
		p := startPace()
		rest := quiet - ran
		now, err := e.settleOnce(ctx, rest)
		ran += p.end(rest)
		if err != nil {
			return now, err
		}
		if now.Revision != last.Revision && rest < quiet {
			ran = 0 // the quiet before has ended
		}
		if last = now; ran >= quiet {
			return now, nil
		}
	}
}

// settleOnce is settleFor with any time that passes.
func (e *Env) settleOnce(ctx context.Context, quiet time.Duration) (s settled, err error) {
	limit := settleLimit
	if deadline, ok := ctx.Deadline(); ok { // so that the response names the unfinished work
		limit = max(time.Millisecond, time.Until(deadline)-settleMargin)
	}
	body := map[string]int64{"quietMilliseconds": quiet.Milliseconds(), "timeoutMilliseconds": limit.Milliseconds()}
	if err := e.session.control.call(ctx, "POST", worldPath(e.world.Name, "settle"), body, &s); err != nil {
		return s, err
	}
	return s, nil
}

const (
	// busyChanges is how many of the last changes show who keeps writing.
	busyChanges = 1000
	// maxBusy is how many of the busiest writers a message names.
	maxBusy = 3
)

// busiest names the writers that have written the same object again and again, a line each; empty: there are none.
func (e *Env) busiest() string {
	ctx, cancel := callContext()
	defer cancel()
	var now worldInfo
	if err := e.session.control.call(ctx, "GET", worldPath(e.world.Name), nil, &now); err != nil {
		return ""
	}
	// A hot loop makes more changes than a history may have.
	changes, err := e.history(ctx, max(e.world.Revision, now.Revision-min(now.Revision, busyChanges)), 0)
	if err != nil {
		return ""
	}
	if old := len(changes) - busyChanges; old > 0 {
		changes = changes[old:]
	}
	type writer struct{ what, actor string }
	writes := map[writer]int{}
	for i := range changes {
		c := &changes[i]
		writes[writer{c.what(), c.Actor.String()}]++
	}
	all := slices.SortedFunc(maps.Keys(writes), func(a, b writer) int {
		return cmp.Or(cmp.Compare(writes[b], writes[a]), cmp.Compare(a.what, b.what), cmp.Compare(a.actor, b.actor))
	})
	var lines strings.Builder
	for _, w := range all[:min(maxBusy, len(all))] {
		if writes[w] >= hotLoopWrites {
			fmt.Fprintf(&lines, "\n  %d times: %s by %s", writes[w], w.what, w.actor)
		}
	}
	if lines.Len() == 0 {
		return ""
	}
	return fmt.Sprintf("\nof the last %d changes there are", len(changes)) + lines.String()
}

// settleIdle is settle for a controller that may read for longer than quiet before it writes, as on a slow machine:
// the end of the quiet, idleQuiet, has no request at all. A controller that polls has settled when it has not
// written for pollQuiet.
func (e *Env) settleIdle(ctx context.Context, quiet time.Duration) (uint64, error) {
	last, err := e.settleFor(ctx, quiet-idleQuiet)
	for still := quiet; err == nil; still += idleQuiet {
		before := last
		last, err = e.settleFor(ctx, idleQuiet)
		switch {
		case err != nil:
		case last.Revision != before.Revision: // last has been quiet for idleQuiet
			still = idleQuiet
		case still >= quiet && (last.Requests == before.Requests || still >= pollQuiet):
			return last.Revision, nil
		}
	}
	return 0, err
}
