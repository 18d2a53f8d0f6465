package etcdlog_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
)

// scriptedKV forwards requests to a member, with the faults that its scripts have for the next
// ones. An empty script forwards all.
type scriptedKV struct {
	pb.UnimplementedKVServer
	member pb.KVClient

	mu           sync.Mutex
	txns, ranges []step
}

// step is the fault of one request.
type step int

const (
	forward  step = iota
	busy          // etcd has too many requests
	busyOn        // this one, and all after it
	lost          // the request does not reach the member
	deaf          // the response of the member is lost
	outdated      // a user or role of etcd was changed after the member had accepted it
)

var errConnection = status.Error(codes.Unavailable, "the connection was lost")

func next(k *scriptedKV, script *[]step) step {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(*script) == 0 {
		return forward
	}
	s := (*script)[0]
	if s != busyOn {
		*script = slices.Delete(*script, 0, 1)
	}
	return s
}

func play[T any](s step, request func() (T, error)) (none T, err error) {
	switch s {
	case busy, busyOn:
		return none, rpctypes.ErrGRPCRequestTooManyRequests
	case lost:
		return none, errConnection
	case outdated:
		return none, rpctypes.ErrGRPCAuthOldRevision
	case deaf:
		if _, err := request(); err != nil {
			return none, err
		}
		return none, errConnection
	}
	return request()
}

func (k *scriptedKV) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return play(next(k, &k.ranges), func() (*pb.RangeResponse, error) { return k.member.Range(ctx, r) })
}

func (k *scriptedKV) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return play(next(k, &k.txns), func() (*pb.TxnResponse, error) { return k.member.Txn(ctx, r) })
}

func (k *scriptedKV) script(txns, ranges []step) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.txns, k.ranges = txns, ranges
}

// busyLease grants no lease.
type busyLease struct{ pb.UnimplementedLeaseServer }

func (*busyLease) LeaseGrant(context.Context, *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	return nil, rpctypes.ErrGRPCRequestTooManyRequests
}

func scripted(t *testing.T) (*etcdlog.Log, *scriptedKV) {
	t.Helper()
	c := startCluster(t, 1, nil)
	conn, err := grpc.NewClient(c.members[0].clients.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	k := &scriptedKV{member: pb.NewKVClient(conn)}
	return listen(t, func(s *grpc.Server) {
		pb.RegisterKVServer(s, k)
		pb.RegisterWatchServer(s, &forwardWatch{member: pb.NewWatchClient(conn)})
		pb.RegisterLeaseServer(s, new(busyLease))
	}), k
}

// TestTooManyRequests checks that a request that etcd rejects because it has too many fails at
// once, and was not executed. Other reads than those of clients are repeated.
func TestTooManyRequests(t *testing.T) {
	l, k := scripted(t)
	r := propose(t, l, put("pods", "a", "one", 0))
	k.script([]step{busyOn}, []step{busyOn})
	_, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "a", "two", r)}})
	if !errors.Is(err, store.ErrOverloaded) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("a write: %v", err)
	}
	claim := []store.Guard{{Name: "port", Seen: r, Claim: true}}
	if _, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "b", "one", 0)}, Guards: claim}); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("a write with a lease: %v", err)
	}
	if _, err := l.Head(t.Context()); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("the head: %v", err)
	}
	for _, err := range l.ObjectsAt(t.Context(), "pods", r, "", "") {
		if !errors.Is(err, store.ErrOverloaded) {
			t.Errorf("a list: %v", err)
		}
	}
	k.script(nil, []step{busy, busy})
	if all, b := load(t, l); len(all) != 1 || b.Head != r {
		t.Errorf("loaded %d objects at %d, want one at %d", len(all), b.Head, r)
	}
}

// TestTooManyAfterUnknown: a try whose response was lost is settled although etcd has too many requests meanwhile. Only
// then is the transaction not made, and says so.
func TestTooManyAfterUnknown(t *testing.T) {
	l, k := scripted(t)
	k.script([]step{deaf, busy, busy}, []step{busy, busy})
	r := propose(t, l, put("pods", "a", "one", 0))
	if all, _ := load(t, l); len(all) != 1 || all["pods a"].Modified != r {
		t.Errorf("got %v, want an object at %d", all, r)
	}
	k.script([]step{lost, busy, forward, busyOn}, []step{busy})
	_, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{put("pods", "b", "one", 0)}})
	if !errors.Is(err, store.ErrOverloaded) || errors.Is(err, store.ErrUnknown) {
		t.Errorf("a write that was not made: %v", err)
	}
	k.script(nil, nil)
	if all, _ := load(t, l); len(all) != 1 {
		t.Errorf("got %d objects, want one", len(all))
	}
}

// TestOutdatedTooManyRequests: after a key was rotated, an update that changes nothing asks etcd whether the object is
// outdated. When etcd has too many requests, the update is tried without the response.
func TestOutdatedTooManyRequests(t *testing.T) {
	c := startCluster(t, 1, nil)
	conn, err := grpc.NewClient(c.members[0].clients.address(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	k, rotated := &scriptedKV{member: pb.NewKVClient(conn)}, codec()
	rotated.Generation = func(string) uint64 { return 1 }
	l := listenWith(t, func(s *grpc.Server) { pb.RegisterKVServer(s, k) }, &etcdlog.Options{Codec: rotated, CompactionInterval: -1})
	propose(t, l, put("pods", "a", "one", 0))
	k.script(nil, []step{busy, lost})
	outdated := l.Outdated("pods", "a")
	if left := len(k.ranges); !outdated || left != 1 {
		t.Errorf("outdated: %v, with %d requests left, want one", outdated, left)
	}
}

// TestOutdatedOnce: after a key was rotated, the value of a version is read once to know whether it is outdated.
func TestOutdatedOnce(t *testing.T) {
	c := startCluster(t, 1, nil)
	var generation, decoded atomic.Uint64
	l := open(t, c, func(o *etcdlog.Options) {
		decode := o.Codec.Decode
		o.Codec.Decode = func(ctx context.Context, collection, key string, stored []byte) (etcdlog.Decoded, error) {
			decoded.Add(1)
			return decode(ctx, collection, key, stored)
		}
		o.Codec.Generation = func(string) uint64 { return generation.Load() }
	})
	want := func(when string, outdated bool, reads uint64) {
		t.Helper()
		for range 3 {
			before := decoded.Load()
			if is := l.Outdated("pods", "a"); is != outdated || decoded.Load() != before+reads {
				t.Errorf("%s: outdated %t after %d values were read, want %t and %d", when, is, decoded.Load()-before, outdated, reads)
			}
			reads = 0
		}
	}
	first := propose(t, l, put("pods", "a", "one", 0))
	changes(t, l, first-1, first)
	want("before a rotation", false, 0)
	generation.Store(1)
	want("after a rotation", false, 1)
	generation.Store(2)
	want("after another one", false, 1)
	second := propose(t, open(t, c, nil), put("pods", "a", "outdated", first))
	changes(t, l, first, second)
	want("after a write with the former key", true, 0)
	third := propose(t, l, put("pods", "a", "three", second))
	changes(t, l, second, third)
	want("after a write of its own", false, 1)
	generation.Store(3)
	want("after a third rotation", false, 1)
}
