package sharedwriter_test

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// oracle is an empty shared log that decides transactions by a function, and sends the batches of a channel.
type oracle struct {
	decide  func(*store.Txn) store.Decision
	batches chan store.Batch
	asked   atomic.Int64
}

func (o *oracle) Load(context.Context, func(string, *store.Object) error) (store.Bounds, error) {
	return store.Bounds{Head: 10, Floor: 10}, nil
}

func (o *oracle) Follow(ctx context.Context, _ store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		for {
			select {
			case b := <-o.batches:
				if !yield(b, nil) {
					return
				}
			case <-ctx.Done():
				yield(store.Batch{}, ctx.Err())
				return
			}
		}
	}
}

func (o *oracle) Propose(_ context.Context, t *store.Txn) (store.Decision, error) {
	o.asked.Add(1)
	return o.decide(t), nil
}

func (o *oracle) Head(context.Context) (store.Revision, error) { return 10, nil }

func (o *oracle) Changes(context.Context, string, store.Revision, store.Revision) iter.Seq2[store.Entry, error] {
	return func(func(store.Entry, error) bool) {}
}

func (o *oracle) ObjectsAt(context.Context, string, store.Revision, string, string) iter.Seq2[*store.Object, error] {
	return func(func(*store.Object, error) bool) {}
}

func (o *oracle) Usage() store.Usage { return store.Usage{} }
func (o *oracle) Close() error       { return nil }

var someWrite = store.Write{Collection: "configmaps", Key: "ns/a", Value: []byte(`{"rv":""}`), RevisionAt: 7}

// TestRefusedAgain: a log that refuses a write again and again for no reason that the state shows gets it a few times, not
// as often as it can refuse it.
func TestRefusedAgain(t *testing.T) {
	for what, guards := range map[string][]store.Guard{"without guards": nil, "with a guard": {{Name: "g", Seen: 10}}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &oracle{decide: func(*store.Txn) store.Decision { return store.Decision{Revision: 10} }}
				s := storetest.Open(t, store.Options{Shared: o})
				ctx, cancel := context.WithTimeout(t.Context(), 34*time.Second)
				defer cancel()
				for { // as a request does
					_, err := s.Apply(ctx, &store.Txn{Writes: []store.Write{someWrite}, Guards: guards})
					if err == nil {
						t.Fatal("it was made")
					}
					if ctx.Err() != nil || !errors.Is(err, store.ErrStale) {
						break
					}
				}
				if n := o.asked.Load(); n < 5 || n > 60 {
					t.Errorf("the log got the transaction %d times in 34 s", n)
				}
			})
		})
	}
}

// TestMadeBehind: a write that the log has made succeeds although the state does not have it for long.
func TestMadeBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{decide: func(*store.Txn) store.Decision { return store.Decision{Made: true, First: 500, Revision: 501} }}
		s := storetest.Open(t, store.Options{Shared: o})
		second := someWrite
		second.Key = "ns/b"
		made, err := s.Apply(t.Context(), &store.Txn{Writes: []store.Write{someWrite, second}})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []string{`{"rv":"500"}`, `{"rv":"501"}`} {
			if got := string(made[i].Bytes()); got != want {
				t.Errorf("write %d made %s, want %s", i, got, want)
			}
		}
	})
}

// TestMadeElsewhere: a write is not confirmed if the log has something else at its revision.
func TestMadeElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oracle{batches: make(chan store.Batch, 1)}
		o.decide = func(*store.Txn) store.Decision {
			o.batches <- store.Batch{Through: 11, Entries: []store.Entry{{Collection: "configmaps", Key: "ns/other", Revision: 11,
				Object: &store.Object{Key: "ns/other", Held: []byte(`{"rv":"11"}`), RevisionAt: 7, Created: 11, Modified: 11}}}}
			return store.Decision{Made: true, First: 11, Revision: 11}
		}
		s, err := stores.Open(t.Context(), store.Options{Shared: o}) // the log does not keep the entries that it sends
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Commit(t.Context(), someWrite); !errors.Is(err, store.ErrUnknown) {
			t.Errorf("got %v, want %v", err, store.ErrUnknown)
		}
	})
}

// TestArrival: a request waits for the log once. The outcome, a revision or an error, holds for its other decisions.
func TestArrival(t *testing.T) {
	o := &oracle{}
	h := &headless{oracle: o}
	s := storetest.Open(t, store.Options{Shared: h})
	var entered, left int
	enter := func() (func(), error) {
		entered++
		return func() { left++ }, nil
	}
	failed := store.Arrive(t.Context(), new(store.Arrival), enter)
	for range 2 {
		if _, err := s.MostRecent(failed); err == nil {
			t.Error("a read needs no log")
		}
	}
	h.head = 10
	if _, err := s.MostRecent(failed); err == nil || h.heads != 1 || entered != 1 || left != 1 {
		t.Errorf("after an error: %v, %d calls, entered %d times, left %d times; want an error and one of each", err, h.heads, entered, left)
	}
	var a store.Arrival
	ctx := store.Arrive(t.Context(), &a, nil)
	for range 2 {
		if state, err := s.MostRecent(ctx); err != nil || state.Revision() != 10 {
			t.Errorf("got %v, %v", state, err)
		}
	}
	decisions := 0
	if err := s.Decide(ctx, func() bool { decisions++; return false }); err != nil || decisions != 1 || h.heads != 2 || a.Err() != nil {
		t.Errorf("%v, %v, %d decisions and %d calls, want 1 and 2: the state is new enough", err, a.Err(), decisions, h.heads)
	}
	full := errors.New("full")
	ctx = store.Arrive(t.Context(), new(store.Arrival), func() (func(), error) { return nil, full })
	if err := s.Decide(ctx, func() bool { return false }); err != full || h.heads != 2 {
		t.Errorf("got %v and %d calls, want %v", err, h.heads, full)
	}
}

// TestArrivalCanceled: a part of a request that ends while it waits, such as one with a limit of its own, decides nothing
// for the rest of the request.
func TestArrivalCanceled(t *testing.T) {
	h := &headless{oracle: &oracle{}, head: 10, hold: make(chan struct{})}
	s := storetest.Open(t, store.Options{Shared: h})
	var a store.Arrival
	part, cancel := context.WithCancel(t.Context())
	canceled := store.Arrive(part, &a, func() (func(), error) { cancel(); return func() {}, nil })
	if _, err := s.MostRecent(canceled); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want %v", err, context.Canceled)
	}
	close(h.hold)
	if _, err := s.MostRecent(store.Arrive(t.Context(), &a, nil)); err != nil || a.Err() != nil {
		t.Errorf("the rest of the request: %v, %v", err, a.Err())
	}
}

// headless is a log that cannot be reached while head is zero. Head waits for hold, unless that is nil.
type headless struct {
	*oracle
	head  store.Revision
	heads int
	hold  chan struct{}
}

func (h *headless) Head(context.Context) (store.Revision, error) {
	if h.hold != nil {
		<-h.hold
	}
	if h.heads++; h.head != 0 {
		return h.head, nil
	}
	return 0, &store.UnavailableError{Err: errors.New("away")}
}
