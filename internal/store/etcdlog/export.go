package etcdlog

import (
	"context"
	"errors"
	"iter"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Keys yields all keys that begin with a prefix as of a revision, in order, in pages. It ends with an
// *ExpiredError when a compaction overtakes it.
func (l *Log) Keys(ctx context.Context, prefix string, at store.Revision) iter.Seq2[[]*mvccpb.KeyValue, error] {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		for kvs, err := range l.pages(ctx, prefix, rangeEnd(prefix), int64(at), page) {
			if errors.Is(err, errCompacted) {
				err = &store.ExpiredError{Revision: at, Floor: l.floor()}
			}
			if !yield(kvs, err) || err != nil {
				return
			}
		}
	}
}

// Status is the status that a member reports.
type Status struct {
	// Version is that of the member.
	Version string
	// Bytes is the size of its database, UsedBytes the used part of it, and QuotaBytes the limit; zero: the
	// member does not say.
	Bytes, UsedBytes, QuotaBytes int64
}

// Status asks one of the members. The response is zero if the client may not know it: etcd reports it to users with its
// role root alone.
func (l *Log) Status(ctx context.Context) (Status, error) {
	response, err := try(ctx, quick.all, func(ctx context.Context) (*pb.StatusResponse, error) {
		return l.care.Status(ctx, &pb.StatusRequest{})
	})
	if is(err, rpctypes.ErrGRPCPermissionDenied) {
		return Status{}, nil
	}
	if err != nil {
		if ctx.Err() != nil {
			return Status{}, ctx.Err()
		}
		return Status{}, unavailable(err, 0)
	}
	return Status{Version: response.Version, Bytes: response.DbSize, UsedBytes: response.DbSizeInUse, QuotaBytes: response.DbSizeQuota}, nil
}
