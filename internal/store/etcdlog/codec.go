package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// A Codec translates between objects of the store and keys and values of etcd. All functions are
// safe for concurrent use.
type Codec struct {
	// Prefix returns the prefix of the keys of a collection in etcd, with a slash at the end. The
	// key of the object follows. The order of keys in etcd is that of the collection.
	Prefix func(collection string) (string, error)
	// Place is the inverse: the collection and the key of an object by its key in etcd. It returns
	// false for a key that is not that of an object.
	Place func(etcdKey string) (collection, key string, ok bool)
	// Encode returns the value of etcd for the value of a store.Write.
	Encode func(collection, key string, value []byte, revisionAt int) ([]byte, error)
	// Decode is the inverse. It must not keep or change the stored bytes.
	Decode func(ctx context.Context, collection, key string, stored []byte) (Decoded, error)
	// Generation grows with each change of the key of a collection. The Outdated of a former generation
	// holds no longer. Nil, or zero: the key has never changed.
	Generation func(collection string) uint64
}

// Decoded is a value that was read.
type Decoded struct {
	// Value is the object without the digits of its resource version, which belong at RevisionAt.
	Value      []byte
	RevisionAt int
	// Outdated reports that Encode would give other bytes.
	Outdated bool
}

// object returns the version of an object that a value describes.
func (d *Decoded) object(key string, created, modified int64) *store.Object {
	var room [20]byte
	digits := strconv.AppendInt(room[:0], modified, 10)
	held := make([]byte, 0, len(d.Value)+len(digits))
	held = append(held, d.Value[:d.RevisionAt]...)
	held = append(held, digits...)
	held = append(held, d.Value[d.RevisionAt:]...)
	return &store.Object{Key: key, Held: held, Created: store.Revision(created), Modified: store.Revision(modified), RevisionAt: int32(d.RevisionAt)}
}

// etcdKey returns the key of an object in etcd.
func (l *Log) etcdKey(collection, key string) (string, error) {
	prefix, err := l.o.Codec.Prefix(collection)
	if err != nil {
		return "", err
	}
	return prefix + key, nil
}

// writtenKey is etcdKey for a write. It refuses a key that would not be read as that of the object.
func (l *Log) writtenKey(collection, key string) (string, error) {
	at, err := l.etcdKey(collection, key)
	if err != nil {
		return "", err
	}
	if c, k, ok := l.place(at); !ok || c != collection || k != key {
		return "", &store.UnfitError{Key: key, Why: fmt.Sprintf("an object of %s has no key in etcd: %q would be that of another one", collection, at)}
	}
	return at, nil
}

// place returns the place of an object by its key in etcd, false for a key that is not that of an
// object.
func (l *Log) place(etcdKey string) (collection, key string, ok bool) {
	if strings.HasPrefix(etcdKey, l.guardPrefix()) {
		return "", "", false
	}
	return l.o.Codec.Place(etcdKey)
}

// version is one version of an object as etcd has it.
type version struct {
	collection, key   string
	stored            []byte
	created, modified int64
}

func versionOf(collection, key string, kv *mvccpb.KeyValue) version {
	return version{collection, key, kv.Value, kv.CreateRevision, kv.ModRevision}
}

// decode returns the object of a version.
func (l *Log) decode(ctx context.Context, v version) (*store.Object, error) {
	o, _, err := l.decoded(ctx, v)
	return o, err
}

// decodeNewest is decode of the newest version. It records whether that is outdated. A version that
// cannot be read has a stand-in; the error is that of the context.
func (l *Log) decodeNewest(ctx context.Context, v version) (*store.Object, error) {
	g := l.generation(v.collection)
	o, outdated, err := l.decoded(ctx, v)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		o = store.NewUnreadable(v.key, store.Revision(v.created), store.Revision(v.modified), errors.Unwrap(err).Error())
		outdated = false
	}
	l.outdated.set(v.collection, v.key, outdated, g)
	return o, nil
}

func (l *Log) decoded(ctx context.Context, v version) (o *store.Object, outdated bool, err error) {
	d, err := l.o.Codec.Decode(ctx, v.collection, v.key, v.stored)
	if err != nil {
		return nil, false, fmt.Errorf("%s %s, modified at revision %d: %w", v.collection, v.key, v.modified, err)
	}
	return d.object(v.key, v.created, v.modified), d.Outdated, nil
}

// generation is Codec.Generation.
func (l *Log) generation(collection string) uint64 {
	if l.o.Codec.Generation == nil {
		return 0
	}
	return l.o.Codec.Generation(collection)
}

// Outdated implements store.Encryption. It reports whether the stored form of an object differs from the one that a
// write of the same content would store now. After a change of the key, the form seen when the object
// was read no longer counts, and Outdated reads the value from etcd, once for each version. An object
// whose value cannot be read then is outdated: the write finds out whether it can be made.
func (l *Log) Outdated(collection, key string) bool {
	g := l.generation(collection)
	if is, known := l.outdated.get(collection, key, g); known || g == 0 {
		return known && is
	}
	at, err := l.etcdKey(collection, key)
	if err != nil {
		return false
	}
	p := place{collection, key}
	r := l.outdated.begin(p)
	defer l.outdated.end(p, r)
	response, err := l.read(l.ctx, &pb.RangeRequest{Key: []byte(at)}, quickOfClient)
	if err != nil || len(response.Kvs) == 0 {
		return err != nil
	}
	_, is, err := l.decoded(l.ctx, versionOf(collection, key, response.Kvs[0]))
	if err != nil {
		return true
	}
	l.outdated.add(p, form{is, g}, r)
	return is
}

// outdated holds the objects whose stored form was outdated when they were read, and after a change of
// the key those that Outdated has read. Usually there are none.
type outdated struct {
	count   atomic.Int64 // of all
	reading atomic.Int64 // calls of Outdated that read from etcd

	mu    sync.Mutex
	all   map[place]form
	reads map[place]*formRead
}

type place struct{ collection, key string }

// form has facts about the stored form of the newest version of an object.
type form struct {
	outdated   bool
	generation uint64 // of the key that it was compared with
}

// formRead is one or more reads of the value of an object that are under way.
type formRead struct {
	n     int  // of them
	stale bool // a new version has come since the first one began
}

// set records whether the stored form of a new version is outdated.
func (o *outdated) set(collection, key string, is bool, generation uint64) {
	if !is && o.count.Load() == 0 && o.reading.Load() == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	p := place{collection, key}
	if r := o.reads[p]; r != nil {
		r.stale = true
	}
	if is {
		o.put(p, form{is, generation})
	} else {
		delete(o.all, p)
		o.count.Store(int64(len(o.all)))
	}
}

// put adds to all. The caller holds mu.
func (o *outdated) put(p place, f form) {
	if o.all == nil {
		o.all = map[place]form{}
	}
	o.all[p] = f
	o.count.Store(int64(len(o.all)))
}

// get reports whether an object is outdated. The response is not known if there is none for the generation.
func (o *outdated) get(collection, key string, generation uint64) (is, known bool) {
	if o.count.Load() == 0 {
		return false, false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f, found := o.all[place{collection, key}]
	return f.outdated, found && f.generation == generation
}

// begin and end are around a read of Outdated.
func (o *outdated) begin(p place) *formRead {
	o.reading.Add(1)
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.reads[p]
	if r == nil {
		if o.reads == nil {
			o.reads = map[place]*formRead{}
		}
		r = new(formRead)
		o.reads[p] = r
	}
	r.n++
	return r
}

func (o *outdated) end(p place, r *formRead) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if r.n--; r.n == 0 {
		delete(o.reads, p)
	}
	o.reading.Add(-1)
}

// add records the form that Outdated has read, unless a new version of the object has come meanwhile.
func (o *outdated) add(p place, f form, r *formRead) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !r.stale {
		o.put(p, f)
	}
}
