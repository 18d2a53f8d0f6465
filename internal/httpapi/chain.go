package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// This file has the steps that every request passes before a verb or a document serves it.
// The first step that fails decides the response.

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.handle(w, r, place{}) }

// handle responds to a request that was sent to a place.
func (h *Handler) handle(w http.ResponseWriter, r *http.Request, at place) {
	h.traffic.begin()
	q := h.requests.Get().(*request)
	q.begin(w, r)
	q.place = at
	defer q.end()
	err := q.serve()
	if err == nil && q.to != nil {
		err = q.pull() // a watch is open
	}
	if err != nil {
		q.fail(err)
	}
}

// serve responds to a request, or opens a watch. Audit events begin after authentication, which
// gives them their user. A request that is not authenticated has one, too.
func (q *request) serve() error {
	q.identify()
	q.readInfo()
	if err := q.refused(); err != nil {
		return err
	}
	if q.r.Header[kubelet.Marker] != nil {
		return refusal(http.StatusLoopDetected, "", "this server is an API server and no kubelet", nil)
	}
	for _, step := range [...]func(*request) error{
		(*request).catchUpFirst,
		(*request).authenticate,
		(*request).readSelectors,
		(*request).beginAudit,
		(*request).readOnly,
		(*request).checkQuery,
		(*request).impersonate,
		(*request).classify,
		(*request).authorize,
		(*request).caughtUp,
		(*request).limitTime,
		(*request).injectFault,
		(*request).takeSeat,
		(*request).enterInstant,
	} {
		if err := step(q); err != nil {
			return err
		}
	}
	if to := q.extension(); to != nil {
		return q.forward(to)
	}
	if q.info.IsResource {
		return q.resource()
	}
	q.isPage = true
	return q.page()
}

// refused returns an error if the server is about to stop and lets no new request begin. The client may try another
// server; its connection ends.
func (q *request) refused() error {
	if path := q.r.URL.Path; !q.h.root.refusing.Load() || isHealth(path) || path == "/metrics" || path == slisPath {
		return nil
	}
	q.header()["Connection"] = closeConnection
	return apierrors.NewTooManyRequests("the server is shutting down, please try again later", refusedSeconds)
}

// refusedSeconds is the Retry-After of requests that come while the server stops.
const refusedSeconds = 5

// end ends every request: it recovers from a panic, counts the request, and releases everything
// that the request held.
func (q *request) end() {
	v := recover()
	if v != nil {
		q.recovered(v)
	}
	q.free()
	q.auditComplete()
	if q.r.ProtoMajor == 1 { // net/http sends the rest of the response
		q.setWriteTimeout(q.h.c.Limits.WriteTimeout)
	}
	q.h.root.slowest.note(q, q.h.metrics.done(q))
	if v == http.ErrAbortHandler || q.aborted {
		q.h.metrics.abort(q)
	}
	q.log()
	q.endSpan()
	q.h.traffic.end()
	lost := q.lost
	if v == nil {
		q.endAudit()
		q.forget()
		q.h.requests.Put(q)
		if lost {
			panic(http.ErrAbortHandler)
		}
		return
	}
	// Another goroutine may still hold a part of the request: it is not used again.
	if v == http.ErrAbortHandler || q.aborted {
		panic(http.ErrAbortHandler)
	}
}

// recovered responds to a panic with 500. A response that has begun is broken off.
func (q *request) recovered(v any) {
	if v == http.ErrAbortHandler {
		return
	}
	q.h.log().Error("panic in a request", "verb", q.loggedVerb(), "path", q.loggedPath(), "audit-ID", q.auditID[0], "panic", v,
		"stack", string(debug.Stack()))
	q.auditPanic(v)
	if q.wrote {
		q.aborted = true
		return
	}
	q.fail(errPanic())
}

// maxParameters bounds the parameters of a query. net/url reads none of them if they are
// more than 10,000: then a dry-run would store its object, and a selector would select
// everything.
const maxParameters = 1000

// checkQuery refuses a query with too many parameters.
func (q *request) checkQuery() error {
	if strings.Count(q.r.URL.RawQuery, "&") >= maxParameters {
		return apierrors.NewBadRequest(fmt.Sprintf("the query has more than %d parameters", maxParameters))
	}
	return nil
}

// readInfo reads the attributes of the request from its path, and the verb.
func (q *request) readInfo() {
	q.info = newRequestInfo(q.r)
	if q.info.IsResource {
		q.lookup()
	}
}

// lookup finds the resource in the catalog; nil: it is not served. Before the request enters its instant, it finds the
// resource of the present, which is good enough to estimate the work.
func (q *request) lookup() {
	q.typ = q.types().Lookup(q.info.Group, q.info.Version, q.info.Resource)
}

// authenticate finds the user. Connections of clients that are not authenticated end soon.
func (q *request) authenticate() error {
	var user *authn.User
	var err error
	behind := q.decide(func() bool {
		user, err = q.h.c.Authn.Authenticate(q.r)
		return user != nil
	})
	if err != nil {
		q.h.log().Debug("authentication failed", "path", q.loggedPath(), "err", err)
	}
	if user == nil || user.IsAnonymous() {
		q.endConnection()
		if w := authn.Warning(q.r); w != "" {
			q.header()["Warning"] = warningHeaders([]string{w})
		}
	}
	if user == nil {
		q.auditRefused()
		switch {
		case errors.Is(behind, errCrowded):
			return errCrowded
		case errors.Is(err, authn.ErrBusy):
			return apierrors.NewTooManyRequests(authn.ErrBusy.Error(), 1)
		}
		return errUnauthorized()
	}
	q.info.User = user
	q.beginSpan()
	q.lap(&q.parts.authentication)
	return nil
}

// authorize returns an error unless the user has the right to the request.
func (q *request) authorize() error {
	if q.asksChanges() {
		err := q.authorizeChanges()
		q.lap(&q.parts.authorization)
		switch {
		case err == nil:
			q.audited.decided(authz.Allow, "", nil)
		case apierrors.IsForbidden(err):
			q.audited.decided(authz.NoOpinion, "", nil)
		}
		return err
	}
	return q.may(&q.info.Attributes)
}

// may returns an error unless the user has the right with these attributes. If the authorizers
// could not decide, the error is 500: a client that gets 403 would not try again.
func (q *request) may(a *authz.Attributes) error {
	began := time.Now()
	var decision authz.Decision
	var reason string
	var err error
	behind := q.decide(func() bool {
		decision, reason, err = q.h.c.Authz.Authorize(q.r.Context(), a)
		return decision == authz.Allow
	})
	if errors.Is(behind, errCrowded) {
		reason, err = "", errCrowded
	}
	if a == &q.info.Attributes { // not a further permission that the request needs
		q.h.metrics.decided(decision, err, time.Since(began))
		q.lap(&q.parts.authorization)
		q.audited.decided(decision, reason, err)
	}
	switch {
	case decision == authz.Allow:
		return nil
	case errors.Is(err, errCrowded):
		return errCrowded
	case errors.Is(err, authz.ErrBusy):
		return authz.Undecided(err)
	case err != nil:
		return errUndecided(q.r, err)
	}
	return authz.Forbidden(a, reason)
}

// decide is store.Decide for a decision of the request before it has a seat: a token, a permission or a resource may be
// new.
func (q *request) decide(decide func() (final bool)) error {
	return q.store().Decide(q.arriving(), decide)
}

// arriving returns the context of the steps before the request has a seat.
func (q *request) arriving() context.Context {
	if q.arrival == nil {
		return q.r.Context()
	}
	return store.Arrive(q.r.Context(), q.arrival, q.enter)
}

// Requests wait for another server before they have a seat, each with a connection. If that server does not respond, they
// wait for up to 10 seconds.
const (
	// maxWaiting is the maximum number of requests that wait.
	maxWaiting = 4096
	// maxUnknownWaiting is the number of waiting requests beyond which a request without credentials, or with some that
	// are invalid by the state at hand, does not wait. So such requests leave room for others.
	maxUnknownWaiting = 256
)

// errCrowded is the error of requests beyond these limits.
var errCrowded error = apierrors.NewTooManyRequests("too many requests wait for the server that has the newest state, please try again later", 1)

// enter counts the request among those that wait without a seat.
func (q *request) enter() (leave func(), err error) {
	waiting := &q.h.root.waiting
	leave = func() { waiting.Add(-1) }
	if n := waiting.Add(1); n > maxWaiting || n > maxUnknownWaiting && !q.isKnown() {
		leave()
		return nil, errCrowded
	}
	return leave, nil
}

// isKnown reports whether the request has credentials that are valid by the state at hand.
func (q *request) isKnown() bool {
	user := q.info.User
	if user == nil {
		user, _ = q.h.c.Authn.Authenticate(q.r)
	}
	return user != nil && !user.IsAnonymous()
}

// catchUpFirst waits, on a server whose objects are a copy of another one's, until the copy has all
// writes acknowledged before the request arrived. So authentication, authorization, admission and
// reads use a state that is as new as the request. If that fails, caughtUp returns the error after
// authorization, and other errors come first.
func (q *request) catchUpFirst() error {
	if q.h.c.Behind != nil && q.needsCurrent() {
		_, _ = q.store().MostRecent(q.arriving()) // the arrival keeps the error
	}
	return nil
}

// needsCurrent reports whether the state at hand may be too old for the request.
func (q *request) needsCurrent() bool {
	switch path := q.r.URL.Path; {
	case q.r.Method != http.MethodGet && q.r.Method != http.MethodHead:
		return true
	case isHealth(path), path == "/metrics", path == slisPath:
		return false
	case q.info.IsResource && q.info.Verb != verbWatch:
		version, _ := lookup(q.r.URL.RawQuery, "resourceVersion")
		page, _ := lookup(q.r.URL.RawQuery, "continue")
		if version == "" && page == "" {
			return true
		}
	}
	return q.h.c.Behind()
}

// caughtUp returns the error of catchUpFirst. It follows authorization, because the error names the other server.
func (q *request) caughtUp() error {
	switch err := q.arrival.Err(); {
	case err == nil || q.h.c.Behind == nil:
		return nil
	case errors.Is(err, errCrowded):
		return errCrowded
	case q.r.Method != http.MethodGet && q.r.Method != http.MethodHead:
		return registry.WriteStatus(err)
	default:
		return registry.ReadStatus(err)
	}
}

// readSelectors gives authorization the selectors of a list, a watch or a deletecollection. A
// list or a watch of one name is authorized like a request for the object. The deprecated paths
// below watch/ have no selectors. Users without the right to the list get here too, so long selectors are not
// parsed. The error is always nil.
func (q *request) readSelectors() error {
	a := &q.info
	switch {
	case !a.IsResource, a.Verb != verbList && a.Verb != verbWatch && a.Verb != verbDeleteCollection, !a.collection, a.watch:
		return nil
	case !strings.Contains(q.r.URL.RawQuery, "Selector") && !strings.Contains(q.r.URL.RawQuery, "%"): // a name may have escapes
		return nil
	}
	v := q.query()
	a.FieldSelector, a.LabelSelector = v.Get("fieldSelector"), v.Get("labelSelector")
	if a.Verb == verbDeleteCollection {
		return nil
	}
	if name := selectedName(a.FieldSelector); name != "" {
		a.Name = name
	}
	return nil
}

// maxNamingSelector is the maximum length of a field selector that authorization reads a name from, in bytes. A longer
// one requires the right to list all objects.
const maxNamingSelector = 4 << 10

// selectedName returns the one name that a field selector selects, or "".
func selectedName(text string) string {
	if text == "" || len(text) > maxNamingSelector {
		return ""
	}
	s, err := fields.ParseSelector(text)
	if err != nil {
		return ""
	}
	name, ok := s.RequiresExactMatch("metadata.name")
	if !ok || nameFault(name) != "" {
		return ""
	}
	return name
}

// limitTime sets the request's deadline. Watches have none.
func (q *request) limitTime() error {
	q.wait = q.h.c.Limits.RequestTimeout
	if q.info.Verb == verbWatch {
		return nil
	}
	if _, ok := lookup(q.r.URL.RawQuery, "timeout"); ok {
		text := q.query().Get("timeout")
		asked, err := time.ParseDuration(text)
		if err != nil && text != "" {
			return apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
		if asked > 0 {
			q.wait = min(q.wait, asked)
		}
	}
	q.deadline = time.Now().Add(q.wait)
	return nil
}

// limitWork limits the time of a write once it executes.
func (q *request) limitWork() {
	if q.r.Method == http.MethodGet || q.r.Method == http.MethodHead || q.deadline.IsZero() {
		return
	}
	if most := time.Now().Add(q.h.c.Limits.MutatingTimeout); most.Before(q.deadline) {
		q.deadline = most
	}
}
