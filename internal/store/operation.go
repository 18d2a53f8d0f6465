package store

import "github.com/tidemark-dev/tidemark/internal/exposition"

// Operation is the kind of a write: it creates, updates or deletes an object.
type Operation int

// The operations.
const (
	Create Operation = iota
	Update
	Delete
)

// String returns the name of the operation in metrics.
func (o Operation) String() string { return [...]string{"create", "update", "delete"}[o] }

// writeBuckets are those of the durations of transactions.
var writeBuckets = exposition.Seconds(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
