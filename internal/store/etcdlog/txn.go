package etcdlog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// request is a transaction of the store as one of etcd.
type request struct {
	writes []write
	fence  int // Log.fences
	pb     pb.TxnRequest
	// fenced is the comparison of the fence in pb.
	fenced *pb.Compare
	leases []lease // of its puts
	key    string  // of the first write, for errors
}

// write is one write that is stored.
type write struct {
	etcdKey string
	value   []byte // nil: a deletion
	was     int64  // the revision of the version that it replaces; zero: there is none
}

// request builds the request of a transaction. It may grant leases.
func (l *Log) request(ctx context.Context, t *store.Txn) (*request, error) {
	r := new(request)
	for i := range t.Writes {
		w := &t.Writes[i]
		if i+1 < len(t.Writes) && t.Writes[i+1].Next {
			continue // the next write has the condition, and is stored instead
		}
		condition := w.If
		for j := i; t.Writes[j].Next; j-- {
			condition = t.Writes[j-1].If
		}
		if err := l.addWrite(ctx, r, w, condition); err != nil {
			return nil, err
		}
	}
	for i := range t.Needs {
		n := &t.Needs[i]
		key, err := l.etcdKey(n.Collection, n.Key)
		if err != nil {
			return nil, err
		}
		r.pb.Compare = append(r.pb.Compare, compare([]byte(key), pb.Compare_EQUAL, int64(n.Modified)))
	}
	if err := l.addGuards(ctx, r, t.Guards); err != nil {
		return nil, err
	}
	r.key = t.Writes[0].Key
	r.fence = l.fences.of(r.writes[0].etcdKey)
	fence := []byte(l.fenceKey(r.fence))
	r.fenced = compare(fence, pb.Compare_EQUAL, 0)
	r.pb.Compare = append(r.pb.Compare, r.fenced)
	r.pb.Failure = append(r.pb.Failure, rangeOp(fence))
	if n := max(len(r.pb.Compare), len(r.pb.Success), len(r.pb.Failure)); n > l.o.MaxTxnOps {
		return nil, &store.UnfitError{Key: r.key, Parts: true, Why: fmt.Sprintf("the transaction has %d conditions or writes, and etcd accepts %d (its flag --max-txn-ops)", n, l.o.MaxTxnOps)}
	}
	return r, nil
}

func (l *Log) addWrite(ctx context.Context, r *request, w *store.Write, condition store.Revision) error {
	key, err := l.writtenKey(w.Collection, w.Key)
	if err != nil {
		return err
	}
	made := write{etcdKey: key, was: int64(condition)}
	r.pb.Compare = append(r.pb.Compare, compare([]byte(key), pb.Compare_EQUAL, made.was))
	r.pb.Failure = append(r.pb.Failure, rangeOp([]byte(key)))
	if w.Value == nil {
		r.pb.Success = append(r.pb.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: &pb.DeleteRangeRequest{Key: []byte(key)}}})
	} else {
		if made.value, err = l.o.Codec.Encode(w.Collection, w.Key, w.Value, w.RevisionAt); err != nil {
			return err
		}
		put := &pb.PutRequest{Key: []byte(key), Value: made.value}
		if l.o.TTL != nil {
			if ttl := l.o.TTL(w.Collection); ttl > 0 {
				if err := l.attachLease(ctx, r, put, ttl); err != nil {
					return err
				}
			}
		}
		r.pb.Success = append(r.pb.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
	}
	r.writes = append(r.writes, made)
	return nil
}

// attachLease attaches the keys that are put to a lease.
func (l *Log) attachLease(ctx context.Context, r *request, put *pb.PutRequest, ttl time.Duration) error {
	lease, err := l.leaser.get(ctx, l, ttl)
	if err != nil {
		return err
	}
	put.Lease = lease.id
	r.leases = append(r.leases, lease)
	return nil
}

// guardTTL is how long the key of a guard stays after the last claim. It only matters for
// transactions that were decided by a state before that claim, and these are made within seconds.
const guardTTL = time.Hour

// addGuards adds the guards: the last claim of each name is not newer than the revision that was seen.
func (l *Log) addGuards(ctx context.Context, r *request, guards []store.Guard) error {
	seen := make(map[string]*pb.Compare, len(guards))
	claimed := make(map[string]bool, len(guards))
	for i := range guards {
		g := &guards[i]
		key := []byte(l.guardKey(g.Name))
		if c := seen[g.Name]; c == nil {
			c = compare(key, pb.Compare_LESS, int64(g.Seen)+1)
			seen[g.Name] = c
			r.pb.Compare = append(r.pb.Compare, c)
		} else if u := c.TargetUnion.(*pb.Compare_ModRevision); int64(g.Seen) < u.ModRevision {
			u.ModRevision = int64(g.Seen) + 1
		}
		if !g.Claim || claimed[g.Name] {
			continue
		}
		claimed[g.Name] = true
		put := &pb.PutRequest{Key: key}
		if err := l.attachLease(ctx, r, put, guardTTL); err != nil {
			return err
		}
		r.pb.Success = append(r.pb.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}})
	}
	return nil
}

// longGuard is the length of a name above which its hash stands in the key, in bytes.
const longGuard = 200

// guardPrefix is the prefix of the keys that are no objects: those of guards, and others whose name
// begins with a dot.
func (l *Log) guardPrefix() string { return l.o.Prefix + "/tidemark.dev/guards/" }

func (l *Log) guardKey(name string) string {
	if len(name) > longGuard || strings.HasPrefix(name, ".") {
		sum := sha256.Sum256([]byte(name))
		name = "sha256-" + hex.EncodeToString(sum[:])
	}
	return l.guardPrefix() + name
}
