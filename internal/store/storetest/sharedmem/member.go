package sharedmem

import (
	"bytes"
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Member is the access of one store to a Log. It implements store.Shared, and panics if a store
// closes it during a call.
type Member struct {
	log   *Log
	epoch int // of the log that it works on

	calls  atomic.Int64
	closed atomic.Bool

	mu     sync.Mutex
	chance *rand.Rand
	paused chan struct{} // closed when Follow goes on; nil: it is not paused
	cut    bool
	heads  int
}

// draw returns a number in [0, 1).
func (m *Member) draw() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chance.Float64()
}

// Pause stops Follow before its next batch, until Resume.
func (m *Member) Pause() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused == nil {
		m.paused = make(chan struct{})
	}
}

// Resume ends a Pause.
func (m *Member) Resume() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.paused != nil {
		close(m.paused)
		m.paused = nil
	}
}

// Cut makes the log unreachable for all calls but Follow, or reachable again.
func (m *Member) Cut(cut bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cut = cut
}

// Heads returns how often Head was called.
func (m *Member) Heads() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.heads
}

// enter begins a call, and leave ends it.
func (m *Member) enter() (leave func()) {
	m.calls.Add(1)
	if m.closed.Load() {
		panic(errClosed)
	}
	return func() { m.calls.Add(-1) }
}

// reach is the way to the log.
func (m *Member) reach(ctx context.Context) error {
	if err := m.sleep(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cut || m.chance.Float64() < m.log.faults.Unavailable {
		return &store.UnavailableError{Err: errUnreachable}
	}
	return nil
}

// Load implements store.Shared.
func (m *Member) Load(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	defer m.enter()()
	if err := m.sleep(ctx); err != nil {
		return store.Bounds{}, err
	}
	m.mu.Lock()
	cut := m.cut
	m.mu.Unlock()
	if cut {
		return store.Bounds{}, &store.UnavailableError{Err: errUnreachable}
	}
	l := m.log
	l.mu.Lock()
	b := store.Bounds{Head: l.head, Floor: l.floor}
	var names [2][]name
	var objects [2][]*store.Object
	for n, o := range l.objects {
		i := len(n.key) % 2
		names[i], objects[i] = append(names[i], n), append(objects[i], fresh(o))
	}
	l.mu.Unlock()
	var wg sync.WaitGroup
	var errs [2]error
	for i := range names {
		wg.Go(func() {
			for j, o := range objects[i] {
				if errs[i] = load(names[i][j].collection, o); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return store.Bounds{}, err
		}
	}
	return b, m.sleep(ctx)
}

// Follow implements store.Shared.
func (m *Member) Follow(ctx context.Context, after store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		defer m.enter()()
		floor := store.Revision(0)
		for {
			b, err := m.next(ctx, after, floor)
			if err == nil {
				err = m.sleep(ctx)
			}
			if err != nil {
				yield(store.Batch{}, err)
				return
			}
			if !yield(b, nil) {
				return
			}
			after, floor = b.Through, b.Floor
		}
	}
}

// next waits for something after a revision, or a floor above one.
func (m *Member) next(ctx context.Context, after, floor store.Revision) (store.Batch, error) {
	l := m.log
	for {
		m.mu.Lock()
		paused := m.paused
		most := 1 + m.chance.IntN(8)
		m.mu.Unlock()
		l.mu.Lock()
		changed := l.changed
		if paused == nil {
			b, err := m.batch(after, most)
			if err != nil || b.Through > after || b.Floor > floor {
				l.mu.Unlock()
				return b, err
			}
		}
		l.mu.Unlock()
		if paused != nil {
			changed = paused
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return store.Batch{}, ctx.Err()
		}
	}
}

// batch returns up to so many revisions with changes. The caller holds log.mu.
func (m *Member) batch(after store.Revision, most int) (store.Batch, error) {
	l := m.log
	switch {
	case m.epoch != l.epoch || after > l.head:
		return store.Batch{}, store.ErrReset
	case after < l.floor:
		return store.Batch{}, &store.ExpiredError{Revision: after, Floor: l.floor}
	}
	b := store.Batch{Through: l.head, Floor: l.floor}
	last := after
	for _, e := range l.entries[l.after(after):] {
		if e.Revision != last {
			if most--; most < 0 {
				b.Through = e.Revision - 1
				break
			}
			last = e.Revision
		}
		e.Object, e.Before = fresh(e.Object), nil
		b.Entries = append(b.Entries, e)
	}
	return b, nil
}

// Propose implements store.Shared.
func (m *Member) Propose(ctx context.Context, t *store.Txn) (store.Decision, error) {
	defer m.enter()()
	for {
		if err := m.reach(ctx); err != nil {
			return store.Decision{}, err
		}
		if m.draw() < m.log.faults.Unknown {
			return store.Decision{}, m.unknown(t)
		}
		d := m.log.decide(t)
		if err := m.sleep(ctx); err != nil {
			return store.Decision{}, err
		}
		switch lost := m.draw() < m.log.faults.Lost; {
		case !lost:
			return d, nil
		case d.Made: // the history shows the transaction to the next try
			return d, m.sleep(ctx)
		}
	}
}

// unknown makes a transaction now, later or never.
func (m *Member) unknown(t *store.Txn) error {
	switch when := m.draw(); {
	case when < 0.3:
		m.log.decide(t)
	case when < 0.6:
		later := *t
		later.Writes = slices.Clone(t.Writes)
		for i := range later.Writes {
			later.Writes[i].Value = bytes.Clone(later.Writes[i].Value)
		}
		m.log.late.Go(func() {
			for range 3 {
				_ = m.sleep(context.Background())
			}
			m.log.decide(&later)
		})
	}
	return store.ErrUnknown
}

// Head implements store.Shared.
func (m *Member) Head(ctx context.Context) (store.Revision, error) {
	defer m.enter()()
	m.mu.Lock()
	m.heads++
	m.mu.Unlock()
	if err := m.reach(ctx); err != nil {
		return 0, err
	}
	r := m.log.Head()
	return r, m.sleep(ctx)
}

// Changes implements store.Shared.
func (m *Member) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		defer m.enter()()
		l := m.log
		l.mu.Lock()
		floor, entries := l.floor, l.entries[l.after(after):]
		l.mu.Unlock()
		if after < floor {
			yield(store.Entry{}, &store.ExpiredError{Revision: after, Floor: floor})
			return
		}
		for _, e := range entries {
			if e.Revision > upTo {
				return
			}
			if m.draw() < 0.1 {
				if err := m.sleep(ctx); err != nil {
					yield(store.Entry{}, err)
					return
				}
			}
			if l.mu.Lock(); l.floor >= e.Revision {
				floor = l.floor
				l.mu.Unlock()
				yield(store.Entry{}, &store.ExpiredError{Revision: e.Revision - 1, Floor: floor})
				return
			}
			l.mu.Unlock()
			e.Object, e.Before = fresh(e.Object), fresh(e.Before)
			if (collection == "" || e.Collection == collection) && !yield(e, nil) {
				return
			}
		}
	}
}

// ObjectsAt implements store.Shared.
func (m *Member) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		defer m.enter()()
		objects, err := m.log.objectsAt(collection, at)
		if err == nil {
			err = m.sleep(ctx)
		}
		if err != nil {
			yield(nil, err)
			return
		}
		for _, o := range objects {
			if strings.HasPrefix(o.Key, prefix) && o.Key > after && !yield(o, nil) {
				return
			}
		}
	}
}

// objectsAt returns copies of the objects of a collection at a revision, in the order of keys.
func (l *Log) objectsAt(collection string, at store.Revision) ([]*store.Object, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case at < l.floor:
		return nil, &store.ExpiredError{Revision: at, Floor: l.floor}
	case at > l.head:
		return nil, &store.TooLargeError{Revision: at, Current: l.head}
	}
	then := map[string]*store.Object{}
	for n, o := range l.objects {
		if n.collection == collection {
			then[n.key] = o
		}
	}
	for _, e := range slices.Backward(l.entries[l.after(at):]) {
		if e.Collection == collection && e.Before != nil {
			then[e.Key] = e.Before
		} else if e.Collection == collection {
			delete(then, e.Key)
		}
	}
	all := make([]*store.Object, 0, len(then))
	for _, o := range then {
		all = append(all, fresh(o))
	}
	slices.SortFunc(all, func(a, b *store.Object) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// Usage implements store.Shared.
func (m *Member) Usage() store.Usage { return store.Usage{} }

// Close implements store.Shared. The log stays.
func (m *Member) Close() error {
	if m.closed.Swap(true) {
		return errClosed
	}
	if n := m.calls.Load(); n != 0 {
		panic("sharedmem: the member is closed during a call")
	}
	return nil
}
