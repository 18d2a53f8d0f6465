package store

import (
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
)

// # History in memory
//
// Each collection has its changes in order (recent). History has the order over all
// collections, the kept states, and the number of bytes that all of it takes:
//
//   - for each change: the change and the version that it replaced (the new version
//     belongs to the state, or to the next change), an actor that is new, and an audit
//     ID that is no UUID
//   - the objects of Change.Gone
//   - for each kept state: the nodes that later states do not share with it. They
//     are counted when an edit replaces them, see edit.retired: a node that is in
//     the newest state, and was made before the last kept state, is in that one
//   - for each tree that views read, or read recently: all its nodes
//   - the bytes that Charge adds
//
// Above Options.MaxMemory the oldest changes of all collections are dropped, and with them
// all that needs them: kept states, and the trees of views, which go on from the log.
//
// Exact makes a state from the nearest kept one by undoing or redoing the changes in
// between.
const keepEvery = 4096 // changes; undoing one costs about a microsecond

// An in-memory log is compacted when it holds one part in compactShare of Options.MaxMemory
// that the store has dropped.
const compactShare = 32

// history is the part of the history that concerns all collections.
type history struct {
	bytes  atomic.Int64 // that history takes, see above
	caches atomic.Int64 // the part of it that Charge added

	// epoch changes when objects change without a revision: feeds from before are expired. See renew.go. mu guards its
	// changes.
	epoch atomic.Uint32

	mu     sync.Mutex
	order  deque[ordered]
	kept   []keptState
	window Revision // all changes above it are in memory
	pinned []*pinned
	clock  uint64 // counts the uses of pinned
	// unpaid is how many trimmed bytes an in-memory log may still hold.
	unpaid int64

	// wanted counts the changes since the last kept state. Guarded by
	// Store.mu.
	wanted int

	notified []*topic // scratch space of the leader
	// feeds are notified by every publication. The slice is replaced, never changed.
	feeds []*Feed
}

// ordered is a change in the order of all collections, and the memory that it takes.
type ordered struct {
	collection *collection
	change     *Change
	bytes      int64
}

type keptState struct {
	state *State
	bytes int64 // of the nodes that only this and older states have
}

// Charge adds the bytes of a cache outside the store to the memory of history:
// Options.MaxMemory bounds both together. A negative number gives bytes back. History
// makes room at the next write. It reports false if the store's Budget is spent: then the cache should give
// the bytes back.
func (s *Store) Charge(bytes int64) bool {
	s.history.bytes.Add(bytes)
	s.history.caches.Add(bytes)
	s.account()
	return bytes <= 0 || s.o.Account == nil || s.o.Account.over() <= 0
}

// wantsKept reports whether to keep the state after n more changes.
func (h *history) wantsKept(n int) bool {
	h.wanted += n
	if h.wanted < keepEvery {
		return false
	}
	h.wanted = 0
	return true
}

// recent is the recent changes of a collection and the topics of its cursors.
type recent struct {
	mu      sync.RWMutex
	records deque[record]
	trimmed Revision // all changes above it are in records
	newest  Revision // of the newest record; without records at least that of any change
	topics  map[string]*topic
	// epoch changes when objects change without a revision: cursors from before are expired. See renew.go. history.mu
	// guards its changes.
	epoch atomic.Uint32
}

// record is a change with hashes that decide quickly whether a cursor selects it.
type record struct {
	revision  Revision
	namespace uint32 // hash of the key up to its slash, with it; zero without
	key       uint32 // hash of the key
	change    *Change
}

var seed = maphash.MakeSeed()

func hash(s string) uint32 { return uint32(maphash.String(seed, s)) }

// namespaceOf returns the part of the key up to its slash, with it.
func namespaceOf(key string) string { return key[:strings.IndexByte(key, '/')+1] }

// record adds changes to the history, before they are published. It
// returns the topics to notify afterwards. The caller holds history.mu.
func (s *Store) record(changes []Staged, next *next) []*topic {
	h := &s.history
	notified := h.notified[:0]
	for i := range changes {
		m := &changes[i]
		notified = s.remember(m.collection, m.Change, m.actorBytes, notified)
	}
	if n := len(h.kept); n > 0 {
		h.kept[n-1].bytes += next.retired
		h.bytes.Add(next.retired)
	}
	if next.keep {
		h.kept = append(h.kept, keptState{next.state, keptOverhead})
		h.bytes.Add(keptOverhead)
	}
	return notified
}

// remember adds a change to the history in memory. Besides the change, more bytes count. It appends the
// topics that the change concerns to notified. The caller holds history.mu.
func (s *Store) remember(c *collection, ch *Change, more int64, notified []*topic) []*topic {
	h := &s.history
	cost := ch.cost(s.inMemory) + more
	ch.bytes = &h.bytes
	h.order.push(ordered{c, ch, cost})
	h.bytes.Add(cost)
	if ch.Before != nil && s.loans.count.Load() > 0 {
		s.loans.replaced(ch.Before.Modified, s.owned(ch.Before))
	}
	return c.record(ch, notified)
}

// cost is the memory that a change takes in the history, with its entry in a log that is in memory.
func (c *Change) cost(inMemory bool) int64 {
	cost := int64(changeOverhead + len(c.origin.AuditID.text))
	if c.Before != nil {
		cost += replacedBytes(c.Before)
		if c.After == nil {
			cost += int64(len(c.Before.Key))
		}
	}
	if inMemory {
		cost += entryOverhead
	}
	return cost
}

// record adds a change, and appends the topics that it concerns to notified. A topic knows
// of the change before it is published: see Cursors.
func (c *recent) record(ch *Change, notified []*topic) []*topic {
	key := ch.key()
	namespace := namespaceOf(key)
	r := record{revision: ch.Revision, key: hash(key), change: ch}
	if namespace != "" {
		r.namespace = hash(namespace)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records.push(r)
	c.newest = ch.Revision
	if len(c.topics) == 0 {
		return notified
	}
	add := func(prefix string) {
		if t := c.topics[prefix]; t != nil {
			t.note(ch.Revision)
			if !t.marked {
				t.marked = true
				notified = append(notified, t)
			}
		}
	}
	add("")
	if namespace != "" {
		add(namespace)
	}
	add(key)
	return notified
}

// trim drops the oldest changes, in whole revisions: those up to the floor, and as many as the
// bound on memory requires.
func (s *Store) trim(floor Revision) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	before, now, most := h.window, s.Any().revision, s.mostMemory()
	for h.order.len() > 0 {
		o := h.order.at(0)
		r := o.change.Revision
		// A change that is recorded and not yet published cannot have been read.
		if r > now || r > floor && r != h.window && h.bytes.Load() <= most {
			break
		}
		h.window = r
		o.collection.trim(r)
		if len(h.pinned) > 0 {
			h.unpin(func(p *pinned) bool { return p.collection == o.collection && p.revision < r })
		}
		h.bytes.Add(-o.bytes)
		h.unpaid += o.bytes
		h.order.pop()
		h.dropKept(h.window)
	}
	if s.inMemory && h.window > before {
		// Nothing can be read back from such a log.
		s.raiseFloor(h.window)
		if h.unpaid > s.o.MaxMemory/compactShare {
			h.unpaid = 0
			s.aging.Kick()
		}
	}
	if h.order.len() == 0 && h.bytes.Load() > most {
		h.evict(0)
	}
	if h.window > before {
		s.account()
	}
}

// dropKept drops kept states that are older than a revision, such as the window: they hold
// versions that are no longer counted. The caller holds history.mu.
func (h *history) dropKept(before Revision) {
	n := 0
	for n < len(h.kept) && h.kept[n].state.revision < before {
		h.bytes.Add(-h.kept[n].bytes)
		h.kept[n] = keptState{}
		n++
	}
	h.kept = h.kept[n:]
}

// window returns the revision above which all changes are in memory.
func (s *Store) window() Revision {
	s.history.mu.Lock()
	defer s.history.mu.Unlock()
	return s.history.window
}

// raiseFloor publishes a floor. It never lowers it.
func (s *Store) raiseFloor(r Revision) {
	for {
		old := s.floor.Load()
		if old >= uint64(r) || s.floor.CompareAndSwap(old, uint64(r)) {
			return
		}
	}
}

// trim drops the oldest change, whose revision is r.
func (c *recent) trim(r Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records.pop().change.drop()
	c.trimmed = max(c.trimmed, r)
}

// after returns the index of the first record above the revision. The caller
// holds mu.
func (c *recent) after(r Revision) int {
	i, j := 0, c.records.len()
	for i < j {
		m := int(uint(i+j) >> 1)
		if c.records.at(m).revision <= r {
			i = m + 1
		} else {
			j = m
		}
	}
	return i
}
