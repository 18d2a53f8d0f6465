package encryption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Log is a store.Log that encrypts the values of another one. It implements store.Encryption.
type Log struct {
	store.Log
	*Active
	// StandIns selects the values that Replay replaces by stand-ins. It is set before Replay.
	StandIns StandIns

	// mu orders Append and the change to another Set.
	mu sync.Mutex
	// made has the versions that the group at hand stores, in their encrypted form. Guarded by mu.
	made map[place]*store.Object
	head store.Revision // of the last Append that succeeded; guarded by mu
	// collections has the names of all that may have objects.
	collections sync.Map
	// standIns has the revisions of the values that could not be decrypted by Replay, by their places.
	standIns sync.Map
	// unread is the error about them, if Replay has succeeded.
	unread error
}

var (
	_ store.Log        = (*Log)(nil)
	_ store.Encryption = (*Log)(nil)
)

// place is where an object is stored.
type place struct{ collection, key string }

// path returns the place as kube-apiserver's storage has it.
func (p place) path() []byte {
	prefix := prefixOf(p.collection)
	return append(append(make([]byte, 0, len(prefix)+len(p.key)), prefix...), p.key...)
}

// Wrap returns a log that encrypts the values of another one as the configuration in effect says. It
// owns both: Close closes them.
func Wrap(log store.Log, a *Active) *Log {
	l := &Log{Log: log, Active: a}
	a.exchange = l.exchange
	return l
}

// OpenError is the error of a stored value that cannot be decrypted.
type OpenError struct {
	// Path is the key that the object has in kube-apiserver's storage.
	Path string
	// With names the provider and the key that encrypted the value; empty: the record could not
	// be read.
	With string
	// Again: a KMS plugin did not decrypt the value, and may do so within seconds. It is false once the calls
	// of the plugin have failed for ten seconds, until a call succeeds.
	Again bool
	Err   error
}

func (e *OpenError) Error() string {
	return fmt.Sprintf("unable to transform key %q: %v", shortPath(e.Path), e.Err)
}
func (e *OpenError) Unwrap() error { return e.Err }

// errRevision: the value was stored for another revision, or the key is wrong and the method did
// not notice.
var errRevision = errors.New("the decrypted value is not of the revision that it is stored for")

// open returns the plain form of a stored version. A version that is plain is returned as it is.
func (l *Log) open(ctx context.Context, s *Set, collection string, o *store.Object) (*store.Object, error) {
	if o == nil || !isStoredEncrypted(o) && s.rule(collection) == nil {
		return o, nil
	}
	path := place{collection, o.Key}.path()
	value, err := s.open(ctx, collection, o.Held, path)
	if err == nil && isStoredEncrypted(o) {
		err = checkRevision(value, o)
	}
	if err != nil {
		l.failed.Add(1)
		return nil, &OpenError{Path: string(path), With: describe(o.Held), Err: err}
	}
	if !isStoredEncrypted(o) {
		return o, nil
	}
	l.opened.Add(1)
	return &store.Object{Key: o.Key, Held: value, Created: o.Created, Modified: o.Modified, RevisionAt: ^o.RevisionAt}, nil
}

// isStoredEncrypted reports whether a stored version is encrypted: RevisionAt is the complement of its
// offset in the plain value then.
func isStoredEncrypted(o *store.Object) bool { return o.RevisionAt < 0 }

// checkRevision checks that a decrypted value has the digits of its revision where the record says.
func checkRevision(value []byte, o *store.Object) error {
	at := int(^o.RevisionAt)
	if at > len(value) {
		return errRevision
	}
	var room [20]byte
	if !bytes.HasPrefix(value[at:], strconv.AppendUint(room[:0], uint64(o.Modified), 10)) {
		return errRevision
	}
	return nil
}

// encrypt returns the stored form of a version.
func (l *Log) encrypt(r *rule, collection string, o *store.Object) (*store.Object, error) {
	plain := o.Bytes()
	value, err := r.encrypt(plain, place{collection, o.Key}.path())
	if err != nil {
		return nil, err
	}
	encrypted := &store.Object{Key: o.Key, Held: value, Created: o.Created, Modified: o.Modified, RevisionAt: o.RevisionAt}
	if isEncrypted(value) {
		encrypted.RevisionAt = ^o.RevisionAt
		l.encrypted.Add(1)
	}
	return encrypted, nil
}

// Append implements store.Log.
func (l *Log) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.set.Load()
	if len(s.rules) == 0 && !slices.ContainsFunc(group, func(e store.Entry) bool { return e.Before.Unreadable() != "" }) {
		return l.Log.Append(ctx, group, mark)
	}
	clear(l.made)
	stored := make([]store.Entry, len(group))
	for i := range group {
		stored[i] = group[i]
		l.note(group[i].Collection)
		if r := s.rule(group[i].Collection); r != nil {
			if err := l.replace(r, &stored[i]); err != nil {
				return err
			}
		} else if err := l.stored(&stored[i]); err != nil {
			return err
		}
	}
	err := l.Log.Append(ctx, stored, mark)
	if err == nil && len(group) > 0 {
		l.head = group[len(group)-1].Revision
	}
	return err
}

// note adds to the names of collections.
func (l *Log) note(collection string) {
	if _, known := l.collections.Load(collection); !known {
		l.collections.Store(strings.Clone(collection), nil)
	}
}

// replace gives the versions of an entry their stored form. The caller holds mu.
func (l *Log) replace(r *rule, e *store.Entry) error {
	at := place{e.Collection, e.Key}
	if e.Before != nil {
		before := l.made[at]
		if before == nil {
			var err error
			if before, err = l.Log.Current(e.Collection, e.Key); err != nil {
				return err
			}
		}
		if before == nil || before.Modified != e.Before.Modified {
			return fmt.Errorf("revision %d of %s %s replaces a version that the log does not have", e.Revision, e.Collection, e.Key)
		}
		e.Before = before
	}
	if e.Object == nil {
		delete(l.made, at)
		return nil
	}
	o, err := l.encrypt(r, e.Collection, e.Object)
	if err != nil {
		return fmt.Errorf("%s %s: %w: %w", e.Collection, e.Key, store.ErrEncrypt, err)
	}
	if l.made == nil {
		l.made = map[place]*store.Object{}
	}
	l.made[at], e.Object = o, o
	return nil
}

// Replay implements store.Log. If values cannot be decrypted, they have stand-ins or it returns an *UnreadableError; see
// StandIns.
func (l *Log) Replay(ctx context.Context, load func(collection string, o *store.Object) error) (store.Bounds, error) {
	s := l.set.Load()
	var found replayed
	b, err := l.Log.Replay(ctx, func(collection string, o *store.Object) error {
		l.note(collection)
		plain, err := l.open(ctx, s, collection, o)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			found.failed(o, s.rule(collection), err)
			if l.StandIns == NoStandIns {
				return nil
			}
			l.standIns.Store(place{strings.Clone(collection), strings.Clone(o.Key)}, o.Modified)
			return load(collection, l.standIn(collection, o, err))
		}
		if plain != o {
			found.opened(o)
		}
		return load(collection, plain)
	})
	if err == nil && (l.StandIns == NoStandIns || l.StandIns == SomeStandIns && found.lacksKey()) {
		err = found.bad.err(s)
	} else if err == nil {
		l.unread = found.bad.err(s)
	}
	l.mu.Lock()
	l.head = b.Head
	l.mu.Unlock()
	return b, err
}

// Unread returns an *UnreadableError about the values that have stand-ins, nil if there are none. It is for use after
// Replay.
func (l *Log) Unread() error { return l.unread }

// Changes implements store.Log. A change that cannot be decrypted ends it with an *OpenError, unless the context is of
// store.WithStandIns.
func (l *Log) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for e, err := range l.Log.Changes(ctx, collection, after, upTo) {
			if err == nil {
				err = l.openEntry(ctx, &e)
			}
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// ChangesOf yields the changes of one object, as Changes does. The inner log has the method.
func (l *Log) ChangesOf(ctx context.Context, collection, key string, after, upTo store.Revision, backward bool) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		of, ok := l.Log.(interface {
			ChangesOf(ctx context.Context, collection, key string, after, upTo store.Revision, backward bool) iter.Seq2[store.Entry, error]
		})
		if !ok {
			yield(store.Entry{}, errors.ErrUnsupported)
			return
		}
		for e, err := range of.ChangesOf(ctx, collection, key, after, upTo, backward) {
			if err == nil {
				err = l.openEntry(ctx, &e)
			}
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (l *Log) openEntry(ctx context.Context, e *store.Entry) (err error) {
	if e.Object, err = l.openNow(ctx, e.Collection, e.Object); err != nil {
		return err
	}
	e.Before, err = l.openNow(ctx, e.Collection, e.Before)
	return err
}

// openNow opens with the Set in effect, also if that changes meanwhile.
func (l *Log) openNow(ctx context.Context, collection string, o *store.Object) (*store.Object, error) {
	for {
		s := l.set.Load()
		plain, err := l.open(ctx, s, collection, o)
		if errors.Is(err, errClosed) && s != l.set.Load() {
			continue
		}
		if err != nil && ctx.Err() == nil {
			if o := l.standIn(collection, o, err); o != nil {
				return o, nil
			}
			if store.WantsStandIns(ctx) {
				return store.NewUnreadable(o.Key, o.Created, o.Modified, err.Error()), nil
			}
		}
		return plain, err
	}
}

// ObjectsAt implements store.Log. An object that cannot be decrypted ends it with an *OpenError.
func (l *Log) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		for o, err := range l.Log.ObjectsAt(ctx, collection, at, prefix, after) {
			if err == nil {
				o, err = l.openNow(ctx, collection, o)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(o, nil) {
				return
			}
		}
	}
}

// Current implements store.Log.
func (l *Log) Current(collection, key string) (*store.Object, error) {
	o, err := l.Log.Current(collection, key)
	if err != nil {
		return nil, err
	}
	return l.openNow(context.Background(), collection, o)
}

// Writable implements store.Encryption. It reads the version that the write replaces, as Append does
// later: the second read finds it in the medium's cache.
func (l *Log) Writable(w *store.Write) error {
	r := l.set.Load().rule(w.Collection)
	if r == nil {
		return nil
	}
	if w.Value != nil {
		if err := r.ready(); err != nil {
			return err
		}
	}
	if w.If == 0 {
		return nil
	}
	_, err := l.Log.Current(w.Collection, w.Key)
	if err == nil || errors.Is(err, store.ErrClosed) { // the store says that it is closed
		return nil
	}
	return &OpenError{Path: string(place{w.Collection, w.Key}.path()), Err: err}
}

// Outdated implements store.Encryption.
func (l *Log) Outdated(collection, key string) bool {
	r := l.set.Load().rule(collection)
	if r == nil {
		return false
	}
	o, err := l.Log.Current(collection, key)
	return err == nil && o != nil && r.outdated(o.Held, place{collection, key}.path())
}

// Close implements store.Log.
func (l *Log) Close() error {
	l.Unfollow()
	err := l.Log.Close()
	l.Active.Close()
	return err
}
