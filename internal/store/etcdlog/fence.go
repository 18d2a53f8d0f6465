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
)

// # Repeating a transaction
//
// A transaction whose outcome is unknown may still be on its way: in a buffer of the network or of a
// member. Its conditions alone do not make a repetition safe:
//
//	create x            no answer
//	create x, repeated  made, the client gets the answer
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

// loaded takes the revision of a fence from a key that was read.
func (f *fences) loaded(l *Log, etcdKey string, revision int64) {
	var i int
	if rest, ok := strings.CutPrefix(etcdKey, l.fencePrefix()); ok {
		if _, err := fmt.Sscanf(rest, "%d", &i); err == nil && i >= 0 && i < mostFences {
			raise(&f[i], revision)
		}
	}
}

// raiseFence returns when no transaction that compared the fence with a revision, or with an earlier
// one, can be made any more. It makes one try.
func (l *Log) raiseFence(ctx context.Context, limit time.Duration, i int, was int64) error {
	if l.fences[i].Load() > was {
		return nil // since that try, and by another one
	}
	key := []byte(l.fenceKey(i))
	before := l.seen.now()
	answer, err := try(ctx, limit, func(ctx context.Context) (*pb.TxnResponse, error) {
		return l.kv.Txn(withLeader(ctx), &pb.TxnRequest{
			Compare: []*pb.Compare{compare(key, pb.Compare_EQUAL, was)},
			Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key}}}},
			Failure: []*pb.RequestOp{rangeOp(key)},
		})
	})
	if err != nil {
		return err
	}
	if err := l.seen.check(before, answer.Header); err != nil {
		return err
	}
	if answer.Succeeded {
		raise(&l.fences[i], answer.Header.Revision)
		return nil
	}
	l.fences.learn(i, was, answer.Responses[0].GetResponseRange().Kvs)
	return nil
}

// learn takes the revision of a fence from a transaction that was refused because it is not what was
// expected.
func (f *fences) learn(i int, was int64, kvs []*mvccpb.KeyValue) {
	if len(kvs) == 0 { // an operator has deleted it
		f[i].CompareAndSwap(was, 0)
		return
	}
	raise(&f[i], kvs[0].ModRevision)
}

func compare(key []byte, result pb.Compare_CompareResult, revision int64) *pb.Compare {
	return &pb.Compare{Key: key, Target: pb.Compare_MOD, Result: result, TargetUnion: &pb.Compare_ModRevision{ModRevision: revision}}
}

func rangeOp(key []byte) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: key}}}
}
