package consistentlist

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind is why a list or a watch cannot keep its guarantee.
type Kind string

const (
	// Invalid: the guarantee, or the list to follow from, makes no request.
	Invalid Kind = "Invalid"
	// NotHonoured: the response is not the requested one: another version, an
	// older one, none, pages of different versions, pages without end. Old servers
	// and some aggregated ones ignore resourceVersionMatch (KEP-2523).
	NotHonoured Kind = "NotHonoured"
	// Incomparable: the versions differ, and are no integers (KEP-5504, Story 3).
	Incomparable Kind = "Incomparable"
	// Expired: the version is gone (410), or went in the middle of a list more often
	// than Options.Retries.
	Expired Kind = "Expired"
	// NotReached: the server has not got to the version (504): its most recent one, in
	// Error.Got, is older, or the server has reported that as often as Options.Retries allows.
	NotReached Kind = "NotReached"
)

// Error is the guarantee that is not kept, and the reason. Any other failure of a request is
// returned as the client gave it.
type Error struct {
	Kind      Kind
	Guarantee Guarantee
	// Got is the version that the server sent; empty if it sent none.
	Got string
	// Detail describes the error; empty if Err does.
	Detail string
	// Err is the error of the server, or nil.
	Err error
}

// Error has the guarantee, the response and the error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: asked for %s", e.Kind, e.Guarantee)
	if e.Got != "" {
		fmt.Fprintf(&b, ", got %q", e.Got)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap returns the error of the server.
func (e *Error) Unwrap() error { return e.Err }

// typed gives the responses about versions their kind, and leaves the others alone.
func (g Guarantee) typed(err error) error {
	if _, done := errors.AsType[*Error](err); done {
		return err
	}
	switch {
	case expired(err):
		return &Error{Kind: Expired, Guarantee: g, Err: err}
	case tooLarge(err):
		return &Error{Kind: NotReached, Guarantee: g, Err: err}
	default:
		return err
	}
}

// expired is the 410 for a version or a continue token; in a watch it comes as an
// ERROR event.
func expired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// tooLarge is the 504 for a version that the server has not got to. Servers before
// v1.20 give no cause.
func tooLarge(err error) bool {
	if apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge) {
		return true
	}
	return apierrors.IsTimeout(err) && strings.Contains(err.Error(), "Too large resource version")
}

// refusesStreams reports the refusal of a streaming list: from v1.19 on
// resourceVersionMatch is forbidden for a watch, later sendInitialEvents is.
func refusesStreams(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// restToken is the continue token of a 410 that lists the rest from a newer state;
// servers before v1.12 give none.
func restToken(err error) string {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Continue
	}
	return ""
}

// code returns the HTTP status of an error of the server, or 0.
func code(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		if c := status.Status().Code; c != 0 {
			return c
		}
		return http.StatusInternalServerError // an ERROR event without a code
	}
	return 0
}
