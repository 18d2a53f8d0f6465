package httpapi

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authz/impersonation"
	"github.com/tidemark-dev/tidemark/internal/discovery"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/flowschema"
	"github.com/tidemark-dev/tidemark/internal/history"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Handler serves the API. It is safe for concurrent use.
type Handler struct {
	c       Config
	forked  bool      // made by Fork
	started time.Time // of the root
	root    *Handler  // of the server; the handler itself unless it is forked
	metrics *metrics
	cache   *cache
	// connections are those whose watches deliver to each other.
	connections connections

	impersonation *impersonation.Checker
	impersonated  *impersonationMetrics

	// gate limits the running requests. flows assigns them to priority levels; nil: they have none.
	gate     *fairness.Gate
	flows    *flowschema.Classifier
	interest interest

	traffic traffic
	slowest slowest // of root

	// leaving is set when the server will stop, refusing when new requests are refused. Those of root count.
	leaving, refusing atomic.Bool

	turns *turns // of large events; those of root count

	// waiting is how many requests wait for another server before they have a seat: see enter. That of root counts.
	waiting atomic.Int64

	// exhausted limits the log lines about addresses and ports. That of root counts.
	exhausted exhaustion

	// failing are the health checks whose last probe failed, each a healthcheck.
	failing sync.Map

	// drained is done when watches have to end.
	drained context.Context
	drain   context.CancelFunc

	// served are the discovery documents of the current catalog, pasts those of old ones.
	served atomic.Pointer[documents]
	pasts  pasts
	// compared are the comparisons that watches of changes share.
	compared history.Shared

	requests     sync.Pool // *request
	audits       sync.Pool // *audited
	small, large sync.Pool // *[]byte, of smallBytes and of about WriteBatchBytes
}

// smallBytes is the size of small buffers, into which most objects and events fit. Thousands
// of clients that do not read may each hold a buffer until their deadline, so most buffers
// must be small.
const smallBytes = 16 << 10

func newBuffer(size int) *[]byte {
	b := make([]byte, 0, size)
	return &b
}

// buffer returns an empty buffer for about size bytes. Giving it back is optional.
func (h *Handler) buffer(size int) *[]byte {
	if size <= smallBytes {
		return h.small.Get().(*[]byte)
	}
	return h.large.Get().(*[]byte)
}

// giveBack returns a buffer that is not used any more to its pool. b is the buffer, which may
// have grown.
func (h *Handler) giveBack(room *[]byte, b []byte) {
	*room = b[:0]
	switch {
	case cap(b) <= smallBytes:
		h.small.Put(room)
	case cap(b) <= 2*h.c.Limits.WriteBatchBytes: // larger ones would stay in the pool
		h.large.Put(room)
	}
}

// documents are the discovery documents of a catalog.
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
	if c.Kubernetes == (features.Versions{}) {
		c.Kubernetes = features.Default().Versions
	}
	h := &Handler{c: c, started: c.Now(), impersonated: newImpersonationMetrics(), turns: newTurns(sendTurns())}
	h.root = h
	h.gate, h.flows = newGate(&c)
	h.drained, h.drain = context.WithCancel(context.Background())
	h.prepare()
	h.metrics = newMetrics(h, h.impersonated.collectors())
	return h
}

// Fork makes a handler for a fork of the store. It has the limits, the seats, the FlowSchemas and the
// metrics of h, and ends its watches with those of h. Config.Limits, NoFairness, Collectors and
// Exposed are ignored.
func (h *Handler) Fork(c Config) *Handler {
	c.Limits = h.c.Limits
	if c.Now == nil {
		c.Now = time.Now
	}
	f := &Handler{c: c, forked: true, root: h.root, impersonated: h.impersonated, gate: h.gate, flows: h.flows, metrics: h.metrics}
	f.drained, f.drain = context.WithCancel(h.drained)
	f.served.Store(h.served.Load())
	f.prepare()
	return f
}

// prepare makes the parts that each handler has of its own.
func (h *Handler) prepare() {
	c := &h.c
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	h.cache = newCache(cmp.Or(c.RepresentationBytes, store.DefaultMaxMemory/4*3), c.Registry.Store.Charge)
	h.audits.New = func() any { return new(audited) }
	h.impersonation = impersonation.New(c.Authz, h.impersonated)
	h.requests.New = func() any { return &request{h: h} }
	h.small.New = func() any { return newBuffer(smallBytes) }
	h.large.New = func() any { return newBuffer(c.Limits.WriteBatchBytes + c.Limits.WriteBatchBytes/8) }
}

// Leave makes /readyz fail, so that load balancers send no more requests. The handler serves those that come. It is
// idempotent.
func (h *Handler) Leave() { h.root.leaving.Store(true) }

// Refuse makes the handler refuse new requests with 429, but those for its health and its metrics. It is idempotent.
func (h *Handler) Refuse() { h.root.refusing.Store(true) }

// WaitingBytes returns the memory of requests that wait for their clients, about.
func (h *Handler) WaitingBytes() int64 { return h.gate.Bytes() }

// Drain ends every watch cleanly, as at the end of its timeout, refuses new ones
// with 429, and makes /readyz fail. It does not wait: http.Server.Shutdown does.
// It is idempotent.
func (h *Handler) Drain() { h.drain() }

func (h *Handler) log() *slog.Logger { return h.c.Log }

// documents returns the documents of the current catalog.
func (h *Handler) documents() *documents {
	c := h.c.Catalog()
	d := h.served.Load()
	if d == nil || d.catalog != c {
		var before *discovery.Documents
		if d != nil {
			before = d.Documents
		}
		d = newDocuments(c, before)
		h.served.Store(d)
	}
	return d
}

// newDocuments makes the documents of a catalog. It shares the parts that are the same before.
func newDocuments(c *resource.Catalog, before *discovery.Documents) *documents {
	return &documents{catalog: c, Documents: discovery.New(c, before)}
}

// isHealth reports whether a path is a health check, which needs no seat.
func isHealth(path string) bool {
	return path == "/healthz" || path == "/livez" || path == "/readyz" ||
		strings.HasPrefix(path, "/healthz/") || strings.HasPrefix(path, "/livez/") || strings.HasPrefix(path, "/readyz/")
}
