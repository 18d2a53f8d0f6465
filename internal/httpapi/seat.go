package httpapi

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// A request takes its seat after authentication and authorization. It gives the seat back
// while it waits for its client to send the body or to read the answer, and while it waits
// for a webhook. So clients without rights take no seats, and clients that do not read
// keep none.

// masters is the group whose members may take all seats and all memory for waiting
// requests, so that other users cannot lock administrators out.
const masters = "system:masters"

func newGate(l *Limits) *fairness.Gate {
	g := fairness.New(fairness.Config{Bytes: l.WaitingBytes, Watches: l.Watches})
	g.Configure(fairness.Static(l.InFlight, l.MutatingInFlight))
	return g
}

// takeSeat takes a seat for the request. Health checks need none.
func (q *request) takeSeat() (err error) {
	h, u := q.h, q.info.User
	r := fairness.Request{Level: "readOnly", User: u.Name, Privileged: slices.Contains(u.Groups, masters)}
	switch {
	case q.info.Verb == verbWatch:
		if h.drained.Err() != nil {
			return apierrors.NewTooManyRequests("the server is shutting down, please try again later", 5)
		}
		r.Watch = true
	case isHealth(q.r.URL.Path):
		return nil
	case q.r.Method != http.MethodGet && q.r.Method != http.MethodHead:
		r.Level, r.Write = "mutating", true
	}
	if r.Watch || r.Privileged {
		r.Level = "exempt"
	}
	if q.seat, err = h.gate.Acquire(q.r.Context(), r); err != nil {
		h.metrics.overload(q)
		return errOverloaded
	}
	return nil
}

// seated returns a context with the request's seat, if it has one.
func (q *request) seated(ctx context.Context) context.Context {
	if q.seat == nil {
		return ctx
	}
	return fairness.WithSeat(ctx, q.seat)
}

// errFull is the answer (429) if the budget for waiting requests is spent.
func errFull() error {
	return apierrors.NewTooManyRequests(fairness.ErrFull.Error(), 1)
}

// hold counts bytes that the request holds until it ends.
func (q *request) hold(bytes int64) error {
	if q.seat == nil || q.seat.Hold(bytes) {
		return nil
	}
	return errFull()
}

// holdAnswer counts the bytes of an answer that is about to begin. A read is refused if
// there is no room for them. The answer to a write, and an error, are sent in any case;
// the request keeps its seat if it cannot be counted otherwise.
func (q *request) holdAnswer(bytes int) error {
	if bytes <= smallBytes || q.seat == nil || q.seat.Hold(int64(bytes)) { // Suspend counts small answers
		return nil
	}
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead || q.failing {
		q.stays = true
		return nil
	}
	return errFull()
}

// outside calls f, which waits for the client, without the seat. After the last call the
// request does not take its seat again: only the client's reading is left of it.
func (q *request) outside(last bool, f func() error) error {
	if q.seat == nil || q.stays {
		return f()
	}
	if last {
		q.seat.Leave(0) // or it keeps the seat
		return f()
	}
	if !q.seat.Suspend(0) {
		return f()
	}
	err := f()
	if err == nil {
		err = q.seat.Resume(q.context())
	}
	return err
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
