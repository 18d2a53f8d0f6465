package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestFlights: requests of one group cannot take the room of others, a call ends with its last request, and a call that
// does not end keeps its room.
func TestFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 12
		f := &Flights[int]{Most: most, Limit: time.Minute}
		stuck := make(chan struct{}) // a call continues until it is closed, whatever its context
		var calls, ended atomic.Int64
		ask := func(ctx context.Context, group string, key byte) chan error {
			got := make(chan error, 1)
			go func() {
				_, err := f.Join(ctx, Key{key}, group, 0, func(ctx context.Context) (int, error) {
					calls.Add(1)
					<-ctx.Done()
					ended.Add(1)
					<-stuck
					return 0, ctx.Err()
				})
				got <- err
			}()
			synctest.Wait()
			return got
		}
		ctx, leave := context.WithCancel(t.Context())
		fill := func(group string, key byte) (admitted int) {
			for {
				select {
				case err := <-ask(ctx, group, key+byte(admitted)):
					if !errors.Is(err, ErrBusy) {
						t.Fatal(err)
					}
					return admitted
				default:
					admitted++
				}
			}
		}
		for i, want := range []int{6, 3, 2} {
			if got := fill(fmt.Sprint("group ", i), byte(100*i)); got != want {
				t.Errorf("group %d: %d requests wait, want %d", i, got, want)
			}
		}
		if n := calls.Load(); n != 11 {
			t.Errorf("%d calls", n)
		}
		shared, quit := context.WithCancel(t.Context())
		got := ask(shared, "another group", 0)
		if n := calls.Load(); len(got) > 0 || n != 11 {
			t.Errorf("a request with the same key: %d calls, %d ended", n, len(got))
		}
		leave()
		synctest.Wait()
		if n := ended.Load(); n != 10 {
			t.Errorf("%d calls ended with their clients, want 10: another request waits for one", n)
		}
		if n := f.Waiting(); n != 11 { // ten calls that do not end, and a request
			t.Errorf("%d requests wait", n)
		}
		quit()
		synctest.Wait()
		close(stuck)
		synctest.Wait()
		if n := f.Waiting(); n != 0 || ended.Load() != 11 || len(f.load)+len(f.running) > 0 {
			t.Errorf("%d requests wait after the last one, %d calls ended, %v", n, ended.Load(), f.load)
		}
		_, err := f.Join(t.Context(), Key{}, "", 0, func(context.Context) (int, error) { panic("oh") })
		if want := "the call of the webhook panicked: oh"; err == nil || err.Error() != want {
			t.Errorf("a panic: %v", err)
		}
	})
}

// TestFreshFlights: a request joins a call that began less than Fresh before it, and no older one. A call that another one
// has followed ends with its own requests.
func TestFreshFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Flights[int]{Most: 100, Limit: time.Minute, Fresh: time.Second}
		var calls atomic.Int64
		release := make(chan struct{})
		ask := func(ctx context.Context) chan int {
			got := make(chan int, 1)
			go func() {
				n, err := f.Join(ctx, Key{}, "", 0, func(ctx context.Context) (int, error) {
					n := int(calls.Add(1))
					select {
					case <-release:
						return n, nil
					case <-ctx.Done():
						return -n, nil
					}
				})
				if err != nil {
					n = 0
				}
				got <- n
			}()
			synctest.Wait()
			return got
		}
		ctx, leave := context.WithCancel(t.Context())
		first := ask(ctx)
		time.Sleep(999 * time.Millisecond)
		second := ask(ctx)
		time.Sleep(time.Millisecond)
		third := ask(t.Context())
		fourth := ask(t.Context())
		leave()
		if a, b := <-first, <-second; a != 0 || b != 0 || calls.Load() != 2 {
			t.Errorf("requests that left got %d and %d, of %d calls", a, b, calls.Load())
		}
		fifth := ask(t.Context())
		close(release)
		if a, b, c := <-third, <-fourth, <-fifth; a != 2 || b != 2 || c != 2 {
			t.Errorf("requests after a second got the results of the calls %d, %d and %d, want 2", a, b, c)
		}
		synctest.Wait()
		if n := f.Waiting(); n != 0 || len(f.running) > 0 {
			t.Errorf("%d requests wait after the last one, %d calls are known", n, len(f.running))
		}
	})
}

// TestLargeFlights: a request that sends much takes the room of several, until its call has returned.
func TestLargeFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Flights[int]{Most: 40, Limit: time.Minute}
		stuck := make(chan struct{})
		ctx, leave := context.WithCancel(t.Context())
		join := func(group string, key byte, bytes int) chan error {
			got := make(chan error, 1)
			go func() {
				_, err := f.Join(ctx, Key{key}, group, bytes, func(context.Context) (int, error) {
					<-stuck
					return 0, nil
				})
				got <- err
			}()
			synctest.Wait()
			return got
		}
		large := join("a", 1, 10*placeBytes)
		if n := f.Waiting(); n != 11 {
			t.Errorf("a large request counts as %d", n)
		}
		if err := <-join("a", 2, 10*placeBytes); !errors.Is(err, ErrBusy) {
			t.Errorf("another one of the group, which has half of the room: %v", err)
		}
		small, other := join("a", 3, placeBytes-1), join("b", 4, 10*placeBytes)
		if n := f.Waiting(); n != 23 || len(small) > 0 || len(other) > 0 {
			t.Errorf("%d wait", n)
		}
		leave()
		for _, one := range []chan error{large, small, other} {
			if err := <-one; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if n := f.Waiting(); n != 23 {
			t.Errorf("%d count while their calls go on", n)
		}
		close(stuck)
		synctest.Wait()
		if n := f.Waiting(); n != 0 {
			t.Errorf("%d are left", n)
		}
	})
}
