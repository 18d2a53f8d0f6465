package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// The responses to these errors are text.
var (
	errNoPage     = errors.New("404 page not found") // a path outside the API that is not served
	errOverloaded = errors.New("no seat is free")    // for a request of the user
)

// refusal returns an error that no function of apierrors makes. Where kube-apiserver sends
// empty details, details is not nil but empty.
func refusal(code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: details,
	}}
}

func errNoResource() error {
	return refusal(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource", &metav1.StatusDetails{})
}

func errNoMethod() error {
	return refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource", &metav1.StatusDetails{})
}

func errUnauthorized() error {
	return refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", nil)
}

// errUndecided is the response if the authorizers or the audit log failed. kube-apiserver sends its message as text,
// with the characters of HTML escaped.
func errUndecided(r *http.Request, err error) error {
	return refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		fmt.Sprintf("Internal Server Error: %q: %v", r.URL.RequestURI(), err), nil)
}

func errTimeout() error {
	return refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout,
		"Timeout: request did not complete within the allotted timeout", &metav1.StatusDetails{})
}

func errUnsupportedMediaType(message string, details *metav1.StatusDetails) error {
	return refusal(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, message, details)
}

func errPanic() error {
	return refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError,
		"Internal error occurred: the server panicked while it served this request; its log tells where", nil)
}

// statusOf turns any error into a Status. No other code does.
func statusOf(err error) *metav1.Status {
	var refused *wire.NotAcceptable
	var known apierrors.APIStatus
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		s := known.Status()
		return &s
	case errors.As(err, &refused):
		e := refusal(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, refused.Message, nil)
		if refused.Unknown {
			e.ErrStatus.Details = &metav1.StatusDetails{}
		}
		return &e.ErrStatus
	case errors.Is(err, fairness.ErrFull):
		return statusOf(errFull())
	case errors.As(err, &tooLarge):
		e := apierrors.NewRequestEntityTooLargeError("limit is " + strconv.FormatInt(tooLarge.Limit, 10))
		e.ErrStatus.Details = nil
		return &e.ErrStatus
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.Canceled):
		return statusOf(errTimeout())
	}
	return &metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: "Internal error occurred: " + err.Error(),
	}
}

// refusedStatusBytes bounds the text of an error for a request without a seat, whose response
// is not counted in any budget.
const refusedStatusBytes = 2 << 10

// statusBytes bounds the text of an error that is the response to a request.
func (q *request) statusBytes() int {
	if q.seat == nil {
		return refusedStatusBytes
	}
	return resource.MaxStatusBytes
}

// encodeStatus writes a Status as JSON, with its kind.
func encodeStatus(s *metav1.Status) []byte {
	copied := *s
	copied.Kind, copied.APIVersion = "Status", "v1"
	b, err := json.Marshal(&copied)
	if err != nil { // a Status is plain data
		panic(err)
	}
	return append(b, '\n')
}

// isFailure reports whether a Status is logged as an error. Errors of a full or unreachable storage are not: the storage
// itself logs its state.
func isFailure(s *metav1.Status) bool {
	switch s.Code {
	case http.StatusGatewayTimeout, http.StatusNotImplemented, http.StatusInsufficientStorage:
		return false
	case http.StatusServiceUnavailable:
		return s.Details == nil || s.Details.RetryAfterSeconds == 0
	}
	return s.Code >= http.StatusInternalServerError
}

// exhaustion limits how often requests without a free address or port are logged. Any editor of a namespace can use up all
// addresses and ports.
type exhaustion struct {
	mu       sync.Mutex
	last     time.Time // of the last line; guarded by mu
	requests int       // since the last line; guarded by mu
}

// exhaustionInterval is the minimum time between two lines of the log.
const exhaustionInterval = time.Minute

// note counts a request, and logs it unless there was a line within the interval.
func (e *exhaustion) note(log *slog.Logger, now time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.requests++
	if since := now.Sub(e.last); since >= 0 && since < exhaustionInterval {
		return
	}
	log.Warn("requests failed because no address or port is free", "requests", e.requests, "err", err)
	e.last, e.requests = now, 0
}

// fail responds with an error: a Status in a form that the client accepts, or else indented
// JSON.
func (q *request) fail(err error) {
	q.failing = true
	if q.wrote || err == errDropped {
		// Break the stream, so that the client does not take a part for the whole response.
		panic(http.ErrAbortHandler)
	}
	q.endRefused()
	switch err {
	case errNoPage:
		q.text(http.StatusNotFound, err.Error()+"\n")
		return
	case errOverloaded:
		q.header()["Retry-After"] = q.retryAfter()
		q.text(http.StatusTooManyRequests, "Too many requests, please try again later.\n")
		return
	}
	s := resource.BoundStatus(statusOf(err), q.statusBytes())
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	if exhausted := (resource.Exhausted{}); errors.As(err, &exhausted) {
		q.h.root.exhausted.note(q.h.log(), q.h.c.Now(), err)
	} else if isFailure(s) {
		q.h.log().Error("request failed", "verb", q.loggedVerb(), "path", q.loggedPath(), "audit-ID", q.auditID[0], "err", err)
	}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		q.header()["Retry-After"] = []string{strconv.Itoa(int(s.Details.RetryAfterSeconds))}
	}
	if s.Code == http.StatusForbidden {
		q.header()["X-Content-Type-Options"] = noSniff
	}
	out, refused := q.h.c.Media.Negotiate(q.accept(), q.errors)
	if refused != nil {
		out = wire.Output{Media: wire.JSON, Pretty: true}
		q.audited.hides()
	}
	q.status(int(s.Code), s, out)
}
