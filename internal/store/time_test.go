package store_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// readable reports whether the revision can be read exactly and watched from.
func readable(t *testing.T, s *store.Store, r store.Revision) bool {
	t.Helper()
	v, err := s.Exact(t.Context(), "pods", r, 0)
	c, watchErr := s.Watch("pods", "", r)
	expired := new(*store.ExpiredError)
	if errors.As(err, expired) && errors.As(watchErr, expired) {
		return false
	}
	if err != nil || watchErr != nil {
		t.Fatalf("revision %d: exact %v, watch %v", r, err, watchErr)
	}
	v.Close()
	c.Close()
	return true
}

func TestRetention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Open(t, store.Options{Log: memlog.New()})
		a := storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
		time.Sleep(3 * time.Hour)
		b := storetest.MustCommit(t, s, storetest.Write("ns/a", a.Modified))
		time.Sleep(59 * time.Minute)
		if !readable(t, s, a.Modified) {
			t.Error("gone 59 minutes after it was replaced")
		}
		time.Sleep(2 * time.Minute)
		if readable(t, s, a.Modified) {
			t.Error("there 61 minutes after it was replaced")
		}
		time.Sleep(100 * time.Hour)
		if !readable(t, s, b.Modified) {
			t.Error("the newest revision is gone")
		}
		storetest.Close(t, s)
	})
}

func TestClockJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jump atomic.Int64
		s := storetest.Open(t, store.Options{Log: memlog.New(),
			Now: func() time.Time { return time.Now().Add(time.Duration(jump.Load())).Round(0) }})
		a := storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
		b := storetest.MustCommit(t, s, storetest.Write("ns/a", a.Modified))
		for _, d := range []time.Duration{24 * time.Hour, -24 * time.Hour, -24 * time.Hour, 24 * time.Hour} {
			jump.Store(int64(d))
			time.Sleep(5 * time.Minute)
			b = storetest.MustCommit(t, s, storetest.Write("ns/a", b.Modified))
			if !readable(t, s, a.Modified) {
				t.Fatalf("gone after the clock went to %v", d)
			}
		}
		time.Sleep(time.Hour)
		if readable(t, s, a.Modified) {
			t.Error("there an hour later: the clock's jumps stopped the aging")
		}
		storetest.Close(t, s)
	})
}

func TestDowntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memlog.New()
		a := &store.Object{}
		for i := range 5 {
			s := storetest.Open(t, store.Options{Log: log})
			if i == 0 {
				a = storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
				storetest.MustCommit(t, s, storetest.Write("ns/a", a.Modified))
			} else if !readable(t, s, a.Modified) {
				t.Fatalf("gone after %d times of downtime", i)
			}
			time.Sleep(10 * time.Minute)
			storetest.MustCommit(t, s, storetest.Write("ns/b"+string(rune('0'+i)), 0))
			storetest.Close(t, s)
			time.Sleep(48 * time.Hour)
		}
		// Five times ten minutes were served; the rest of the hour follows.
		s := storetest.Open(t, store.Options{Log: log})
		time.Sleep(12 * time.Minute)
		if readable(t, s, a.Modified) {
			t.Error("there after 62 minutes of running")
		}
		storetest.Close(t, s)
	})
}

// TestMaxDisk: the size of the history on the medium is bounded, whatever its age.
func TestMaxDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := memlog.New()
		const most = 64 << 10
		s := storetest.Open(t, store.Options{Log: durable{log}, MaxDisk: most})
		first := storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
		last := first
		for i := range 5000 {
			last = storetest.MustCommit(t, s, storetest.Write("ns/a", last.Modified))
			if i%100 > 0 {
				continue
			}
			synctest.Wait() // no time passes: writing fast is enough
			if got := log.Usage().HistoryBytes; got > most*9/8 {
				t.Fatalf("history takes %d bytes after %d writes, want at most %d", got, i, most)
			}
		}
		if got := log.Usage().HistoryBytes; got < most/2 {
			t.Errorf("history takes %d bytes only, %d are allowed", got, most)
		}
		if readable(t, s, first.Modified) || !readable(t, s, last.Modified-10) {
			t.Error("not the oldest history went")
		}
		storetest.Close(t, s)
	})
}

// TestWaiting: NotOlderThan waits in the time of the clock, no longer.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storetest.Open(t, store.Options{Log: memlog.New()})
		begun, r := time.Now(), s.Any().Revision()
		tooLarge := new(*store.TooLargeError)
		if _, err := s.NotOlderThan(t.Context(), r+1, 3*time.Second); !errors.As(err, tooLarge) || time.Since(begun) != 3*time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		go func() {
			time.Sleep(time.Second)
			storetest.MustCommit(t, s, storetest.Write("ns/a", 0))
		}()
		if now, err := s.NotOlderThan(t.Context(), r+1, 3*time.Second); err != nil || now.Revision() != r+1 || time.Since(begun) != 4*time.Second {
			t.Errorf("got %v after %v", err, time.Since(begun))
		}
		storetest.Close(t, s)
	})
}
