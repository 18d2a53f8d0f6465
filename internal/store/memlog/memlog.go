// Package memlog is a log that keeps everything in memory: for tests, and for
// servers that need no durability.
//
// It holds the objects of the newest state and the entries of the history, and shares them
// with the store: it only adds a map slot for each object and an Entry for each change. The
// store compacts it to the history that the store itself has in memory (store.Bounds.InMemory).
package memlog

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Log is a store.Log. Its zero value is an empty log. A closed log can be
// replayed again, and is then open again with the same content: tests restart on it.
type Log struct {
	// Start is the head of a log that never held a change. Zero means the wall
	// clock in microseconds, when the log is replayed first: so that revisions are
	// beyond those of any earlier run, and clients that come back see no old one.
	Start store.Revision

	mu     sync.RWMutex
	closed bool
	head   store.Revision
	time   time.Time // Bounds.Time
	floor  store.Revision
	base   *store.State // of a fork: the state that the log begins with; nil: empty
	// objects are the objects that are not those of base, by collection and key. A nil one was deleted.
	objects map[string]map[string]*store.Object
	entries []store.Entry
	marks   []store.Mark
	bytes   int64 // of the entries' replaced versions
}

var errClosed = errors.New("memlog: the log is closed")

// New returns an empty log.
func New() *Log { return new(Log) }

// From returns a log that begins with a state, for a fork of its store. It shares the objects of the
// state.
func From(state *store.State) *Log { return FromHistory(state, state.Revision(), nil) }

// FromHistory is From for a fork that has a part of the history: the changes after a revision that led to the
// state, as Store.History returns them. The log owns the slice.
func FromHistory(state *store.State, after store.Revision, changes []store.Entry) *Log {
	l := &Log{base: state, head: state.Revision(), floor: after, time: state.Time(), entries: changes}
	for i := range changes {
		l.bytes += historyBytes(&changes[i])
	}
	return l
}

// At returns a log that begins with objects, by their collections, at a revision. None of them was modified
// after it.
func At(revision store.Revision, objects map[string][]*store.Object) *Log {
	l := &Log{head: revision, floor: revision, objects: map[string]map[string]*store.Object{}}
	for collection, list := range objects {
		l.objects[collection] = make(map[string]*store.Object, len(list))
		for _, o := range list {
			l.objects[collection][o.Key] = o
		}
	}
	return l
}

// entryBytes is the memory of an entry, without its objects.
const entryBytes = 88

func historyBytes(e *store.Entry) int64 {
	n := int64(entryBytes)
	if e.Before != nil {
		n += int64(len(e.Before.Held)) + int64(len(e.Key))
	}
	return n
}

// Replay implements store.Log.
func (l *Log) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
	if l.head == 0 {
		l.head = l.Start
		if l.head == 0 {
			l.head = store.Revision(time.Now().UnixMicro())
		}
		l.floor = l.head
	}
	for _, collection := range l.collections() {
		for _, o := range l.current(collection, "", "") {
			if err := load(collection, o); err != nil {
				return store.Bounds{}, err
			}
		}
		if err := ctx.Err(); err != nil {
			return store.Bounds{}, err
		}
	}
	return store.Bounds{Head: l.head, Floor: l.floor, Time: l.time, Marks: slices.Clone(l.marks), InMemory: true}, nil
}

// Append implements store.Log.
func (l *Log) Append(_ context.Context, group []store.Entry, mark *store.Mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	for i := range group {
		e := &group[i]
		objects := l.objects[e.Collection]
		if objects == nil {
			if l.objects == nil {
				l.objects = map[string]map[string]*store.Object{}
			}
			objects = map[string]*store.Object{}
			l.objects[e.Collection] = objects
		}
		if e.Object != nil || l.base != nil {
			objects[e.Key] = e.Object
		} else {
			delete(objects, e.Key)
		}
		l.head = e.Revision
		if e.Origin != nil {
			l.time = e.Origin.Time
		}
		l.entries = append(l.entries, *e)
		l.bytes += historyBytes(e)
	}
	if mark != nil {
		l.marks = append(l.marks, *mark)
	}
	return nil
}

// after returns the entries above the revision. The caller holds mu, also while it
// looks at them.
func (l *Log) after(r store.Revision) []store.Entry {
	i, _ := slices.BinarySearchFunc(l.entries, r+1, func(e store.Entry, r store.Revision) int {
		return int(int64(e.Revision - r))
	})
	return l.entries[i:]
}

// Changes implements store.Log.
func (l *Log) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for {
			e, err := l.next(ctx, collection, after, upTo)
			if err != nil {
				yield(store.Entry{}, err)
				return
			}
			if e.Revision == 0 || !yield(e, nil) {
				return
			}
			after = e.Revision
		}
	}
}

// next returns the first change of the collection after a revision, a zero entry
// when there is none.
func (l *Log) next(ctx context.Context, collection string, after, upTo store.Revision) (store.Entry, error) {
	if err := ctx.Err(); err != nil {
		return store.Entry{}, err
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return store.Entry{}, errClosed
	}
	if after < l.floor {
		return store.Entry{}, &store.ExpiredError{Revision: after, Floor: l.floor}
	}
	for _, e := range l.after(after) {
		if e.Revision > upTo {
			break
		}
		if collection == "" || e.Collection == collection {
			return e, nil
		}
	}
	return store.Entry{}, nil
}

// Current implements store.Log.
func (l *Log) Current(collection, key string) (*store.Object, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, errClosed
	}
	if o, written := l.objects[collection][key]; written || l.base == nil {
		return o, nil
	}
	return l.base.Get(collection, key), nil
}

// collections returns the names of the collections that hold, or held, objects. The caller holds mu.
func (l *Log) collections() []string {
	names := map[string]bool{}
	for name := range l.objects {
		names[name] = true
	}
	if l.base != nil {
		for name := range l.base.Collections() {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// current returns the newest objects of a collection whose key has the prefix and is greater than after.
// The caller holds mu.
func (l *Log) current(collection, prefix, after string) map[string]*store.Object {
	objects := map[string]*store.Object{}
	if l.base != nil {
		for o := range l.base.Snapshot(collection).Scan(prefix, after) {
			objects[o.Key] = o
		}
	}
	for key, o := range l.objects[collection] {
		switch {
		case !strings.HasPrefix(key, prefix) || key <= after:
		case o != nil:
			objects[key] = o
		default:
			delete(objects, key)
		}
	}
	return objects
}

// ObjectsAt implements store.Log. It collects all objects before it yields the first one:
// they are pointers to objects in memory.
func (l *Log) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		objects, err := l.objectsAt(collection, at, prefix, after)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(objects)) {
			if err := ctx.Err(); err != nil {
				yield(nil, err)
				return
			}
			if !yield(objects[key], nil) {
				return
			}
		}
	}
}

func (l *Log) objectsAt(collection string, at store.Revision, prefix, after string) (map[string]*store.Object, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	switch {
	case l.closed:
		return nil, errClosed
	case at < l.floor:
		return nil, &store.ExpiredError{Revision: at, Floor: l.floor}
	case at > l.head:
		return nil, &store.TooLargeError{Revision: at, Current: l.head}
	}
	selected := func(key string) bool { return strings.HasPrefix(key, prefix) && key > after }
	objects := l.current(collection, prefix, after)
	for _, e := range slices.Backward(l.after(at)) {
		if e.Collection != collection || !selected(e.Key) {
			continue
		}
		if e.Before != nil {
			objects[e.Key] = e.Before
		} else {
			delete(objects, e.Key)
		}
	}
	return objects, nil
}

// Compact implements store.Log.
func (l *Log) Compact(_ context.Context, floor store.Revision) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	floor = min(floor, l.head)
	if floor <= l.floor {
		return nil
	}
	l.floor = floor
	gone := len(l.entries) - len(l.after(floor))
	for i := range l.entries[:gone] {
		l.bytes -= historyBytes(&l.entries[i])
	}
	clear(l.entries[:gone])
	l.entries = l.entries[gone:]
	l.marks = slices.DeleteFunc(l.marks, func(m store.Mark) bool { return m.Revision < floor })
	return nil
}

// Floor implements store.Log.
func (l *Log) Floor() store.Revision {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.floor
}

// Short implements store.Log: this log has no bound.
func (l *Log) Short() int64 { return 0 }

// Reclaim implements store.Log: the garbage collector does it.
func (l *Log) Reclaim(context.Context) error { return nil }

// Broken implements store.Log.
func (l *Log) Broken() <-chan struct{} { return nil }

// Usage implements store.Log.
func (l *Log) Usage() store.Usage {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return store.Usage{HistoryBytes: l.bytes, TotalBytes: l.bytes}
}

// Close implements store.Log. The content stays.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	return nil
}
