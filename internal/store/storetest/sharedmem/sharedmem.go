// Package sharedmem is a store.Shared in memory, for tests: several stores work on one log, each
// with a member of its own. It injects the faults of a log on other machines: delays, revisions that
// others wrote, revisions with many changes, lost responses, outcomes that stay unknown,
// compaction that overtakes Follow, and a restored backup.
//
// All chance comes from one seed. In a bubble of testing/synctest delays take no time.
package sharedmem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Faults are the faults that a log injects. The zero value injects nothing.
type Faults struct {
	// Delay is the longest time that the way to the log takes, the way back, and each batch of
	// Follow.
	Delay time.Duration
	// Lost is the chance that the response to a transaction is lost. The member then asks again.
	Lost float64
	// Unknown is the chance that the outcome of a transaction stays unknown: it is made, not
	// made, or made later.
	Unknown float64
	// Unavailable is the chance that a call cannot reach the log.
	Unavailable float64
	// Foreign is the chance that another client of the log writes something else before a
	// transaction: revisions that have no changes for stores.
	Foreign float64
}

// Log is a log that several stores share. All methods are safe for concurrent use.
type Log struct {
	faults Faults
	late   sync.WaitGroup // transactions that are made later

	mu      sync.Mutex
	chance  *rand.Rand
	epoch   int // of resets
	head    store.Revision
	floor   store.Revision
	objects map[name]*store.Object
	entries []store.Entry
	guards  map[string]store.Revision // when each was claimed last
	changed chan struct{}             // closed at the next change
}

type name struct{ collection, key string }

// New returns an empty log whose revisions begin after start. The log takes a seed from chance, which the caller may use
// further.
func New(chance *rand.Rand, start store.Revision, faults Faults) *Log {
	own := rand.New(rand.NewPCG(chance.Uint64(), 1))
	return &Log{faults: faults, chance: own, head: start, floor: start,
		objects: map[name]*store.Object{}, guards: map[string]store.Revision{}, changed: make(chan struct{})}
}

// Open returns a member for one more store.
func (l *Log) Open() *Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &Member{log: l, epoch: l.epoch, chance: rand.New(rand.NewPCG(l.chance.Uint64(), 1))}
}

// Head returns the newest revision, at once.
func (l *Log) Head() store.Revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

// Settle waits for the transactions of unknown outcome that are made later.
func (l *Log) Settle() { l.late.Wait() }

// Changes returns how many changes of objects the log has, which compaction takes off.
func (l *Log) Changes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Expire deletes objects in one revision, as the end of an etcd lease does. Those that are not
// there are left out.
func (l *Log) Expire(collection string, keys ...string) store.Revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.head + 1
	for _, key := range keys {
		if l.objects[name{collection, key}] != nil {
			l.set(name{collection, key}, r, nil)
		}
	}
	if n := len(l.entries); n > 0 && l.entries[n-1].Revision == r {
		l.advance(r)
	}
	return l.head
}

// Foreign makes revisions that have no changes for stores.
func (l *Log) Foreign(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(l.head + store.Revision(n))
}

// Compact drops the history that only revisions below floor need.
func (l *Log) Compact(floor store.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	floor = min(floor, l.head)
	if floor <= l.floor {
		return
	}
	l.floor = floor
	l.entries = l.entries[l.after(floor):]
	l.advance(l.head)
}

// Restore takes the log back to a revision of its history, as the restore of a backup does.
func (l *Log) Restore(r store.Revision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	kept := l.after(r)
	for _, e := range slices.Backward(l.entries[kept:]) {
		if n := (name{e.Collection, e.Key}); e.Before != nil {
			l.objects[n] = e.Before
		} else {
			delete(l.objects, n)
		}
	}
	l.entries = l.entries[:kept]
	l.epoch++
	l.advance(r)
}

// after returns the index of the first entry above a revision. The caller holds mu.
func (l *Log) after(r store.Revision) int {
	i := 0
	for i < len(l.entries) && l.entries[i].Revision <= r {
		i++
	}
	return i
}

// advance sets the head, and wakes the readers of Follow. The caller holds mu.
func (l *Log) advance(head store.Revision) {
	l.head = head
	close(l.changed)
	l.changed = make(chan struct{})
}

// set writes or deletes an object at a revision. The caller holds mu.
func (l *Log) set(n name, r store.Revision, o *store.Object) {
	l.entries = append(l.entries, store.Entry{Collection: n.collection, Key: n.key, Revision: r, Object: o, Before: l.objects[n]})
	if o != nil {
		l.objects[n] = o
	} else {
		delete(l.objects, n)
	}
}

// decide makes a transaction or refuses it.
func (l *Log) decide(t *store.Txn) store.Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.chance.Float64() < l.faults.Foreign {
		l.advance(l.head + store.Revision(1+l.chance.IntN(3)))
	}
	if !l.holds(t) {
		return store.Decision{Revision: l.head}
	}
	r := l.head + 1
	for i := range t.Writes {
		if i+1 < len(t.Writes) && t.Writes[i+1].Next {
			continue // the next one alone is stored
		}
		w := &t.Writes[i]
		n := name{w.Collection, w.Key}
		if w.Value != nil {
			l.set(n, r, object(w, l.objects[n], r))
		} else if l.objects[n] != nil {
			l.set(n, r, nil)
		}
	}
	for _, g := range t.Guards {
		if g.Claim {
			l.guards[g.Name] = r
		}
	}
	l.advance(r)
	return store.Decision{Made: true, Revision: r}
}

// holds reports whether the conditions of a transaction hold. The caller holds mu.
func (l *Log) holds(t *store.Txn) bool {
	at := func(collection, key string) store.Revision {
		if o := l.objects[name{collection, key}]; o != nil {
			return o.Modified
		}
		return 0
	}
	for _, w := range t.Writes {
		if !w.Next && at(w.Collection, w.Key) != w.If {
			return false
		}
	}
	for _, n := range t.Needs {
		if at(n.Collection, n.Key) != n.Modified {
			return false
		}
	}
	for _, g := range t.Guards {
		if l.guards[g.Name] > g.Seen {
			return false
		}
	}
	return true
}

// object returns the object that a write makes of the one before it.
func object(w *store.Write, before *store.Object, r store.Revision) *store.Object {
	value := fmt.Appendf(slices.Clone(w.Value[:w.RevisionAt]), "%d", r)
	o := &store.Object{Key: w.Key, Held: append(value, w.Value[w.RevisionAt:]...), Created: r, Modified: r, RevisionAt: int32(w.RevisionAt)}
	if before != nil {
		o.Created = before.Created
	}
	return o
}

// fresh returns a copy of an object, for one store: a store keeps its own notes in it.
func fresh(o *store.Object) *store.Object {
	if o == nil {
		return nil
	}
	return &store.Object{Key: o.Key, Held: o.Held, Created: o.Created, Modified: o.Modified, RevisionAt: o.RevisionAt}
}

var (
	errUnreachable = errors.New("the injected fault of this call")
	errClosed      = errors.New("sharedmem: the member is closed")
)

// sleep waits for up to the longest delay.
func (m *Member) sleep(ctx context.Context) error {
	if m.log.faults.Delay == 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(time.Duration(m.draw() * float64(m.log.faults.Delay)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
