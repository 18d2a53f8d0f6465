package world

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// settleLook is the pause between two looks at the unfinished work.
	settleLook = time.Millisecond
	// quietLooks is the number of parts of a quiet, and of the looks of SettleFor in it at most: many worlds may
	// wait at once.
	quietLooks = 16
)

// round is a look of Settle that found no unfinished work.
type round struct {
	revision store.Revision
	begun    uint64 // requests
}

// Settle waits until the world has nothing left to do: no request is under way, no controller of the
// server has an object in a queue, each open watch has read everything that is stored, and its client
// has taken the bytes. It looks twice, and nothing has begun in between. It returns the revision of that moment.
//
// The controllers of a fork, which otherwise start with its first write, start when Settle begins.
//
// Clients in the process have taken what they have read. Over a network, they have taken what their connection
// accepted. The server does not know whether a client has processed it: a client with a delay in a queue of
// its own, or between two requests, counts as settled, and may write later. Reads of one goroutine after Settle see
// everything that was written before.
//
// The error is that of the context, with what is left to do, or ErrForkClosed.
func (w *World) Settle(ctx context.Context) (revision uint64, err error) {
	return w.SettleFor(ctx, 0)
}

// SettleFor waits until the world has settled, has then had no write for the duration of quiet, and has settled
// still. Reads do not count as long as they have ended in the end. It returns the revision, which was the same all the
// time. A quiet of zero or less is that of Settle. It may return up to a sixteenth of quiet late.
//
// The errors are those of Settle.
func (w *World) SettleFor(ctx context.Context, quiet time.Duration) (revision uint64, err error) {
	end, err := w.settle(ctx, quiet)
	return uint64(end.revision), err
}

// settle is SettleFor. It also returns how many requests have begun.
func (w *World) settle(ctx context.Context, quiet time.Duration) (round, error) {
	if err := w.use(); err != nil {
		return round{}, err
	}
	if w.source != nil { // so that it takes the same time in each run in a bubble
		time.Sleep(settleLook)
	}
	if w.fork != nil {
		w.diverged() // without a write the controllers would sleep: there may be garbage to collect
	}
	var before store.Revision // when the world settled last; zero: it has not, as each world has objects
	for {
		now, err := w.settleOnce(ctx, max(settleLook, quiet/quietLooks))
		if err != nil || quiet <= 0 || now.revision == before {
			return now, err
		}
		before = now.revision
		switch err := w.awaitWrite(ctx, before, quiet); {
		case errors.Is(err, store.ErrClosed):
			return round{}, ErrForkClosed
		case err != nil:
			return round{}, fmt.Errorf("the world has not settled: it must be quiet for %v, and has a write at revision %d: %w", quiet, before, err)
		}
	}
}

// awaitWrite waits for a write after a revision, for the duration of quiet. It waits in parts, and a part counts for
// no more than its length: while the process waits for a CPU, requests wait in their connections, and the world is
// not quiet.
func (w *World) awaitWrite(ctx context.Context, after store.Revision, quiet time.Duration) error {
	part := max(settleLook, quiet/quietLooks)
	for ; quiet > 0; quiet -= part {
		var still *store.TooLargeError
		if _, err := w.store.NotOlderThan(ctx, after+1, min(part, quiet)); !errors.As(err, &still) {
			return err // nil: there is a write
		}
	}
	return nil
}

// settleOnce waits until there is nothing left to do. It looks at once, and then after each pause.
func (w *World) settleOnce(ctx context.Context, pause time.Duration) (round, error) {
	var last *round
	for {
		this, why, err := w.look(ctx)
		switch {
		case err != nil:
			return round{}, err
		case this == nil:
			last = nil
		case last != nil && *last == *this:
			return *this, nil
		default:
			last = this
			continue
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return round{}, fmt.Errorf("the world has not settled: %s: %w", why, ctx.Err())
		}
	}
}

// look returns a round if nothing is left to do, and otherwise why not.
func (w *World) look(ctx context.Context) (_ *round, why string, err error) {
	loops, started, closed := w.loopsOf()
	switch {
	case closed:
		return nil, "", ErrForkClosed
	case !started:
		return nil, "the controllers start", nil
	case loops != nil:
		if err := loops.Settled(ctx); err != nil {
			return nil, "", fmt.Errorf("the world has not settled: the controllers have work to do: %w", err)
		}
	}
	now := &round{w.store.Any().Revision(), w.handler.Begun()}
	if why := w.handler.Busy(now.revision); why != "" {
		return nil, why, nil
	}
	return now, "", nil
}

// loopsOf returns the loops, nil if there are none. started is false while those of a fork start.
func (w *World) loopsOf() (loops *controller.Loops, started, closed bool) {
	f := w.fork
	if f == nil {
		return w.loops, true, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.loops, f.started, f.closed
}
