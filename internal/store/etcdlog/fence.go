package etcdlog

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Repeating a transaction
//
// A transaction whose outcome is unknown may still be on its way: in a buffer of the network or of a
// member. Its conditions alone do not make a repetition safe:
//
//	create x            no response
//	create x, repeated  made, the client gets the response
//	another client deletes x
//	create x            the first try arrives, and makes x again
//
// So each transaction also compares the revision of a fence, a key of its own. Before a repetition the
// fence is written: whatever was sent before has been decided by then, or its comparison fails. There
// are a few fences, shared by the keys of all servers. A transaction in flight that meets a raised fence
// is refused, learns the new revision and tries again. Fences are written only after a failure.

// mostFences is the number of fences.
const mostFences = 64

// fences has the revision of each fence, zero for one that was never written.
type fences [mostFences]atomic.Int64

// of returns the fence of a key.
func (f *fences) of(etcdKey string) int {
	h := fnv.New32a()
	h.Write([]byte(etcdKey))
	return int(h.Sum32() % mostFences)
}

func (l *Log) fencePrefix() string { return l.guardPrefix() + ".fences/" }

func (l *Log) fenceKey(i int) string { return fmt.Sprintf("%s%d", l.fencePrefix(), i) }

// loadFence takes the revision of a fence from a key that was read, and its mark.
func (l *Log) loadFence(kv *mvccpb.KeyValue) {
	var i int
	if rest, ok := strings.CutPrefix(string(kv.Key), l.fencePrefix()); ok {
		if _, err := fmt.Sscanf(rest, "%d", &i); err == nil && i >= 0 && i < mostFences {
			l.readMark(kv.Value)
			raise(&l.fences[i], kv.ModRevision)
		}
	}
}

// # Moved objects
//
// A migration that has copied all objects marks them as moved: it writes a value to all fences. So each transaction of each
// server is refused from then on, also of one that was suspended and knows nothing of it. A server that reads the value ends,
// and none starts.

// movedMark begins the value of a fence if the objects were moved. Where to follows.
const movedMark = "moved to "

// movedError is the error of a log whose objects were moved. It is a store.ErrReset.
type movedError struct{ to, prefix, fences string }

func (e *movedError) Error() string {
	return fmt.Sprintf("the objects below %s in etcd were moved to %s: start the server there. To go back to etcd, without what was written there since, remove the mark: etcdctl del --prefix %s", e.prefix, e.to, e.fences)
}

func (e *movedError) Unwrap() error { return store.ErrReset }

// readMark records that the objects were moved, if the value of a fence says so.
func (l *Log) readMark(value []byte) {
	if to, ok := strings.CutPrefix(string(value), movedMark); ok {
		l.movedTo.Store(&to)
	}
}

// moved returns an error if the objects were moved.
func (l *Log) moved() error {
	if to := l.movedTo.Load(); to != nil {
		return &movedError{*to, l.o.Prefix, l.fencePrefix()}
	}
	return nil
}

// MarkMoved marks the objects as moved, in one transaction. Empty: it removes the mark.
func (l *Log) MarkMoved(ctx context.Context, to string) error {
	var mark []byte
	if to != "" {
		mark = []byte(movedMark + to)
	}
	txn := new(pb.TxnRequest)
	for i := range mostFences {
		txn.Success = append(txn.Success, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(l.fenceKey(i)), Value: mark}}})
	}
	_, err := try(ctx, quick.all, func(ctx context.Context) (*pb.TxnResponse, error) { return l.kv.Txn(withLeader(ctx), txn) })
	if err != nil && ctx.Err() == nil {
		err = unavailable(err, 0)
	}
	return err
}

// raiseFence returns when no transaction that compared the fence with a revision, or with an earlier
// one, can be made any more. It makes one try.
func (l *Log) raiseFence(ctx context.Context, limit time.Duration, i int, was int64) error {
	if l.fences[i].Load() > was {
		return nil // since that try, and by another one
	}
	if err := l.moved(); err != nil { // the mark must stay
		return err
	}
	key := []byte(l.fenceKey(i))
	before := l.seen.now()
	response, err := try(ctx, limit, func(ctx context.Context) (*pb.TxnResponse, error) {
		return l.kv.Txn(withLeader(ctx), &pb.TxnRequest{
			Compare: []*pb.Compare{compare(key, pb.Compare_EQUAL, was)},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}},
			Failure: []*pb.RequestOp{rangeOp(key)},
		})
	})
	if err != nil {
		return err
	}
	if err := l.seen.check(before, response.Header); err != nil {
		return err
	}
	if response.Succeeded {
		raise(&l.fences[i], response.Header.Revision)
		return nil
	}
	l.learnFence(i, was, response.Responses[0].GetResponseRange().Kvs)
	return nil
}

// learnFence takes the revision of a fence, and its mark, from a transaction that was refused because the fence has another
// revision than expected.
func (l *Log) learnFence(i int, was int64, kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 { // an operator has deleted it
		l.fences[i].CompareAndSwap(was, 0)
		return
	}
	l.readMark(kvs[0].Value)
	raise(&l.fences[i], kvs[0].ModRevision)
}

func compare(key []byte, result pb.Compare_CompareResult, revision int64) *pb.Compare {
	return &pb.Compare{Key: key, Target: pb.Compare_MOD, Result: result, TargetUnion: &pb.Compare_ModRevision{ModRevision: revision}}
}

func rangeOp(key []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
}
