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
	// settleLimit is how long a world may take to settle.
	settleLimit = 30 * time.Second
	// settleMargin is the time for the server's answer at the end of the limit.
	settleMargin = 500 * time.Millisecond
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

// settle waits until the world has settled and has then had no write for the duration of quiet, and returns its
// revision. The server does not know what a client does between two requests.
func (e *Env) settle(ctx context.Context, quiet time.Duration) (uint64, error) {
	limit := settleLimit
	if deadline, ok := ctx.Deadline(); ok { // so that the answer has what is left to do
		limit = max(time.Millisecond, time.Until(deadline)-settleMargin)
	}
	body := map[string]int64{"quietMilliseconds": quiet.Milliseconds(), "timeoutMilliseconds": limit.Milliseconds()}
	var settled struct{ Revision uint64 }
	if err := e.session.control.call(ctx, http.MethodPost, worldPath(e.world.Name, "settle"), body, &settled); err != nil {
		return 0, fmt.Errorf("the world does not settle: %w", err)
	}
	return settled.Revision, nil
}
