package notify_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/notify"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// sharing is a fanout, and the events of its readers.
type sharing struct {
	fanout             notify.Fanout
	unflushed, flushes atomic.Int32
	flushing           func() // nil: Flush takes no time
}

// sharer is a reader of a fanout. One goroutine at a time uses its fields.
type sharer struct {
	*store.Cursor
	*sharing
	before func() notify.Delivery // nil: all is delivered
	got    int                    // changes that were delivered for it, or that it read itself
	back   bool                   // its goroutine came back from Wait
	want   bool                   // it has to
}

// declines has the reader look itself.
func (r *sharer) declines(yes bool) notify.Delivery {
	if yes {
		r.want = true
		return notify.Declined
	}
	return notify.Delivered
}

// wakes wakes the reader.
func (r *sharer) wakes(yes bool) notify.Delivery {
	if yes {
		r.want = true
		r.Wake()
	}
	return notify.Delivered
}

// wait waits once, and then reads the remaining events.
func (r *sharer) wait() {
	r.Wait()
	r.back = true
	n, _ := r.TryRecent(make([]*store.Change, 8))
	r.got += n
}

// share adds a cursor to the fanout.
func (s *sharing) share(t testing.TB, from *store.Store, prefix string, after store.Revision) *sharer {
	t.Helper()
	c, err := from.Watch("pods", prefix, after)
	if err != nil {
		t.Fatal(err)
	}
	r := &sharer{Cursor: c, sharing: s}
	c.Share(&s.fanout, r)
	return r
}

// Deliver implements notify.Reader.
func (r *sharer) Deliver() notify.Delivery {
	d := notify.Delivered
	if r.before != nil {
		d = r.before()
	}
	if d == notify.Declined {
		return d
	}
	n, ok := r.TryRecent(make([]*store.Change, 8))
	if !ok {
		return notify.Declined
	}
	r.got += n
	r.unflushed.Add(int32(n))
	return d
}

// Flush implements notify.Reader.
func (r *sharer) Flush() {
	if r.flushing != nil {
		r.flushing()
	}
	r.unflushed.Store(0)
	r.flushes.Add(1)
}

// commit writes an object, and waits until all goroutines are idle.
func commit(t *testing.T, s *store.Store, key string) {
	t.Helper()
	if _, err := s.Commit(t.Context(), storetest.Write(key, 0)); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// TestFanout: one reader of a fanout is woken, delivers to all, and flushes once.
func TestFanout(t *testing.T) {
	const n = 5
	// The reader that was woken receives the first delivery.
	rows := []struct {
		name    string
		act     func(nth int, r *sharer, all []*sharer, s *store.Store) notify.Delivery
		flushes int32
	}{
		{"all is delivered", func(int, *sharer, []*sharer, *store.Store) notify.Delivery { return notify.Delivered }, 1},
		{"the leader has to look itself", func(nth int, r *sharer, _ []*sharer, _ *store.Store) notify.Delivery {
			return r.declines(nth == 1)
		}, 1},
		{"another one has to", func(nth int, r *sharer, _ []*sharer, _ *store.Store) notify.Delivery {
			return r.declines(nth == 3)
		}, 1},
		{"all have to", func(_ int, r *sharer, _ []*sharer, _ *store.Store) notify.Delivery { return r.declines(true) }, 1},
		{"the place is full twice", func(nth int, _ *sharer, _ []*sharer, _ *store.Store) notify.Delivery {
			if nth == 1 || nth == 3 {
				return notify.Full
			}
			return notify.Delivered
		}, 3},
		{"the place is full in the end", func(nth int, _ *sharer, _ []*sharer, _ *store.Store) notify.Delivery {
			if nth == n {
				return notify.Full
			}
			return notify.Delivered
		}, 1},
		{"the leader is woken", func(nth int, r *sharer, _ []*sharer, _ *store.Store) notify.Delivery {
			return r.wakes(nth == 1)
		}, 1},
		{"one is woken while it is served", func(nth int, r *sharer, _ []*sharer, _ *store.Store) notify.Delivery {
			return r.wakes(nth == 3)
		}, 1},
		{"all are woken first", func(nth int, _ *sharer, all []*sharer, _ *store.Store) notify.Delivery {
			for _, other := range all {
				other.wakes(nth == 1)
			}
			return notify.Delivered
		}, 1},
		{"all are woken last", func(nth int, _ *sharer, all []*sharer, _ *store.Store) notify.Delivery {
			for _, other := range all {
				other.wakes(nth == n)
			}
			return notify.Delivered
		}, 1},
		{"all are woken, and the place is full", func(nth int, _ *sharer, all []*sharer, _ *store.Store) notify.Delivery {
			for _, other := range all {
				other.wakes(nth == 1)
			}
			return notify.Full
		}, 1},
		{"the store closes", func(nth int, _ *sharer, all []*sharer, s *store.Store) notify.Delivery {
			if nth == 1 {
				for _, other := range all {
					other.want = true
				}
				if err := s.Close(); err != nil {
					panic(err)
				}
			}
			return notify.Full
		}, 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := storetest.Open(t, store.Options{Log: memlog.New()})
				place := &sharing{}
				all := make([]*sharer, n)
				nth := 0
				for i := range all {
					r := place.share(t, s, "", s.Any().Revision())
					r.before = func() notify.Delivery {
						nth++
						return row.act(nth, r, all, s)
					}
					all[i] = r
					go r.wait()
				}
				synctest.Wait()
				commit(t, s, "ns/a")
				if f, u := place.flushes.Load(), place.unflushed.Load(); f != row.flushes || u != 0 {
					t.Errorf("flushed %d times, with %d not flushed in the end; want %d", f, u, row.flushes)
				}
				got := 0
				for i, r := range all {
					if got += r.got; r.back != r.want {
						t.Errorf("reader %d: its goroutine is back: %v, want %v", i, r.back, r.want)
					}
					r.Wake()
				}
				if got != n {
					t.Errorf("%d changes were read, want %d", got, n)
				}
				synctest.Wait()
				for i, r := range all {
					if !r.back {
						t.Errorf("reader %d still waits", i)
					}
					r.Close()
				}
			})
		})
	}
}

// TestSlowFlush: a leader that waits for its client delays no other reader, neither of its
// own fanout nor of another.
func TestSlowFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Open(t, store.Options{Log: memlog.New()})
		release := make(chan struct{})
		slow, quick := &sharing{flushing: func() { <-release }}, &sharing{}
		var all []*sharer
		for i := range 6 {
			r := []*sharing{slow, quick}[i%2].share(t, s, "", s.Any().Revision())
			all = append(all, r)
			go func() { r.Wait(); r.back = true }()
		}
		synctest.Wait()
		for i := range 3 { // in the end all of the slow ones are leaders that flush
			commit(t, s, fmt.Sprintf("ns/%d", i))
			got := 0
			for _, r := range all {
				got += r.got
			}
			if want := []int{6, 6 + 5, 6 + 5 + 4}[i]; got != want {
				t.Errorf("after %d writes %d changes were delivered, want %d", i+1, got, want)
			}
		}
		close(release)
		synctest.Wait()
		for i, r := range all {
			// A reader that has flushed finds later changes by itself.
			if behind := r.got < 3; behind != r.back {
				t.Errorf("reader %d: %d changes, back: %v", i, r.got, r.back)
			}
			r.Wake()
		}
		synctest.Wait()
		for _, r := range all {
			r.Close()
		}
	})
}

// TestFanouts: cursors of several groups and topics miss nothing while writers write,
// some of them are woken for nothing, have to look themselves, or come and go.
func TestFanouts(t *testing.T) {
	rng := testrand.New(t)
	const readers, writers, writes, turns = 24, 3, 400, 3
	s := storetest.Open(t, store.Options{Log: memlog.New()})
	places := []*sharing{{}, {}, {}}
	var reading, writing sync.WaitGroup
	for i := range readers {
		seed := rng.Uint64()
		place, prefix := places[i%len(places)], []string{"", "ns/"}[i%2]
		start := s.Any().Revision()
		reading.Go(func() {
			at := start
			for turn := range turns {
				end := start + store.Revision(writers*writes*(turn+1)/turns)
				at = readShared(t, s, place, prefix, at, end, seed+uint64(turn))
			}
		})
	}
	storetest.Within(t, "every change at every cursor", func() {
		for w := range writers {
			writing.Go(func() {
				for i := range writes {
					if _, err := s.Commit(t.Context(), storetest.Write(fmt.Sprintf("ns/%d-%d", w, i), 0)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writing.Wait()
		reading.Wait()
	})
	for i, place := range places {
		if n := place.unflushed.Load(); n != 0 {
			t.Errorf("place %d: %d deliveries were not flushed", i, n)
		}
	}
}

// collector reads a shared cursor, on any goroutine.
type collector struct {
	*store.Cursor
	t     *testing.T
	at    store.Revision
	end   store.Revision  // then its goroutine has to know
	left  []*store.Change // read for it, and left to its own goroutine
	busy  atomic.Bool
	place *sharing
	pace  uint64
}

// take checks that changes come in order, each once.
func (c *collector) take(changes []*store.Change) {
	for _, change := range changes {
		if c.at++; change.Revision != c.at {
			c.t.Errorf("revision %d, want %d", change.Revision, c.at)
		}
	}
}

// Deliver implements notify.Reader.
func (c *collector) Deliver() notify.Delivery {
	if c.busy.Swap(true) {
		c.t.Error("two goroutines read a cursor")
	}
	defer c.busy.Store(false)
	c.pace = c.pace*6364136223846793005 + 1442695040888963407
	buf := make([]*store.Change, 1+c.pace>>60)
	for {
		n, ok := c.TryRecent(buf)
		if !ok {
			return notify.Declined
		}
		if n == 0 {
			break
		}
		if c.pace>>32%8 == 0 {
			c.left = buf[:n]
			return notify.Declined
		}
		c.take(buf[:n])
		c.place.unflushed.Add(1)
	}
	if c.at >= c.end {
		return notify.Declined
	}
	switch c.pace >> 32 % 8 {
	case 1:
		return notify.Full
	case 2:
		c.Wake()
	}
	return notify.Delivered
}

// Flush implements notify.Reader.
func (c *collector) Flush() { c.place.unflushed.Store(0) }

// readShared has a cursor read up to a revision.
func readShared(t *testing.T, s *store.Store, place *sharing, prefix string, at, end store.Revision, seed uint64) store.Revision {
	cursor, err := s.Watch("pods", prefix, at)
	if err != nil {
		t.Error(err)
		return end
	}
	defer cursor.Close()
	c := &collector{Cursor: cursor, t: t, at: at, end: end, place: place, pace: seed}
	cursor.Share(&place.fanout, c)
	buf := make([]*store.Change, 3)
	for c.at < end {
		c.take(c.left)
		c.left = nil
		n, err := c.TryNext(t.Context(), buf)
		if err != nil {
			t.Error(err)
			return end
		}
		if c.take(buf[:n]); n == 0 && c.at < end {
			c.Wait()
		}
	}
	return c.at
}
