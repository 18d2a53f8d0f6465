package consistentlist

import (
	"context"
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

// repeat calls until it succeeds, fails for good, or has failed too often.
func (o Options) repeat(ctx context.Context, call func(context.Context) error) error {
	for failures := 1; ; failures++ {
		err := o.timed(ctx, call)
		if err == nil || failures > o.retries() || ctx.Err() != nil {
			return err
		}
		delay, again := o.delay(err, failures)
		if !again {
			return err
		}
		if waitErr := wait(ctx, delay); waitErr != nil {
			return waitErr
		}
	}
}

// timed bounds one call, and with it what the client waits for by itself: client-go
// sleeps as long as a server's Retry-After says, up to ten times.
func (o Options) timed(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, o.requestTimeout())
	defer cancel()
	err := call(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no answer within %v: %w", o.requestTimeout(), err)
	}
	return err
}

// delay says whether a request that failed so many times in a row may succeed later,
// and when to try: after what the server asks for, or else after twice the time
// before. A server that asks for more than Options.MaxRetryAfter is not asked again.
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
