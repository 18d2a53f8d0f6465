package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// noFork refuses a request for a fork that does not exist.
func noFork(rw http.ResponseWriter, name string) { refuse(rw, forkNotFound(name)) }

func forkNotFound(name string) *apierrors.StatusError {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "forks"}, name)
	err.ErrStatus.Message = fmt.Sprintf("fork %q not found", name)
	return err
}

// fail responds with a Status.
func fail(rw http.ResponseWriter, code int, message string) {
	reason := metav1.StatusReasonInternalError
	switch code {
	case http.StatusBadRequest:
		reason = metav1.StatusReasonBadRequest
	case http.StatusForbidden:
		reason = metav1.StatusReasonForbidden
	case http.StatusMethodNotAllowed:
		reason = metav1.StatusReasonMethodNotAllowed
	case http.StatusServiceUnavailable:
		reason = metav1.StatusReasonServiceUnavailable
	case http.StatusTooManyRequests:
		reason = metav1.StatusReasonTooManyRequests
	case http.StatusGone:
		reason = metav1.StatusReasonExpired
	case http.StatusGatewayTimeout:
		reason = metav1.StatusReasonTimeout
	case http.StatusInsufficientStorage:
		reason = "InsufficientStorage"
	}
	refuse(rw, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message}})
}

// refuse writes the Status of an error as the response.
func refuse(rw http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	if d := s.Details; d != nil && d.RetryAfterSeconds > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	s.Kind, s.APIVersion = "Status", "v1"
	respond(rw, int(s.Code), s)
}

// respond writes a response as JSON.
func respond(rw http.ResponseWriter, code int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	rw.Write(append(b, '\n')) // an error is one of the connection
}
