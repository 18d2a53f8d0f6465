package etcdlog

import (
	"context"
	"errors"
	"strconv"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
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
//	          remembers the next time and the current revision.
//	refused:  another server's turn. It remembers the time of the key and the current revision.
//
// A server that has no revision yet compacts nothing in its first turn.
//
// A client that may not compact takes no turns, because other servers would wait an interval for nothing, and would take
// the key's event for a compaction.

// compactKey is the key that servers share. It has no prefix.
const compactKey = "compact_rev_key"

// compactTimeout is how long a turn may take.
const compactTimeout = time.Minute

var (
	// errNoCompactKey: the client may not write compactKey.
	errNoCompactKey = errors.New("etcd: etcdserver: permission denied: the etcd user that the client certificate names needs a role with readwrite on the key " + compactKey)
	// errNoCompaction: the client may not compact. Releases of etcd differ in who may.
	errNoCompaction = errors.New("etcd: etcdserver: permission denied: this release of etcd compacts for users with its role root alone; without that role, have etcd compact with its flag --auto-compaction-retention")
)

// compactor has the state that a server keeps from one turn to the next.
type compactor struct {
	time     int64 // the version of the key
	revision int64 // that the next turn compacts to; zero: none
	allowed  bool  // etcd lets this client compact, as far as it is known
}

func (l *Log) compactLoop() {
	var c compactor
	warned := false // that the client may not compact
	ticker := time.NewTicker(l.o.CompactionInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-l.ctx.Done():
			return
		}
		to, err := c.turn(l.ctx, l)
		denied := errors.Is(err, errNoCompactKey) || errors.Is(err, errNoCompaction)
		again := denied && warned
		warned = denied
		switch {
		case again:
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
	if err := c.check(ctx, l); err != nil {
		return 0, err
	}
	key := []byte(compactKey)
	r := &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: key, Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{Version: c.time}}},
		Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: key, Value: strconv.AppendInt(nil, c.revision, 10)}}}},
		Failure: []*pb.RequestOp{rangeOp(key)},
	}
	response, err := l.kv.Txn(ctx, r)
	for tries := 0; outdatedAuth(err) && pause(ctx, tries); tries++ {
		response, err = l.kv.Txn(ctx, r)
	}
	if is(err, rpctypes.ErrGRPCPermissionDenied) {
		return 0, errNoCompactKey
	}
	if err != nil {
		return 0, err
	}
	to := c.revision
	c.revision = response.Header.Revision
	if !response.Succeeded {
		c.time = 0
		if kvs := response.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 {
			c.time = kvs[0].Version
			raise(&l.oldest, compactedTo(kvs[0])) // the watch of the prefix alone does not have the key
		}
		return 0, nil
	}
	c.time++
	if to == 0 {
		return 0, nil
	}
	if err := c.compact(ctx, l, to); err != nil {
		return to, err
	}
	raise(&l.oldest, to)
	return to, nil
}

// check returns an error if the client may not compact. To find out, it compacts to the first revision, which has no
// keys.
func (c *compactor) check(ctx context.Context, l *Log) error {
	if c.allowed {
		return nil
	}
	err := c.compact(ctx, l, 1)
	c.allowed = err == nil
	return err
}

// compact compacts to a revision, unless that is done.
func (c *compactor) compact(ctx context.Context, l *Log, to int64) error {
	_, err := l.kv.Compact(ctx, &pb.CompactionRequest{Revision: to})
	switch {
	case is(err, rpctypes.ErrGRPCCompacted):
		return nil
	case is(err, rpctypes.ErrGRPCPermissionDenied):
		c.allowed = false
		return errNoCompaction
	}
	return err
}

// compactedTo returns the revision in the value of compactKey, zero if it has none that is older than the value.
func compactedTo(kv *mvccpb.KeyValue) int64 {
	n, err := strconv.ParseInt(string(kv.Value), 10, 64)
	if err != nil || n > kv.ModRevision {
		return 0
	}
	return max(n, 0)
}
