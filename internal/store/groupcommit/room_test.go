package groupcommit_test

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

// smallLog is a log on a medium of a size, in bytes of history, that gives back the space of
// compacted changes when it is asked to.
type smallLog struct {
	*memlog.Log
	size    int64
	garbage atomic.Int64
	other   atomic.Int64 // used by other programs
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
// cannot hold: no write is refused, a quarter of the medium stays history, and the last
// seconds. When another program takes most of the medium, history yields.
func TestHistoryYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &smallLog{Log: memlog.New(), size: 8 << 20}
		s := storetest.Open(t, store.Options{Log: log})
		o := storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 10<<10))
		var recent store.Revision
		for i := range 5000 {
			o = storetest.MustCommit(t, s, storetest.Padded("ns/a", o.Modified, 10<<10))
			time.Sleep(50 * time.Millisecond)
			if i == 4900 { // five seconds before the end
				recent = o.Modified
			}
		}
		synctest.Wait()
		if floor, _ := s.Bounds(); floor == 0 || floor > recent {
			t.Errorf("the floor is %d, five seconds ago it was %d", floor, recent)
		}
		if got := log.Log.Usage().HistoryBytes; got < log.size/5 || got > log.size/3 {
			t.Errorf("%d bytes of history are left on a medium of %d", got, log.size)
		}
		log.other.Store(log.free() - 3*neededBytes/2)
		for range 20 {
			o = storetest.MustCommit(t, s, storetest.Padded("ns/a", o.Modified, 10<<10))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if s.Stats().GivenUp == 0 {
			t.Error("nothing was counted")
		}
		storetest.Close(t, s)
	})
}

// TestNoHistoryLeft fills the medium from elsewhere: writes are refused with the error that the log
// says, at once, and go on when there is space.
func TestNoHistoryLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &smallLog{Log: memlog.New(), size: 8 << 20}
		s := storetest.Open(t, store.Options{Log: log})
		o := storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 10<<10))
		log.other.Store(8 << 20)
		time.Sleep(time.Minute)
		for range 5 {
			_, err := s.Commit(t.Context(), storetest.Padded("ns/a", o.Modified, 10<<10))
			if !errors.Is(err, store.ErrNoSpace) || err.Error() == store.ErrNoSpace.Error() {
				t.Fatalf("a write without space: %v", err)
			}
			time.Sleep(time.Minute)
		}
		log.other.Store(0)
		storetest.MustCommit(t, s, storetest.Padded("ns/a", o.Modified, 10<<10))
		storetest.Close(t, s)
	})
}

// slowLog is a smallLog that takes deletions always, and whose Reclaim lasts until the
// test lets it go on.
type slowLog struct {
	smallLog
	reclaims atomic.Int64
	goOn     chan struct{}
}

func (l *slowLog) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	for i := range group {
		if group[i].Object != nil {
			return l.smallLog.Append(ctx, group, mark)
		}
	}
	return l.Log.Append(ctx, group, mark)
}

func (l *slowLog) Reclaim(ctx context.Context) error {
	l.reclaims.Add(1)
	select {
	case <-l.goOn:
		return l.smallLog.Reclaim(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// slow returns a store on a slowLog that has no space, whose loop is at work on that.
func slow(t *testing.T) (*store.Store, *slowLog, *store.Object) {
	log := &slowLog{goOn: make(chan struct{})}
	log.Log, log.size = memlog.New(), 8<<20
	s := storetest.Open(t, store.Options{Log: log})
	o := storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 10<<10))
	for range 300 {
		o = storetest.MustCommit(t, s, storetest.Padded("ns/a", o.Modified, 10<<10))
	}
	time.Sleep(time.Minute) // so that the store may drop the current history
	log.other.Store(log.free() - neededBytes/2)
	return s, log, o
}

// TestSlowReclaim has a write wait for space that the log takes long to give back: it
// waits in vain once, and nothing else waits, not a deletion nor the next write.
func TestSlowReclaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, o := slow(t)
		began := time.Now()
		waits := storetest.Begin(s, storetest.Padded("ns/b", 0, 10))
		if log.reclaims.Load() == 0 {
			t.Fatal("the write does not wait for the log")
		}
		if _, err := s.Commit(t.Context(), storetest.Remove("ns/a", o.Modified)); err != nil || time.Since(began) > 0 {
			t.Errorf("a deletion took %v: %v", time.Since(began), err)
		}
		if got := <-waits; !errors.Is(got.Err, store.ErrNoSpace) {
			t.Errorf("without space: %v", got.Err)
		}
		began = time.Now()
		if _, err := s.Commit(t.Context(), storetest.Padded("ns/b", 0, 10)); !errors.Is(err, store.ErrNoSpace) || time.Since(began) > 0 {
			t.Errorf("the next write took %v: %v", time.Since(began), err)
		}
		close(log.goOn)
		synctest.Wait()
		storetest.MustCommit(t, s, storetest.Padded("ns/b", 0, 10))
		storetest.Close(t, s)
	})
}

// TestRoomWhileWaiting gives a write its space while it waits, and ends the wait of
// another one with its context.
func TestRoomWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, _ := slow(t)
		waits := storetest.Begin(s, storetest.Padded("ns/b", 0, 10))
		ctx, cancel := context.WithCancel(t.Context())
		leaves := make(chan error, 1)
		go func() {
			_, err := s.Commit(ctx, storetest.Padded("ns/c", 0, 10))
			leaves <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-leaves; !errors.Is(err, store.ErrNoSpace) {
			t.Errorf("a write whose client left: %v", err)
		}
		close(log.goOn)
		if got := <-waits; got.Err != nil {
			t.Error(got.Err)
		}
		storetest.Close(t, s)
	})
}

// TestCloseWhileWaiting closes the store while a write waits for space: nothing waits
// for that.
func TestCloseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, _ := slow(t)
		waits := storetest.Begin(s, storetest.Padded("ns/b", 0, 10))
		began := time.Now()
		storetest.Close(t, s)
		got := <-waits
		if !errors.Is(got.Err, store.ErrNoSpace) && !errors.Is(got.Err, store.ErrClosed) {
			t.Error(got.Err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("closing took %v", took)
		}
	})
}

// cramped is a log that cannot compact for want of space.
type cramped struct {
	smallLog
	tries []time.Time
}

func (l *cramped) Compact(context.Context, store.Revision) error {
	l.tries = append(l.tries, time.Now())
	return fmt.Errorf("%w: for a compaction", store.ErrNoSpace)
}

// TestRetriesSlowDown: an operation for which there is no space is retried less and less often,
// whatever else wakes the loop.
func TestRetriesSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &cramped{smallLog: smallLog{Log: memlog.New(), size: 8 << 20}}
		s := storetest.Open(t, store.Options{Log: log})
		o := storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 10<<10))
		storetest.MustCommit(t, s, storetest.Padded("ns/a", o.Modified, 10<<10))
		time.Sleep(10 * time.Second)
		log.other.Store(log.free() - neededBytes*3/2)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if n := len(log.tries); n < 20 || n > 100 {
			t.Errorf("%d tries in 5 minutes", n)
		}
		for i, at := range log.tries {
			if i > 10 && at.Sub(log.tries[i-2]) < 4*time.Second {
				t.Errorf("try %d comes %v after the one before the last", i, at.Sub(log.tries[i-2]))
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

// scarceLog is a log that forgets all history with each deletion, as one on a full
// medium does.
type scarceLog struct{ smallLog }

func (l *scarceLog) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	err := l.Log.Append(ctx, group, mark)
	if last := group[len(group)-1]; err == nil && last.Object == nil {
		err = l.Log.Compact(ctx, last.Revision)
	}
	return err
}

// TestFloorOfDeletion: the floor rises when the log drops history for a deletion.
func TestFloorOfDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &scarceLog{smallLog{Log: memlog.New(), size: 8 << 20}}
		s := storetest.Open(t, store.Options{Log: log})
		o := storetest.MustCommit(t, s, storetest.Padded("ns/a", 0, 10))
		gone, err := s.Commit(t.Context(), storetest.Remove("ns/a", o.Modified))
		if err != nil {
			t.Fatal(err)
		}
		if floor, head := s.Bounds(); floor != head || head != gone.Modified {
			t.Errorf("bounds %d to %d after a deletion at %d that dropped the history", floor, head, gone.Modified)
		}
		storetest.Close(t, s)
	})
}
