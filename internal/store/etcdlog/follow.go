package etcdlog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Follow
//
// The watch has all keys of the cluster, not those with the prefix alone. So every revision has an event,
// and an event that a member lost shows as a gap. Then, and after any error, Follow opens a watch
// of another member behind the last revision that it has.
//
// A client that may read the keys of the prefix alone watches these, and asks for progress while some
// revision is known that the watch has not reached.

// follower is the position of Follow.
type follower struct {
	l    *Log
	last int64 // all changes up to it were yielded
	// narrow: only the keys of the prefix can be watched.
	narrow  bool
	reached atomic.Int64 // last, for the goroutine that asks for progress
	newest  print        // of the newest event
	gapAt   int64        // the revision before the last gap
	gaps    int          // how often it was there
}

// print identifies an event. A cluster that was restored from a backup, and has gone on since, has another
// one at the revision.
type print struct {
	key      string
	revision int64 // zero: there is no event yet
	deleted  bool
	value    [sha256.Size]byte
}

func printOf(e *mvccpb.Event) print {
	return print{string(e.Kv.Key), e.Kv.ModRevision, e.Type == mvccpb.DELETE, sha256.Sum256(e.Kv.Value)}
}

const (
	// warnAfter is how long watches fail before the log of the process says so.
	warnAfter = 10 * time.Second
	// stallTime is how long a watch may send nothing although a newer revision is known.
	stallTime, stallLook = 5 * time.Second, time.Second
)

// mostGaps is how often Follow finds a gap at the same revision before it ends.
const mostGaps = 3

var (
	errGap     = errors.New("etcd: the watch left out a revision")
	errStopped = errors.New("the reader has stopped")
	errStalled = errors.New("etcd: the watch sends nothing although there are newer revisions")
)

// Follow implements store.Shared.
func (l *Log) Follow(ctx context.Context, after store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		f := &follower{l: l, last: int64(after)}
		failing, warned := time.Now(), false // since when there was no change
		for tries := 0; ; tries++ {
			was := f.last
			err := f.follow(ctx, yield)
			if f.last > was {
				tries, failing, warned = 0, time.Now(), false
			}
			switch {
			case errors.Is(err, errStopped):
				return
			case ctx.Err() != nil:
				yield(store.Batch{}, ctx.Err())
				return
			case f.final(&err):
				yield(store.Batch{}, err)
				return
			}
			l.log.Debug("the watch of etcd goes on with another member", "after", f.last, "err", err)
			if !warned && time.Since(failing) > warnAfter {
				warned = true
				l.log.Warn("no member of etcd sends changes", "after", f.last, "for", warnAfter, "err", err)
			}
			if !pause(ctx, tries) {
				yield(store.Batch{}, ctx.Err())
				return
			}
		}
	}
}

// final reports whether the error of a watch ends Follow, and gives it the form that the contract
// wants.
func (f *follower) final(err *error) bool {
	var expired *store.ExpiredError
	var undecoded *decodeError
	switch {
	case errors.As(*err, &expired):
		raise(&f.l.oldest, int64(expired.Floor))
		*err = &store.ExpiredError{Revision: store.Revision(f.last), Floor: expired.Floor}
	case errors.Is(*err, errGap) && f.missing():
		*err = &store.ExpiredError{Revision: store.Revision(f.last), Floor: store.Revision(f.last) + 1}
	case errors.Is(*err, store.ErrReset), errors.As(*err, &undecoded):
	case errors.Is(*err, errDenied) && !f.narrow:
		f.narrow = true
		return false
	default:
		return false
	}
	return true
}

// missing counts a gap behind the last revision.
func (f *follower) missing() bool {
	if f.gapAt != f.last {
		f.gapAt, f.gaps = f.last, 0
	}
	f.gaps++
	return f.gaps >= mostGaps
}

// decodeError: a value cannot be decoded.
type decodeError struct{ err error }

func (e *decodeError) Error() string { return e.err.Error() }
func (e *decodeError) Unwrap() error { return e.err }

// follow yields the changes of one watch until it fails.
func (f *follower) follow(ctx context.Context, yield func(store.Batch, error) bool) error {
	if err := f.checkHistory(ctx); err != nil {
		return err
	}
	conn, err := f.l.members.dialNext()
	if err != nil {
		return err
	}
	defer conn.Close()
	r := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: f.last + 1}
	if f.narrow {
		r.Key, r.RangeEnd = []byte(f.l.o.Prefix+"/"), []byte(rangeEnd(f.l.o.Prefix+"/"))
	}
	w, err := openWatch(ctx, conn, r)
	if err != nil {
		return err
	}
	defer w.close()
	f.reached.Store(f.last)
	if f.narrow {
		stop := make(chan struct{})
		defer close(stop)
		go w.keepAsking(stop, func() bool { return f.l.seen.revision.Load() > f.reached.Load() })
	}
	supervised, stop := context.WithCancel(ctx)
	defer stop()
	var stalled atomic.Bool
	go f.supervise(supervised, w, &stalled)
	for {
		events, progress, h, err := w.next()
		if stalled.Load() {
			return errStalled
		}
		if err != nil {
			return err
		}
		if err := f.l.seen.checkCluster(h); err != nil {
			return err
		}
		b, err := f.batch(ctx, events, progress)
		if err != nil {
			return err
		}
		if err := f.l.moved(); err != nil { // no client may see the revision of the mark: the next server uses it again
			return err
		}
		if b != nil && !yield(*b, nil) {
			return errStopped
		}
	}
}

// supervise ends a watch that sends nothing although a newer revision is known: it hangs, or its member lags behind.
func (f *follower) supervise(ctx context.Context, w *watch, stalled *atomic.Bool) {
	ticker := time.NewTicker(stallLook)
	defer ticker.Stop()
	behind := time.Time{} // since when a newer revision is known; zero: none is
	for last := int64(0); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		reached, since := f.reached.Load(), w.waiting.Load()
		switch {
		case reached >= f.l.seen.revision.Load() || reached != last || since == nil:
			last, behind = reached, time.Time{}
		case behind.IsZero():
			behind = time.Now()
		case time.Since(behind) >= stallTime && time.Since(*since) >= stallTime:
			stalled.Store(true)
			w.close()
			return
		}
	}
}

// checkHistory returns store.ErrReset if the cluster does not have the changes that were yielded before.
func (f *follower) checkHistory(ctx context.Context) error {
	head, err := f.l.head(ctx, quick)
	if err != nil {
		return err
	}
	if int64(head) < f.last {
		return fmt.Errorf("%w: its head is revision %d, and %d was read", store.ErrReset, head, f.last)
	}
	p := &f.newest
	if p.revision == 0 {
		return nil
	}
	response, err := f.l.read(ctx, &pb.RangeRequest{Key: []byte(p.key), Revision: p.revision}, quick)
	switch {
	case errors.Is(err, errCompacted):
		return nil
	case err != nil:
		return err
	}
	var same bool
	if len(response.Kvs) == 0 {
		same = p.deleted
	} else {
		kv := response.Kvs[0]
		same = !p.deleted && kv.ModRevision == p.revision && sha256.Sum256(kv.Value) == p.value
	}
	if !same {
		return fmt.Errorf("%w: revision %d was another change", store.ErrReset, p.revision)
	}
	return nil
}

// batch returns the changes of events, nil if they have nothing new.
func (f *follower) batch(ctx context.Context, events []*mvccpb.Event, progress int64) (*store.Batch, error) {
	for len(events) > 0 && events[0].Kv.ModRevision <= f.last {
		events = events[1:]
	}
	through, err := f.through(events, progress)
	if err != nil {
		return nil, err
	}
	floor := f.l.floor()
	for _, e := range events {
		if string(e.Kv.Key) == compactKey && e.Type == mvccpb.PUT {
			raise(&f.l.oldest, compactedTo(e.Kv))
		}
	}
	if through == f.last && f.l.floor() == floor {
		return nil, nil
	}
	b := &store.Batch{Through: store.Revision(through), Floor: min(f.l.floor(), store.Revision(through))}
	if b.Entries, err = f.l.entries(ctx, events); err != nil {
		return nil, err
	}
	f.last = through
	if len(events) > 0 {
		f.newest = printOf(events[len(events)-1])
	}
	f.reached.Store(through)
	raise(&f.l.seen.revision, through)
	return b, nil
}

// through returns the revision up to which the events, which are new, complete the history.
func (f *follower) through(events []*mvccpb.Event, progress int64) (int64, error) {
	last := f.last
	for _, e := range events {
		at := e.Kv.ModRevision
		if !f.narrow && at > last+1 || at < last {
			return 0, fmt.Errorf("%w: %d follows %d", errGap, at, last)
		}
		last = at
	}
	if f.narrow {
		last = max(last, progress)
	}
	return last, nil
}

// entries decodes events, on several processors if there are many. It leaves out keys that are not of
// objects.
func (l *Log) entries(ctx context.Context, events []*mvccpb.Event) ([]store.Entry, error) {
	all := make([]store.Entry, len(events))
	errs := make([]error, len(events))
	const few = 16 // a goroutine decodes at least so many
	workers := min((len(events)+few-1)/few, runtime.GOMAXPROCS(0))
	var next atomic.Int64
	work := func() {
		for i := int(next.Add(1)) - 1; i < len(events); i = int(next.Add(1)) - 1 {
			errs[i] = l.followed(ctx, events[i], &all[i])
		}
	}
	var wg sync.WaitGroup
	for range workers - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, &decodeError{err}
	}
	kept := all[:0]
	for _, e := range all {
		if e.Collection != "" {
			kept = append(kept, e)
		}
	}
	return kept, nil
}

// followed sets the entry of an event, and leaves it empty for a key that is not of an object.
func (l *Log) followed(ctx context.Context, e *mvccpb.Event, made *store.Entry) (err error) {
	etcdKey := string(e.Kv.Key)
	collection, key, ok := l.place(etcdKey)
	if !ok {
		l.loadFence(e.Kv)
		return nil
	}
	*made = store.Entry{Collection: collection, Key: key, Revision: store.Revision(e.Kv.ModRevision)}
	if e.Type == mvccpb.DELETE {
		l.outdated.set(collection, key, false, 0)
		return nil
	}
	if d, ours := l.pending.take(e.Kv.Key, e.Kv.Value); ours {
		l.outdated.set(collection, key, false, 0)
		made.Object = d.object(key, e.Kv.CreateRevision, e.Kv.ModRevision)
		return nil
	}
	made.Object, err = l.decodeNewest(ctx, versionOf(collection, key, e.Kv))
	return err
}
