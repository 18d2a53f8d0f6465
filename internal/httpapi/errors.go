package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// The answers to these errors are text.
var (
	errNoPage     = errors.New("404 page not found") // a path outside the API that is not served
	errOverloaded = errors.New("no seat is free")    // for a request of the user
)

// refusal makes an error of a code and a reason that no function of apierrors
// makes. Details are the empty ones where kube-apiserver has them: {}.
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

// statusOf turns any error into a Status: the only place that does.
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
	case errors.Is(err, inflight.ErrFull):
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

const (
	// maxStatusBytes bounds what an error says, so that a small request has no large
	// answer: a library's error may quote each of a million list items. Validation keeps
	// to half of it.
	maxStatusBytes = 512 << 10
	// refusedStatusBytes is the same for a request without a seat, whose answer is counted
	// nowhere.
	refusedStatusBytes = 2 << 10
)

// statusBytes is how large the error is that answers the request.
func (q *request) statusBytes() int {
	if q.seat == nil {
		return refusedStatusBytes
	}
	return maxStatusBytes
}

// bounded returns the Status with at most so many bytes of text in its message, in its
// details, and in its causes.
func bounded(s *metav1.Status, most int) *metav1.Status {
	s.Message = cut(s.Message, most)
	if s.Details == nil {
		return s
	}
	d := *s.Details
	const name = 1 << 10 // names that exist are shorter
	d.Name, d.Group, d.Kind = cut(d.Name, name), cut(d.Group, name), cut(d.Kind, name)
	for i, c := range d.Causes {
		if most -= len(c.Message) + len(c.Field) + len(c.Type); most < 0 && i > 0 {
			d.Causes = d.Causes[:i:i]
			break
		}
	}
	if len(d.Causes) > 0 { // the first one stays, whatever its size
		c := d.Causes[0]
		c.Message, c.Field = cut(c.Message, maxStatusBytes), cut(c.Field, maxStatusBytes)
		d.Causes = slices.Concat([]metav1.StatusCause{c}, d.Causes[1:])
	}
	s.Details = &d
	return s
}

// cut returns the text, or its beginning if it is longer than most bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + " ..."
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

// fail writes an error as a Status in the form that the client accepts; when it
// accepts none, as indented JSON.
func (q *request) fail(err error) {
	q.failing = true
	if q.wrote {
		// Nothing can be taken back: the connection or stream has to break, so that the
		// client does not take a part for the whole.
		panic(http.ErrAbortHandler)
	}
	switch err {
	case errNoPage:
		q.text(http.StatusNotFound, err.Error()+"\n")
		return
	case errOverloaded:
		q.header()["Retry-After"] = retrySoon
		q.text(http.StatusTooManyRequests, "Too many requests, please try again later.\n")
		return
	}
	s := bounded(statusOf(err), q.statusBytes())
	if s.Code == 0 {
		s.Code = http.StatusInternalServerError
	}
	if s.Code >= 500 && s.Code != http.StatusGatewayTimeout && s.Code != http.StatusNotImplemented && s.Code != http.StatusInsufficientStorage {
		q.h.log().Error("request failed", "path", q.r.URL.Path, "method", q.r.Method, "err", err)
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
	}
	q.status(int(s.Code), s, out)
}
