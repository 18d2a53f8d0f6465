package store

import (
	"context"
	"errors"
	"time"
)

// # Writers
//
// The writer of a store commits transactions to its log. There are two: the committer on a Log (commit.go, append.go, room.go,
// compact.go), and the sharedWriter on a Shared (sharedwriter.go, propose.go, barrier.go, reload.go, heal.go). Trees, history,
// cursors and views do not know which of them it is. A writer sees the store through these functions, and none of the trees, the history or the published
// pointer. TestWriters has the whole list.
//
//	Any, Bounds, NotOlderThan      the published state
//	fits                           the quota
//	stage, publish                 changes that the log has become the next state
//	reload, unread, heal           the same for states whose changes are not known
//	raiseFloor, trim, window       how much history there is
//	fail, fatal, brokenBy          the end of all writing
//	aging, measured                the age of revisions, and the metrics of the log

// writer commits the transactions of a store to its log. All methods are safe for concurrent use.
type writer interface {
	// commit makes a transaction that Txn.Check and writable allow. It is Apply otherwise.
	commit(ctx context.Context, t *Txn) ([]*Object, error)
	// mostRecent is MostRecent.
	mostRecent(ctx context.Context) (*State, error)
	// verify verifies that nothing is left of the transactions that are over.
	verify() error
	// close refuses further writes, and waits for those under way.
	close()
}

// Commit is Apply of a transaction of one write. Its errors are ErrExists, ErrNotFound and
// ErrConflict as they are.
func (s *Store) Commit(ctx context.Context, w Write) (*Object, error) {
	made, err := s.Apply(ctx, &Txn{Writes: []Write{w}})
	if err == nil {
		return made[0], nil
	}
	var failed *TxnError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return nil, err
}

// Apply makes a transaction and returns when it is durable and readable. The result has
// an object for each write: the new version or, of a deletion, the last state with the
// revision of the deletion (Object.At). A *TxnError says which condition does not hold. With
// Write.If zero, an existing object is ErrExists. Otherwise an absent one is ErrNotFound,
// and one whose Modified is not If is ErrConflict. A need or a guard that does not hold is
// ErrStale. An error of Options.Encryption.Writable is returned as it is. If the context ends
// early, the transaction may still be made; the error then wraps ctx.Err().
//
// On a Shared, the errors of Shared.Propose are returned as they are, and ErrOverloaded if too many
// transactions are under way. All writes of a transaction then have one revision, and those that
// have others with Next behind them have the object of the last one. A client that has seen a part
// of the events of a revision, and continues a watch from there, misses the rest, as with
// kube-apiserver: so a transaction should not write several objects that one watch selects.
func (s *Store) Apply(ctx context.Context, t *Txn) ([]*Object, error) {
	if err := t.Check(); err != nil {
		return nil, err
	}
	if i := t.repeated(); i >= 0 {
		return nil, &TxnError{WritePart, i, ErrStale}
	}
	if err := s.writable(t); err != nil {
		return nil, err
	}
	began := time.Now()
	made, err := s.writer.commit(ctx, t)
	switch {
	case err == nil:
		s.count(t, time.Since(began))
	case errors.Is(err, ErrNoSpace):
		s.noSpace.Add(1)
	case errors.As(err, new(*QuotaError)):
		s.noteFull(err)
	}
	return made, err
}
