package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// An apiError is an error with its response.
type apiError struct {
	code    int
	reason  metav1.StatusReason
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(format string, args ...any) error {
	return &apiError{http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf(format, args...)}
}

// responseOf returns the response for an error.
func responseOf(err error) *apiError {
	var known *apiError
	var large *http.MaxBytesError
	if a := faultResponse(err); a != nil {
		return a
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &large):
		return &apiError{http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", large.Limit)}
	case errors.Is(err, ErrNotFound):
		return &apiError{http.StatusNotFound, metav1.StatusReasonNotFound, err.Error()}
	case errors.Is(err, ErrExists):
		return &apiError{http.StatusConflict, metav1.StatusReasonAlreadyExists, err.Error()}
	case errors.Is(err, ErrInvalid):
		return &apiError{http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error()}
	case errors.Is(err, ErrForbidden):
		return &apiError{http.StatusForbidden, metav1.StatusReasonForbidden, err.Error()}
	case errors.Is(err, ErrExpired):
		return &apiError{http.StatusGone, metav1.StatusReasonExpired, err.Error()}
	case errors.Is(err, ErrLimit):
		return &apiError{http.StatusInsufficientStorage, "InsufficientStorage", err.Error()}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return &apiError{http.StatusGatewayTimeout, metav1.StatusReasonTimeout, err.Error()}
	}
	return &apiError{http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error()}
}

func writeError(w http.ResponseWriter, err error) {
	a := responseOf(err)
	writeJSON(w, a.code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(a.code), Reason: a.reason, Message: a.message,
	})
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil { // the values have no other types than JSON
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	w.Write(append(b, '\n'))
}

// bodyTime limits the time that a client takes to send a body.
const bodyTime = time.Minute

// readBody reads the body of a request.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	client := http.NewResponseController(w)
	_ = client.SetReadDeadline(time.Now().Add(bodyTime)) // after an error it stays, and ends the connection
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err == nil {
		_ = client.SetReadDeadline(time.Time{})
	}
	return body, err
}

// readJSON decodes the body of a request. Unknown and repeated fields are errors, as is anything
// after the value.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, v any) error {
	body, err := readBody(w, r, limit)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(body, v)
	if err == nil {
		err = errors.Join(strict...)
	}
	if err != nil {
		return badRequest("the body is not what this request takes: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return nil
}

// withStatus returns a handler that responds to unknown paths and methods with a Status, as all other errors
// get a response.
func withStatus(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		plain := &buffer{header: http.Header{}}
		mux.ServeHTTP(plain, r)
		if plain.code == http.StatusMethodNotAllowed {
			w.Header()["Allow"] = plain.header["Allow"]
			writeError(w, &apiError{plain.code, metav1.StatusReasonMethodNotAllowed, "the path does not take " + r.Method + ", but " + plain.header.Get("Allow")})
			return
		}
		writeError(w, &apiError{http.StatusNotFound, metav1.StatusReasonNotFound, "the control API has no such path: want /control/v1 and what docs/formats/control-api.md lists"})
	})
}

// RequireToken returns a handler that serves only requests with a bearer token. It is for listeners
// that other users of the machine can connect to.
func RequireToken(token string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		got := sha256.Sum256([]byte(given))
		if subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			writeError(w, &apiError{http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "the control API needs the bearer token of its token file"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// buffer is a ResponseWriter that keeps the response.
type buffer struct {
	header http.Header
	code   int
	body   []byte
}

func (b *buffer) Header() http.Header { return b.header }

func (b *buffer) WriteHeader(code int) {
	if b.code == 0 {
		b.code = code
	}
}

func (b *buffer) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	b.body = append(b.body, p...)
	return len(p), nil
}
