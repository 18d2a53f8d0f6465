package store

import "time"

// Revision is the store's clock, one for all collections. On a Log each change has its own
// revision, also within a group; on a Shared, several changes can have one. Revisions only grow.
// Zero means "none".
type Revision uint64

// digits is the length of a revision in decimal.
func digits(r Revision) int {
	n := 1
	for ; r >= 10; r /= 10 {
		n++
	}
	return n
}

// Mark records that the revision was the newest at a point of the running time: the time
// that stores on this log have been open, added up. Downtime and jumps of the wall clock do
// not count, so neither expires anything.
type Mark struct {
	Revision Revision
	Running  time.Duration
}
