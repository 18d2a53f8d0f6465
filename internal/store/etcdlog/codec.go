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
	// Prefix returns what the keys of a collection begin with in etcd, with a slash at the end. The
	// key of the object follows. The order of keys in etcd is that of the collection.
	Prefix func(collection string) (string, error)
	// Place is the inverse: the collection and the key of an object by its key in etcd. It returns
	// false for a key that is not that of an object.
	Place func(etcdKey string) (collection, key string, ok bool)
	// Encode returns the value of etcd for the value of a store.Write.
	Encode func(collection, key string, value []byte, revisionAt int) ([]byte, error)
	// Decode is the inverse. It must not keep or change the stored bytes.
	Decode func(ctx context.Context, collection, key string, stored []byte) (Decoded, error)
	// Rotated reports whether Decode may return another Outdated now than it did before for the same
	// bytes of a collection, and Encode other bytes: a key has changed. Nil: that never happens.
	Rotated func(collection string) bool
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
	o, outdated, err := l.decoded(ctx, v)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		o = store.NewUnreadable(v.key, store.Revision(v.created), store.Revision(v.modified), errors.Unwrap(err).Error())
		outdated = false
	}
	l.outdated.set(v.collection, v.key, outdated)
	return o, nil
}

func (l *Log) decoded(ctx context.Context, v version) (o *store.Object, outdated bool, err error) {
	d, err := l.o.Codec.Decode(ctx, v.collection, v.key, v.stored)
	if err != nil {
		return nil, false, fmt.Errorf("%s %s, modified at revision %d: %w", v.collection, v.key, v.modified, err)
	}
	return d.object(v.key, v.created, v.modified), d.Outdated, nil
}

// Outdated implements store.Sealing. It reports whether the stored form of an object is not what a
// write of the same content would store now. After a change of the key, what was seen when the object
// was read no longer counts, and Outdated reads the value from etcd. An object whose value cannot be
// read then is outdated: the write finds out whether it can be made.
func (l *Log) Outdated(collection, key string) bool {
	if l.o.Codec.Rotated == nil || !l.o.Codec.Rotated(collection) {
		return l.outdated.has(collection, key)
	}
	at, err := l.etcdKey(collection, key)
	if err != nil {
		return false
	}
	answer, err := l.read(l.ctx, &pb.RangeRequest{Key: []byte(at)}, quickOfClient)
	if err != nil || len(answer.Kvs) == 0 {
		return err != nil
	}
	_, is, err := l.decoded(l.ctx, versionOf(collection, key, answer.Kvs[0]))
	return err != nil || is
}

// outdated holds the objects whose stored form was outdated when they were read. Usually there are none.
type outdated struct {
	count atomic.Int64
	all   sync.Map // by place
}

type place struct{ collection, key string }

func (o *outdated) set(collection, key string, is bool) {
	if !is && o.count.Load() == 0 {
		return
	}
	p := place{collection, key}
	if is {
		if _, had := o.all.LoadOrStore(p, true); !had {
			o.count.Add(1)
		}
	} else if _, had := o.all.LoadAndDelete(p); had {
		o.count.Add(-1)
	}
}

func (o *outdated) has(collection, key string) bool {
	if o.count.Load() == 0 {
		return false
	}
	_, is := o.all.Load(place{collection, key})
	return is
}
