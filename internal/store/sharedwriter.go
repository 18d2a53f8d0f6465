package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// # The writer of a shared log
//
// Other servers append to the log too, so the log decides transactions and gives the revisions. The published state is one
// that the log had, perhaps some milliseconds ago. Three kinds of goroutines work on it:
//
//	one for the store    Follow: [publish] [publish] ...          the changes of all servers, whole revisions
//	each transaction     check, Propose ........ wait until the revision is published: response
//	each recent read     Head .................. wait until the revision is published: read
//
// Invariants:
//
//   - Only changes from Follow are published, in order. A transaction publishes nothing itself.
//   - A transaction is acknowledged after its revision was published here: its client reads it.
//   - A transaction is refused by a state that is not older than the request: the refusal is decided again by a state at the
//     revision that Head, or the log's refusal, has named since the request began.
//   - A read of the most recent state waits for a revision that Head named after the read began.
//
// Example: servers A and B have published revision 7, with a at revision 7. Clients of both update a. The log makes the
// transaction of A at revision 8, and refuses the one of B: its conditions do not hold at 8. B waits until it has published 8,
// checks the transaction by that state, and returns ErrConflict. A responds when it has published 8.
//
//	write    check by the published state; a refusal: Head, await, check again -> error
//	         Propose: made    -> await its revision -> response
//	                  refused -> await that revision, check -> error, or Propose again
//
// If the log is another one than before, or went back, the state is void and the process has to end. If compaction overtakes
// Follow, the state is loaded again: see reload.go.

// sharedWriter is the writer of a store on a Shared.
type sharedWriter struct {
	store *Store
	log   Shared
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
	changes []made // scratch space
}

func openShared(ctx context.Context, o Options) (*Store, error) {
	l, b, err := o.loadShared(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the objects: %w", err), o.Shared.Close())
	}
	s := l.store(o, b)
	f := newSharedWriter(s, o.Shared, b.Floor)
	s.writer = f
	for _, loop := range [...]func(){f.run, f.age, f.heal} {
		s.loop.Go(loop)
	}
	return s, nil
}

// mostLoads is how many loads may be overtaken by compaction before Open gives up.
const mostLoads = 10

// loadShared loads the state from the log. It begins again if compaction overtakes it.
func (o *Options) loadShared(ctx context.Context) (l *loader, b Bounds, err error) {
	for range mostLoads {
		l = &loader{o: o}
		b, err = o.Shared.Load(ctx, l.load)
		if expired := (*ExpiredError)(nil); !errors.As(err, &expired) {
			break
		}
	}
	return l, b, err
}

func newSharedWriter(s *Store, log Shared, floor Revision) *sharedWriter {
	f := &sharedWriter{store: s, log: log, time: s.Any().time, barrier: barrier{together: make(chan struct{}, 1)}}
	f.floor.Store(uint64(floor))
	f.ctx, f.stop = context.WithCancel(s.ctx)
	return f
}

// run publishes the changes of the log until the store closes.
func (f *sharedWriter) run() {
	for f.ctx.Err() == nil {
		err := f.follow()
		expired := new(ExpiredError)
		if errors.As(err, &expired) {
			err = f.reload()
		}
		if err != nil && f.ctx.Err() == nil {
			f.fail(err)
		}
	}
}

func (f *sharedWriter) follow() error {
	for b, err := range f.log.Follow(f.ctx, f.store.Any().revision) {
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
func (f *sharedWriter) fail(err error) {
	if !errors.Is(err, ErrReset) {
		err = logFailed(err)
	}
	failure, first := f.store.fail(err)
	f.stop()
	if first {
		f.store.fatal(failure)
	}
}

// note ends the store if an error of the log says that it was reset.
func (f *sharedWriter) note(err error) {
	if errors.Is(err, ErrReset) {
		f.fail(err)
	}
}

// publish makes the changes of a batch readable.
func (f *sharedWriter) publish(b *Batch) error {
	s := f.store
	f.publishing.Lock()
	defer f.publishing.Unlock()
	if err := b.check(s.Any().revision); err != nil {
		return err
	}
	if b.Through > s.Any().revision {
		changes := f.made(b)
		s.publish(changes, b.Through, f.time)
		clear(changes)
	}
	if b.Floor > Revision(f.floor.Load()) {
		f.floor.Store(uint64(b.Floor))
	}
	f.raiseFloor()
	return nil
}

// check checks the contract of Shared.Follow.
func (b *Batch) check(published Revision) error {
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

// made returns the changes of a batch, with the objects before them. An entry that deletes an object that does not exist is no
// change. The caller holds publishing.
func (f *sharedWriter) made(b *Batch) []made {
	f.flights.mu.Lock()
	defer f.flights.mu.Unlock()
	changes, state := f.changes[:0], f.store.Any()
	var newest map[objectName]*Object // that the batch has changed
	if len(b.Entries) > 1 {
		newest = make(map[objectName]*Object, len(b.Entries))
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
	if f.changes = changes; len(changes) > maxGroupWrites {
		f.changes = nil
	}
	return changes
}

// change returns the change of an entry. The caller holds publishing and flights.mu.
func (f *sharedWriter) change(e *Entry, before *Object) made {
	s := f.store
	c := &Change{Revision: e.Revision, Before: before, After: e.Object}
	origin := e.Origin
	if own := f.flights.see(e.Collection, c); own != nil && origin == nil {
		origin = own.Origin
	}
	m := s.stage(e.Collection, c, origin)
	// The log has no times. That of another server's change is when this one read it, which is soon after.
	at := c.origin.Time
	if at.IsZero() {
		at = wallTime(s.o.Now())
	}
	if at.After(f.time) {
		f.time = at
	}
	c.origin.Time = f.time
	if why := e.Object.Unreadable(); why != "" {
		s.o.Note(true, "storage: an object cannot be read, and requests for it fail", "collection", e.Collection, "key", e.Key, "err", why)
	}
	if o := e.Object; o != nil && s.o.packs(e.Collection, len(o.Held)) {
		packLoaded(o)
	}
	return m
}

// raiseFloor raises the floor to the oldest revision that the log or the memory still has.
func (f *sharedWriter) raiseFloor() {
	f.store.raiseFloor(min(Revision(f.floor.Load()), f.store.window()))
}

// age drops changes from memory that are older than Options.Retention, until the store closes.
// Changes in the log stay readable.
func (f *sharedWriter) age() {
	s := f.store
	ticker := time.NewTicker(s.aging.tick)
	defer ticker.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-ticker.C:
		case <-s.aging.kicked:
		}
		s.trim(s.aging.floor(s.Any().revision))
		f.raiseFloor()
	}
}

// await waits until a revision is published. The context bounds it.
func (f *sharedWriter) await(ctx context.Context, r Revision) (*State, error) {
	state, err := f.store.NotOlderThan(ctx, r, longestLag)
	if late := (*TooLargeError)(nil); errors.As(err, &late) {
		return nil, &UnavailableError{Err: fmt.Errorf("this server is behind: %w", err)}
	}
	return state, err
}

// verify implements writer: objects, bytes and transactions under way agree.
func (f *sharedWriter) verify() error {
	u := &f.flights
	u.mu.Lock()
	defer u.mu.Unlock()
	if (u.count == 0) != (len(u.of) == 0) || u.count == 0 && u.bytes != 0 {
		return fmt.Errorf("%d transactions under way write %d objects, with %d bytes", u.count, len(u.of), u.bytes)
	}
	return nil
}

// close implements writer. It waits for the writes under way for some time, then ends them. No other barrier begins.
func (f *sharedWriter) close() {
	f.mu.Lock()
	f.closing = true
	f.mu.Unlock()
	timer := time.AfterFunc(longestClose, f.store.stop)
	defer timer.Stop()
	f.flights.wait.Wait()
	f.barrier.close()
}

// longestClose is how long Close waits for writes under way.
const longestClose = 5 * time.Second

// flights are the transactions under way, from their begin to their response.
type flights struct {
	wait sync.WaitGroup

	mu    sync.Mutex
	of    map[objectName][]*flight // by the objects that they write
	count int
	bytes int64
}

// flight is a transaction under way.
type flight struct {
	txn   *Txn
	bytes int64
	// seen are the changes of its objects that were published since it began.
	seen []seenChange
}

type seenChange struct {
	collection string
	*Change
}

// The limits of transactions under way: each is in memory twice, and the log has its own limits.
const (
	maxFlights     = 512
	maxFlightBytes = 64 << 20
)

// begin registers a transaction. The caller calls end. The error is ErrOverloaded, ErrClosed, or
// that the log failed.
func (f *sharedWriter) begin(t *Txn) (*flight, error) {
	own := *t // a copy, so that those of commits to a Log stay on their stacks
	a := &flight{txn: &own}
	for i := range t.Writes {
		a.bytes += int64(len(t.Writes[i].Value))
	}
	if err := f.store.brokenBy(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return nil, ErrClosed
	}
	u := &f.flights
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count >= maxFlights || u.count > 0 && u.bytes+a.bytes > maxFlightBytes {
		return nil, ErrOverloaded
	}
	u.wait.Add(1)
	u.count++
	u.bytes += a.bytes
	if u.of == nil {
		u.of = map[objectName][]*flight{}
	}
	for w := range t.stored() {
		name := objectName{w.Collection, w.Key}
		u.of[name] = append(u.of[name], a)
	}
	return a, nil
}

// end forgets a transaction.
func (u *flights) end(a *flight) {
	defer u.wait.Done()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.count--
	u.bytes -= a.bytes
	for w := range a.txn.stored() {
		name := objectName{w.Collection, w.Key}
		if left := slices.DeleteFunc(u.of[name], func(b *flight) bool { return a == b }); len(left) > 0 {
			u.of[name] = left
		} else {
			delete(u.of, name)
		}
	}
}

// see shows a change to the transactions that write the object, before it is published. It
// returns the write that made it, if that is one of them. The caller holds mu.
func (u *flights) see(collection string, c *Change) (own *Write) {
	if len(u.of) == 0 {
		return nil
	}
	for _, a := range u.of[objectName{collection, c.key()}] {
		a.seen = append(a.seen, seenChange{collection, c})
		for w, last := range a.txn.stored() {
			if w.Collection == collection && w.Key == c.key() && w.made(last, c) {
				own = w
			}
		}
	}
	return own
}

// stored yields the first write of each object of a transaction, and the last one: those between
// them are not stored by a Shared.
func (t *Txn) stored() iter.Seq2[*Write, *Write] {
	return func(yield func(first, last *Write) bool) {
		for i := 0; i < len(t.Writes); {
			first, last := &t.Writes[i], &t.Writes[i]
			for i++; i < len(t.Writes) && t.Writes[i].Next; i++ {
				last = &t.Writes[i]
			}
			if !yield(first, last) {
				return
			}
		}
	}
}

// made reports whether the change is the one that the write requests, with the last one of its object.
func (w *Write) made(last *Write, c *Change) bool {
	if w.If == 0 != (c.Before == nil) || c.Before != nil && c.Before.Modified != w.If || (last.Value == nil) != (c.After == nil) {
		return false
	}
	if c.After == nil {
		return true
	}
	held, head, tail := string(c.After.Held), string(last.Value[:last.RevisionAt]), string(last.Value[last.RevisionAt:])
	return len(held) == len(last.Value)+digits(c.Revision) && strings.HasPrefix(held, head) && strings.HasSuffix(held, tail)
}
