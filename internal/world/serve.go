package world

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/changes"
)

// dispatch passes a request for the world to its handler: for the present, for one of its replicas (/replica/), or for an
// instant (/at/).
func (w *World) dispatch(rw http.ResponseWriter, q *http.Request) {
	if rest, ok := strings.CutPrefix(q.URL.Path, changes.AtPrefix); ok {
		instant, _, _ := strings.Cut(rest, "/")
		prefix := changes.AtPrefix + instant
		w.handler.ServeAt(rw, without(q, prefix), instant, prefix)
		return
	}
	rest, ok := strings.CutPrefix(q.URL.Path, replicaPath)
	if !ok {
		w.handler.ServeHTTP(rw, q)
		return
	}
	name, _, _ := strings.Cut(rest, "/")
	r := w.replicas.get(name)
	if r == nil { // the world refuses the client or the path
		w.handler.ServeHTTP(rw, q)
		return
	}
	r.handler.ServeHTTP(rw, without(q, replicaPath+name))
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

// serve serves a request to a fork.
func (w *World) serve(rw http.ResponseWriter, r *http.Request) {
	if !w.fork.begin() {
		if w.fork.kept != nil { // perhaps because no request used it: the next one opens it again
			rw.Header().Set("Retry-After", "1")
			fail(rw, http.StatusServiceUnavailable, "the fork is being closed, please try again")
			return
		}
		noFork(rw, w.fork.name)
		return
	}
	defer w.fork.end()
	if err := w.use(); err != nil {
		w.process.logOf(logForks).Error("a fork cannot be opened", "fork", w.fork.name, "err", err)
		fail(rw, http.StatusInternalServerError, "the fork cannot be opened")
		return
	}
	w.dispatch(rw, r)
}
