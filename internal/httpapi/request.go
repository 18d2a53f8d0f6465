package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// request is a request under way: used by the request's goroutine alone, and
// again for later requests.
type request struct {
	h *Handler
	w http.ResponseWriter
	r *http.Request

	start time.Time
	dog   watchdog

	place place
	typ   *resource.Type // nil: the path is of no known resource
	// catalog is the newest one in which typ was seen to be served; nil: not looked.
	catalog *resource.Catalog
	verb    string
	attrs   authz.Attributes

	values   url.Values // of the query; nil until asked for
	deadline time.Time  // zero: the request has no end
	cancel   context.CancelFunc
	ctx      context.Context // of the work for the request, with its deadline and its seat; nil until asked for

	// seat is what the request takes of the limits; nil: nothing.
	seat    *inflight.Seat
	left    bool // the seat was given back for good
	stays   bool // the request keeps its seat to its end: its answer is not counted
	failing bool // the answer is an error

	// A watch that is open; nil otherwise.
	watch *registry.Watch
	to    stream        // nil too when the events were sent already
	lines httpStream    // room for to
	route *routeMetrics // where its events and its end count
	shape *shape        // nil: whole objects in JSON

	// errors is how an error is negotiated.
	errors wire.Offer

	// The answer so far.
	wrote    bool
	bodyRead bool // to its end
	aborted  bool
	code     int
	bytes    int64

	// Room that would be allocated for each request otherwise: values of headers,
	// events of a watch that is mostly idle.
	auditID, length [1]string
	events          [spareEvents]registry.Event
}

func (q *request) begin(w http.ResponseWriter, r *http.Request) {
	q.w, q.r, q.start, q.errors = w, r, q.h.c.Now(), wire.Documents
}

// forget drops everything that belongs to the request.
func (q *request) forget() {
	q.w, q.r = nil, nil
	q.place, q.typ, q.catalog, q.verb, q.attrs = place{}, nil, nil, "", authz.Attributes{}
	q.values, q.deadline, q.errors = nil, time.Time{}, wire.Documents
	q.to, q.lines = nil, httpStream{}
	q.ctx, q.shape, q.left, q.failing, q.stays = nil, nil, false, false, false
	q.wrote, q.bodyRead, q.aborted, q.code, q.bytes = false, false, false, 0, 0
	q.auditID, q.length = [1]string{}, [1]string{}
	q.events = [spareEvents]registry.Event{}
}

// free gives back what the request holds of the limits.
func (q *request) free() {
	if q.watch != nil {
		q.watch.Close()
		q.watch = nil
		q.lines.leave()
	}
	if q.route != nil {
		q.route.running.Dec()
		q.route = nil
	}
	if q.cancel != nil {
		q.cancel()
		q.cancel = nil
	}
	if q.seat != nil {
		q.seat.Release()
		q.seat = nil
	}
}

// maxParameters bounds the parameters of a query. net/url reads none of them if they are
// more than 10,000: a dry-run would be none, and a selector would select everything.
const maxParameters = 1000

// serve is the way of every request.
func (q *request) serve() error {
	q.identify()
	if strings.Count(q.r.URL.RawQuery, "&") >= maxParameters {
		return apierrors.NewBadRequest(fmt.Sprintf("the query has more than %d parameters", maxParameters))
	}
	q.place = parsePath(q.r.URL.Path)
	if q.place.kind == resourcePath {
		q.verb = requestVerb(q.r.Method, &q.place, q.r.URL.RawQuery)
		q.typ = q.h.c.Catalog().Lookup(q.place.group, q.place.version, q.place.resource)
	} else {
		q.verb = lowerMethod(q.r.Method)
	}
	if err := q.authenticate(); err != nil {
		q.endConnection()
		return err
	}
	q.header()["X-Kubernetes-Pf-Flowschema-Uid"] = flowSchema
	q.header()["X-Kubernetes-Pf-Prioritylevel-Uid"] = priorityLevel
	if impersonates(q.r.Header) {
		if err := q.impersonate(); err != nil {
			return err
		}
	}
	if q.attrs.User == authn.Anonymous {
		q.endConnection()
	}
	if err := q.authorize(); err != nil {
		return err
	}
	if ok, err := q.takeSeat(); !ok {
		return err
	}
	if err := q.limitTime(); err != nil {
		return err
	}
	if q.place.kind == resourcePath {
		return q.resource()
	}
	return q.page()
}

// authenticate finds out who asks.
func (q *request) authenticate() error {
	user, err := q.h.c.Authn.Authenticate(q.r)
	switch {
	case err != nil:
		q.h.log().Debug("authentication failed", "path", q.r.URL.Path, "err", err)
		return errUnauthorized()
	case user == nil && !q.h.c.AnonymousAuth:
		return errUnauthorized()
	case user == nil:
		user = authn.Anonymous
	}
	q.attrs.User = user
	return nil
}

// authorize asks whether the user may: row A18.
func (q *request) authorize() error {
	p, a := &q.place, &q.attrs
	a.Verb, a.Path = q.verb, q.r.URL.Path
	if p.kind == resourcePath {
		a.IsResource = true
		a.Group, a.Version, a.Resource, a.Subresource = p.group, p.version, p.resource, p.sub
		a.Namespace, a.Name = p.namespace, p.name
		if a.Name == "" && a.Verb != verbCreate {
			a.Name = q.selectedName()
		}
	}
	return q.may(a)
}

// may asks whether a user may do what the attributes say.
func (q *request) may(a *authz.Attributes) error {
	allowed, reason := q.h.c.Authz.Authorize(a)
	if allowed {
		return nil
	}
	message := deniedMessage(a)
	if reason != "" {
		message += ": " + reason
	}
	return apierrors.NewForbidden(schema.GroupResource{Group: a.Group, Resource: a.Resource}, a.Name, errors.New(message))
}

func deniedMessage(a *authz.Attributes) string {
	if !a.IsResource {
		return fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path)
	}
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User.Name, a.Verb, what, a.Group, where)
}

// selectedName is the one name that a field selector asks for, which then counts
// as that of the request (row A16); empty: there is none.
func (q *request) selectedName() string {
	if !strings.Contains(q.r.URL.RawQuery, "fieldSelector") {
		return ""
	}
	text := q.query().Get("fieldSelector")
	if strings.Count(text, ",") >= maxTerms {
		return "" // it is refused later
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

// limitTime sets the request's deadline: row A17.
func (q *request) limitTime() error {
	if q.verb == verbWatch {
		return nil
	}
	limit := q.h.c.Limits.RequestTimeout
	if q.r.Method != http.MethodGet && q.r.Method != http.MethodHead {
		limit = min(limit, q.h.c.Limits.MutatingTimeout)
	}
	if _, ok := lookup(q.r.URL.RawQuery, "timeout"); ok {
		text := q.query().Get("timeout")
		asked, err := time.ParseDuration(text)
		if err != nil && text != "" {
			return apierrors.NewBadRequest("invalid timeout specified in the request URL - " + err.Error())
		}
		if asked > 0 {
			limit = min(limit, asked)
		}
	}
	q.deadline = time.Now().Add(limit)
	return nil
}

// context returns the context of the work for the request, which carries its deadline and
// its seat.
func (q *request) context() context.Context {
	switch {
	case q.ctx != nil:
	case q.deadline.IsZero():
		q.ctx, q.cancel = context.WithCancel(q.seated(q.r.Context()))
	default:
		q.ctx, q.cancel = context.WithDeadline(q.seated(q.r.Context()), q.deadline)
	}
	return q.ctx
}

// extend gives the request more time, from now on.
func (q *request) extend(d time.Duration) {
	if q.cancel != nil {
		q.cancel()
	}
	q.ctx, q.cancel, q.deadline = nil, nil, time.Now().Add(d)
}

// query returns the parameters; a part that is malformed is left out, as
// kube-apiserver does.
func (q *request) query() url.Values {
	if q.values == nil {
		q.values = q.r.URL.Query()
	}
	return q.values
}

// header is that of the answer.
func (q *request) header() http.Header { return q.w.Header() }

// accept is the Accept header, its lines joined.
func (q *request) accept() string {
	lines := q.r.Header["Accept"]
	if len(lines) == 1 {
		return lines[0]
	}
	return strings.Join(lines, ",")
}

// lowerMethod is the verb of a request outside the API.
func lowerMethod(method string) string {
	if method == http.MethodGet {
		return verbGet
	}
	return strings.ToLower(method)
}
