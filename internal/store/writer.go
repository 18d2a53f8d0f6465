package store

import "context"

// Writer commits the transactions of a store to its log. There are two: groupcommit on a Log, and sharedwriter on a Shared.
// All methods are safe for concurrent use.
type Writer interface {
	// Commit makes a transaction that Store.Apply has checked. Its results and errors are those of Apply.
	Commit(ctx context.Context, t *Txn) ([]*Object, error)
	// MostRecent returns a state that has every change acknowledged before the call.
	MostRecent(ctx context.Context) (*State, error)
	// Verify returns an error if finished transactions have left anything behind.
	Verify() error
	// Close refuses further writes, and waits for those under way.
	Close()
}
