package encryption

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Active is the configuration in effect, which Follow replaces when its file changes. It counts what it
// encrypts and decrypts. It is safe for concurrent use, except for ReadFrom and Follow, which come first.
type Active struct {
	set atomic.Pointer[Set]
	// former has the names of the rules of the previous Sets; nil: there were none.
	former atomic.Pointer[map[schema.GroupResource]struct{}]
	// generation is the number of the last replacement. It is set after the two above.
	generation atomic.Uint64
	// exchange replaces the Set in effect, unless the new one cannot read a stored value.
	exchange func(context.Context, *Set) error
	follower *follower // nil: the file is not followed

	encrypted, opened, failed atomic.Int64 // see Counts
}

// NewActive returns a configuration in effect. It owns the Set: Close closes it.
func NewActive(s *Set) *Active {
	a := new(Active)
	a.set.Store(s)
	a.exchange = func(_ context.Context, next *Set) error { a.takeOver(next); return nil }
	return a
}

// Close ends Follow, and closes the Set.
func (a *Active) Close() {
	a.Unfollow()
	a.set.Load().Close()
}

// Empty reports whether there is no configuration: all values are plain.
func (a *Active) Empty() bool { return a.set.Load().Empty() }

// UsesKMS reports whether the configuration has KMS plugins.
func (a *Active) UsesKMS() bool { return len(a.set.Load().kms) > 0 }

// Health returns why a KMS plugin is unhealthy by its last status, or nil.
func (a *Active) Health() error { return a.set.Load().Health() }

// ConfigHash identifies the configuration: the SHA-256 of its file. It is empty if there is none.
func (a *Active) ConfigHash() string { return a.set.Load().hash }

// Counts returns how many values were encrypted and decrypted, and how many could not be decrypted.
func (a *Active) Counts() (encrypted, opened, failed int64) {
	return a.encrypted.Load(), a.opened.Load(), a.failed.Load()
}

// EncryptValue is Set.EncryptValue.
func (a *Active) EncryptValue(collection string, value, place []byte) ([]byte, error) {
	encrypted, err := a.set.Load().EncryptValue(collection, value, place)
	if err == nil && isEncrypted(encrypted) {
		a.encrypted.Add(1)
	}
	return encrypted, err
}

// OpenValue is Set.OpenValue.
func (a *Active) OpenValue(ctx context.Context, collection string, encrypted, place []byte) (value []byte, outdated bool, err error) {
	for {
		s := a.set.Load()
		value, outdated, err = s.OpenValue(ctx, collection, encrypted, place)
		if err == nil || s == a.set.Load() { // otherwise s may be closed
			break
		}
	}
	switch {
	case err != nil:
		a.failed.Add(1)
	case isEncrypted(encrypted):
		a.opened.Add(1)
	}
	return value, outdated, err
}

// Generation returns a number that grows with each change of the key of a collection: when the configuration is
// replaced, and when the KMS plugin that encrypts the collection changes its key. The outdated of OpenValue is valid for
// its generation alone. Generation is zero if the key has never changed.
func (a *Active) Generation(collection string) uint64 {
	replaced, s := a.generation.Load(), a.set.Load()
	if replaced == 0 && len(s.kms) == 0 { // each value that is read asks
		return 0
	}
	if replaced != 0 && s.rule(collection) == nil {
		if _, ruled := lookup(*a.former.Load(), collection); !ruled {
			return 0
		}
	}
	return max(replaced, s.generation(collection))
}

// takeOver makes next the Set in effect. It is not safe for concurrent use.
func (a *Active) takeOver(next *Set) {
	old := a.set.Load()
	names := map[schema.GroupResource]struct{}{}
	if former := a.former.Load(); former != nil {
		maps.Copy(names, *former)
	}
	for name := range old.rules {
		names[name] = struct{}{}
	}
	a.former.Store(&names)
	a.set.Store(next)
	a.generation.Store(generations.Add(1))
}

// # Values that several servers write
//
// All servers must be able to read the values that one of them stores. They get a changed file one
// after the other, and write with the previous one until then. So a Set takes over only if it can
// read
//
//   - the values that the Set in effect writes, and
//   - each stored value that the Set in effect can read.
//
// The stored values are read without a lock. Another server writes a value in the meantime with the
// previous configuration or with the new one.

// Value is a stored value of a collection. Place is its key in etcd.
type Value struct {
	Collection    string
	Place, Stored []byte
}

// ReadFrom sets where the stored values are, for Follow. The function yields those of collections;
// nil: of all collections.
func (a *Active) ReadFrom(values func(ctx context.Context, collections []string) iter.Seq2[Value, error]) {
	a.exchange = func(ctx context.Context, next *Set) error {
		old := a.set.Load()
		err := old.checkWritten(ctx, next)
		if err == nil {
			err = old.checkStored(ctx, next, values(ctx, affected(old, next)))
		}
		if err == nil {
			a.takeOver(next)
		}
		return err
	}
}

// errOther is the error of a value that is decrypted to another one: the key is wrong, and the method does not detect it.
var errOther = errors.New("the decrypted value is another one")

// checkStored returns an error if next cannot read a value that s can read. It assumes that s can read the values of its
// KMS plugins, which may be down.
func (s *Set) checkStored(ctx context.Context, next *Set, values iter.Seq2[Value, error]) error {
	var bad unreadable
	for v, err := range values {
		if err != nil {
			return fmt.Errorf("reading what is stored: %w", err)
		}
		value, _, err := next.OpenValue(ctx, v.Collection, v.Stored, v.Place)
		was, _, before := s.OpenValue(ctx, v.Collection, v.Stored, v.Place)
		switch {
		case err != nil && (before == nil || s.rule(v.Collection).loses(next.rule(v.Collection), v.Stored)):
			bad.add(err)
		case err == nil && before == nil && !bytes.Equal(value, was):
			bad.add(&OpenError{Path: string(v.Place), With: describe(v.Stored), Err: errOther})
		}
	}
	return errors.Join(ctx.Err(), bad.err(next))
}

// loses reports whether r has the KMS plugin of a value and next does not.
func (r *rule) loses(next *rule, encrypted []byte) bool {
	return r.hasPlugin(encrypted, func(w *way, _ *kms) bool { return !next.has(w.prefix) })
}

// has reports whether a rule has a way whose values begin with a prefix.
func (r *rule) has(prefix string) bool {
	return r != nil && slices.ContainsFunc(r.ways, func(w way) bool { return w.prefix == prefix })
}

// checkWritten returns an error if next cannot read the values that s writes.
func (s *Set) checkWritten(ctx context.Context, next *Set) error {
	place, probe := []byte("/registry/probe"), []byte("{}")
	for name := range rulesOf(s, next) {
		collection := name.String()
		encrypted := probe
		if r := s.rule(collection); r != nil {
			var err error
			if encrypted, err = r.encrypt(probe, place); err != nil { // a KMS plugin that was never well
				if w := &r.ways[0]; !next.rule(collection).has(w.prefix) {
					return fmt.Errorf("it lacks the provider that encrypts %s now, and other servers may still use it: keep it, behind the first one", shown(name))
				}
				continue
			}
		}
		value, _, err := next.OpenValue(ctx, collection, encrypted, place)
		if err == nil && !bytes.Equal(value, probe) {
			err = errOther
		}
		if err != nil {
			return fmt.Errorf("it cannot read %s as they are written now, with %s, and as other servers may still write them: keep that provider and key, behind the first one: %w", shown(name), describe(encrypted), cmp.Or(errors.Unwrap(err), err))
		}
	}
	return nil
}

// rulesOf yields the names of the rules of two Sets.
func rulesOf(a, b *Set) iter.Seq[schema.GroupResource] {
	return func(yield func(schema.GroupResource) bool) {
		for name := range a.rules {
			if !yield(name) {
				return
			}
		}
		for name := range b.rules {
			if a.rules[name] == nil && !yield(name) {
				return
			}
		}
	}
}

// affected returns the collections that have a rule in one of two Sets, in order; nil: a rule is for
// many collections.
func affected(a, b *Set) []string {
	var all []string
	for name := range rulesOf(a, b) {
		if name.Resource == "*" {
			return nil
		}
		all = append(all, name.String())
	}
	slices.Sort(all)
	return all
}
