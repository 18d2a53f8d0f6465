package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

// smallLog is a log on a medium of a size, in bytes of history, that gives back what was
// compacted when it is asked to.
type smallLog struct {
	*memlog.Log
	size    int64
	garbage atomic.Int64
	other   atomic.Int64 // what other programs use
}

const neededBytes = 100 << 10

func (l *smallLog) Replay(ctx context.Context, load func(string, *store.Object) error) (store.Bounds, error) {
	b, err := l.Log.Replay(ctx, load)
	b.InMemory = false
	return b, err
}

func (l *smallLog) free() int64 {
	return l.size - l.Log.Usage().HistoryBytes - l.garbage.Load() - l.other.Load()
}

func (l *smallLog) Usage() store.Usage {
	u := l.Log.Usage()
	u.TotalBytes = u.HistoryBytes + l.garbage.Load()
	u.FreeBytes, u.NeededBytes = max(0, l.free()), neededBytes
	return u
}

func (l *smallLog) Short() int64 { return max(0, 2*neededBytes-l.free()) }

func (l *smallLog) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	if l.free() < neededBytes {
		return fmt.Errorf("%w: %d bytes are free", store.ErrNoSpace, l.free())
	}
	return l.Log.Append(ctx, group, mark)
}

func (l *smallLog) Compact(ctx context.Context, floor store.Revision) error {
	before := l.Log.Usage().HistoryBytes
	err := l.Log.Compact(ctx, floor)
	l.garbage.Add(before - l.Log.Usage().HistoryBytes)
	return err
}

func (l *smallLog) Reclaim(context.Context) error {
	l.garbage.Store(0)
	return nil
}

// TestHistoryYields rewrites an object for an hour's worth of history that a small medium
// cannot hold: no write is refused, as much history stays as fits, and the last seconds.
func TestHistoryYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &smallLog{Log: memlog.New(), size: 8 << 20}
		s := storetest.Open(t, store.Options{Log: log})
		o := mustWrite(t, s, padded("ns/a", 0, 10<<10))
		var recent store.Revision
		for i := range 5000 {
			o = mustWrite(t, s, padded("ns/a", o.Modified, 10<<10))
			time.Sleep(50 * time.Millisecond)
			if i == 4900 { // five seconds before the end
				recent = o.Modified
			}
		}
		synctest.Wait()
		if floor, _ := s.Bounds(); floor == 0 || floor > recent {
			t.Errorf("the floor is %d, that of five seconds ago %d", floor, recent)
		}
		if got := log.Log.Usage().HistoryBytes; got < log.size/2 {
			t.Errorf("only %d bytes of history are left on a medium of %d", got, log.size)
		}
		if s.Stats().GivenUp == 0 {
			t.Error("nothing was counted")
		}
		storetest.Close(t, s)
	})
}

// TestNoHistoryLeft fills the medium from elsewhere: writes are refused with what the log
// says, at once, and go on when there is space.
func TestNoHistoryLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &smallLog{Log: memlog.New(), size: 8 << 20}
		s := storetest.Open(t, store.Options{Log: log})
		o := mustWrite(t, s, padded("ns/a", 0, 10<<10))
		log.other.Store(8 << 20)
		time.Sleep(time.Minute)
		for range 5 {
			_, err := s.Commit(t.Context(), padded("ns/a", o.Modified, 10<<10))
			if !errors.Is(err, store.ErrNoSpace) || err.Error() == store.ErrNoSpace.Error() {
				t.Fatalf("a write without space: %v", err)
			}
			time.Sleep(time.Minute)
		}
		log.other.Store(0)
		mustWrite(t, s, padded("ns/a", o.Modified, 10<<10))
		storetest.Close(t, s)
	})
}
