package httpapi

import (
	"context"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/inflight"
)

// A request takes its seat when it is known who sends it, and that he may. It gives the
// seat back while it waits for its client, with the body or with the answer, and for
// webhooks. So who may do nothing takes no seat, and who does not read keeps none.

// masters may have all seats, and all memory that waits: there has to be room for the
// administrators.
const masters = "system:masters"

func newGate(l *Limits) *inflight.Gate {
	return inflight.NewGate(inflight.Limits{
		Seats: [...]int{inflight.Reads: l.InFlight, inflight.Writes: l.MutatingInFlight, inflight.Watches: l.Watches},
		Bytes: l.WaitingBytes,
	})
}

// takeSeat counts the request in what is under way: rows A20 and T "overload". Health
// is answered however much that is. When it is not ok and there is no error, the
// answer is written.
func (q *request) takeSeat() (ok bool, err error) {
	h := q.h
	class := inflight.Reads
	switch {
	case q.verb == verbWatch:
		if h.drained.Err() != nil {
			return false, apierrors.NewTooManyRequests("the server is shutting down, please try again later", 5)
		}
		class = inflight.Watches
	case isHealth(q.r.URL.Path):
		return true, nil
	case q.r.Method != http.MethodGet && q.r.Method != http.MethodHead:
		class = inflight.Writes
	}
	u := q.attrs.User
	if q.seat = h.gate.Acquire(class, u.Name, slices.Contains(u.Groups, masters)); q.seat != nil {
		return true, nil
	}
	h.metrics.overload(q)
	q.header()["Retry-After"] = retrySoon
	q.text(http.StatusTooManyRequests, "Too many requests, please try again later.\n")
	return false, nil
}

// seated is a context with the request's seat, if it has one.
func (q *request) seated(ctx context.Context) context.Context {
	if q.seat == nil {
		return ctx
	}
	return inflight.WithSeat(ctx, q.seat)
}

// errFull is the answer to a request that would hold more memory, while it waits for its
// client, than there is for that.
func errFull() error {
	return apierrors.NewTooManyRequests("too many requests are waiting for their clients, please try again later", 1)
}

// hold counts bytes that the request holds until its end.
func (q *request) hold(bytes int64) error {
	if q.seat == nil || q.seat.Hold(bytes) {
		return nil
	}
	return errFull()
}

// holdAnswer counts the bytes of an answer that is about to begin. A read is refused where
// there is no room for them. What a write did cannot be taken back, nor is an error
// withheld: such an answer goes out, and keeps the seat if there is no other room.
func (q *request) holdAnswer(bytes int) error {
	const small = smallBytes // which every seat has room for
	if bytes <= small || q.seat == nil || q.seat.Hold(int64(bytes)) {
		return nil
	}
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead || q.failing {
		return nil
	}
	return errFull()
}

// outside calls f, which waits for the client, and has the seat be another request's
// meanwhile. The last one does not come back for the seat: the request has ended but for
// what its client does not take.
func (q *request) outside(last bool, f func() error) error {
	if q.seat == nil || q.left || !q.seat.Suspend(0) {
		return f() // without a seat, or with it
	}
	q.left = last
	err := f()
	if !last && err == nil {
		err = q.seat.Resume(q.r.Context())
	}
	return err
}

// endConnection has an HTTP/2 connection end with the requests that it has now, as
// kube-apiserver does with those of clients that are not authenticated: what such a
// client can send is one request for each handshake.
func (q *request) endConnection() {
	if q.r.ProtoMajor == 2 {
		q.header()["Connection"] = closeConnection
	}
}
