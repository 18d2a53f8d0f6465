package etcdlog_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestBlocks checks that readers of one collection, who share the responses of etcd, get the same
// changes as a reader of all collections, who shares nothing. The changes are too large for one
// block.
func TestBlocks(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	first, err := l.Head(t.Context())
	must(t, err)
	large := strings.Repeat("x", 100<<10)
	last := first
	for i := range 60 {
		writes := []store.Write{put("configmaps", fmt.Sprintf("default/a%d", i), large, 0)}
		switch {
		case i%3 == 0: // two changes of one revision
			writes = append(writes, put("configmaps", fmt.Sprintf("default/b%d", i), "small", 0))
		case i%3 == 1:
			writes = append(writes, put("configmaps", fmt.Sprintf("default/b%d", i-1), "changed", last))
		default:
			writes = append(writes, del("configmaps", fmt.Sprintf("default/b%d", i-2), last))
		}
		if i%5 == 0 {
			writes = append(writes, put("secrets", fmt.Sprintf("default/s%d", i), "small", 0))
		}
		last = propose(t, l, writes...)
	}
	var all []store.Entry // of all collections: they are read without blocks
	for e, err := range l.Changes(t.Context(), "", first, last) {
		must(t, err)
		all = append(all, e)
	}
	random := testrand.New(t)
	var readers sync.WaitGroup
	for range 4 {
		seed := random.Uint64()
		readers.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 10 {
				after := first + store.Revision(random.Uint64N(uint64(last-first)))
				upTo := after + store.Revision(random.Uint64N(uint64(last-after)+1))
				most := random.IntN(80)
				for _, collection := range []string{"configmaps", "secrets", "pods"} {
					want := textOf(all, func(e store.Entry) bool {
						return e.Collection == collection && e.Revision > after && e.Revision <= upTo
					}, most)
					var read []store.Entry
					for e, err := range l.Changes(t.Context(), collection, after, upTo) {
						if err != nil {
							t.Error(err)
							return
						}
						if len(read) == most {
							break
						}
						read = append(read, e)
					}
					got := textOf(read, func(store.Entry) bool { return true }, most)
					if got != want {
						t.Errorf("%s after %d up to %d, at most %d:\ngot  %s\nwant %s", collection, after, upTo, most, got, want)
					}
				}
			}
		})
	}
	readers.Wait()
}

// textOf returns the changes that are wanted, at most some.
func textOf(all []store.Entry, wanted func(store.Entry) bool, most int) string {
	var text strings.Builder
	n := 0
	for _, e := range all {
		if n < most && wanted(e) {
			n++
			fmt.Fprintf(&text, "%d %s %s %s %s; ", e.Revision, e.Collection, e.Key, sumOf(e.Before), sumOf(e.Object))
		}
	}
	return text.String()
}

// sumOf identifies a version of an object, or none.
func sumOf(o *store.Object) string {
	if o == nil {
		return "-"
	}
	return fmt.Sprintf("%d:%x", o.Modified, sha256.Sum256(o.Bytes()))
}

// decodes makes a log count the bytes that it decodes.
func decodes(t *testing.T, c *cluster) (*etcdlog.Log, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	return open(t, c, func(o *etcdlog.Options) {
		decode := o.Codec.Decode
		o.Codec.Decode = func(ctx context.Context, collection, key string, stored []byte) (etcdlog.Decoded, error) {
			n.Add(int64(len(stored)))
			return decode(ctx, collection, key, stored)
		}
	}), n
}

// TestBlocksShared: many readers of the same changes read and decode them once.
func TestBlocksShared(t *testing.T) {
	l, decoded := decodes(t, startCluster(t, 1, nil))
	text := strings.Repeat("x", 100<<10)
	first, err := l.Head(t.Context())
	must(t, err)
	last := first
	for i := range 60 {
		last = propose(t, l, put("configmaps", fmt.Sprintf("ns/%d", i), text, 0))
	}
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			n := 0
			for _, err := range l.Changes(t.Context(), "configmaps", first, last) {
				if err != nil {
					t.Error(err)
					return
				}
				n++
			}
			if n != 60 {
				t.Errorf("a reader has %d changes, want 60", n)
			}
		})
	}
	readers.Wait()
	if bytes := decoded.Load(); bytes > 7<<20 {
		t.Errorf("%d MiB were decoded for 16 readers of 6 MiB", bytes>>20)
	}
}

// TestBlockOfLargeRevision: the end of a lease deletes more bytes in one revision than all blocks may have. A reader that
// continues after it gets the next change.
func TestBlockOfLargeRevision(t *testing.T) {
	c := startCluster(t, 1, nil)
	l := open(t, c, nil)
	server := c.members[0].etcd.Server
	lease, err := server.LeaseGrant(t.Context(), &pb.LeaseGrantRequest{TTL: 3600})
	must(t, err)
	large := "0:" + strings.Repeat("x", 1<<20)
	for i := range 34 {
		_, err := server.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "%s/events/ns/%d", prefix, i), Value: []byte(large), Lease: lease.ID})
		must(t, err)
	}
	_, err = server.LeaseRevoke(t.Context(), &pb.LeaseRevokeRequest{ID: lease.ID})
	must(t, err)
	after, err := l.Head(t.Context())
	must(t, err)
	last := propose(t, l, put("events", "ns/next", "small", 0))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	n := 0
	for e, err := range l.Changes(ctx, "events", after, last) {
		if err != nil {
			t.Fatalf("the change at %d did not come: %v", last, err)
		}
		if n++; e.Revision != last {
			t.Errorf("a change at %d", e.Revision)
		}
	}
	if n != 1 {
		t.Errorf("%d changes, want one", n)
	}
}

// TestLargeRevisionInPieces: a revision that is larger than all blocks may be together is read from etcd and decoded once,
// in however many pieces a reader takes it.
func TestLargeRevisionInPieces(t *testing.T) {
	c := startCluster(t, 1, nil)
	l, decoded := decodes(t, c)
	const changes, size = 400, 100 << 10
	for i := range changes {
		propose(t, l, put("configmaps", fmt.Sprintf("ns/%d", i), strings.Repeat("x", size), 0))
	}
	base := prefix + "/configmaps/"
	deleted, err := c.members[0].etcd.Server.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: []byte(base), RangeEnd: []byte(prefix + "/configmaps0")})
	must(t, err)
	at, before := store.Revision(deleted.Header.Revision), decoded.Load()
	for seen := 0; seen < changes; seen += 50 {
		n := 0
		for e, err := range l.Changes(t.Context(), "configmaps", at-1, at) {
			must(t, err)
			if e.Revision != at {
				t.Fatalf("a change at %d, want only those at %d", e.Revision, at)
			}
			if n++; n == seen+50 {
				break
			}
		}
		if n != seen+50 {
			t.Fatalf("%d changes, want %d", n, seen+50)
		}
	}
	if bytes := decoded.Load() - before; bytes > 2*changes*size {
		t.Errorf("%d MiB were decoded for a revision of %d MiB", bytes>>20, changes*size>>20)
	}
}

// TestBlockBeforePosition: a reader that lacks the last change alone does not read and decode megabytes before it.
func TestBlockBeforePosition(t *testing.T) {
	l, decoded := decodes(t, startCluster(t, 1, nil))
	text := strings.Repeat("x", 100<<10)
	var last store.Revision
	for i := range 100 {
		last = propose(t, l, put("configmaps", fmt.Sprintf("ns/%d", i), text, 0))
	}
	n := 0
	for _, err := range l.Changes(t.Context(), "configmaps", last-1, last) {
		must(t, err)
		n++
	}
	if bytes := decoded.Load(); n != 1 || bytes > 4<<20 {
		t.Errorf("for %d change of 100 KiB, %d MiB were decoded", n, bytes>>20)
	}
}

// stuckWatch is an etcd whose first watch sends nothing, like that of a member whose disk hangs.
type stuckWatch struct {
	gapWatch
	hangs atomic.Bool
}

func (g *stuckWatch) Watch(stream pb.Watch_WatchServer) error {
	g.mu.Lock()
	g.watches++
	stuck := g.watches == 1
	g.mu.Unlock()
	if !stuck {
		return g.gapWatch.Watch(stream)
	}
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(&pb.WatchResponse{Header: gapHeader, Created: true}); err != nil {
		return err
	}
	g.hangs.Store(true)
	<-stream.Context().Done()
	return nil
}

// TestBlockOfStuckMember: a watch that hangs holds up the reader that began it, and not those that come later.
func TestBlockOfStuckMember(t *testing.T) {
	g := new(stuckWatch)
	l := listen(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, g)
		pb.RegisterWatchServer(s, g)
	})
	read := func(ctx context.Context) (n int, err error) {
		for _, err := range l.Changes(ctx, "pods", 2, 4) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	first, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if n, err := read(first); err == nil {
			t.Errorf("the first reader has %d changes", n)
		}
	}()
	await.True(t, "its watch hangs", g.hangs.Load)
	cancel()
	<-done
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 3 {
		if n, err := read(ctx); n != 2 || err != nil {
			t.Errorf("a later reader: %d changes, %v", n, err)
		}
	}
}
