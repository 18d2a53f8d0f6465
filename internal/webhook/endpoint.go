package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/tidemark-dev/tidemark/internal/http2client"
	"github.com/tidemark-dev/tidemark/internal/tracing"
)

const (
	// smallBody is the size in bytes up to which the buffer of a response is not charged to the budget.
	smallBody = 64 << 10
	// maxTargetBytes is the budget for the larger buffers of all responses of one target, in bytes. Each target has its
	// own budget, so that a slow webhook does not affect others.
	maxTargetBytes = 64 << 20
)

// ErrBusy is the error of a call for which the server has no room, because other calls of the same webhook use it. The
// webhook has not failed, so the failure policy of an admission webhook does not apply.
var ErrBusy = errors.New("too many calls of the webhook are under way, please try again later")

// Endpoint is a client of one webhook. Its methods are safe for concurrent use.
type Endpoint struct {
	of        *Connections
	url       url.URL
	transport *shared
	calls     chan struct{} // a value for each call under way
}

// Response is a response of a webhook.
type Response struct {
	Code        int
	ContentType string
	// RetryAfter is the value of the header Retry-After: the pause before the next call.
	RetryAfter time.Duration
	// Demands reports whether the response has the header Retry-After, whose value may be zero.
	Demands bool
	Body    []byte
}

// Call calls f, whose context ends after timeout. If too many calls are under way, it waits for one of them to end, up
// to timeout, and then returns ErrBusy.
func (e *Endpoint) Call(ctx context.Context, timeout time.Duration, f func(context.Context) error) error {
	if err := e.enter(ctx, timeout); err != nil {
		return err
	}
	defer func() { <-e.calls }()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx)
}

// enter waits until fewer calls are under way than the endpoint allows.
func (e *Endpoint) enter(ctx context.Context, most time.Duration) error {
	select {
	case e.calls <- struct{}{}:
		return nil
	default:
	}
	over := time.NewTimer(most)
	defer over.Stop()
	select {
	case e.calls <- struct{}{}:
		return nil
	case <-over.C:
		return ErrBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Post sends a request whose body is the concatenation of parts, and returns the response, whose body may have limit
// bytes. It is for use within Call. It sends the time until the deadline in the query, and the span of the context in
// headers. It follows no redirect. Errors quote nothing that the other side sent. The error is ErrBusy if other responses
// use up the memory for those of this target.
func (e *Endpoint) Post(ctx context.Context, limit int64, parts ...[]byte) (*Response, error) {
	u := e.url
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			u.RawQuery = "timeout=" + roundUp(left).String()
		}
	}
	resp, err := e.send(ctx, &u, parts)
	if err != nil {
		return nil, withoutResponse(&url.Error{Op: "Post", URL: u.String(), Err: err})
	}
	defer func() {
		resp.Body.Close()
		if e.of.closed.Load() {
			e.CloseIdleConnections()
		}
	}()
	body, err := e.transport.read(resp, limit)
	if err != nil {
		return nil, err
	}
	a := &Response{Code: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Body: body}
	if after := resp.Header.Get("Retry-After"); after != "" {
		if seconds, err := strconv.Atoi(after); err == nil {
			a.RetryAfter, a.Demands = time.Duration(min(max(seconds, 0), 3600))*time.Second, true
		}
	}
	return a, nil
}

// maxSends is how often a request is sent that the webhook does not process because its server
// stops or has too many requests. Either such a server rejects it each time, or the next connection
// reaches another one.
const maxSends = 6

// send sends a request, and again if the webhook has not processed it.
func (e *Endpoint) send(ctx context.Context, u *url.URL, parts [][]byte) (*http.Response, error) {
	for n := 1; ; n++ {
		r := newRequest(ctx, u, parts)
		tracing.Inject(ctx, r.Header)
		resp, err := e.transport.with.RoundTrip(r)
		if err == nil || n == maxSends || !errors.Is(err, http2client.ErrUnprocessed) {
			return resp, err
		}
	}
}

// roundUp rounds up to seconds.
func roundUp(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Second); whole != d {
		return whole + time.Second
	}
	return d
}

// newRequest returns a request whose body can be sent again, on another connection.
func newRequest(ctx context.Context, u *url.URL, parts [][]byte) *http.Request {
	r := &http.Request{
		Method: http.MethodPost, URL: u, Host: u.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {userAgent}},
	}
	for _, p := range parts {
		r.ContentLength += int64(len(p))
	}
	r.GetBody = func() (io.ReadCloser, error) {
		unread := net.Buffers(slices.Clone(parts)) // unlike an io.MultiReader, it fills a frame from several parts
		return io.NopCloser(&unread), nil
	}
	r.Body, _ = r.GetBody()
	return r.WithContext(ctx)
}

// read reads the body of a response, at most limit bytes. It charges the budget of the target for the buffer, which grows
// with the bytes that arrive, not with the announced length.
func (s *shared) read(resp *http.Response, limit int64) ([]byte, error) {
	if resp.ContentLength > limit {
		return nil, errTooLarge(limit)
	}
	var charged int64
	defer func() { s.large.Add(-charged) }()
	charge := func(n int64) bool {
		charged += n
		return s.large.Add(n) <= maxTargetBytes
	}
	b := make([]byte, 0, min(max(resp.ContentLength, 511), smallBody, limit)+1)
	for {
		n, err := resp.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > limit:
			return nil, errTooLarge(limit)
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, brokenOff(err)
		case len(b) < cap(b):
			continue
		}
		size := min(2*int64(cap(b)), limit+1)
		if size > smallBody && !charge(size) { // in addition to the smaller buffer, until that was copied
			return nil, ErrBusy
		}
		b = append(make([]byte, 0, size), b...)
		if charged > size {
			charge(size - charged)
		}
	}
}

func errTooLarge(limit int64) error {
	return fmt.Errorf("the response has more than %d bytes", limit)
}

// CloseIdleConnections closes the connections to the target that are not in use.
func (e *Endpoint) CloseIdleConnections() { e.transport.closeIdle() }
