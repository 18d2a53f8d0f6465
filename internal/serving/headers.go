package serving

import (
	"errors"
	"net/http"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/http2"
)

const (
	// freeHeaderBytes is how many bytes of headers per connection are not counted, with those of the
	// TLS handshake. Nearly all requests have fewer.
	freeHeaderBytes = 8 << 10
	// headerCost is how many bytes of memory a byte of headers takes while they are read: net/http has
	// a header of six bytes in a map, with a slice for its values.
	headerCost = 16
	// fieldBytes is the memory of a header beyond its name and its value.
	fieldBytes = 100
)

var errTooManyHeaders = errors.New("serving: no memory left for headers of HTTP/1.1 requests")

// headerBudget bounds the memory for headers of HTTP/1.1 requests, of all connections
// together: net/http accepts HeaderBytes for each and keeps incomplete headers until
// ReadHeaderTimeout. While headers are read, their bytes count headerCost times, because they may be
// many short ones; then they count once. Half the budget of HTTP/2 is enough to read 8
// requests with the largest headers at once, or 1,000 with 8 KiB more than usual. Unauthenticated
// connections get half of it, so that they cannot keep out authenticated ones.
type headerBudget struct {
	limit int64
	used  atomic.Int64
}

func newHeaderBudget(transportBytes int64) *headerBudget {
	if transportBytes == 0 {
		transportBytes = http2.DefaultTransportBytes
	}
	return &headerBudget{limit: transportBytes / 2}
}

// headers counts the bytes of a request's headers on a connection. Only the goroutine that
// reads the connection uses it, except for close and forget.
type headers struct {
	reading atomic.Bool // the connection reads headers, or the TLS handshake
	bytes   int64       // read
	charged atomic.Int64
	closed  atomic.Bool // the connection is
}

// read counts n bytes of a connection that has authenticated, or not. The error closes the
// connection.
func (h *headers) read(b *headerBudget, n int, authenticated bool) error {
	if !h.reading.Load() {
		return nil
	}
	more := min(int64(n), h.bytes+int64(n)-freeHeaderBytes)
	h.bytes += int64(n)
	if more <= 0 {
		return nil
	}
	more *= headerCost
	limit := b.limit
	if !authenticated {
		limit /= 2
	}
	full := b.used.Add(more) > limit
	h.charged.Add(more)
	if h.closed.Load() { // its last forget may have come before the charge
		h.forget(b)
	}
	if full {
		return errTooManyHeaders
	}
	return nil
}

// begin begins a new request.
func (h *headers) begin(b *headerBudget) {
	h.forget(b)
	h.bytes = 0
	h.reading.Store(true)
}

// end ends the headers. HTTP/2 counts its headers itself.
func (h *headers) end() { h.reading.Store(false) }

// settle reduces the charge to the memory that the headers take until the request has ended.
func (h *headers) settle(b *headerBudget, of http.Header) {
	charged := h.charged.Load()
	if charged == 0 {
		return
	}
	takes := int64(0)
	for name, values := range of {
		for _, v := range values {
			takes += int64(len(name) + len(v) + fieldBytes)
		}
	}
	if takes < charged && h.charged.CompareAndSwap(charged, takes) { // otherwise the connection is closed
		b.used.Add(takes - charged)
	}
}

// close removes the charge when the connection is closed. It is safe for concurrent use.
func (h *headers) close(b *headerBudget) {
	h.closed.Store(true)
	h.forget(b)
}

// forget removes the charge. It is safe for concurrent use.
func (h *headers) forget(b *headerBudget) {
	if n := h.charged.Swap(0); n > 0 {
		b.used.Add(-n)
	}
}

// connectionKey is the key of a request's connection in its context.
type connectionKey struct{}

// headersRead notes that the headers of an HTTP/1.1 request are complete.
func headersRead(r *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok && r.ProtoMajor == 1 {
		c.headers.end()
		c.headers.settle(c.l.headers, r.Header)
	}
}
