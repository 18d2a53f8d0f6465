package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	// loadRanges is how many ranges of keys are read at once: each holds a page in memory.
	loadRanges = 4
	// loadChunk is how many values a goroutine decodes at once.
	loadChunk = 256
)

// Load implements store.Shared. It reads ranges of keys that differ in the first letter of the
// resource, in parallel, and decodes on all processors. An *ExpiredError means that a compaction
// overtook it; the caller may begin again.
func (l *Log) Load(ctx context.Context, load func(collection string, o *store.Object) error) (store.Bounds, error) {
	b, err := l.loadAll(ctx, load)
	if err == nil {
		err = l.moved()
	}
	return b, err
}

// loadAll is Load, whether the objects were moved or not.
func (l *Log) loadAll(ctx context.Context, load func(collection string, o *store.Object) error) (store.Bounds, error) {
	head, err := l.head(ctx, quick)
	if err != nil && !l.reach.ever.Load() {
		return store.Bounds{}, fmt.Errorf("%w (%s)%s", err, l.servers(), l.hint(err))
	}
	if err != nil {
		return store.Bounds{}, err
	}
	if b, ok, err := l.loadCopy(ctx, head, load); ok || err != nil {
		return b, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fail := func(err error) {
		if err != nil {
			cancel(err)
		}
	}
	var floor store.Revision
	var reading, decoding sync.WaitGroup
	reading.Go(func() {
		var err error
		floor, err = l.findFloor(ctx, head)
		fail(err)
	})
	chunks := make(chan []*mvccpb.KeyValue, 2*runtime.GOMAXPROCS(0))
	for range runtime.GOMAXPROCS(0) {
		decoding.Go(func() {
			for kvs := range chunks {
				fail(l.loadChunk(ctx, kvs, load))
			}
		})
	}
	slots := make(chan struct{}, loadRanges)
	for _, r := range l.loadRanges() {
		reading.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			fail(l.loadRange(ctx, r, int64(head), chunks))
		})
	}
	reading.Wait()
	close(chunks)
	decoding.Wait()
	if err := context.Cause(ctx); err != nil {
		if errors.Is(err, errCompacted) {
			err = &store.ExpiredError{Revision: head, Floor: max(l.floor(), head+1)}
		}
		return store.Bounds{}, err
	}
	return store.Bounds{Head: head, Floor: min(floor, head)}, nil
}

// loadRanges returns ranges that have all keys of the prefix: one for each letter that the name of a
// resource can begin with, and those before, between and after them.
func (l *Log) loadRanges() [][2]string {
	start, end := l.o.Prefix+"/", rangeEnd(l.o.Prefix+"/")
	var all [][2]string
	from := start
	for c := byte('a'); c <= 'z'+1; c++ {
		to := start + string([]byte{c})
		all = append(all, [2]string{from, to})
		from = to
	}
	return append(all, [2]string{from, end})
}

func (l *Log) loadRange(ctx context.Context, r [2]string, at int64, chunks chan<- []*mvccpb.KeyValue) error {
	for kvs, err := range l.pages(ctx, r[0], r[1], at, page) {
		if err != nil {
			return err
		}
		for len(kvs) > 0 {
			n := min(len(kvs), loadChunk)
			select {
			case chunks <- kvs[:n]:
			case <-ctx.Done():
				return nil
			}
			kvs = kvs[n:]
		}
	}
	return nil
}

func (l *Log) loadChunk(ctx context.Context, kvs []*mvccpb.KeyValue, load func(string, *store.Object) error) error {
	for _, kv := range kvs {
		if ctx.Err() != nil {
			return nil
		}
		etcdKey := string(kv.Key)
		collection, key, ok := l.place(etcdKey)
		if !ok {
			l.loadFence(kv)
			continue
		}
		o, err := l.decodeNewest(ctx, versionOf(collection, key, kv))
		if err != nil {
			return err
		}
		if why := o.Unreadable(); why != "" {
			l.log.Error("an object cannot be read, and requests for it fail", "collection", collection, "key", key, "err", why)
		}
		if err := load(collection, o); err != nil {
			return err
		}
	}
	return nil
}

// findFloor returns the oldest revision that can be read. etcd reports it to no request, so a binary
// search reads a key that does not exist at one revision after the other. (It does report it to a watch
// from before it. But without any compaction, such a watch reads the whole history.)
func (l *Log) findFloor(ctx context.Context, head store.Revision) (store.Revision, error) {
	compacted, readable := int64(0), int64(head)
	for at := int64(1); readable-compacted > 1; at = compacted + (readable-compacted)/2 {
		r := &pb.RangeRequest{Key: []byte(l.guardPrefix() + ".none"), Revision: at, CountOnly: true}
		switch _, err := l.read(ctx, r, quick); {
		case err == nil:
			readable = at
		case errors.Is(err, errCompacted):
			compacted = at
		default:
			return 0, err
		}
	}
	raise(&l.oldest, readable)
	return l.floor(), nil
}

// floor returns the oldest revision that can be read, as far as it is known.
func (l *Log) floor() store.Revision { return store.Revision(max(l.oldest.Load(), 1)) }
