package tidemarktest

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const (
	// settleQuiet is how long a settled world has had no writes.
	settleQuiet = 300 * time.Millisecond
	// settlePolls is how often the revision is read in that time.
	settlePolls = 5
	// settleLimit is how long a world may take to settle.
	settleLimit = 30 * time.Second
	// settleMargin is the time for the server's answer at the end of the limit, in milliseconds.
	settleMargin = 500
)

// Settle waits until the cluster has settled: the server has nothing left to do, its watches have
// delivered everything, and no object has changed for 300 milliseconds. A controller that waits longer
// before its next write counts as settled. The test fails after 30 seconds.
func (e *Env) Settle(t TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	revision, err := e.settle(ctx, settleQuiet)
	if err != nil {
		t.Fatalf("tidemarktest: %v", err)
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

// settle waits until the world has settled, and returns its revision. The server does not know what a
// client does between two requests, so it must report the same revision for the duration of quiet.
func (e *Env) settle(ctx context.Context, quiet time.Duration) (uint64, error) {
	tick := time.NewTicker(quiet / settlePolls)
	defer tick.Stop()
	var last uint64
	for still := 0; ; still++ {
		var now struct{ Revision uint64 }
		limit := map[string]int64{"timeoutMilliseconds": settleLimit.Milliseconds()}
		if deadline, ok := ctx.Deadline(); ok { // so that the answer has what is left to do
			limit["timeoutMilliseconds"] = max(1, time.Until(deadline).Milliseconds()-settleMargin)
		}
		if err := e.session.control.call(ctx, http.MethodPost, worldPath(e.world.Name, "settle"), limit, &now); err != nil {
			return 0, fmt.Errorf("the world does not settle: %w", err)
		}
		if now.Revision != last {
			last, still = now.Revision, 0
		}
		if still == settlePolls {
			return last, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, fmt.Errorf("the world does not settle: writes go on at revision %d: %w", last, ctx.Err())
		}
	}
}
