package store

import (
	"fmt"
	"sync/atomic"
)

// The memory of an object, in bytes, including the allocator's rounding.
const (
	objectOverhead = 96 // Object, and the header of its key
	memoOverhead   = 256
	slotOverhead   = 32 // the object's slot in a tree
)

// ObjectBytes is about the memory that an object takes; zero for nil.
func ObjectBytes(o *Object) int64 {
	if o == nil {
		return 0
	}
	return takes(len(o.Held), len(o.Key))
}

// takes is ObjectBytes by the lengths of value and key. It includes a memo, since the next
// list may make one.
func takes(value, key int) int64 {
	return int64(value+value/16+key) + objectOverhead + memoOverhead + slotOverhead
}

// QuotaError is returned when a write would exceed the storage quota. Nothing was
// written.
type QuotaError struct {
	// Used and Limit in bytes; Grows is how many the write would add.
	Used, Limit, Grows int64
	// AllForks: the limit is that of a Budget.
	AllForks bool
	// Fork: the limit is the one of a single fork.
	Fork bool
}

func (e *QuotaError) Error() string {
	if e.AllForks {
		return fmt.Sprintf("all forks together use %d bytes, and may use %d", e.Used, e.Limit)
	}
	if e.Fork {
		return fmt.Sprintf("the fork is full: its objects use %d of %d bytes, and %d more are needed", e.Used, e.Limit, e.Grows)
	}
	return fmt.Sprintf("the storage quota is exceeded: objects use %d of %d bytes, and this write needs %d more", e.Used, e.Limit, e.Grows)
}

// quota is the bound on the bytes of current objects.
type quota struct {
	limit   atomic.Int64 // zero: none
	refused atomic.Int64 // writes
	near    atomic.Bool  // the warning was logged
	full    atomic.Bool  // a write was refused, and this was logged
}
