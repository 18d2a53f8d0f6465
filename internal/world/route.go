package world

import (
	"context"
	"errors"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// route passes a request to the world that its path names, and opens a kept fork for a request that may open it. All other
// requests for forks go to the root world. It authenticates, authorizes, audits and limits them like any request, and then
// refuses them.
func (f *forks) route(rw http.ResponseWriter, q *http.Request) {
	rest, ok := strings.CutPrefix(q.URL.Path, forkPath)
	if !ok {
		f.root.dispatch(rw, q)
		return
	}
	name, _, _ := strings.Cut(rest, "/")
	w, k := f.get(name)
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
			f.root.handler.ServeHTTP(rw, q)
			return
		}
		w = k.forRequest(rw, q)
	}
	if w != nil {
		w.serve(rw, without(q, w.prefix()))
	}
}

// forRequest opens the world for a request that admits allows. Nil: it has written an error.
func (k *kept) forRequest(rw http.ResponseWriter, q *http.Request) *World {
	ctx, cancel := context.WithTimeout(q.Context(), keptWait)
	defer cancel()
	w, err := k.use(ctx)
	if err != nil || w == nil {
		noWorld(rw, k.name, err)
		return nil
	}
	return w
}

// missing returns the error of a path of the root world that nothing is served at.
func (f *forks) missing(path string) error {
	if rest, ok := strings.CutPrefix(path, forkPath); ok {
		name, _, _ := strings.Cut(rest, "/")
		if _, k := f.get(name); k != nil {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
				Message: "the kept fork " + name + " is not open: only requests with a token of the fork, or of users who may post " + forksPath + "/" + name + ", open it",
			}}
		}
		return forkNotFound(name)
	}
	return nil
}

// noWorld refuses a request for a fork that does not exist, or that is kept and cannot be opened. The client may have
// no right in the server, so the response has no reason, which may name files.
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
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // a client that is gone reads no response
		fail(rw, http.StatusGatewayTimeout, "the kept fork "+name+" was not opened in the time of the request")
	default:
		fail(rw, http.StatusInternalServerError, "the kept fork "+name+" cannot be used: GET "+forksPath+"/"+name+" has the reason")
	}
}
