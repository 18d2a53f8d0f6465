// Package await waits in tests for conditions that no event announces, such as a line in the log of
// another process. A test that can receive from a channel, or run in a testing/synctest bubble,
// does that instead.
package await

import (
	"errors"
	"testing"
	"time"
)

// limit is how long a condition may take to hold. It only ends tests that would hang: a test on a busy machine must not
// reach it.
const limit = 3 * time.Minute

// True waits until a condition holds. It calls the condition again after 1 ms, then after increasing pauses of up to
// 50 ms, and fails the test if it does not hold after three minutes. what describes the condition in the failure.
func True(t testing.TB, what string, condition func() bool) {
	t.Helper()
	Nil(t, what, func() error {
		if !condition() {
			return errNot
		}
		return nil
	})
}

// Nil is True for a condition that explains why it does not hold yet. It holds once it returns nil. The failure has the
// last error.
func Nil(t testing.TB, what string, condition func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := condition()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		time.Sleep(pause)
	}
}

// Value receives a value from a channel, or the zero value if it is closed. It fails the test after three minutes.
func Value[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case v := <-c:
		return v
	case <-timer.C:
		t.Fatalf("waiting for %s: nothing after %v", what, limit)
	}
	panic("not reached")
}

// errNot is the error of the conditions of True.
var errNot = errors.New("it does not hold")
