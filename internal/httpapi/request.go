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
	h    *Handler
	late late // its timer is reused, too
	exchange
}

// exchange is the part of a request that is new with each one: the request, the user, and the
// response. Its zero value is that of a request that has not begun.
type exchange struct {
	w http.ResponseWriter
	r *http.Request
	place
	// arrival determines which states are new enough for the request; nil: all are, since no other server writes.
	arrival *store.Arrival
	// changes is the query of a request for changes; nil: it is another request.
	changes *changesQuery
	// audited is the request's audit event; nil: it has none.
	audited *audited

	requested
	timing
	seating
	watching
	sent
}

// requested is the resource and the options that the client requests, as its path and query say.
type requested struct {
	info requestInfo
	typ  *resource.Type // nil: the path names no known resource
	// catalog is the newest catalog that is known to serve typ; nil: none was checked.
	catalog *resource.Catalog
	values  url.Values // of the query; nil before query is called

	bodyRead bool  // to its end
	received int64 // bytes of the body; below zero: it was not read
}

// timing is when the request began, how long its parts took, and when it has to end.
type timing struct {
	start time.Time
	// timed: the parts of the latency are measured. lapped is when the part before ended, and times has
	// those that the registry measures; nil: none.
	timed  bool
	lapped time.Time
	parts  latency
	times  *registry.Times
	span   *requestSpan // nil: it has none, or has not begun

	deadline time.Time // zero: there is none
	cancel   context.CancelFunc
	ctx      context.Context // with the deadline and the seat; nil before context is called
}

// seating is how the request gets and keeps its seats at a priority level.
type seating struct {
	// flow is the flow of the request; the zero value: it has none. wait is the time that counts for
	// how long it may wait in a queue.
	flow flowschema.Flow
	wait time.Duration
	seat *fairness.Seat // nil: it has none
	slow bool           // the client took its time for the last part of the response
	// stays: the request keeps its seat to its end, and its response is not counted.
	stays bool
	// away is the time in webhooks of admission, which is known when the seat is free.
	away time.Duration
}

// watching is a watch that is open.
type watching struct {
	watch *registry.Watch // nil: there is none
	to    stream          // nil for a WebSocket, whose events have been sent
	lines httpStream      // the buffer of to
	route *routeMetrics
	shape *shape // nil: whole objects in JSON
	// uninterested ends the count of the watch among those interested in writes; nil: it has none.
	uninterested func()
	events       [spareEvents]registry.Event

	// Of faults. agent is the User-Agent, dropped is set when the watch has to break, dropAfter
	// is after how many more events it breaks (zero: never), and expired ends it with 410.
	agent     string
	dropped   atomic.Bool
	dropAfter uint64
	expired   bool
}

// sent is the response so far.
type sent struct {
	// errors are the representations that an error can have.
	errors  wire.Offer
	isPage  bool // page responds to the request, or has refused its path
	wrote   bool
	aborted bool
	failing bool // the response is an error
	lost    bool // a fault: the client does not get the response
	code    int
	bytes   int64

	auditID, length [1]string // values of headers
}

func (q *request) begin(w http.ResponseWriter, r *http.Request) {
	q.w, q.r, q.start, q.errors, q.received = w, r, time.Now(), wire.Documents, -1
	q.timed, q.lapped = q.h.timesParts(), q.start
	if q.store().Shared() {
		q.arrival = new(store.Arrival)
	}
	if r.ProtoMajor == 1 { // the connection has the deadline of the response before
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
}

// forget clears the request for reuse.
func (q *request) forget() { q.exchange = exchange{} }

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

// header returns the headers of the response.
func (q *request) header() http.Header { return q.w.Header() }

// accept returns the Accept header. Several lines are joined.
func (q *request) accept() string {
	lines := q.r.Header["Accept"]
	if len(lines) == 1 {
		return lines[0]
	}
	return strings.Join(lines, ",")
}
