package etcdlog_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
)

// listen serves a scripted etcd and returns a log of it.
func listen(t *testing.T, register func(*grpc.Server)) *etcdlog.Log {
	t.Helper()
	return listenWith(t, register, &etcdlog.Options{CompactionInterval: -1})
}

// listenWith is listen with options. It sets the servers, and the codec if there is none.
func listenWith(t *testing.T, register func(*grpc.Server), o *etcdlog.Options) *etcdlog.Log {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := grpc.NewServer()
	register(s)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	o.Servers = []string{"http://" + listener.Addr().String()}
	if o.Codec.Decode == nil {
		o.Codec = codec()
	}
	l, err := etcdlog.Open(*o)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l
}

// lateKV forwards requests to a member, but holds the first transaction back and never responds to it.
type lateKV struct {
	pb.UnimplementedKVServer
	member pb.KVClient
	once   sync.Once
	first  *pb.TxnRequest
}

func (k *lateKV) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return k.member.Range(ctx, r)
}

func (k *lateKV) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	held := false
	k.once.Do(func() { k.first, held = r, true })
	if held {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return k.member.Txn(ctx, r)
}

// forwardWatch forwards watches to a member.
type forwardWatch struct {
	pb.UnimplementedWatchServer
	member pb.WatchClient
}

func (f *forwardWatch) Watch(from pb.Watch_WatchServer) error {
	to, err := f.member.Watch(from.Context())
	if err != nil {
		return err
	}
	go func() {
		for {
			r, err := from.Recv()
			if err != nil || to.Send(r) != nil {
				return
			}
		}
	}()
	for {
		r, err := to.Recv()
		if err != nil {
			return err
		}
		if err := from.Send(r); err != nil {
			return err
		}
	}
}

// TestLate: a try that arrives after its repetition was made, and after the object was deleted again, does
// not make the object again.
func TestLate(t *testing.T) {
	c := startCluster(t, 1, nil)
	conn, err := grpc.NewClient(c.members[0].clients.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	k := &lateKV{member: pb.NewKVClient(conn)}
	l := listen(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, k)
		pb.RegisterWatchServer(s, &forwardWatch{member: pb.NewWatchClient(conn)})
	})
	r := propose(t, l, put("pods", "a", "one", 0))
	propose(t, l, del("pods", "a", r))
	response, err := k.member.Txn(t.Context(), k.first)
	if err != nil || response.Succeeded {
		t.Errorf("the first try, after the deletion: got %v, %v, want it refused", response, err)
	}
}

// gapWatch is an etcd with one change of the key "a" in each revision from 2 to 4. Its first watch leaves
// out revision 3.
type gapWatch struct {
	pb.UnimplementedKVServer
	pb.UnimplementedWatchServer
	mu      sync.Mutex
	watches int
}

var gapHeader = &pb.ResponseHeader{ClusterId: 1, MemberId: 1, Revision: 4}

func gapKV(r int64) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte(prefix + "/pods/a"), CreateRevision: 2, ModRevision: r, Version: r - 1, Value: fmt.Appendf(nil, "0:%d", r)}
}

func (g *gapWatch) Range(_ context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	response := &pb.RangeResponse{Header: gapHeader}
	if r.Revision > 1 {
		response.Kvs = []*mvccpb.KeyValue{gapKV(r.Revision)}
	}
	return response, nil
}

func (g *gapWatch) Watch(stream pb.Watch_WatchServer) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	g.mu.Lock()
	g.watches++
	incomplete := g.watches == 1
	g.mu.Unlock()
	if err := stream.Send(&pb.WatchResponse{Header: gapHeader, Created: true}); err != nil {
		return err
	}
	for r := first.GetCreateRequest().StartRevision; r <= 4; r++ {
		if r == 3 && incomplete {
			continue
		}
		e := &mvccpb.Event{Kv: gapKV(r)}
		if first.GetCreateRequest().PrevKv && r > 2 {
			e.PrevKv = gapKV(r - 1)
		}
		if err := stream.Send(&pb.WatchResponse{Header: gapHeader, Events: []*mvccpb.Event{e}}); err != nil {
			return err
		}
	}
	<-stream.Context().Done()
	return nil
}

// TestGap: the follower notices that a watch left out a revision, and reads it from another one.
func TestGap(t *testing.T) {
	g := new(gapWatch)
	l := listen(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, g)
		pb.RegisterWatchServer(s, g)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got []store.Revision
	for b, err := range l.Follow(ctx, 1) {
		must(t, err)
		for _, e := range b.Entries {
			got = append(got, e.Revision)
		}
		if b.Through >= 4 {
			break
		}
	}
	if fmt.Sprint(got) != "[2 3 4]" {
		t.Errorf("got the revisions %d, want 2, 3 and 4", got)
	}
}

// kineKV responds as kine does: without the ID of a cluster.
type kineKV struct{ pb.UnimplementedKVServer }

func (*kineKV) Range(context.Context, *pb.RangeRequest) (*pb.RangeResponse, error) {
	return &pb.RangeResponse{Header: &pb.ResponseHeader{Revision: 4}}, nil
}

// TestEmulated checks that a store that has only a part of etcd's API is rejected at the start.
func TestEmulated(t *testing.T) {
	l := listen(t, func(s *grpc.Server) { pb.RegisterKVServer(s, new(kineKV)) })
	_, err := l.Load(t.Context(), func(string, *store.Object) error { return nil })
	if err == nil || !strings.Contains(err.Error(), "kine") {
		t.Errorf("Load: %v", err)
	}
}
