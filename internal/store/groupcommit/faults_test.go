package groupcommit_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// gated is a log whose appends a test lets through one by one, with the error
// that it chooses.
type gated struct {
	*memlog.Log
	groups  chan []store.Entry // the appended groups
	verdict chan error
	open    atomic.Bool // appends go through
}

func newGated() *gated {
	return &gated{Log: &memlog.Log{Start: 100}, groups: make(chan []store.Entry), verdict: make(chan error)}
}

func (g *gated) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	if !g.open.Load() {
		g.groups <- group
		if err := <-g.verdict; err != nil {
			return err
		}
	}
	return g.Log.Append(ctx, group, mark)
}

// next takes the group that the store appends, and shows it.
func (g *gated) next() string {
	var names []string
	for _, e := range <-g.groups {
		verb := "put"
		if e.Object == nil {
			verb = "delete"
		}
		names = append(names, fmt.Sprintf("%s %s", verb, e.Key))
	}
	return strings.Join(names, ", ")
}

// pendingStore has writes wait in a gated log. Three objects are there.
func pendingStore(t *testing.T, test func(t *testing.T, s *store.Store, log *gated, a, b *store.Object)) {
	synctest.Test(t, func(t *testing.T) {
		log := newGated()
		log.open.Store(true)
		s := storetest.Open(t, store.Options{Log: log})
		var ab []*store.Object
		for _, key := range []string{"ns/a", "ns/b", "ns/0"} {
			o, err := s.Commit(t.Context(), storetest.Write(key, 0))
			if err != nil {
				t.Fatal(err)
			}
			ab = append(ab, o)
		}
		log.open.Store(false)
		test(t, s, log, ab[0], ab[1])
		log.open.Store(true)
		storetest.Close(t, s)
	})
}

// silent fails the test when the response is there already.
func silent(t *testing.T, what string, c chan storetest.Response) {
	t.Helper()
	synctest.Wait()
	select {
	case a := <-c:
		t.Errorf("%s got a response early: %v", what, a.Err)
		c <- a
	default:
	}
}

func expect(t *testing.T, what string, c chan storetest.Response, want error) *store.Object {
	t.Helper()
	a := <-c
	if !errors.Is(a.Err, want) || want == nil && a.Err != nil {
		t.Errorf("%s: got %v, want %v", what, a.Err, want)
	}
	return a.Object
}

func TestErrorsWaitForWhatTheyRestOn(t *testing.T) {
	pendingStore(t, func(t *testing.T, s *store.Store, log *gated, a, b *store.Object) {
		created := storetest.Begin(s, storetest.Write("ns/c", 0))
		group := log.next()
		if group != "put ns/c" {
			t.Fatalf("appended %q", group)
		}
		// In flight, or pending behind it: no event may be delivered yet.
		updated := storetest.Begin(s, storetest.Write("ns/a", a.Modified))
		deleted := storetest.Begin(s, storetest.Remove("ns/b", b.Modified))
		exists := storetest.Begin(s, storetest.Write("ns/c", 0))
		conflict := storetest.Begin(s, storetest.Write("ns/a", a.Modified))
		missing := storetest.Begin(s, storetest.Write("ns/b", b.Modified))
		// An error that depends on no pending write returns at once.
		expect(t, "create of an existing object", storetest.Begin(s, storetest.Write("ns/0", 0)), store.ErrExists)

		silent(t, "create", created)
		silent(t, "exists", exists)
		if s.Any().Get("pods", "ns/c") != nil {
			t.Error("a write is readable before it is durable")
		}
		log.verdict <- nil
		expect(t, "create", created, nil)
		expect(t, "create of what was pending", exists, store.ErrExists)
		if group := log.next(); group != "put ns/a, delete ns/b" {
			t.Fatalf("appended %q", group)
		}
		for what, c := range map[string]chan storetest.Response{"update": updated, "delete": deleted, "conflict": conflict, "missing": missing} {
			silent(t, what, c)
		}
		log.verdict <- nil
		expect(t, "update", updated, nil)
		expect(t, "delete", deleted, nil)
		expect(t, "conflict", conflict, store.ErrConflict)
		expect(t, "missing", missing, store.ErrNotFound)
	})
}

func TestNoSpace(t *testing.T) {
	pendingStore(t, func(t *testing.T, s *store.Store, log *gated, a, b *store.Object) {
		before := s.Any().Revision()
		first := storetest.Begin(s, storetest.Write("ns/x", 0))
		log.next()
		// The group behind: a deletion among writes, and the writes that depend on them.
		put := storetest.Begin(s, storetest.Write("ns/a", a.Modified))
		drop := storetest.Begin(s, storetest.Remove("ns/b", b.Modified))
		exists := storetest.Begin(s, storetest.Write("ns/x", 0)) // rests on the first
		anew := storetest.Begin(s, storetest.Write("ns/b", 0))   // on top of the deletion
		log.verdict <- store.ErrNoSpace                          // the first alone
		expect(t, "first", first, store.ErrNoSpace)
		if group := log.next(); group != "put ns/a, delete ns/b, put ns/b, put ns/x" && group != "put ns/a, delete ns/b, put ns/b" {
			t.Fatalf("appended %q", group)
		}
		log.verdict <- store.ErrNoSpace // not with the writes
		if group := log.next(); group != "delete ns/b" {
			t.Fatalf("then appended %q", group)
		}
		silent(t, "delete", drop)
		log.verdict <- nil
		if o := expect(t, "delete", drop, nil); o == nil || o.Modified <= before {
			t.Errorf("deleted %+v", o)
		}
		expect(t, "update", put, store.ErrNoSpace)
		expect(t, "create after the deletion", anew, store.ErrNoSpace)
		// The create of ns/x was refused for nothing: it is tried again, in the
		// group of the others or in one of its own.
		select {
		case <-log.groups:
			log.verdict <- nil
			expect(t, "create", exists, nil)
		case got := <-exists:
			if !errors.Is(got.Err, store.ErrNoSpace) {
				t.Errorf("create: %v", got.Err)
			}
		}
		if o := s.Any().Get("pods", "ns/a"); o != a {
			t.Errorf("the refused update left %+v", o)
		}
		if o := s.Any().Get("pods", "ns/b"); o != nil {
			t.Errorf("the deletion left %+v", o)
		}
	})
}

// TestNoSpaceAtRandom has writers among which the log refuses groups: each write that was
// acknowledged is there, each refused one is not, and the log agrees.
func TestNoSpaceAtRandom(t *testing.T) {
	chance := testrand.New(t)
	log := &refusing{Log: &memlog.Log{Start: 7}, chance: func() bool { return chance.IntN(3) == 0 }}
	s := storetest.Open(t, store.Options{Log: log})
	cursor, err := s.Watch("pods", "", s.Any().Revision())
	if err != nil {
		t.Fatal(err)
	}
	defer cursor.Close()
	var wg sync.WaitGroup
	var acknowledged, refused atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			for i := range 200 {
				key := fmt.Sprintf("ns/%d", (w+i)%5)
				change := storetest.Write(key, 0)
				if o := s.Any().Get("pods", key); o != nil {
					change = storetest.Write(key, o.Modified)
					if (w+i)%3 == 0 {
						change = storetest.Remove(key, o.Modified)
					}
				}
				switch _, err := s.Commit(t.Context(), change); {
				case err == nil:
					acknowledged.Add(1)
				case errors.Is(err, store.ErrNoSpace):
					refused.Add(1)
				case !errors.Is(err, store.ErrExists) && !errors.Is(err, store.ErrConflict) && !errors.Is(err, store.ErrNotFound):
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	seen := int64(0)
	buf := make([]*store.Change, 50)
	for {
		n, err := cursor.TryNext(t.Context(), buf)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			break
		}
		seen += int64(n)
	}
	if seen != acknowledged.Load() {
		t.Errorf("%d changes seen, %d acknowledged", seen, acknowledged.Load())
	}
	t.Logf("%d acknowledged, %d refused for want of space", acknowledged.Load(), refused.Load())
}

// refusing has no space for writes now and then; deletions find some.
type refusing struct {
	*memlog.Log
	chance func() bool
}

func (r *refusing) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	writes := false
	for _, e := range group {
		writes = writes || e.Object != nil
	}
	if writes && r.chance() {
		return store.ErrNoSpace
	}
	return r.Log.Append(ctx, group, mark)
}

func TestFailedLog(t *testing.T) {
	broken := errors.New("the disk is gone")
	synctest.Test(t, func(t *testing.T) {
		log := newGated()
		var fatal []error
		s := storetest.Open(t, store.Options{Log: log, OnFatal: func(err error) { fatal = append(fatal, err) }})
		before := s.Any()
		first := storetest.Begin(s, storetest.Write("ns/a", 0))
		log.next()
		second := storetest.Begin(s, storetest.Write("ns/b", 0))
		exists := storetest.Begin(s, storetest.Write("ns/a", 0))
		log.verdict <- broken
		expect(t, "first", first, broken)
		expect(t, "second", second, broken)
		expect(t, "exists", exists, broken)
		expect(t, "later", storetest.Begin(s, storetest.Write("ns/c", 0)), broken)
		if len(fatal) != 1 || !errors.Is(fatal[0], broken) {
			t.Errorf("fatal was called with %v", fatal)
		}
		if s.Any() != before {
			t.Error("a failed write was published")
		}
	})
}

// TestContextEnds: if writers give up, their writes still happen, and later writers find a
// leader for their group.
func TestContextEnds(t *testing.T) {
	pendingStore(t, func(t *testing.T, s *store.Store, log *gated, a, b *store.Object) {
		first := storetest.Begin(s, storetest.Write("ns/c", 0))
		log.next()
		ctx, cancel := context.WithCancel(t.Context())
		given := make(chan error, 3)
		for _, w := range []store.Write{storetest.Write("ns/d", 0), storetest.Write("ns/e", 0), storetest.Write("ns/c", 0)} {
			go func() {
				_, err := s.Commit(ctx, w)
				given <- err
			}()
		}
		synctest.Wait()
		cancel()
		for range 3 {
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Errorf("a write whose context ended: %v", err)
			}
		}
		log.verdict <- nil
		expect(t, "first", first, nil)
		log.next()
		log.verdict <- nil
		synctest.Wait()
		if n := s.Any().Snapshot("pods").Count("", ""); n != 6 {
			t.Errorf("%d objects, want 6", n)
		}
	})
}

func TestCloseWaitsForWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGated()
		s := storetest.Open(t, store.Options{Log: log})
		first := storetest.Begin(s, storetest.Write("ns/a", 0))
		log.next()
		second := storetest.Begin(s, storetest.Write("ns/b", 0))
		closed := make(chan storetest.Response, 1)
		go func() { closed <- storetest.Response{Err: s.Close()} }()
		silent(t, "close", closed)
		expect(t, "a write after close", storetest.Begin(s, storetest.Write("ns/c", 0)), store.ErrClosed)
		log.verdict <- nil
		log.next()
		silent(t, "close", closed)
		log.verdict <- nil
		expect(t, "first", first, nil)
		expect(t, "second", second, nil)
		expect(t, "close", closed, nil)
	})
}

// TestLogPanics: a log that panics is a log that failed.
func TestLogPanics(t *testing.T) {
	var fatal error
	s := storetest.Open(t, store.Options{Log: panicking{memlog.New()}, OnFatal: func(err error) { fatal = err }})
	if _, err := s.Commit(t.Context(), storetest.Write("ns/a", 0)); err == nil || fatal == nil {
		t.Errorf("commit: %v, fatal: %v", err, fatal)
	}
}

type panicking struct{ *memlog.Log }

func (panicking) Append(context.Context, []store.Entry, *store.Mark) error { panic("boom") }

// compacting is a log whose compaction takes until its context ends, or fails.
type compacting struct {
	*memlog.Log
	err error
}

func (c compacting) Compact(ctx context.Context, _ store.Revision) error {
	if c.err != nil {
		return c.err
	}
	<-ctx.Done()
	return ctx.Err()
}

func TestCompactionInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Open(t, store.Options{Log: compacting{Log: memlog.New()}})
		storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
		time.Sleep(3 * time.Hour)
		storetest.Close(t, s) // OnFatal would fail the test
	})
}

func TestCompactionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			err  error
			want int64
		}{{errors.New("the disk is gone"), 1}, {store.ErrNoSpace, 0}} {
			var fatal atomic.Int64
			s := storetest.Open(t, store.Options{Log: compacting{memlog.New(), c.err}, OnFatal: func(error) { fatal.Add(1) }})
			storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
			time.Sleep(3 * time.Hour)
			_, err := s.Commit(t.Context(), storetest.Write("ns/b", 0))
			if fatal.Load() != c.want || (err != nil) != (c.want > 0) {
				t.Errorf("%v: fatal %d times, then %v", c.err, fatal.Load(), err)
			}
			storetest.Close(t, s)
		}
	})
}

// failing is a log that can fail between calls.
type failing struct {
	*memlog.Log
	broken chan struct{}
	why    error
}

func (l *failing) Broken() <-chan struct{} { return l.broken }

func (l *failing) Compact(ctx context.Context, floor store.Revision) error {
	select {
	case <-l.broken:
		return l.why
	default:
		return l.Log.Compact(ctx, floor)
	}
}

// TestLogThatBreaks: an idle store learns that its log is unusable.
func TestLogThatBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &failing{Log: memlog.New(), broken: make(chan struct{}), why: errors.New("a flush failed")}
		var fatal error
		s := storetest.Open(t, store.Options{Log: log, OnFatal: func(err error) { fatal = err }})
		close(log.broken)
		synctest.Wait()
		if !errors.Is(fatal, log.why) {
			t.Errorf("OnFatal got %v", fatal)
		}
		expect(t, "a write", storetest.Begin(s, storetest.Write("ns/a", 0)), log.why)
	})
}

// stuck is a log whose history is not in memory, and does not come.
type stuck struct{ *memlog.Log }

func (l stuck) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	b, err := l.Log.Replay(ctx, load)
	b.InMemory = false
	return b, err
}

func (l stuck) Changes(ctx context.Context, _ string, _, _ store.Revision) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		<-ctx.Done()
		yield(store.Entry{}, ctx.Err())
	}
}

// TestReadBackEnds: with the request that it is for, and with the store.
func TestReadBackEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Open(t, store.Options{Log: stuck{memlog.New()}, MaxMemory: 1})
		from := s.Any().Revision()
		for i := range 3 {
			expect(t, "a write", storetest.Begin(s, storetest.Write(fmt.Sprint("ns/", i), 0)), nil)
		}
		c, err := s.Watch("pods", "", from)
		if err != nil {
			t.Fatal(err)
		}
		read := func(ctx context.Context) chan storetest.Response {
			done := make(chan storetest.Response, 1)
			go func() {
				_, err := c.TryNext(ctx, make([]*store.Change, 4))
				done <- storetest.Response{Err: err}
			}()
			silent(t, "a read that is stuck", done)
			return done
		}
		ctx, cancel := context.WithCancel(t.Context())
		first := read(ctx)
		cancel()
		expect(t, "the read of a client that is gone", first, context.Canceled)
		second := read(context.Background())
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		expect(t, "a read when the store closes", second, store.ErrClosed)
	})
}

// TestFullGroup: a writer that finds the open group full is not lost.
func TestFullGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newGated()
		s := storetest.Open(t, store.Options{Log: log})
		responses := []chan storetest.Response{storetest.Begin(s, storetest.Padded("ns/0", 0, 1))}
		log.next()
		for i := 1; i < 40; i++ {
			responses = append(responses, storetest.Begin(s, storetest.Padded(fmt.Sprint("ns/", i), 0, 1<<20)))
		}
		log.verdict <- nil
		if group := log.groups; len(<-group) > 20 {
			t.Error("a group of more than 20 MiB")
		}
		log.open.Store(true)
		log.verdict <- nil
		for _, a := range responses {
			expect(t, "create", a, nil)
		}
		storetest.Close(t, s)
	})
}
