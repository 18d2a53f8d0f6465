package etcdlog_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
)

// TestBlockOfLargeRevision: the end of a lease deletes more bytes in one revision than all blocks may have. A reader that
// continues behind it gets the next change.
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
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
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

// TestBlockBeforePosition: a reader that lacks the last change alone does not read and decode megabytes before it.
func TestBlockBeforePosition(t *testing.T) {
	c := startCluster(t, 1, nil)
	var decoded atomic.Int64
	l := open(t, c, func(o *etcdlog.Options) {
		decode := o.Codec.Decode
		o.Codec.Decode = func(ctx context.Context, collection, key string, stored []byte) (etcdlog.Decoded, error) {
			decoded.Add(int64(len(stored)))
			return decode(ctx, collection, key, stored)
		}
	})
	text := strings.Repeat("x", 100<<10)
	var last store.Revision
	for i := range 400 {
		last = propose(t, l, put("configmaps", fmt.Sprintf("ns/%d", i), text, 0))
	}
	began := time.Now()
	n := 0
	for _, err := range l.Changes(t.Context(), "configmaps", last-1, last) {
		must(t, err)
		n++
	}
	if bytes := decoded.Load(); n != 1 || bytes > 4<<20 {
		t.Errorf("for %d change of 100 KiB, %d MiB were decoded in %v", n, bytes>>20, time.Since(began))
	}
}

// stuckWatch is an etcd whose first watch sends nothing, like that of a member whose disk hangs.
type stuckWatch struct{ gapWatch }

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
	read := func() (n int, err error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		for _, err := range l.Changes(ctx, "pods", 2, 4) {
			if err != nil {
				return n, err
			}
			n++
		}
		return n, nil
	}
	if n, err := read(); err == nil {
		t.Fatalf("the first reader has %d changes", n)
	}
	for range 3 {
		if n, err := read(); n != 2 || err != nil {
			t.Errorf("a later reader: %d changes, %v", n, err)
		}
	}
}

// TestOutdatedTooManyRequests: an update that changes nothing does not wait when etcd has too many requests, after a
// key was rotated.
func TestOutdatedTooManyRequests(t *testing.T) {
	c := startCluster(t, 1, nil)
	conn, err := grpc.NewClient(c.members[0].clients.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	k := &scriptedKV{member: pb.NewKVClient(conn)}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer()
	pb.RegisterKVServer(s, k)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	rotated := codec()
	rotated.Rotated = func(string) bool { return true }
	l, err := etcdlog.Open(etcdlog.Options{Servers: []string{"http://" + listener.Addr().String()}, Codec: rotated, CompactionInterval: -1})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	propose(t, l, put("pods", "a", "one", 0))
	k.script(nil, []step{busyOn})
	began := time.Now()
	outdated := l.Outdated("pods", "a")
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("it took %v, and the object is outdated: %v", took, outdated)
	}
}
