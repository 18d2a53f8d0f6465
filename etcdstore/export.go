package etcdstore

import (
	"context"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
)

// Codec returns the keys and values of the cluster. The set encrypts values, and the caller closes it; nil: nothing is
// encrypted.
func (c *Cluster) Codec(set *encryption.Set) *etcdvalue.Codec {
	if set == nil {
		return c.codec(nil)
	}
	return c.codec(encryption.NewActive(set)) // which is not closed
}

func (c *Cluster) codec(e *encryption.Active) *etcdvalue.Codec {
	codec := &etcdvalue.Codec{Keys: etcdvalue.NewKeys(c.Prefix)}
	codec.Use(e)
	return codec
}

// TTL returns how long objects of a collection stay after their last write; zero: for ever.
func (c *Cluster) TTL(collection string) time.Duration { return c.ttl(collection) }

// Export reads the objects of a cluster as of one revision, and writes nothing.
type Export struct {
	log   *etcdlog.Log
	codec *etcdvalue.Codec
}

// OpenExport connects to the cluster. The set decrypts values, and the caller closes it after the Export; nil: none
// is encrypted.
func (c *Cluster) OpenExport(set *encryption.Set) (*Export, error) {
	codec := c.Codec(set)
	o := c.options(codec)
	o.CompactionInterval = -1
	log, err := etcdlog.Open(o)
	if err != nil {
		return nil, err
	}
	return &Export{log, codec}, nil
}

// Close ends the connections.
func (e *Export) Close() error { return e.log.Close() }

// Head returns the newest revision.
func (e *Export) Head(ctx context.Context) (store.Revision, error) { return e.log.Head(ctx) }

// Status describes a member of the cluster.
func (e *Export) Status(ctx context.Context) (etcdlog.Status, error) { return e.log.Status(ctx) }

// Item is a key of the cluster.
type Item struct {
	// Key is that in etcd.
	Key string
	// Collection and Object are set if the key is that of an object that can be read.
	Collection string
	Object     *store.Object
	// Other describes a key that is not that of an object.
	Other string
	// Err is why the value of an object cannot be read.
	Err error
}

// Items yields all keys of the cluster as of a revision, in order. It decodes a page at a time, on all
// processors. The error ends the sequence: an *ExpiredError, when a compaction overtook it.
func (e *Export) Items(ctx context.Context, at store.Revision) iter.Seq2[Item, error] {
	return e.items(ctx, e.codec.Keys.Root(), at)
}

// Objects is Items for the objects of a collection whose keys begin with a prefix.
func (e *Export) Objects(ctx context.Context, collection, prefix string, at store.Revision) iter.Seq2[Item, error] {
	return e.items(ctx, e.codec.Keys.Of(collection, prefix), at)
}

func (e *Export) items(ctx context.Context, prefix string, at store.Revision) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		for kvs, err := range e.log.Keys(ctx, prefix, at) {
			if err != nil {
				yield(Item{}, err)
				return
			}
			items := make([]Item, len(kvs))
			var decoding sync.WaitGroup
			workers := runtime.GOMAXPROCS(0)
			for w := range workers {
				decoding.Go(func() {
					for i := w; i < len(kvs); i += workers {
						items[i] = e.item(ctx, kvs[i])
					}
				})
			}
			decoding.Wait()
			if err := ctx.Err(); err != nil {
				yield(Item{}, err)
				return
			}
			for _, i := range items {
				if !yield(i, nil) {
					return
				}
			}
		}
	}
}

// item decodes one key.
func (e *Export) item(ctx context.Context, kv *mvccpb.KeyValue) Item {
	i := Item{Key: string(kv.Key)}
	p := e.codec.Keys.Find(i.Key)
	switch {
	case p.Class == etcdvalue.Internal, ofServers(p.Collection):
		i.Other = "of servers: " + e.first(i.Key)
		return i
	case p.Class != etcdvalue.Object:
		i.Other = "unknown: " + e.first(i.Key)
		return i
	}
	i.Collection = p.Collection
	d, err := open(ctx, e.codec, p.Collection, p.Key, kv.Value)
	if err != nil {
		i.Err = fmt.Errorf("%s, modified at revision %d: %w", i.Key, kv.ModRevision, err)
		return i
	}
	i.Object = d.Object(p.Key, store.Revision(kv.CreateRevision), store.Revision(kv.ModRevision))
	return i
}

// ofServers reports whether the objects of a collection are of servers alone, and are made anew by the server that gets
// the objects: addresses, and the allocators of kube-apiserver.
func ofServers(collection string) bool {
	return collection == addressCollection || collection == allocatorCollection
}

// first returns the prefix and the first part of a key.
func (e *Export) first(key string) string {
	root := e.codec.Keys.Root()
	first, _, _ := strings.Cut(strings.TrimPrefix(key, root), "/")
	const most = 100
	return fmt.Sprintf("%.*q", most, root+first)
}

// Unchanged returns an error if an object changed after a revision, up to another one. Objects that end by themselves
// may have ended.
func (e *Export) Unchanged(ctx context.Context, after, upTo store.Revision) error {
	for c, err := range e.log.Changes(ctx, "", after, upTo) {
		switch {
		case err != nil:
			return err
		case c.Collection != addressCollection && (c.Collection != eventCollection || c.Object != nil):
			return fmt.Errorf("etcd was written to meanwhile: %s %s changed at revision %d, after %d: stop all servers that use it", c.Collection, c.Key, c.Revision, after)
		}
	}
	return nil
}

// Follow yields the changes of objects after a revision, in order, in whole revisions. It goes on until the
// context ends, whose error it then yields. An object that cannot be read is a stand-in; see store.NewUnreadable.
func (e *Export) Follow(ctx context.Context, after store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		for b, err := range e.log.Follow(ctx, after) {
			b.Entries = slices.DeleteFunc(b.Entries, func(c store.Entry) bool { return ofServers(c.Collection) })
			if !yield(b, err) || err != nil {
				return
			}
		}
	}
}

// MarkMoved marks the objects as moved. Servers refuse to start on them then, and those that still run can write nothing and
// end. A kube-apiserver does not know the mark. Empty: it removes the mark.
func (e *Export) MarkMoved(ctx context.Context, to string) error { return e.log.MarkMoved(ctx, to) }
