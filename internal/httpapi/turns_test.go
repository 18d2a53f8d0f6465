package httpapi

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestTurns: of many watches with large events, a few send at once. Turns go round among users, a client that does not
// read keeps its turn for turnTime, and a watch that ends while it waits passes its turn on.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns(2)
		var mu sync.Mutex
		var order []string
		sending := 0
		send := func(ctx context.Context, user string, took time.Duration) {
			defer turns.take(ctx, user)()
			if ctx.Err() != nil {
				return
			}
			mu.Lock()
			order = append(order, user)
			if sending++; sending > 2 && took <= turnTime {
				t.Errorf("%d watches send at once", sending)
			}
			mu.Unlock()
			time.Sleep(took)
			mu.Lock()
			sending--
			mu.Unlock()
		}
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() { send(t.Context(), "many", time.Millisecond) })
		}
		synctest.Wait()
		for i := range 3 {
			all.Go(func() { send(t.Context(), fmt.Sprint("other", i), time.Millisecond) })
		}
		ended, end := context.WithCancel(t.Context())
		all.Go(func() { send(ended, "ended", 0) })
		synctest.Wait()
		end()
		began := time.Now()
		all.Wait()
		if took := time.Since(began); took != 52*time.Millisecond {
			t.Errorf("103 watches were sent their events in %v", took)
		}
		for i := range 3 {
			if at := slices.Index(order, fmt.Sprint("other", i)); at > 10 {
				t.Errorf("a user with one watch had turn %d", at)
			}
		}

		began = time.Now()
		for range 10 {
			all.Go(func() { send(t.Context(), "stuck", time.Hour) })
		}
		synctest.Wait()
		all.Go(func() {
			defer turns.take(t.Context(), "other")()
			if took := time.Since(began); took > turnTime {
				t.Errorf("a watch waited %v for watches whose clients do not read", took)
			}
		})
		all.Wait()
		synctest.Wait()
		if turns.free != 2 || len(turns.users)+len(turns.byName) != 0 {
			t.Errorf("%d turns are free, %d users wait", turns.free, len(turns.users))
		}
	})
}

// TestTurnsOfEndedWatches: a watch that ends while it waits leaves no goroutine behind, and does not cost its user a turn.
func TestTurnsOfEndedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const watches = 200
		turns := newTurns(1)
		end := turns.take(t.Context(), "other")
		before := runtime.NumGoroutine()
		ctx, leave := context.WithCancel(t.Context())
		for range watches {
			go func() { turns.take(ctx, "user")() }()
		}
		synctest.Wait()
		leave()
		synctest.Wait()
		if n := runtime.NumGoroutine() - before; n > watches/2 {
			t.Errorf("%d watches have ended, and %d goroutines are left", watches, n)
		}
		var order []string
		for _, user := range []string{"other", "user"} {
			go func() {
				defer turns.take(t.Context(), user)()
				order = append(order, user)
			}()
			synctest.Wait()
		}
		end()
		synctest.Wait()
		if want := []string{"user", "other"}; !slices.Equal(order, want) {
			t.Errorf("the turns were those of %q, want %q", order, want)
		}
		if turns.free != 1 || len(turns.users)+len(turns.byName) != 0 {
			t.Errorf("%d turns are free, %d users wait", turns.free, len(turns.users))
		}
	})
}
