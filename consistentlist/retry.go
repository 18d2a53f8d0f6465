package consistentlist

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	firstBackoff = 500 * time.Millisecond
	maxBackoff   = 30 * time.Second
)

// repeat calls until it succeeds, fails permanently, has failed too often, or Options.Timeout is
// over. That also limits the client's own pauses: client-go sleeps as long as a server's
// Retry-After, up to ten times.
func (o Options) repeat(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout(), errTimeout)
	defer cancel()
	var last error // of a call that got a response
	for failures := 1; ; failures++ {
		err := call(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return o.late(ctx, err, last)
		}
		if _, final := errors.AsType[*Error](err); final {
			return err
		}
		last = err
		delay, again := o.delay(err, failures)
		if !again || failures > o.retries() {
			return err
		}
		if err := wait(ctx, delay); err != nil {
			return o.late(ctx, err, last)
		}
	}
}

var errTimeout = errors.New("timeout")

// late returns the error once a context is done: the last error of the server is more useful than
// the timeout.
func (o Options) late(ctx context.Context, err, last error) error {
	switch {
	case context.Cause(ctx) != errTimeout:
		return err
	case last != nil:
		return last
	default:
		return fmt.Errorf("no response within %v: %w", o.timeout(), err)
	}
}

// delay reports whether a request that failed that many times consecutively may succeed later, and
// the pause before the next attempt: that of the server, or else twice the previous one. A server
// that requests more than Options.MaxRetryAfter is not called again.
func (o Options) delay(err error, failures int) (time.Duration, bool) {
	if seconds, told := apierrors.SuggestsClientDelay(err); told && seconds > 0 {
		limit := o.maxRetryAfter()
		return time.Duration(min(seconds, 1+int(limit/time.Second))) * time.Second, time.Duration(seconds) <= limit/time.Second
	}
	status := code(err)
	switch {
	case status == http.StatusTooManyRequests,
		status >= http.StatusInternalServerError && status != http.StatusNotImplemented,
		utilnet.IsConnectionRefused(err), utilnet.IsConnectionReset(err), utilnet.IsProbableEOF(err):
		return backoff(failures), true
	default:
		return 0, false
	}
}

// backoff is how long to wait after so many failures in a row; nothing after none. It
// is spread, so that many clients do not come at once.
func backoff(failures int) time.Duration {
	if failures == 0 {
		return 0
	}
	d := min(firstBackoff<<min(failures-1, 10), maxBackoff)
	return d/2 + rand.N(d/2+1)
}

// wait returns early with the context's cause.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
