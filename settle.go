package tidemark

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// settleLook is the pause between two looks at what is under way.
const settleLook = time.Millisecond

// round is what Settle sees when nothing is left to do.
type round struct {
	revision store.Revision
	begun    uint64 // requests
}

// Settle waits until the world has nothing left to do: no request is under way, no controller of the
// server has an object in a queue, each open watch has read everything that is stored, and its client
// has taken the bytes. It looks twice, and nothing has begun in between. It returns the revision of that moment.
//
// Clients in the process have taken what they have read. Over a network, they have taken what their connection
// accepted. What a client does with it is not known to the server: a client with a delay in a queue of
// its own, or between two requests, counts as settled, and may write later. Reads of one goroutine after Settle see
// everything that was written before.
//
// The error is that of the context, with what is left to do, or ErrForkClosed.
func (w *World) Settle(ctx context.Context) (revision uint64, err error) {
	if err := w.use(); err != nil {
		return 0, err
	}
	if w.source != nil { // so that it takes the same time in each run in a bubble
		time.Sleep(settleLook)
	}
	var last *round
	for {
		this, why, err := w.look(ctx)
		switch {
		case err != nil:
			return 0, err
		case this == nil:
			last = nil
		case last != nil && *last == *this:
			return uint64(this.revision), nil
		default:
			last = this
			continue
		}
		pause := time.NewTimer(settleLook)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return 0, fmt.Errorf("the world has not settled: %s: %w", why, ctx.Err())
		}
	}
}

// look returns a round if nothing is left to do, and otherwise why not.
func (w *World) look(ctx context.Context) (_ *round, why string, err error) {
	loops, started, closed := w.controllers()
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

// controllers returns the loops, nil if there are none. started is false while those of a fork start, after its
// first write.
func (w *World) controllers() (loops *controller.Loops, started, closed bool) {
	f := w.fork
	if f == nil {
		return w.loops, true, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return w.loops, f.started || w.store.Any().Revision() == f.base, f.closed
}
