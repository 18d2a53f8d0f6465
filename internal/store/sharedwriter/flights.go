package sharedwriter

import (
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// objectName names an object of any collection.
type objectName struct{ collection, key string }

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
	txn   *store.Txn
	bytes int64
	// seen are the changes of its objects that were published since it began.
	seen []seenChange
}

type seenChange struct {
	collection string
	*store.Change
}

// The limits of transactions under way: each is in memory twice, and the log has its own limits.
const (
	maxFlights     = 512
	maxFlightBytes = 64 << 20
)

// begin registers a transaction. The caller calls end. The error is ErrOverloaded, ErrClosed, or
// that the log failed.
func (f *writer) begin(t *store.Txn) (*flight, error) {
	own := *t // a copy, so that those of commits to a Log stay on their stacks
	a := &flight{txn: &own}
	for i := range t.Writes {
		a.bytes += int64(len(t.Writes[i].Value))
	}
	if err := f.store.Failure(); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closing {
		return nil, store.ErrClosed
	}
	u := &f.flights
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.count >= maxFlights || u.count > 0 && u.bytes+a.bytes > maxFlightBytes {
		return nil, store.ErrOverloaded
	}
	u.wait.Add(1)
	u.count++
	u.bytes += a.bytes
	if u.of == nil {
		u.of = map[objectName][]*flight{}
	}
	for w := range stored(t) {
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
	for w := range stored(a.txn) {
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
func (u *flights) see(collection string, c *store.Change) (own *store.Write) {
	if len(u.of) == 0 {
		return nil
	}
	for _, a := range u.of[objectName{collection, c.Key()}] {
		a.seen = append(a.seen, seenChange{collection, c})
		for w, last := range stored(a.txn) {
			if w.Collection == collection && w.Key == c.Key() && makes(w, last, c) {
				own = w
			}
		}
	}
	return own
}

// stored yields the first write of each object of a transaction, and the last one: those between
// them are not stored by a Shared.
func stored(t *store.Txn) iter.Seq2[*store.Write, *store.Write] {
	return func(yield func(first, last *store.Write) bool) {
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

// makes reports whether the change is the one that the write requests, with the last one of its object.
func makes(w, last *store.Write, c *store.Change) bool {
	if w.If == 0 != (c.Before == nil) || c.Before != nil && c.Before.Modified != w.If || (last.Value == nil) != (c.After == nil) {
		return false
	}
	if c.After == nil {
		return true
	}
	held, head, tail := string(c.After.Held), string(last.Value[:last.RevisionAt]), string(last.Value[last.RevisionAt:])
	return len(held) == len(last.Value)+c.After.Digits() && strings.HasPrefix(held, head) && strings.HasSuffix(held, tail)
}
