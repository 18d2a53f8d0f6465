package store

import (
	"context"
	"sync"
)

const (
	oldViews   = 4 // batches at a time for views that never had a tree
	oldBatches = 4 // the same for cursors, and for views that lost their tree
	// sharedBatches is the same on a Shared, which takes a while for each batch, and mostly waits: etcd begins with old
	// watches every 100 ms. All clients continue their watches there when a server was started again.
	sharedBatches = 32
	oldBatch      = 256 // objects or changes of a batch
	maxIdle       = 32  // cached trees that no view reads

	// oldBytes ends a batch early, in bytes.
	oldBytes = BatchBytes
)

// BatchBytes is about the memory of a view that is not InMemory, between two objects, in bytes.
const BatchBytes = 1 << 20

// oldReads bounds the reading of history from the log.
type oldReads struct {
	ctx     context.Context // ends when the store closes
	views   chan struct{}
	batches chan struct{}

	mu     sync.RWMutex // held while reading from the log, which is not closed meanwhile
	closed bool
}

func (r *oldReads) start(ctx context.Context, shared bool) {
	r.ctx = ctx
	r.views = make(chan struct{}, oldViews)
	r.batches = make(chan struct{}, oldBatches)
	if shared {
		r.batches = make(chan struct{}, sharedBatches)
	}
}

func (r *oldReads) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// batch calls f, which reads a batch from the log, when not too many others do: slots has room for those
// that may. f must not wait for a client. Its context ends with the caller's and with the store.
func (r *oldReads) batch(ctx context.Context, slots chan struct{}, f func(context.Context) error) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return ErrClosed
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.closed {
		return ErrClosed
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	return f(ctx)
}
