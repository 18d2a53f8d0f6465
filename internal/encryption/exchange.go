package encryption

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Another configuration
//
// A Set that cannot open each current version must not take over: the next start would fail, and
// the file that had the key may be gone. So exchange opens all of them first.
//
// 	1  without a lock: all objects at a revision R
// 	2  with Append waiting: the changes after R, written meanwhile with the old Set; take over
//
// It checks neither history, nor values that could not be read when the server started. Values
// there that the new Set cannot open fail when they are read.

// exchange makes a Set that in effect. If the Set cannot open a stored value, it returns an
// *UnreadableError and changes nothing.
func (l *Log) exchange(ctx context.Context, s *Set) error {
	l.set.Load().introduce(ctx, s)
	l.mu.Lock()
	head := l.head
	l.mu.Unlock()
	if err := l.check(ctx, s, head); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var bad unreadable
	for e, err := range l.Log.Changes(ctx, "", head, l.head) {
		if err != nil {
			return err
		}
		if _, err := l.open(ctx, s, e.Collection, e.Object); err != nil && l.standIn(e.Collection, e.Object, err) == nil {
			bad.add(err)
		}
	}
	if err := bad.err(s); err != nil {
		return err
	}
	l.takeOver(s)
	return nil
}

// check opens all objects at a revision.
func (l *Log) check(ctx context.Context, s *Set, at store.Revision) error {
	var bad unreadable
	var failed error
	l.collections.Range(func(name, _ any) bool {
		collection := name.(string)
		if l.set.Load().rule(collection) == nil && s.rule(collection) == nil {
			return true // all of its values are plain
		}
		for o, err := range l.Log.ObjectsAt(ctx, collection, at, "", "") {
			if err != nil {
				failed = fmt.Errorf("reading what is stored: %w", err)
				return false
			}
			if _, err := l.open(ctx, s, collection, o); err != nil && l.standIn(collection, o, err) == nil {
				bad.add(err)
			}
		}
		return true
	})
	return errors.Join(failed, bad.err(s))
}

// introduce lets the KMS plugins of the next Set decrypt the data keys that are in use, so that
// none of them has to be called while Append waits.
func (s *Set) introduce(ctx context.Context, next *Set) {
	at := place{"secrets", "probe"}.path()
	for _, k := range s.kms {
		if k.state.Load() == nil {
			continue
		}
		encrypted, err := k.encrypt(nil, []byte("probe"), at)
		if err != nil {
			continue
		}
		for _, n := range next.kms {
			if n.name == k.name {
				_, _ = n.open(ctx, encrypted, at) // the check of the values reports failures
			}
		}
	}
}
