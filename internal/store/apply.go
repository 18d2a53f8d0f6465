package store

import (
	"context"
	"errors"
	"time"
)

// Outdated reports whether an object is stored in another form than a write would give it now:
// it is encrypted with another key than the first one, or not encrypted. A write of the same
// content then stores it anew.
func (s *Store) Outdated(collection, key string) bool {
	return s.o.Encryption != nil && s.o.Encryption.Outdated(collection, key)
}

// writable returns why the log cannot store a transaction at present, or nil.
func (s *Store) writable(t *Txn) error {
	if s.o.Encryption == nil {
		return nil
	}
	for i := range t.Writes {
		if err := s.o.Encryption.Writable(&t.Writes[i]); err != nil {
			return err
		}
	}
	return nil
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
	made, err := s.writer.Commit(ctx, t)
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
