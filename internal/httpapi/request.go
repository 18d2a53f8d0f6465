package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// request is a request under way: used by the request's goroutine alone, and
// again for later requests.
type request struct {
	h *Handler
	w http.ResponseWriter
	r *http.Request

	start time.Time

	info requestInfo
	typ  *resource.Type // nil: the path is of no known resource
	// catalog is the newest one in which typ was seen to be served; nil: not looked.
	catalog *resource.Catalog

	values   url.Values // of the query; nil until asked for
	deadline time.Time  // zero: the request has no end
	cancel   context.CancelFunc
	ctx      context.Context // of the work for the request, with its deadline and its seat; nil until asked for

	// seat is what the request takes of the limits; nil: nothing.
	seat    *inflight.Seat
	left    bool // the seat was given back for good
	stays   bool // the request keeps its seat to its end: its answer is not counted
	failing bool // the answer is an error

	// A watch that is open; nil otherwise.
	watch *registry.Watch
	to    stream        // nil too when the events were sent already
	route *routeMetrics // where its events and its end count
	shape *shape        // nil: whole objects in JSON

	// errors is how an error is negotiated.
	errors wire.Offer

	// The answer so far.
	wrote    bool
	bodyRead bool // to its end
	aborted  bool
	code     int
	bytes    int64

	// Room that would be allocated for each request otherwise: values of headers,
	// events of a watch that is mostly idle.
	auditID, length [1]string
	events          [spareEvents]registry.Event
}

func (q *request) begin(w http.ResponseWriter, r *http.Request) {
	q.w, q.r, q.start, q.errors = w, r, q.h.c.Now(), wire.Documents
	if r.ProtoMajor == 1 { // the connection has the deadline of the answer before
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
	}
}

// forget drops everything that belongs to the request.
func (q *request) forget() {
	q.w, q.r = nil, nil
	q.info, q.typ, q.catalog = requestInfo{}, nil, nil
	q.values, q.deadline, q.errors = nil, time.Time{}, wire.Documents
	q.ctx, q.to, q.shape, q.left, q.failing, q.stays = nil, nil, nil, false, false, false
	q.wrote, q.bodyRead, q.aborted, q.code, q.bytes = false, false, false, 0, 0
	q.auditID, q.length = [1]string{}, [1]string{}
	q.events = [spareEvents]registry.Event{}
}

// free gives back what the request holds of the limits.
func (q *request) free() {
	if q.watch != nil {
		q.watch.Close()
		q.watch = nil
	}
	if q.route != nil {
		q.route.running.Dec()
		q.route = nil
	}
	if q.cancel != nil {
		q.cancel()
		q.cancel = nil
	}
	if q.seat != nil {
		q.seat.Release()
		q.seat = nil
	}
}

// context returns the context of the work for the request, which carries its deadline and
// its seat.
func (q *request) context() context.Context {
	switch {
	case q.ctx != nil:
	case q.deadline.IsZero():
		q.ctx, q.cancel = context.WithCancel(q.seated(q.r.Context()))
	default:
		q.ctx, q.cancel = context.WithDeadline(q.seated(q.r.Context()), q.deadline)
	}
	return q.ctx
}

// extend gives the request more time, from now on.
func (q *request) extend(d time.Duration) {
	if q.cancel != nil {
		q.cancel()
	}
	q.ctx, q.cancel, q.deadline = nil, nil, time.Now().Add(d)
}

// query returns the parameters; a part that is malformed is left out, as
// kube-apiserver does.
func (q *request) query() url.Values {
	if q.values == nil {
		q.values = q.r.URL.Query()
	}
	return q.values
}

// header is that of the answer.
func (q *request) header() http.Header { return q.w.Header() }

// accept is the Accept header, its lines joined.
func (q *request) accept() string {
	lines := q.r.Header["Accept"]
	if len(lines) == 1 {
		return lines[0]
	}
	return strings.Join(lines, ",")
}
