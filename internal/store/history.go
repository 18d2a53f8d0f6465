package store

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/store/notify"
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

	notified []*notify.Topic // scratch space of the goroutine that publishes
	// feeds are sent a value by every publication. The slice is replaced, never changed.
	feeds []signal
}

// signal is a channel that gets a value when there may be something to read. It has room for one.
type signal chan struct{}

func (s signal) send() {
	select {
	case s <- struct{}{}:
	default: // there is one already
	}
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

// wantsKept reports whether to keep the state after n more changes.
func (h *history) wantsKept(n int) bool {
	h.wanted += n
	if h.wanted < keepEvery {
		return false
	}
	h.wanted = 0
	return true
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

// pinned is the tree of a collection at a revision that views read, or read recently.
// history.mu guards it, except for root.
type pinned struct {
	collection *collection
	revision   Revision // of the last change that the tree has
	// root becomes nil when the changes after the revision left memory.
	root  atomic.Pointer[tree]
	bytes int64 // of nodes that no state may hold
	views int
	used  uint64 // history.clock at the last use
	held  bool   // for Hold: no other view uses it
}

// tree is a root that may be nil, for an empty collection.
type tree struct{ root *node }

// find returns the tree that is pinned. The caller holds mu.
func (h *history) find(c *collection, at Revision) *pinned {
	for _, p := range h.pinned {
		if p.collection == c && p.revision == at {
			return p
		}
	}
	return nil
}

// pin counts a view of the tree, and caches the tree for later views. Trees that no view reads take most bytes at most. The
// caller holds h.mu.
func (h *history) pin(c *collection, at Revision, root *node, most int64) *pinned {
	h.clock++
	if p := h.find(c, at); p != nil {
		p.views++
		p.used = h.clock
		return p
	}
	p := &pinned{collection: c, revision: at, bytes: keptOverhead, views: 1, used: h.clock}
	if root != nil {
		// At most all of its nodes, if later states replaced them.
		p.bytes += int64(root.count) * nodeShare
	}
	p.root.Store(&tree{root})
	h.pinned = append(h.pinned, p)
	h.bytes.Add(p.bytes)
	h.evict(most)
	return p
}

// nodeShare is about the most memory that the nodes of a tree take for each object.
const nodeShare = 16

// evict drops trees that no view reads, the least recently used first, until few are left,
// with few bytes. The caller holds mu.
func (h *history) evict(most int64) {
	idle, bytes := 0, int64(0)
	for _, p := range h.pinned {
		if p.views == 0 {
			idle++
			bytes += p.bytes
		}
	}
	for idle > maxIdle || idle > 0 && bytes > most {
		var oldest *pinned
		for _, p := range h.pinned {
			if p.views == 0 && (oldest == nil || p.used < oldest.used) {
				oldest = p
			}
		}
		idle--
		bytes -= oldest.bytes
		h.unpin(func(p *pinned) bool { return p == oldest })
	}
}

// unpin drops trees, also from their views. The caller holds mu.
func (h *history) unpin(which func(*pinned) bool) {
	h.pinned = slices.DeleteFunc(h.pinned, func(p *pinned) bool {
		if !which(p) {
			return false
		}
		p.root.Store(nil)
		h.bytes.Add(-p.bytes)
		return true
	})
}

// leastHistory is the memory of history that a store keeps whatever its budget is, in bytes.
const leastHistory = 64 << 10

// spare is the memory of history that a budget makes the store drop, in bytes.
func (h *history) spare() int64 { return max(0, h.bytes.Load()-h.caches.Load()-leastHistory) }

// after returns the index of the first change above the revision. The caller
// holds mu.
func (h *history) after(r Revision) int {
	i, j := 0, h.order.len()
	for i < j {
		m := int(uint(i+j) >> 1)
		if h.order.at(m).change.Revision <= r {
			i = m + 1
		} else {
			j = m
		}
	}
	return i
}

// check recomputes history.bytes.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	sum := int64(0)
	for i := range h.order.len() {
		o := h.order.at(i)
		if r := o.change.Revision; r <= h.window {
			return fmt.Errorf("revision %d is in memory, and the window begins after %d", r, h.window)
		}
		sum += o.bytes
	}
	for _, k := range h.kept {
		sum += k.bytes
		if k.state.revision < h.window {
			return fmt.Errorf("a state of revision %d is kept, and the window begins at %d", k.state.revision, h.window)
		}
	}
	for _, p := range h.pinned {
		sum += p.bytes
	}
	// The objects of Change.Gone count as well.
	if account := h.bytes.Load(); account < sum {
		return fmt.Errorf("the account says %d bytes, and %d are in use", account, sum)
	}
	return nil
}
