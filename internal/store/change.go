package store

import "sync/atomic"

// Change is one change of one object, with what was before and after it. What
// it means to a watcher follows from the two.
type Change struct {
	Revision Revision
	// Before is nil when the change created the object, After when it deleted it.
	Before, After *Object

	gone atomic.Pointer[Object]
	// bytes is the account of the history that holds the change; nil outside.
	bytes *atomic.Int64
}

// dropped stands in Change.gone once history let go of the change.
var dropped Object

// Gone returns Before as of the change's revision: what a deletion, and an
// object that leaves a selector, reports. It is made once and shared. It is nil
// when the change created the object.
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

// drop takes what Gone made off the account of the history.
func (c *Change) drop() {
	if g := c.gone.Swap(&dropped); g != nil && g != &dropped && c.bytes != nil {
		c.bytes.Add(-versionBytes(g))
	}
}

// key is that of the object.
func (c *Change) key() string {
	if c.After != nil {
		return c.After.Key
	}
	return c.Before.Key
}

// What things cost in memory, in bytes, the allocator's rounding included.
const (
	objectOverhead = 96 // Object, and the header of its key
	memoOverhead   = 256
	changeOverhead = 48 + 32 + 32 // Change, its place in the collection and in the order
	entryOverhead  = 80           // an Entry that an in-memory log keeps
	keptOverhead   = 512
)

// versionBytes is what a version costs that only history holds.
func versionBytes(o *Object) int64 {
	n := int64(len(o.Held))
	return n + n/16 + objectOverhead
}

// replacedBytes is what a version costs that was read before it was replaced.
func replacedBytes(o *Object) int64 {
	if o.memo.Load() != nil {
		return versionBytes(o) + memoOverhead
	}
	return versionBytes(o)
}
