package store

import "sync/atomic"

// Change is one change of one object, with the versions before and after it. The two
// decide which event a watcher gets.
type Change struct {
	Revision Revision
	// Before is nil when the change created the object, After when it deleted it.
	Before, After *Object

	origin Origin

	gone atomic.Pointer[Object]
	// bytes counts the memory of the history that holds the change; nil: none does.
	bytes *atomic.Int64
}

// Origin returns when, how and by whom the change was made.
func (c *Change) Origin() Origin { return c.origin }

// dropped is the value of Change.gone after the history dropped the change.
var dropped Object

// Gone returns Before with the change's revision: the object of a DELETED event. It is made
// once and shared. It is nil if the change created the object.
func (c *Change) Gone() *Object {
	if g := c.gone.Load(); g != nil && g != &dropped {
		return g
	}
	if c.Before == nil {
		return nil
	}
	g := c.Before.At(c.Revision)
	if c.gone.CompareAndSwap(nil, g) {
		if c.bytes != nil {
			c.bytes.Add(versionBytes(g))
		}
		return g
	}
	if first := c.gone.Load(); first != &dropped {
		return first
	}
	return g
}

// drop subtracts the object of Gone from the memory of the history.
func (c *Change) drop() {
	if g := c.gone.Swap(&dropped); g != nil && g != &dropped && c.bytes != nil {
		c.bytes.Add(-versionBytes(g))
	}
}

// Key is the key of the object that changed.
func (c *Change) Key() string {
	if c.After != nil {
		return c.After.Key
	}
	return c.Before.Key
}

// The memory that values take, in bytes, including the allocator's rounding.
const (
	changeOverhead = 112 + 32 + 32 // Change, its record in the collection and its place in the order
	entryOverhead  = 88            // an Entry that an in-memory log keeps
	keptOverhead   = 512
)

// versionBytes is the memory of a version that only history holds.
func versionBytes(o *Object) int64 {
	n := int64(len(o.Held))
	return n + n/16 + objectOverhead
}

// replacedBytes is the memory of a version that was read before it was replaced.
func replacedBytes(o *Object) int64 {
	if o.memo.Load() != nil {
		return versionBytes(o) + memoOverhead
	}
	return versionBytes(o)
}

// CollectionChange is a change, and the collection that it happened in.
type CollectionChange struct {
	Collection string
	*Change
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
