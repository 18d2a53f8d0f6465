package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tidemark-dev/tidemark/internal/store"
)

var (
	// errCompacted: the revision of a request is compacted.
	errCompacted = errors.New("the revision is compacted")
	// errResponseTooLarge: the response to a request is larger than this client takes.
	errResponseTooLarge = errors.New("the response of etcd is too large")
)

// attempts bounds the tries of a request.
type attempts struct {
	each time.Duration // of a try; after one that got no response in time, more: etcd may be slow
	all  time.Duration
	// refusable: the request fails at once with store.ErrOverloaded if etcd has too many requests. Otherwise it is
	// tried again.
	refusable bool
}

// longestTry is the longest limit of one try.
const longestTry = 4 * time.Second

// limit returns the limit of a try, after some that got no response in time.
func (a attempts) limit(late int) time.Duration {
	if a.each >= longestTry {
		return a.each
	}
	return min(a.each<<min(late, 8), longestTry)
}

// isLate reports whether a try got no response in time.
func isLate(err error) bool { return status.Code(err) == codes.DeadlineExceeded }

var (
	quick = attempts{each: time.Second, all: 10 * time.Second}
	page  = attempts{each: 10 * time.Second, all: 60 * time.Second}
	// Those of clients, who can try again themselves.
	quickOfClient = attempts{quick.each, quick.all, true}
	pageOfClient  = attempts{page.each, page.all, true}
	// fencing is shorter: members that have lost their leader, and do not know it yet, never respond.
	fencing = attempts{each: 250 * time.Millisecond, all: 10 * time.Second}
)

// read sends a linearizable read until it gets a response. It returns errCompacted, a
// *store.TooLargeError, store.ErrReset, the context's error, a *store.UnavailableError, or the error of attempts.
func (l *Log) read(ctx context.Context, r *pb.RangeRequest, a attempts, options ...grpc.CallOption) (*pb.RangeResponse, error) {
	began := time.Now()
	for tries, late := 0, 0; ; tries++ {
		before := l.seen.now()
		response, err := try(ctx, a.limit(late), func(ctx context.Context) (*pb.RangeResponse, error) {
			return l.kv.Range(withLeader(ctx), r, options...)
		})
		switch {
		case err == nil:
			return response, l.seen.check(before, response.Header)
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case is(err, rpctypes.ErrGRPCCompacted):
			raise(&l.oldest, r.Revision+1)
			return nil, errCompacted
		case is(err, rpctypes.ErrGRPCFutureRev):
			return nil, &store.TooLargeError{Revision: store.Revision(r.Revision), Current: store.Revision(before.revision)}
		case is(err, rpctypes.ErrGRPCRequestTooManyRequests) && a.refusable:
			return nil, overloaded(err)
		case status.Code(err) == codes.ResourceExhausted && !is(err, rpctypes.ErrGRPCRequestTooManyRequests):
			return nil, fmt.Errorf("%w: %w", errResponseTooLarge, unavailable(err, 0))
		case !transient(err) || l.late(began, a):
			return nil, unavailable(err, 0)
		case isLate(err):
			late++
		}
		if !pause(ctx, tries) {
			return nil, ctx.Err()
		}
	}
}

// withLeader makes a member without a leader refuse the request at once.
func withLeader(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)
}

// try calls a function with a context that ends after a time.
func try[T any](ctx context.Context, each time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, each)
	defer cancel()
	return f(ctx)
}

// is reports whether an error of gRPC is one of etcd. Those of the same code differ by their text.
func is(err, want error) bool {
	s, ok := status.FromError(err)
	w, _ := status.FromError(want)
	return ok && s.Code() == w.Code() && s.Message() == w.Message()
}

// transient reports whether the same request may succeed later or at another member.
func transient(err error) bool {
	switch status.Code(err) {
	case codes.InvalidArgument:
		return outdatedAuth(err)
	case codes.PermissionDenied, codes.Unauthenticated, codes.Unimplemented, codes.DataLoss, codes.NotFound, codes.OutOfRange:
		return false
	case codes.FailedPrecondition:
		return is(err, rpctypes.ErrGRPCNotSupportedForLearner)
	}
	return true
}

// outdatedAuth reports whether etcd refused a request because an administrator changed a user or a role after the
// member had accepted the request. The request did nothing.
func outdatedAuth(err error) bool { return is(err, rpctypes.ErrGRPCAuthOldRevision) }

// Head implements store.Shared.
func (l *Log) Head(ctx context.Context) (store.Revision, error) { return l.head(ctx, quickOfClient) }

func (l *Log) head(ctx context.Context, a attempts) (store.Revision, error) {
	response, err := l.read(ctx, &pb.RangeRequest{Key: []byte(l.o.Prefix + "/"), CountOnly: true}, a)
	if err != nil {
		return 0, err
	}
	return store.Revision(response.Header.Revision), nil
}

// Pages have mostPage keys, or fewer if those have more than pageBytes. The first one, before the size
// of the values is known, has firstPage. Each has at most growth times as many keys as the one before, and is read again
// with fewer keys if it has more than growth*pageBytes.
const (
	firstPage = 16
	mostPage  = 5000
	pageBytes = 16 << 20
	growth    = 4
)

// pages yields the keys of a range, which begins at start, as of a revision, in pages.
func (l *Log) pages(ctx context.Context, start, end string, at int64, a attempts) iter.Seq2[[]*mvccpb.KeyValue, error] {
	return func(yield func([]*mvccpb.KeyValue, error) bool) {
		r := &pb.RangeRequest{Key: []byte(start), RangeEnd: []byte(end), Revision: at, Limit: firstPage}
		for {
			limit := growth * pageBytes
			if r.Limit == 1 {
				limit = mostMessage
			}
			response, err := l.read(ctx, r, a, grpc.MaxCallRecvMsgSize(limit))
			if errors.Is(err, errResponseTooLarge) && r.Limit > 1 { // larger values follow
				r.Limit /= 2
				continue
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if len(response.Kvs) > 0 && !yield(response.Kvs, nil) || !response.More || len(response.Kvs) == 0 {
				return
			}
			size := 0
			for _, kv := range response.Kvs {
				size += len(kv.Value) + len(kv.Key)
			}
			r.Limit = min(max(pageBytes/int64(size/len(response.Kvs)+1), 1), mostPage, growth*r.Limit)
			r.Key = append(response.Kvs[len(response.Kvs)-1].Key, 0)
		}
	}
}

// ObjectsAt implements store.Shared.
func (l *Log) ObjectsAt(ctx context.Context, collection string, at store.Revision, prefix, after string) iter.Seq2[*store.Object, error] {
	return func(yield func(*store.Object, error) bool) {
		base, err := l.etcdKey(collection, "")
		if err != nil {
			yield(nil, err)
			return
		}
		start := base + prefix
		if past := base + after + "\x00"; after != "" && past > start {
			start = past
		}
		for kvs, err := range l.pages(ctx, start, rangeEnd(base+prefix), int64(at), pageOfClient) {
			if errors.Is(err, errCompacted) {
				err = &store.ExpiredError{Revision: at, Floor: l.floor()}
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, kv := range kvs {
				of, key, ok := l.place(string(kv.Key))
				if !ok || of != collection {
					continue
				}
				o, err := l.decode(ctx, versionOf(collection, key, kv))
				if !yield(o, err) || err != nil {
					return
				}
			}
		}
	}
}

// rangeEnd returns the end of the range of all keys with a prefix.
func rangeEnd(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return "\x00" // to the end
}
