package etcdlog_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// slowKV forwards requests to a member, transactions after a delay, also if the client has given up.
type slowKV struct {
	pb.UnimplementedKVServer
	member pb.KVClient
	delay  atomic.Int64 // nanoseconds
}

func (k *slowKV) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return k.member.Range(ctx, r)
}

func (k *slowKV) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	time.Sleep(time.Duration(k.delay.Load()))
	return k.member.Txn(context.WithoutCancel(ctx), r)
}

// hangingWatch forwards watches. Those that are open when hang is called send no more events.
type hangingWatch struct {
	forwardWatch
	hung atomic.Int64 // the number of watches that were opened until then
	made atomic.Int64
}

func (h *hangingWatch) hang() { h.hung.Store(h.made.Load()) }

func (h *hangingWatch) Watch(from pb.Watch_WatchServer) error {
	return h.forwardWatch.Watch(&hangingStream{from, h, h.made.Add(1)})
}

type hangingStream struct {
	pb.Watch_WatchServer
	watch  *hangingWatch
	number int64
}

func (s *hangingStream) Send(r *pb.WatchResponse) error {
	if len(r.Events) > 0 && s.number <= s.watch.hung.Load() {
		return nil
	}
	return s.Watch_WatchServer.Send(r)
}

// behind returns a store on a member behind doubles.
func behind(t *testing.T) (*store.Store, *slowKV, *hangingWatch) {
	t.Helper()
	c := startCluster(t, 1, nil)
	conn, err := grpc.NewClient(c.members[0].clients.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	k := &slowKV{member: pb.NewKVClient(conn)}
	w := &hangingWatch{forwardWatch: forwardWatch{member: pb.NewWatchClient(conn)}}
	l := listen(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, k)
		pb.RegisterWatchServer(s, w)
	})
	s, err := stores.Open(t.Context(), store.Options{Shared: keptOpen{l}, OnFatal: func(err error) { t.Errorf("the store failed: %v", err) }})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s, k, w
}

// keptOpen is a log that outlives its store: listen closes it.
type keptOpen struct{ store.Shared }

func (keptOpen) Close() error { return nil }

// TestSlow: with an etcd whose responses take longer than the first try may, writes succeed, deletions too.
func TestSlow(t *testing.T) {
	tier.Full(t)
	s, k, _ := behind(t)
	o, err := s.Commit(t.Context(), put("pods", "old", "x", 0))
	must(t, err)
	k.delay.Store(int64(1300 * time.Millisecond))
	var writes sync.WaitGroup
	writes.Go(func() {
		if _, err := s.Commit(t.Context(), del("pods", "old", o.Modified)); err != nil {
			t.Errorf("a deletion: %v", err)
		}
	})
	for i := range 10 {
		writes.Go(func() {
			if _, err := s.Commit(t.Context(), put("pods", fmt.Sprint("new-", i), "x", 0)); err != nil {
				t.Errorf("creation %d: %v", i, err)
			}
		})
	}
	writes.Wait()
}

// TestHangingWatch: a watch that sends nothing, although there are newer revisions, is replaced.
func TestHangingWatch(t *testing.T) {
	tier.Full(t)
	s, _, w := behind(t)
	_, err := s.Commit(t.Context(), put("pods", "a", "x", 0))
	must(t, err)
	w.hang()
	if _, err := s.Commit(t.Context(), put("pods", "b", "x", 0)); err != nil {
		t.Errorf("a write: %v", err)
	}
	if s.Any().Get("pods", "b") == nil {
		t.Error("the object is not there")
	}
}
