package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/flowschema"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// request is a running request. Only the request's goroutine uses it. It is reused for later
// requests.
type request struct {
	h *Handler
	w http.ResponseWriter
	r *http.Request

	// replica is what the request was sent to; nil: to the handler itself.
	replica *Replica

	start time.Time

	// timed: the parts of the latency are measured. lapped is when the part before ended, and times has
	// those that the registry measures; nil: none.
	timed  bool
	lapped time.Time
	parts  latency
	times  *registry.Times
	span   *requestSpan // nil: it has none, or has not begun

	// arrival determines which states are new enough for the request; nil: all are, since no other server writes.
	arrival *store.Arrival

	info requestInfo
	typ  *resource.Type // nil: the path names no known resource
	// catalog is the newest catalog that is known to serve typ; nil: none was checked.
	catalog *resource.Catalog

	values   url.Values // of the query; nil before query is called
	deadline time.Time  // zero: there is none
	cancel   context.CancelFunc
	ctx      context.Context // with the deadline and the seat; nil before context is called

	// away is the time in webhooks of admission, which is known when the seat is free.
	away time.Duration

	// flow is the flow of the request; the zero value: it has none. wait is the time that counts for
	// how long it may wait in a queue.
	flow flowschema.Flow
	wait time.Duration
	// seat is the request's seat; nil: it has none.
	seat    *fairness.Seat
	slow    bool // the client took its time for the last part of the answer
	late    late
	stays   bool // the request keeps its seat to its end: its answer is not counted
	failing bool // the answer is an error

	// A watch that is open; nil otherwise.
	watch *registry.Watch
	to    stream        // nil for a WebSocket, whose events have been sent
	lines httpStream    // the buffer of to
	route *routeMetrics // of the watch
	shape *shape        // nil: whole objects in JSON

	// Of faults. agent is the User-Agent of an open watch, dropped is set when it has to break, dropAfter
	// is after how many more events it breaks (zero: never), and expired answers it with 410. lost: the
	// client does not get the answer.
	agent     string
	dropped   atomic.Bool
	dropAfter uint64
	expired   bool
	lost      bool

	uninterested func() // ends the count of the watch among those interested in writes; nil: it has none

	// audited is the request's audit event; nil: it has none.
	audited *audited

	// errors are the representations that an error can have.
	errors wire.Offer

	paged bool // page answers the request, or has refused its path

	// The answer so far.
	wrote    bool
	bodyRead bool  // to its end
	received int64 // bytes of the body; below zero: it was not read
	aborted  bool
	code     int
	bytes    int64

	// Buffers that are reused by later requests.
	auditID, length [1]string
	events          [spareEvents]registry.Event
}

func (q *request) begin(w http.ResponseWriter, r *http.Request) {
	q.w, q.r, q.start, q.errors, q.received = w, r, time.Now(), wire.Documents, -1
	q.timed, q.lapped = q.h.timesParts(), q.start
	if q.store().Shared() {
		q.arrival = new(store.Arrival)
	}
	if r.ProtoMajor == 1 { // the connection has the deadline of the answer before
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
}

// forget clears the request for reuse.
func (q *request) forget() {
	q.w, q.r, q.replica, q.arrival = nil, nil, nil, nil
	q.info, q.typ, q.catalog = requestInfo{}, nil, nil
	q.flow, q.wait, q.uninterested = flowschema.Flow{}, 0, nil
	q.away = 0
	q.values, q.deadline, q.errors = nil, time.Time{}, wire.Documents
	q.to, q.lines = nil, httpStream{}
	q.agent, q.dropAfter, q.expired, q.lost = "", 0, false, false
	q.dropped.Store(false)
	q.ctx, q.shape, q.failing, q.stays, q.slow = nil, nil, false, false, false
	q.parts, q.times, q.span = latency{}, nil, nil
	q.paged, q.wrote, q.bodyRead, q.aborted, q.code, q.bytes = false, false, false, false, 0, 0
	q.auditID, q.length = [1]string{}, [1]string{}
	q.events = [spareEvents]registry.Event{}
}

// free closes the watch, and gives back the seat.
func (q *request) free() {
	if q.watch != nil {
		q.h.traffic.close(q)
		q.watch.Close()
		q.watch = nil
		q.lines.leave()
	}
	if q.uninterested != nil {
		q.uninterested()
		q.uninterested = nil
	}
	if q.route != nil {
		q.route.running.Add(-1)
		q.route = nil
	}
	if q.cancel != nil {
		q.cancel()
		q.cancel = nil
	}
	if q.seat != nil {
		q.away = q.seat.Outside()
		q.seat.Release()
		q.seat = nil
	}
}

// context returns a context with the request's deadline and seat.
func (q *request) context() context.Context {
	switch {
	case q.ctx != nil:
	case q.deadline.IsZero():
		q.ctx, q.cancel = context.WithCancel(q.arrived())
	default:
		q.ctx, q.cancel = context.WithDeadline(q.arrived(), q.deadline)
	}
	return q.ctx
}

// arrived returns the context of the request with its seat and its arrival.
func (q *request) arrived() context.Context {
	ctx := q.seated(q.r.Context())
	if q.arrival == nil {
		return ctx
	}
	return store.Arrive(ctx, q.arrival, nil)
}

func (q *request) store() *store.Store { return q.h.c.Registry.Store }

// extend gives the request more time, from now on.
func (q *request) extend(d time.Duration) {
	if q.cancel != nil {
		q.cancel()
	}
	q.ctx, q.cancel, q.deadline = nil, nil, time.Now().Add(d)
}

// query returns the parameters. Malformed ones are left out, as in kube-apiserver.
func (q *request) query() url.Values {
	if q.values == nil {
		q.values = q.r.URL.Query()
	}
	return q.values
}

// header returns the headers of the answer.
func (q *request) header() http.Header { return q.w.Header() }

// accept returns the Accept header. Several lines are joined.
func (q *request) accept() string {
	lines := q.r.Header["Accept"]
	if len(lines) == 1 {
		return lines[0]
	}
	return strings.Join(lines, ",")
}
