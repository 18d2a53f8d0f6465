package etcdlog

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// # Compaction
//
// All servers of a cluster, kube-apiservers too, share one protocol, so that one of them compacts and
// nothing is compacted that is younger than the interval. The key compact_rev_key has a version, which
// etcd counts: the logical time of compactions. Each server remembers a time and a revision. Once in
// an interval it writes its revision to the key, on the condition that the time is still the one that it
// remembers:
//
//	made:     this server's turn. It compacts to that revision, which is one interval old, and
//	          remembers the next time and the revision of now.
//	refused:  another server's turn. It remembers the time of the key and the revision of now.
//
// A server that has no revision yet compacts nothing in its first turn.

// compactKey is the key that servers share. It has no prefix.
const compactKey = "compact_rev_key"

// compactTimeout is how long a turn may take.
const compactTimeout = time.Minute

// compactor is what a server remembers from one turn to the next.
type compactor struct {
	time     int64 // the version of the key
	revision int64 // what the next turn compacts to; zero: nothing
}

func (l *Log) compactLoop() {
	var c compactor
	ticker := time.NewTicker(l.o.CompactionInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		to, err := c.turn(l.ctx, l)
		switch {
		case err != nil && l.ctx.Err() == nil:
			l.log.Warn("etcd was not compacted", "revision", to, "err", err)
		case err == nil && to > 0:
			l.log.Debug("compacted etcd", "revision", to)
		}
	}
}

// turn returns the revision that it compacted to, zero if none.
func (c *compactor) turn(ctx context.Context, l *Log) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, compactTimeout)
	defer cancel()
	key := []byte(compactKey)
	answer, err := l.kv.Txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: c.time}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: strconv.AppendInt(nil, c.revision, 10)}}}},
		Failure: []*pb.RequestOp{rangeOp(key)},
	})
	if err != nil {
		return 0, err
	}
	to := c.revision
	c.revision = answer.Header.Revision
	if !answer.Succeeded {
		c.time = 0
		if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			c.time = kvs[0].Version
		}
		return 0, nil
	}
	c.time++
	if to == 0 {
		return 0, nil
	}
	if _, err := l.kv.Compact(ctx, &pb.CompactionRequest{Revision: to}); err != nil && !is(err, rpctypes.ErrGRPCCompacted) {
		return to, err
	}
	raise(&l.oldest, to)
	return to, nil
}

// compactedTo returns the revision in a value of compactKey, zero if there is none.
func compactedTo(value []byte) int64 {
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return max(n, 0)
}
