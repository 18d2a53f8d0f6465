package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// This file makes the faults of tests. Package fault selects the requests.

// errDropped breaks the connection of a request.
var errDropped = errors.New("the request was dropped on purpose")

// withoutFaults is the key of a context whose requests have no faults.
type withoutFaults struct{}

// WithoutFaults returns a handler that passes requests to h, a handler of this package or one in front of it.
// The requests have no faults.
func WithoutFaults(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), withoutFaults{}, true)))
	})
}

// injectFault injects the fault of a request, if it has one. The request has no seat while it is delayed.
func (q *request) injectFault() error {
	faults := q.h.c.Faults
	if !faults.Active() || !q.info.IsResource || q.r.Context().Value(withoutFaults{}) != nil {
		return nil
	}
	about := q.faultRequest(q.r.UserAgent())
	about.Old = q.mayBeGone()
	delay, rule := faults.Pick(&about)
	if delay > 0 {
		if err := q.delay(delay); err != nil {
			return err
		}
	}
	switch {
	case rule == nil:
	case rule.Fault == fault.Drop && rule.Events > 0:
		q.dropAfter = rule.Events
	case rule.Fault == fault.Drop:
		return errDropped
	case rule.Fault == fault.LostResponse:
		q.w, q.lost = &lostResponse{q.w}, true
	case rule.Fault == fault.Gone && q.info.Verb == verbWatch:
		q.expired = true
	case rule.Fault == fault.Gone && q.query().Get("continue") != "":
		return registry.ExpiredContinue(q.query().Get("continue"))
	default:
		return rule.Err(&about)
	}
	return nil
}

// faultRequest returns the request as package fault knows it.
func (q *request) faultRequest(agent string) fault.Request {
	i := &q.info
	return fault.Request{
		Verb: i.Verb, Group: i.Group, Resource: i.Resource, Subresource: i.Subresource,
		Namespace: i.Namespace, Name: i.Name, User: i.User.Name, UserAgent: agent,
	}
}

// mayBeGone reports whether the request depends on a version that the server may have forgotten.
func (q *request) mayBeGone() bool {
	v := q.query()
	version := v.Get("resourceVersion")
	switch q.info.Verb {
	case verbList:
		return v.Get("continue") != "" || v.Get("resourceVersionMatch") == "Exact"
	case verbWatch:
		return version != "" && version != "0" && !boolean(v, "sendInitialEvents")
	}
	return false
}

// delay waits, at most until the deadline of the request, the end of its client or of the server.
func (q *request) delay(d time.Duration) error {
	late := !q.deadline.IsZero() && d >= time.Until(q.deadline)
	if late {
		d = time.Until(q.deadline)
	}
	wait := time.NewTimer(d)
	defer wait.Stop()
	select {
	case <-wait.C:
	case <-q.r.Context().Done():
		return errDropped
	case <-q.h.drained.Done():
		return apierrors.NewServiceUnavailable("the server is about to stop")
	}
	if late {
		return errTimeout()
	}
	return nil
}

// DropWatches drops the open watches that a fault selects, which was just added.
func (h *Handler) DropWatches(id string) {
	h.traffic.mu.Lock()
	defer h.traffic.mu.Unlock()
	for q := range h.traffic.watches {
		if about := q.faultRequest(q.agent); h.c.Faults.Drops(id, &about) {
			q.dropped.Store(true)
			q.cancel()
		}
	}
}

// lostResponse is the ResponseWriter of a request whose client does not get the response.
type lostResponse struct{ http.ResponseWriter }

func (*lostResponse) WriteHeader(int)                  {}
func (*lostResponse) Write(p []byte) (int, error)      { return len(p), nil }
func (*lostResponse) FlushError() error                { return nil }
func (*lostResponse) SetWriteTimeout(time.Duration)    {}
func (*lostResponse) SetWriteDeadline(time.Time) error { return nil }

// Unwrap is for http.ResponseController: the body is read as usual.
func (l *lostResponse) Unwrap() http.ResponseWriter { return l.ResponseWriter }
