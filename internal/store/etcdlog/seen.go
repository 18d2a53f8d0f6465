package etcdlog

import (
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// seen is the ID and the newest revision of the cluster in its responses. The revision never decreases, unless the cluster is
// another one or was restored from a backup. (The term of raft is no sign of that: a member that lost an
// election may have responded with a higher one.)
//
// Responses can overtake each other. So a response is compared with the revisions seen before its
// request was sent, and only responses of linearizable requests are compared: another one may come from
// a member that lags behind.
type seen struct {
	cluster  atomic.Uint64
	revision atomic.Int64
}

// errEmulated: the responses are not those of etcd, which all have the ID of the cluster.
var errEmulated = errors.New("etcd: the server has no cluster ID, so it is kine or something else that has a part of etcd's API: a server needs etcd itself")

// mark has the revisions that had been seen at a time.
type mark struct {
	cluster  uint64
	revision int64
}

func (s *seen) now() mark {
	return mark{s.cluster.Load(), s.revision.Load()}
}

// check adds the header of a linearizable response. It returns store.ErrReset if the cluster is not
// the one of the mark, or has gone back.
func (s *seen) check(before mark, h *pb.ResponseHeader) error {
	if err := s.checkCluster(h); err != nil {
		return err
	}
	if h.Revision < before.revision {
		return fmt.Errorf("%w: the responses had revision %d before, and have %d now", store.ErrReset, before.revision, h.Revision)
	}
	raise(&s.revision, h.Revision)
	return nil
}

// checkCluster is check for a response that may come from a member which lags behind.
func (s *seen) checkCluster(h *pb.ResponseHeader) error {
	if h.ClusterId == 0 {
		return errEmulated
	}
	if s.cluster.CompareAndSwap(0, h.ClusterId) {
		return nil
	}
	if was := s.cluster.Load(); was != h.ClusterId {
		return fmt.Errorf("%w: the cluster ID was %x, and is %x; if etcd was not replaced, the URLs name members of different clusters", store.ErrReset, was, h.ClusterId)
	}
	return nil
}

// raise sets a counter to a value that is not below it.
func raise(n *atomic.Int64, to int64) {
	for {
		now := n.Load()
		if now >= to || n.CompareAndSwap(now, to) {
			return
		}
	}
}
