package httpapi

import (
	"context"
	"errors"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/flowschema"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// A request takes its seats after authentication and authorization. It gives them back while it
// waits for its client to send the body or to read the response, and while it waits for a webhook.
// So clients without rights take no seats, and clients that do not read keep none.
//
// Without priority and fairness, requests that find no seat are refused. There are seats for reads
// and for writes.

const (
	// masters is the group whose members may take all memory for waiting requests, so that other
	// users cannot lock administrators out.
	masters = "system:masters"

	// The levels of requests that no stored object assigns to one; see fairness.Static.
	exemptLevel = "exempt"
	readLevel   = "readOnly"
	writeLevel  = "mutating"

	// longestQueueing bounds the time in a queue, whatever time the request has.
	longestQueueing = time.Minute
	// queueingPart is the part of its time that a request may wait in a queue.
	queueingPart = 4
)

// largeLists returns how many large lists of a priority level execute at once: one for each processor but one,
// which remains for small requests. At least one executes.
func largeLists() int { return max(1, runtime.GOMAXPROCS(0)-1) }

// newGate returns the gate of a server, and the classifier of its requests; it is nil without priority and
// fairness.
func newGate(c *Config) (*fairness.Gate, *flowschema.Classifier) {
	l := &c.Limits
	g := fairness.New(fairness.Config{Bytes: l.WaitingBytes, Watches: l.Watches, Connections: l.Connections, Large: largeLists()})
	reads, writes := max(0, l.InFlight), max(0, l.MutatingInFlight)
	if c.NoFairness {
		g.Configure(fairness.Static(reads, writes))
		return g, nil
	}
	return g, flowschema.New(flowschema.Config{Store: c.Registry.Store, Seats: reads + writes, Gate: g})
}

// Run lends the seats of priority levels that do not need them to others, until the context is
// done. Without it, each level keeps its own.
func (h *Handler) Run(ctx context.Context) { h.gate.Run(ctx) }

// classify assigns the request to a flow, and sets the headers that name it. Requests for
// connections have none.
func (q *request) classify() error {
	if q.h.flows == nil || q.longRunning() && q.info.Verb != verbWatch {
		return nil
	}
	a := &q.info.Attributes
	if u := q.payer(); u != a.User {
		sent := *a
		sent.User, a = u, &sent
	}
	q.flow = q.h.flows.Of(a)
	h := q.header()
	h["X-Kubernetes-Pf-Flowschema-Uid"] = q.flow.UIDHeader
	h["X-Kubernetes-Pf-Prioritylevel-Uid"] = q.flow.LevelUIDHeader
	return nil
}

// payer returns the user whose flow, seats and memory the request takes. In a fork that is the user who
// sent it, whomever it impersonates: an administrator of a fork has all rights there, but the seats and
// the memory are those of the whole server.
func (q *request) payer() *authn.User {
	if q.h.forked && q.info.sender != nil {
		return q.info.sender
	}
	return q.info.User
}

// takeSeat takes the seats of the request. It may wait for them.
func (q *request) takeSeat() error {
	h := q.h
	watch := q.info.Verb == verbWatch
	if watch && h.drained.Err() != nil {
		return apierrors.NewTooManyRequests("the server is shutting down, please try again later", 5)
	}
	u := q.payer()
	r := fairness.Request{
		User: u.Name, Privileged: slices.Contains(u.Groups, masters), Watch: watch, Detail: q,
		Write:   q.r.Method != http.MethodGet && q.r.Method != http.MethodHead,
		MaxWait: max(1, min(q.wait/queueingPart, longestQueueing)-time.Since(q.start)),
	}
	if !q.assign(&r) {
		q.limitWork()
		return nil
	}
	arrived := time.Now()
	seat, err := h.gate.Acquire(q.r.Context(), r)
	if !exempt(&q.flow) {
		q.took(&q.parts.queue, arrived)
	}
	if err == nil {
		q.seat = seat
		q.limitWork()
		return nil
	}
	if errors.Is(err, context.Canceled) { // the client is gone
		return err
	}
	h.metrics.overload(q)
	return errOverloaded
}

// retryAfter returns the Retry-After of a request that the gate has refused.
func (q *request) retryAfter() []string {
	if q.flow.Schema == nil { // priority and fairness are off
		return retrySoon
	}
	return []string{strconv.Itoa(q.h.gate.RetryAfter(q.flow.Level.Name))}
}

// exempt reports whether the requests of a flow never wait.
func exempt(f *flowschema.Flow) bool { return f.Schema == nil || f.Level.Exempt }

// assign sets the level of the request and its work. It reports false for a request that needs no
// seats.
func (q *request) assign(r *fairness.Request) bool {
	switch {
	case q.flow.Schema != nil:
		w := q.work()
		r.Level, r.Flow, r.Metrics = q.flow.Level.Name, q.flow.Hash, q.flow.Metrics
		r.Width, r.FinalWidth, r.Extra = w.Seats, w.FinalSeats, w.Extra
		r.Large = w.Large && !r.Watch // flushing events may wait for the client
	case q.h.flows == nil && isHealth(q.r.URL.Path):
		return false
	case q.longRunning(), r.Privileged:
		r.Level = exemptLevel
	case r.Write:
		r.Level = writeLevel
	default:
		r.Level = readLevel
	}
	return true
}

// seated returns a context with the request's seat, if it has one, and with the origin that the
// changes of a write keep.
func (q *request) seated(ctx context.Context) context.Context {
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		made := &registry.Request{UserAgent: q.r.UserAgent(), AuditID: store.NewAuditID(q.auditID[0]), Times: q.timing()}
		if q.info.sender != nil {
			made.Impersonator = q.info.sender.Name
		}
		ctx = registry.WithRequest(ctx, made)
	}
	if q.seat == nil {
		return ctx
	}
	return fairness.WithSeat(ctx, q.seat)
}

// errFull is the response (429) if the budget for waiting requests is spent.
func errFull() error {
	return apierrors.NewTooManyRequests(fairness.ErrFull.Error(), 1)
}

// holdConnection counts the connection to another server that the request is about to open, and leaves the seat. If the user
// has too many of them, the error is 429.
func (q *request) holdConnection() error {
	if q.seat == nil {
		return nil
	}
	if !q.seat.Connect() {
		return apierrors.NewTooManyRequests(upgrade.ErrFull.Error(), 1)
	}
	q.seat.Leave(0)
	q.stays = true
	return nil
}

// hold counts bytes that the request holds until it ends.
func (q *request) hold(bytes int64) error {
	q.late.mu.Lock()
	defer q.late.mu.Unlock()
	if q.seat == nil || q.seat.Hold(bytes) {
		return nil
	}
	return errFull()
}

// holdResponse counts the bytes of a response that is about to begin. A read is refused if
// there is no room for them. The response to a write, and an error, are sent in any case;
// the request keeps its seat if it cannot be counted otherwise.
func (q *request) holdResponse(bytes int) error {
	if bytes <= smallBytes || q.seat == nil || q.seat.Hold(int64(bytes)) { // small responses are part of the estimate of a request that waits
		return nil
	}
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead || q.failing {
		q.stays = true
		return nil
	}
	return errFull()
}

const (
	// patience is how long a request keeps its seats while its client takes a part of the response.
	// Sending is work, too: if requests gave up their seats at once, clients that read fast would
	// share the processor without any limit. It is several times the duration of a send.
	patience = 2 * time.Millisecond
	// bodyPatience is the same for the body of a request.
	bodyPatience = 100 * time.Millisecond
	// slowness is how long a slow client takes for a part of the response.
	slowness = 100 * time.Millisecond
)

// outside calls f, which sends a part of the response, and gives the seats back if the client is slow.
// A client that was slow before gets no such time. After the last part the request
// does not take its seats again: it only waits until the client has read the response.
func (q *request) outside(last bool, bytes int, f func() error) error {
	if q.timed {
		defer q.took(&q.parts.response, time.Now())
	}
	if q.seat == nil || q.stays {
		return f()
	}
	if last && bytes <= smallBytes { // sending it costs little
		q.seat.Leave(0) // if it fails, the request keeps the seats
		return f()
	}
	if q.slow {
		return q.unseated(last, f)
	}
	began := time.Now()
	suspended, err := q.late.watch(q.seat, last, nil, f)
	q.slow = time.Since(began) >= slowness
	switch {
	case err != nil, last:
	case suspended:
		err = q.seat.Resume(q.context())
	default:
		err = q.seat.Yield(q.context())
	}
	return err
}

// unseated calls f for a client that was slow before.
func (q *request) unseated(last bool, f func() error) error {
	if last {
		q.seat.Leave(0)
		return f()
	}
	began := time.Now()
	suspended := q.seat.Suspend(0)
	err := f()
	q.slow = time.Since(began) >= slowness
	if suspended && err == nil {
		err = q.seat.Resume(q.context())
	}
	return err
}

// late gives back the seats of a request that waits for its client too long. The zero value is ready.
type late struct {
	timer *time.Timer // nil before the first use

	mu        sync.Mutex
	seat      *fairness.Seat // of the request that waits; nil: none does
	last      bool           // it takes no seats again
	full      func()         // called if there is no memory left for it to wait; nil: it keeps its seats
	suspended bool           // it has to resume
}

// watch calls f, and gives the seats back while it takes longer than patience, or bodyPatience if
// full is not nil. f may use the seat only by q.hold. It reports whether the request has to resume.
func (l *late) watch(s *fairness.Seat, last bool, full func(), f func() error) (suspended bool, err error) {
	l.mu.Lock()
	l.seat, l.last, l.full, l.suspended = s, last, full, false
	l.mu.Unlock()
	d := patience
	if full != nil {
		d = bodyPatience
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.expire)
	} else {
		l.timer.Reset(d)
	}
	defer func() {
		l.timer.Stop()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.seat, l.full, suspended = nil, nil, l.suspended
	}()
	return false, f()
}

// expire gives the seats back. A timer that fires late may find the next wait, and end its patience
// early.
func (l *late) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.seat == nil:
		return
	case l.last:
		l.seat.Leave(0)
	default:
		if l.suspended = l.seat.Suspend(0); !l.suspended && l.full != nil {
			l.full()
		}
	}
	l.seat = nil
}

// endConnection ends an HTTP/2 connection once its current requests have ended.
// kube-apiserver does the same to clients that are not authenticated: they need a TLS
// handshake for every few requests.
func (q *request) endConnection() {
	if q.r.ProtoMajor == 2 {
		q.header()["Connection"] = closeConnection
	}
}

// endRefused ends an HTTP/1.1 connection with a refused request of a client that is not
// authenticated. Such clients get one guess for each TLS handshake, and keep no connection from
// others.
func (q *request) endRefused() {
	if u := q.info.User; q.r.ProtoMajor == 1 && (u == nil || u == authn.Anonymous) {
		q.header()["Connection"] = closeConnection
	}
}
