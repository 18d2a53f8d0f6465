package webhook

import (
	"bytes"
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
	// smallAnswer is how many bytes of an answer are read without regard to other answers.
	smallAnswer = 64 << 10
	// maxLargeBytes bounds what all answers that are larger hold while they are read.
	maxLargeBytes = 128 << 20
)

// Endpoint is a client of one webhook. Its methods are safe for concurrent use.
type Endpoint struct {
	of        *Connections
	url       url.URL
	transport *shared
	calls     chan struct{} // a value for each call under way
}

// Answer is an answer of a webhook.
type Answer struct {
	Code        int
	ContentType string
	// RetryAfter is the value of the header Retry-After: the pause before the next call.
	RetryAfter time.Duration
	// Demands reports whether the answer has the header Retry-After, whose value may be zero.
	Demands bool
	Body    []byte
}

// Post sends a request whose body is the concatenation of parts, and returns the answer, which may
// have limit bytes. It waits for the context as long as there are too many other calls; the query has
// the time until the deadline, and headers have the span in the context. It follows no redirect. An error quotes nothing that the other side
// sent.
func (e *Endpoint) Post(ctx context.Context, limit int64, parts ...[]byte) (*Answer, error) {
	u := e.url
	if deadline, ok := ctx.Deadline(); ok {
		if left := time.Until(deadline); left > 0 {
			u.RawQuery = "timeout=" + roundUp(left).String()
		}
	}
	select {
	case e.calls <- struct{}{}:
		defer func() { <-e.calls }()
	case <-ctx.Done():
		return nil, &url.Error{Op: "Post", URL: u.String(), Err: ctx.Err()}
	}
	resp, err := e.send(ctx, &u, parts)
	if err != nil {
		return nil, withoutAnswer(&url.Error{Op: "Post", URL: u.String(), Err: err})
	}
	defer func() {
		resp.Body.Close()
		if e.of.closed.Load() {
			e.CloseIdleConnections()
		}
	}()
	body, err := e.of.read(resp, limit)
	if err != nil {
		return nil, err
	}
	a := &Answer{Code: resp.StatusCode, ContentType: resp.Header.Get("Content-Type"), Body: body}
	if after := resp.Header.Get("Retry-After"); after != "" {
		if seconds, err := strconv.Atoi(after); err == nil {
			a.RetryAfter, a.Demands = time.Duration(min(max(seconds, 0), 3600))*time.Second, true
		}
	}
	return a, nil
}

// maxSends is how often a request is sent that the webhook does not process, because its server stops or has too many
// requests. Such a server refuses it each time, or the next connection reaches another one.
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

// errLargeAnswers is the error of an answer while others use the memory for large answers.
var errLargeAnswers = errors.New("the answers of webhooks take too much memory, please try again later")

// read reads the body of an answer, at most limit bytes.
func (c *Connections) read(resp *http.Response, limit int64) ([]byte, error) {
	size := resp.ContentLength
	if size > limit {
		return nil, errTooLarge(limit)
	}
	var b bytes.Buffer
	b.Grow(int(min(max(size, 512), smallAnswer)) + bytes.MinRead)
	n, err := io.CopyN(&b, resp.Body, min(smallAnswer, limit+1))
	if errors.Is(err, io.EOF) {
		return b.Bytes(), nil
	}
	if err != nil {
		return nil, brokenOff(err)
	}
	// The buffer doubles, so it has up to three times the bytes while it grows.
	held := 3 * limit
	if size > 0 {
		held = 3 * size
	}
	if c.large.Add(held) > maxLargeBytes {
		c.large.Add(-held)
		return nil, errLargeAnswers
	}
	defer c.large.Add(-held)
	_, err = io.CopyN(&b, resp.Body, limit+1-n)
	switch {
	case err == nil:
		return nil, errTooLarge(limit)
	case !errors.Is(err, io.EOF):
		return nil, brokenOff(err)
	}
	return b.Bytes(), nil
}

func errTooLarge(limit int64) error { return fmt.Errorf("the answer has more than %d bytes", limit) }

// CloseIdleConnections closes the connections to the target that are not in use.
func (e *Endpoint) CloseIdleConnections() { e.transport.closeIdle() }
