package store

import "context"

// Writer commits the transactions of a store to its log. There are two: groupcommit on a Log, and sharedwriter on a Shared.
// All methods are safe for concurrent use.
type Writer interface {
	// Commit makes a transaction that Txn.Check and Encryption.Writable allow. It is Store.Apply otherwise.
	Commit(ctx context.Context, t *Txn) ([]*Object, error)
	// MostRecent returns a state that has every change acknowledged before the call.
	MostRecent(ctx context.Context) (*State, error)
	// Verify verifies that nothing is left of the transactions that are over.
	Verify() error
	// Close refuses further writes, and waits for those under way.
	Close()
}
