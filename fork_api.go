package tidemark

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// forksPath is where clients list, make and delete forks: docs/how-to/fork.md. The root world authorizes
// the requests.
const forksPath = forkapi.Path

// maxForkRequest bounds the body of a request for a fork, in bytes.
const maxForkRequest = 16 << 10

// route passes a request to the world that its path names, and opens a kept fork for a request that may open it. All other
// requests for forks go to the root world. It authenticates, authorizes, audits and limits them like any request, and then
// refuses them.
func (r *running) route(rw http.ResponseWriter, q *http.Request) {
	rest, ok := strings.CutPrefix(q.URL.Path, forkPath)
	if !ok {
		r.root.answer(rw, q)
		return
	}
	name, _, _ := strings.Cut(rest, "/")
	w, k := r.forks.get(name)
	if k != nil {
		w = k.world.Load()
	}
	if w == nil {
		admitted := false
		if k != nil {
			var err error
			if admitted, err = k.admits(q); err != nil {
				refuse(rw, err)
				return
			}
		}
		if !admitted {
			r.root.handler.ServeHTTP(rw, q)
			return
		}
		w = k.forRequest(rw, q)
	}
	if w != nil {
		w.serve(rw, without(q, w.prefix()))
	}
}

// missing returns the error of a path of the world that nothing is served at.
func (w *World) missing(path string) error {
	if rest, ok := strings.CutPrefix(path, replicaPath); ok {
		name, _, _ := strings.Cut(rest, "/")
		return apierrors.NewNotFound(schema.GroupResource{Resource: "replicas"}, name)
	}
	if rest, ok := strings.CutPrefix(path, forkPath); ok && w.fork == nil {
		name, _, _ := strings.Cut(rest, "/")
		if _, k := w.running.forks.get(name); k != nil {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
				Message: "the kept fork " + name + " is not open: only requests with a token of the fork, or of users who may post " + forksPath + "/" + name + ", open it",
			}}
		}
		return forkNotFound(name)
	}
	return nil
}

// without returns the request with a path that lacks the prefix.
func without(q *http.Request, prefix string) *http.Request {
	next, u := new(http.Request), new(url.URL)
	*next, *u = *q, *q.URL
	next.URL = u
	if u.Path = strings.TrimPrefix(u.Path, prefix); u.Path == "" {
		u.Path = "/"
	}
	// A name has no character that is escaped. A path whose prefix is written in another way is valid
	// without RawPath, too.
	if raw, ok := strings.CutPrefix(u.RawPath, prefix); ok {
		u.RawPath = raw
	} else {
		u.RawPath = ""
	}
	return next
}

// noFork answers a request for a fork that does not exist.
func noFork(rw http.ResponseWriter, name string) { refuse(rw, forkNotFound(name)) }

func forkNotFound(name string) *apierrors.StatusError {
	err := apierrors.NewNotFound(schema.GroupResource{Resource: "forks"}, name)
	err.ErrStatus.Message = fmt.Sprintf("fork %q not found", name)
	return err
}

// noWorld answers a request for a fork that does not exist, or that is kept and cannot be opened. The client may have
// no right in the server, so the answer has no reason, which may name files.
func noWorld(rw http.ResponseWriter, name string, err error) {
	switch {
	case err == nil:
		noFork(rw, name)
	case errors.Is(err, ErrForkClosed):
		fail(rw, http.StatusServiceUnavailable, "the server is shutting down")
	case errors.Is(err, ErrForkMemory):
		fail(rw, http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, errKeptBusy):
		rw.Header().Set("Retry-After", "1")
		fail(rw, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // a client that is gone reads no answer
		fail(rw, http.StatusGatewayTimeout, "the kept fork "+name+" was not opened in the time of the request")
	default:
		fail(rw, http.StatusInternalServerError, "the kept fork "+name+" cannot be used: GET "+forksPath+"/"+name+" has the reason")
	}
}

// fail answers with a Status.
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
	answer(rw, int(s.Code), s)
}

// answer writes an answer as JSON.
func answer(rw http.ResponseWriter, code int, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":500}`)
	}
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	rw.Write(append(b, '\n')) // an error is one of the connection
}

// serveForks answers requests to forksPath. The user may send them.
func (r *running) serveForks(rw http.ResponseWriter, q *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(q.URL.Path, forksPath), "/")
	switch {
	case name == "" && q.Method == http.MethodGet:
		answer(rw, http.StatusOK, forkapi.List{Forks: r.forks.describe()})
	case name == "" && q.Method == http.MethodPost:
		r.createFork(rw, q)
	case name == "" || q.Method != http.MethodGet && q.Method != http.MethodDelete:
		fail(rw, http.StatusMethodNotAllowed, "forks are listed with GET "+forksPath+", made with POST "+forksPath+", and deleted with DELETE "+forksPath+"/NAME")
	default:
		r.oneFork(rw, q, name)
	}
}

// oneFork returns or deletes a fork.
func (r *running) oneFork(rw http.ResponseWriter, q *http.Request, name string) {
	w, k := r.forks.get(name)
	var described forkapi.Fork
	switch {
	case k != nil:
		described = k.describe()
	case w != nil:
		described = w.describe()
	default:
		noFork(rw, name)
		return
	}
	if q.Method == http.MethodDelete {
		_, err := r.forks.delete(name)
		switch {
		case errors.Is(err, errForkLog):
			fail(rw, http.StatusInternalServerError, "the fork is not deleted: "+err.Error())
			return
		case err != nil:
			r.root.server.logOf(logForks).Warn("a fork was not closed cleanly", "fork", name, "err", err)
		}
	}
	answer(rw, http.StatusOK, described)
}

// createFork makes a fork as the body says.
func (r *running) createFork(rw http.ResponseWriter, q *http.Request) {
	var asked forkapi.Request
	body, err := io.ReadAll(q.Body)
	if err == nil && len(body) > 0 {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields() // a misspelt keep would make a fork that ends with the server
		if err = d.Decode(&asked); err == nil && d.More() {
			err = errors.New("it goes on after the object")
		}
	}
	if err != nil {
		fail(rw, http.StatusBadRequest, "the request for a fork cannot be read: "+err.Error())
		return
	}
	o := ForkOptions{Name: asked.Name, Controllers: asked.Controllers, Keep: asked.Keep}
	if asked.ResourceVersion != "" {
		if o.At, err = strconv.ParseUint(asked.ResourceVersion, 10, 64); err != nil || o.At == 0 {
			fail(rw, http.StatusBadRequest, "the resourceVersion of a fork is not a number above zero")
			return
		}
	}
	parent := r.root
	if asked.From != "" {
		if parent, err = r.forks.find(q.Context(), asked.From); err != nil || parent == nil {
			noWorld(rw, asked.From, err)
			return
		}
	}
	w, err := parent.Fork(q.Context(), o)
	switch {
	case err == nil:
		if k := w.fork.kept; k != nil {
			k.held.Store(false) // the client has a name, not the world
		}
		answer(rw, http.StatusCreated, w.describe())
	case errors.Is(err, ErrForkExists):
		exists := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "forks"}, asked.Name)
		exists.ErrStatus.Message = fmt.Sprintf("fork %q already exists", asked.Name)
		refuse(rw, exists)
	case errors.Is(err, ErrTooManyForks), errors.Is(err, ErrTooManyKept):
		fail(rw, http.StatusTooManyRequests, err.Error())
	case errors.Is(err, ErrForkMemory), errors.Is(err, store.ErrNoSpace), errors.Is(err, syscall.ENOSPC):
		fail(rw, http.StatusInsufficientStorage, err.Error())
	case errors.Is(err, context.DeadlineExceeded):
		fail(rw, http.StatusGatewayTimeout, "the fork was not made in the time of the request")
	case errors.Is(err, errForkLog):
		fail(rw, http.StatusInternalServerError, err.Error())
	case errors.As(err, new(*store.ExpiredError)):
		fail(rw, http.StatusGone, err.Error())
	default:
		fail(rw, http.StatusBadRequest, err.Error())
	}
}

// describe returns what clients see of a fork.
func (w *World) describe() forkapi.Fork {
	t := w.store.Stats()
	return forkapi.Fork{
		Name: w.fork.name, Parent: w.fork.parent, URL: w.URL(), Path: w.prefix(), Created: metav1.NewTime(w.fork.created),
		Base: strconv.FormatUint(uint64(w.fork.base), 10), BaseTime: w.fork.baseTime, ResourceVersion: strconv.FormatUint(uint64(t.Head), 10),
		Bytes: t.ObjectBytes + t.HistoryBytes, Kept: w.fork.kept != nil,
	}
}
