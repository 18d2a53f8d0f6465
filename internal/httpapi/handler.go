package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/discovery"
	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Handler serves the API. It is safe for concurrent use.
type Handler struct {
	c         Config
	metrics   *metrics
	fragments *fragments
	derived   *derived
	// connections are those whose watches deliver to each other.
	connections connections

	// gate bounds what is under way.
	gate *inflight.Gate

	// drained is done when watches have to end.
	drained context.Context
	drain   context.CancelFunc

	// served are the documents of the newest catalog that was seen.
	served atomic.Pointer[documents]

	requests     sync.Pool // *request
	small, large sync.Pool // *[]byte, of smallBytes and of about WriteBatchBytes
}

// smallBytes is what most objects and events fit into. Thousands of clients that
// do not read may each hold a buffer until their deadline: it must not be a large
// one.
const smallBytes = 16 << 10

func newBuffer(size int) *[]byte {
	b := make([]byte, 0, size)
	return &b
}

// buffer returns an empty buffer for about size bytes. One that is not given back
// is garbage.
func (h *Handler) buffer(size int) *[]byte {
	if size <= smallBytes {
		return h.small.Get().(*[]byte)
	}
	return h.large.Get().(*[]byte)
}

// giveBack takes a buffer that nobody reads any more, and what it has become.
func (h *Handler) giveBack(room *[]byte, b []byte) {
	*room = b[:0]
	switch {
	case cap(b) <= smallBytes:
		h.small.Put(room)
	case cap(b) <= 2*h.c.Limits.WriteBatchBytes: // one of some MiB would stay for ever
		h.large.Put(room)
	}
}

// documents are what a catalog says of itself.
type documents struct {
	catalog *resource.Catalog
	*discovery.Documents
}

// New makes a handler. It starts no goroutine.
func New(c Config) *Handler {
	c.Limits = c.Limits.WithDefaults()
	if c.Now == nil {
		c.Now = time.Now
	}
	h := &Handler{c: c, gate: newGate(&c.Limits)}
	h.drained, h.drain = context.WithCancel(context.Background())
	most := cmp.Or(c.RepresentationBytes, store.DefaultMaxMemory/4*3)
	h.fragments = newFragments(most/3, c.Registry.Store.Charge, func() { h.derived.shrink() })
	h.derived = newDerived(func() int64 { return most - h.fragments.used.Load() }, c.Registry.Store.Charge)
	h.metrics = newMetrics(h)
	h.requests.New = func() any { return &request{h: h} }
	h.small.New = func() any { return newBuffer(smallBytes) }
	h.large.New = func() any { return newBuffer(c.Limits.WriteBatchBytes + c.Limits.WriteBatchBytes/8) }
	return h
}

// Drain ends every watch cleanly, as at the end of its timeout, refuses new ones
// with 429, and makes /readyz fail. It does not wait: http.Server.Shutdown does.
// It is idempotent.
func (h *Handler) Drain() { h.drain() }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := h.requests.Get().(*request)
	q.begin(w, r)
	defer q.end()
	err := q.serve()
	if err == nil && q.to != nil {
		err = q.pull()
	}
	if err != nil {
		q.fail(err)
	}
}

func (h *Handler) log() *slog.Logger {
	if h.c.Log != nil {
		return h.c.Log
	}
	return slog.New(slog.DiscardHandler)
}

// documents returns those of the catalog that is served now.
func (h *Handler) documents() *documents {
	c := h.c.Catalog()
	d := h.served.Load()
	if d == nil || d.catalog != c {
		var before *discovery.Documents
		if d != nil {
			before = d.Documents
		}
		d = &documents{catalog: c, Documents: discovery.New(c, before)}
		h.served.Store(d)
	}
	return d
}

// end is the last thing of a request, whatever happened: it recovers from a
// panic, counts, and gives back what the request held.
func (q *request) end() {
	v := recover()
	if v != nil {
		q.recovered(v)
	}
	q.dog.release()
	q.free()
	q.h.metrics.done(q)
	if v == nil {
		q.forget()
		q.h.requests.Put(q)
		return
	}
	// Somebody may still hold a part of the request: it is not used again.
	if v == http.ErrAbortHandler || q.aborted {
		panic(http.ErrAbortHandler)
	}
}

// recovered answers a panic with 500, or has the answer broken off when it has
// begun.
func (q *request) recovered(v any) {
	if v == http.ErrAbortHandler {
		return
	}
	q.h.log().Error("panic in a request", "method", q.r.Method, "path", q.r.URL.Path,
		"panic", v, "stack", string(debug.Stack()))
	if q.wrote {
		q.aborted = true
		return
	}
	q.fail(errPanic())
}

// isHealth tells the paths that answer however much is under way.
func isHealth(path string) bool {
	return path == "/healthz" || path == "/livez" || path == "/readyz" ||
		strings.HasPrefix(path, "/healthz/") || strings.HasPrefix(path, "/livez/") || strings.HasPrefix(path, "/readyz/")
}
