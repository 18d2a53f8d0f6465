package etcdlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// watch is one watch on a stream of its own.
type watch struct {
	stream pb.Watch_WatchClient
	cancel context.CancelFunc
	whole  whole
	// waiting is when next began to wait for a message; nil: it does not wait.
	waiting atomic.Pointer[time.Time]
}

// createTimeout is how long a member may take to create a watch.
const createTimeout = 5 * time.Second

// errDenied: the client may not read the range.
var errDenied = errors.New(message(rpctypes.ErrGRPCPermissionDenied))

// openWatch creates a watch, and returns when the member has created it. A member without a leader
// ends the watch.
func openWatch(ctx context.Context, conn *grpc.ClientConn, r *pb.WatchCreateRequest) (w *watch, err error) {
	ctx, cancel := context.WithCancel(withLeader(ctx))
	timer := time.AfterFunc(createTimeout, cancel)
	defer func() {
		if err != nil || !timer.Stop() {
			cancel()
		}
	}()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	r.Fragment = true
	if err := stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}); err != nil && err != io.EOF {
		return nil, err
	}
	first, err := stream.Recv()
	if err != nil {
		return nil, err
	}
	if err := ended(first); err != nil {
		return nil, err
	}
	if !first.Created {
		return nil, errors.New("etcd: the response to a new watch is not that it was created")
	}
	return &watch{stream: stream, cancel: cancel}, nil
}

// close ends the watch.
func (w *watch) close() { w.cancel() }

// askProgress asks for a response that tells up to which revision all events were sent. The member
// does not respond while it has more to send. One goroutine at a time may call it.
func (w *watch) askProgress() error {
	return w.stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// next returns the next events: all those of one or more revisions. Without events, progress is the
// revision up to which all events were returned.
func (w *watch) next() (events []*mvccpb.Event, progress int64, h *pb.ResponseHeader, err error) {
	for {
		began := time.Now()
		w.waiting.Store(&began)
		r, err := w.stream.Recv()
		w.waiting.Store(nil)
		if err != nil {
			return nil, 0, nil, err
		}
		if err := ended(r); err != nil {
			return nil, 0, r.Header, err
		}
		if len(r.Events) == 0 && !r.Fragment && !w.whole.open() {
			return nil, r.Header.Revision, r.Header, nil
		}
		if events := w.whole.add(r.Events, r.Fragment); len(events) > 0 {
			return events, 0, r.Header, nil
		}
	}
}

// ended returns why the member has ended the watch, or nil. After a compaction it is an *ExpiredError
// with the floor alone.
func ended(r *pb.WatchResponse) error {
	switch {
	case r.CompactRevision > 0:
		return &store.ExpiredError{Floor: store.Revision(r.CompactRevision)}
	case !r.Canceled:
		return nil
	case strings.HasSuffix(r.CancelReason, rpctypes.ErrorDesc(rpctypes.ErrGRPCPermissionDenied)): // behind the name of the code
		return errDenied
	}
	return fmt.Errorf("etcd: the member ended the watch: %s", r.CancelReason)
}

// whole makes whole revisions of fragments: it holds the newest revision back while more of its events
// may follow.
type whole struct{ held []*mvccpb.Event }

func (w *whole) open() bool { return len(w.held) > 0 }

// add returns the events that are complete. More reports that another fragment follows.
func (w *whole) add(events []*mvccpb.Event, more bool) []*mvccpb.Event {
	events = append(w.held, events...)
	w.held = nil
	if !more || len(events) == 0 {
		return events
	}
	newest := events[len(events)-1].Kv.ModRevision
	i := slices.IndexFunc(events, func(e *mvccpb.Event) bool { return e.Kv.ModRevision == newest })
	w.held = slices.Clone(events[i:])
	return events[:i:i]
}

// scanRange is a range of keys and of revisions: after < revision <= upTo.
type scanRange struct {
	key, end    string // end empty: the key alone
	after, upTo int64
	before      bool // with the values that events replaced
}

// progressPause is the pause between two questions for the progress of a watch.
const progressPause = 30 * time.Millisecond

// scanPatience is how long a scan waits for a message. A member reads all changes up to the present before it sends the
// first one.
const scanPatience = 10 * time.Second

var errScanStalled = fmt.Errorf("etcd: a watch of the past has sent nothing for %v", scanPatience)

// scan calls a function for each event of a range, in order. The function ends the scan with an
// error, which scan returns. A compaction that overtakes it is an *ExpiredError.
func (l *Log) scan(ctx context.Context, r scanRange, f func(*mvccpb.Event) error) error {
	if r.after >= r.upTo { // a member responds to no request for progress before the watch begins
		return nil
	}
	began := time.Now()
	for tries := 0; ; tries++ {
		from := r.after
		err := l.scanOnce(ctx, &r, f)
		var failed *scanError
		if err == nil || !errors.As(err, &failed) {
			return err
		}
		if r.after > from {
			tries, began = 0, time.Now()
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(failed.err, errDenied), l.late(began, quick):
			return unavailable(failed.err, 0)
		}
		if !pause(ctx, tries) {
			return ctx.Err()
		}
	}
}

// scanError is an error of a watch: the scan may go on with another one.
type scanError struct{ err error }

func (e *scanError) Error() string { return e.err.Error() }

// scanOnce is a scan with one watch. It moves r.after on.
func (l *Log) scanOnce(ctx context.Context, r *scanRange, f func(*mvccpb.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(scanPatience, func() { cancel(errScanStalled) })
	defer stalled.Stop()
	w, err := openWatch(ctx, l.scans, &pb.WatchCreateRequest{Key: []byte(r.key), RangeEnd: []byte(r.end), StartRevision: r.after + 1, PrevKv: r.before})
	if err != nil {
		return l.scanFailed(err, r)
	}
	defer w.close()
	stop := make(chan struct{})
	defer close(stop)
	go w.keepAsking(stop, func() bool { return true })
	for {
		stalled.Reset(scanPatience)
		events, progress, h, err := w.next()
		stalled.Stop()                            // f may take its time
		if context.Cause(ctx) == errScanStalled { //nolint:errorlint // it is set as it is
			return l.scanFailed(errScanStalled, r)
		}
		if err != nil {
			return l.scanFailed(err, r)
		}
		if err := l.seen.checkCluster(h); err != nil {
			return err
		}
		for _, e := range events {
			if e.Kv.ModRevision > r.upTo {
				return nil
			}
			if err := f(e); err != nil {
				return err
			}
			r.after = e.Kv.ModRevision
		}
		if progress >= r.upTo || r.after >= r.upTo {
			return nil
		}
	}
}

func (l *Log) scanFailed(err error, r *scanRange) error {
	var expired *store.ExpiredError
	if errors.As(err, &expired) {
		raise(&l.oldest, int64(expired.Floor))
		return &store.ExpiredError{Revision: store.Revision(r.after), Floor: expired.Floor}
	}
	return &scanError{err}
}

// keepAsking asks for progress again and again while it is wanted, until stop is closed or the watch
// ends.
func (w *watch) keepAsking(stop <-chan struct{}, wanted func() bool) {
	tick := time.NewTicker(progressPause)
	defer tick.Stop()
	for {
		if wanted() && w.askProgress() != nil {
			return
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// errDone ends a scan early.
var errDone = errors.New("done")

// Changes implements store.Shared.
func (l *Log) Changes(ctx context.Context, collection string, after, upTo store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		from := int64(after)
		for from < int64(upTo) && collection != "" {
			b, leave, err := l.block(ctx, collection, from, int64(upTo))
			if unavailable := (*store.UnavailableError)(nil); errors.As(err, &unavailable) {
				yield(store.Entry{}, err)
				return
			}
			if err != nil {
				break // the block may begin before from, or end after upTo: read the requested part alone
			}
			for _, e := range b.from(from) {
				if e.Revision > upTo || !yield(e, nil) {
					leave()
					return
				}
			}
			from = max(from, b.through)
			leave()
		}
		stopped := false
		err := l.eachChange(ctx, collection, from, int64(upTo), func(e store.Entry) bool {
			stopped = !yield(e, nil)
			return !stopped
		})
		if err != nil && !stopped {
			yield(store.Entry{}, err)
		}
	}
}

// entry returns the change of an event, without Before.
func (l *Log) entry(ctx context.Context, e *mvccpb.Event, collection, key string) (store.Entry, error) {
	made := store.Entry{Collection: collection, Key: key, Revision: store.Revision(e.Kv.ModRevision)}
	if e.Type == mvccpb.DELETE {
		return made, nil
	}
	var err error
	made.Object, err = l.decode(ctx, versionOf(collection, key, e.Kv))
	return made, err
}

// before sets the version that an event replaced. etcd leaves it out if it is compacted.
func (l *Log) before(ctx context.Context, made *store.Entry, e *mvccpb.Event) (err error) {
	if e.Type == mvccpb.PUT && e.Kv.CreateRevision == e.Kv.ModRevision {
		return nil
	}
	if e.PrevKv == nil {
		return &store.ExpiredError{Revision: made.Revision - 1, Floor: max(l.floor(), made.Revision)}
	}
	made.Before, err = l.decode(ctx, versionOf(made.Collection, made.Key, e.PrevKv))
	return err
}
