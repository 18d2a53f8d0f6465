package migrate

import (
	"context"
	"iter"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Follow yields the changes since the revision that was copied, while servers continue to write.
// Ready is called once, when all changes that etcd had before the call were yielded. When done is
// closed, Follow continues up to the newest revision at that time, and ends; Verify compares with
// that one. The store.Batch has no entries of objects that cannot be read but their deletion:
// Verify finds those that stay unreadable.
func (d *Directory) Follow(ctx context.Context, ready func(at store.Revision), done <-chan struct{}) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		newest, err := d.Export.Head(ctx)
		if err != nil {
			yield(store.Batch{}, err)
			return
		}
		f := &following{at: d.at}
		following, stop := context.WithCancel(ctx)
		defer stop()
		var waiting sync.WaitGroup
		defer waiting.Wait()
		defer stop()
		waiting.Go(func() { f.wait(following, d, done, stop) })
		count := 0
		if f.at >= newest && ready != nil {
			ready(f.at)
			ready = nil
		}
		for b, err := range d.Export.Follow(following, f.at) {
			if err != nil {
				if err = f.result(ctx, err); err != nil {
					yield(store.Batch{}, err)
				}
				return
			}
			for i := range b.Entries {
				if b.Entries[i].Object.Unreadable() != "" {
					b.Entries[i].Object = nil
				}
			}
			if !yield(b, nil) {
				return
			}
			count += len(b.Entries)
			d.step("following", count, 0)
			d.at = b.Through
			if ready != nil && b.Through >= newest {
				ready(b.Through)
				ready = nil
			}
			if f.reached(b.Through) {
				return
			}
		}
	}
}

// following is how far Follow is, and where it ends.
type following struct {
	mu   sync.Mutex
	at   store.Revision
	last store.Revision // zero: it is not known yet
	err  error          // why last cannot be known
}

// reached sets how far Follow is, and reports whether that is the end.
func (f *following) reached(at store.Revision) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = at
	return f.last != 0 && at >= f.last
}

// wait waits for done, and stops Follow if it has reached the newest revision at that time.
func (f *following) wait(ctx context.Context, d *Directory, done <-chan struct{}, stop func()) {
	select {
	case <-done:
	case <-ctx.Done():
		return
	}
	head, err := d.Export.Head(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.err = head, err
	if err != nil || f.at >= head {
		stop()
	}
}

// result returns the error of Follow when the watch ended with one: none if it was stopped at the end.
func (f *following) result(ctx context.Context, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case f.err != nil:
		return f.err
	case f.last != 0 && f.at >= f.last:
		return nil
	}
	return err
}
