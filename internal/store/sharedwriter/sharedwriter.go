package sharedwriter

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// writer is the writer of a store on a Shared.
type writer struct {
	store store.Publisher
	log   store.Shared
	floor atomic.Uint64 // Batch.Floor, a Revision

	publishing sync.Mutex // held while a state is made and published
	time       time.Time  // of the newest change; guarded by publishing

	mu      sync.Mutex
	closing bool

	flights flights
	barrier barrier
	// refusals counts refusals in a row that the state does not explain.
	refusals atomic.Int64

	ctx     context.Context // ends with the store, and when the log failed
	stop    context.CancelFunc
	changes []store.Staged // scratch space
}

// Open loads the state of the Shared of the options and starts a store on it. The store owns the log from the call on, and
// closes it, also when Open fails.
func Open(ctx context.Context, o store.Options) (*store.Store, error) {
	l, b, err := load(ctx, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the objects: %w", err), o.Shared.Close())
	}
	s := l.Publisher(b)
	f := &writer{store: s, log: o.Shared, time: s.Any().Time(), barrier: barrier{together: make(chan struct{}, 1)}}
	f.floor.Store(uint64(b.Floor))
	f.ctx, f.stop = context.WithCancel(s.Context())
	s.Start(f)
	for _, loop := range [...]func(){f.run, f.age, f.heal} {
		s.Go(loop)
	}
	return s.Store(), nil
}

// mostLoads is how many loads may be overtaken by compaction before Open gives up.
const mostLoads = 10

// load loads the state from the log. It begins again if compaction overtakes it.
func load(ctx context.Context, o store.Options) (l *store.Loader, b store.Bounds, err error) {
	for range mostLoads {
		l = store.NewLoader(o)
		b, err = o.Shared.Load(ctx, l.Load)
		if expired := (*store.ExpiredError)(nil); !errors.As(err, &expired) {
			break
		}
	}
	return l, b, err
}

// run publishes the changes of the log until the store closes.
func (f *writer) run() {
	for f.ctx.Err() == nil {
		err := f.follow()
		expired := new(store.ExpiredError)
		if errors.As(err, &expired) {
			err = f.reload()
		}
		if err != nil && f.ctx.Err() == nil {
			f.fail(err)
		}
	}
}

func (f *writer) follow() error {
	for b, err := range f.log.Follow(f.ctx, f.store.Any().Revision()) {
		if err != nil {
			return err
		}
		if err := f.publish(&b); err != nil {
			return err
		}
	}
	return errors.New("the log ended the sequence of changes")
}

// fail ends the store: its state is void.
func (f *writer) fail(err error) {
	failure, first := f.store.Fail(err)
	f.stop()
	if first {
		f.store.Fatal(failure)
	}
}

// note ends the store if an error of the log says that it was reset.
func (f *writer) note(err error) {
	if errors.Is(err, store.ErrReset) {
		f.fail(err)
	}
}

// publish makes the changes of a batch readable.
func (f *writer) publish(b *store.Batch) error {
	s := f.store
	f.publishing.Lock()
	defer f.publishing.Unlock()
	if err := check(b, s.Any().Revision()); err != nil {
		return err
	}
	if b.Through > s.Any().Revision() {
		changes := f.stage(b)
		s.Publish(changes, b.Through, f.time)
		clear(changes)
	}
	if b.Floor > store.Revision(f.floor.Load()) {
		f.floor.Store(uint64(b.Floor))
	}
	f.raiseFloor()
	return nil
}

// check checks the contract of Shared.Follow.
func check(b *store.Batch, published store.Revision) error {
	last := published + 1
	for i := range b.Entries {
		e := &b.Entries[i]
		if e.Revision < last || e.Revision > b.Through || e.Object != nil && e.Object.Modified != e.Revision {
			return fmt.Errorf("the log sent a change of %s %q at revision %d after %d, through %d", e.Collection, e.Key, e.Revision, last-1, b.Through)
		}
		last = e.Revision
	}
	if b.Through < published {
		return fmt.Errorf("the log sent revisions through %d after %d", b.Through, published)
	}
	return nil
}

// stage returns the changes of a batch, with the objects before them. An entry that deletes an object that does not exist is no
// change. The caller holds publishing.
func (f *writer) stage(b *store.Batch) []store.Staged {
	f.flights.mu.Lock()
	defer f.flights.mu.Unlock()
	changes, state := f.changes[:0], f.store.Any()
	var newest map[objectName]*store.Object // that the batch has changed
	if len(b.Entries) > 1 {
		newest = make(map[objectName]*store.Object, len(b.Entries))
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		name := objectName{e.Collection, e.Key}
		before, changed := newest[name]
		if !changed {
			before = state.Get(e.Collection, e.Key)
		}
		if e.Object == nil && before == nil {
			continue
		}
		changes = append(changes, f.change(e, before))
		if newest != nil {
			newest[name] = e.Object
		}
	}
	if f.changes = changes; len(changes) > store.MaxGroupWrites {
		f.changes = nil
	}
	return changes
}

// change returns the change of an entry. The caller holds publishing and flights.mu.
func (f *writer) change(e *store.Entry, before *store.Object) store.Staged {
	s := f.store
	c := &store.Change{Revision: e.Revision, Before: before, After: e.Object}
	origin := e.Origin
	if own := f.flights.see(e.Collection, c); own != nil && origin == nil {
		origin = own.Origin
	}
	m := s.Stage(e.Collection, c, origin)
	// The log has no times. That of another server's change is when this one read it, which is soon after.
	var at time.Time
	if origin != nil {
		at = origin.Time
	}
	if at.IsZero() {
		at = s.Now()
	}
	if at.After(f.time) {
		f.time = at
	}
	m.SetTime(f.time)
	if why := e.Object.Unreadable(); why != "" {
		s.Options().Note(true, "storage: an object cannot be read, and requests for it fail", "collection", e.Collection, "key", e.Key, "err", why)
	}
	s.Pack(e.Collection, e.Object)
	return m
}

// raiseFloor raises the floor to the oldest revision that the log or the memory still has.
func (f *writer) raiseFloor() {
	f.store.RaiseFloor(min(store.Revision(f.floor.Load()), f.store.Window()))
}

// age drops changes from memory that are older than Options.Retention, until the store closes.
// Changes in the log stay readable.
func (f *writer) age() {
	s := f.store
	ticker := time.NewTicker(s.Aging().Tick())
	defer ticker.Stop()
	for {
		select {
		case <-s.Done():
			return
		case <-ticker.C:
		case <-s.Aging().Kicked():
		}
		s.Trim(s.Aging().Floor(s.Any().Revision()))
		f.raiseFloor()
	}
}

// Verify implements store.Writer: objects, bytes and transactions under way agree.
func (f *writer) Verify() error {
	u := &f.flights
	u.mu.Lock()
	defer u.mu.Unlock()
	if (u.count == 0) != (len(u.of) == 0) || u.count == 0 && u.bytes != 0 {
		return fmt.Errorf("%d transactions under way write %d objects, with %d bytes", u.count, len(u.of), u.bytes)
	}
	return nil
}

// Close implements store.Writer. It waits for the writes under way for some time, then ends them. No other barrier begins.
func (f *writer) Close() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	timer := time.AfterFunc(longestClose, f.store.Stop)
	defer timer.Stop()
	f.flights.wait.Wait()
	f.barrier.close()
}

// longestClose is how long Close waits for writes under way.
const longestClose = 5 * time.Second
