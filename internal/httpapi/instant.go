package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// place is the part of a Handler that serves a request. The zero value is the Handler itself, in the present.
type place struct {
	// prefix was cut off the path, in addition to Config.Prefix.
	prefix string
	// replica serves reads that may be old; nil: the store does.
	replica *Replica
	// instant is the past state that the request reads; nil: the present.
	instant *instant
}

// instant is a past state that a request reads.
type instant struct {
	text     string         // as in the path
	revision store.Revision // zero before the request enters it
	time     time.Time      // of the change with the revision; zero: unknown
	now      time.Time      // for ages
	past     *past
}

// past is the part of an API that depends on the definitions of custom resources.
type past struct {
	catalog   *resource.Catalog
	documents *documents
	openAPI   http.Handler // nil: 404
}

// ServeAt serves the reads of the API as of an instant: a revision, or an RFC 3339 time, as in docs/formats/changes.md. All
// other requests are 405. The caller has cut the prefix off the path. The rights are those of the present.
func (h *Handler) ServeAt(w http.ResponseWriter, r *http.Request, text, prefix string) {
	h.handle(w, r, place{prefix: prefix, instant: &instant{text: text}})
}

// readOnly refuses writes to the past.
func (q *request) readOnly() error {
	if q.instant == nil && !q.h.c.ReadOnly || q.r.Method == http.MethodGet || q.r.Method == http.MethodHead {
		return nil
	}
	q.header()["Allow"] = []string{http.MethodGet + ", " + http.MethodHead}
	return errPast(cmp.Or(q.info.Verb, q.r.Method))
}

// errPast is the error of a request that the past does not serve.
func errPast(verb string) error {
	return refusal(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		verb+" is not possible here: the past is read-only", &metav1.StatusDetails{})
}

// enterInstant finds the revision and the catalog of the instant. It follows authorization, because its errors show how
// much history there is, and it has a seat, because it may read the log.
func (q *request) enterInstant() error {
	i := q.instant
	if i == nil || q.timeless() {
		return nil
	}
	ctx, cancel := context.WithTimeout(q.r.Context(), q.wait)
	defer cancel()
	if err := q.findInstant(ctx, i); err != nil {
		return q.noInstant(err)
	}
	c, err := q.h.c.Past(ctx, i.revision)
	if err != nil {
		return q.noInstant(err)
	}
	i.past = q.h.past(c)
	header := q.header()
	header[changes.RevisionHeader] = []string{strconv.FormatUint(uint64(i.revision), 10)}
	if !i.time.IsZero() {
		header[changes.TimeHeader] = []string{i.time.Format(time.RFC3339Nano)}
	}
	if q.info.IsResource {
		q.lookup()
	}
	return nil
}

// timeless reports whether the response is that of the present, whatever the instant: a health check, which takes no seat,
// and the version for clients without credentials, who learn nothing of the history.
func (q *request) timeless() bool {
	path := q.r.URL.Path
	return isHealth(path) || q.info.User.IsAnonymous() && (path == "/version" || path == "/version/")
}

// findInstant sets the revision and the times of the instant.
func (q *request) findInstant(ctx context.Context, i *instant) (err error) {
	s := q.store()
	if r, err := strconv.ParseUint(i.text, 10, 64); err == nil {
		i.revision = store.Revision(r)
	} else if i.now, err = time.Parse(time.RFC3339Nano, i.text); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("the instant %q is neither a revision nor a time as in RFC 3339", cut(i.text, 64)))
	}
	newest := s.Any()
	if i.revision > newest.Revision() || !i.now.IsZero() && s.Shared() {
		if newest, err = s.MostRecent(ctx); err != nil {
			return err
		}
	}
	switch now := q.h.c.Now(); {
	case i.now.After(now):
		return apierrors.NewBadRequest(fmt.Sprintf("the instant %s is later than now, which is %s", i.text, now.UTC().Format(time.RFC3339)))
	case i.revision > newest.Revision():
		return apierrors.NewBadRequest(fmt.Sprintf("the instant %d is later than the newest revision, which is %d", i.revision, newest.Revision()))
	case !i.now.IsZero():
		if i.revision, err = s.RevisionAt(ctx, i.now); err != nil {
			return err
		}
	}
	if floor, _ := s.Bounds(); i.revision < max(floor, 1) {
		return &store.ExpiredError{Revision: i.revision, Floor: floor}
	}
	if i.time, err = s.TimeOf(ctx, i.revision); err != nil {
		return err
	}
	if i.now.IsZero() {
		if i.now = i.time; i.now.IsZero() {
			i.now = q.h.c.Now()
		}
	}
	return nil
}

// noInstant returns the error of an instant that cannot be read.
func (q *request) noInstant(err error) error {
	var expired *store.ExpiredError
	if !errors.As(err, &expired) {
		return registry.ReadStatus(err)
	}
	first := strconv.FormatUint(uint64(max(expired.Floor, 1)), 10)
	q.header()[changes.FirstHeader] = []string{first}
	return apierrors.NewResourceExpired(fmt.Sprintf("the instant %s is no longer there: the first one that is left is revision %s", q.instant.text, first))
}

// pasts keeps the documents of old catalogs.
type pasts struct {
	mu  sync.Mutex
	all []*past // the one that was used last comes last
}

// maxPasts is the maximum number of old catalogs whose documents a handler keeps.
const maxPasts = 2

// past returns the documents of a catalog.
func (h *Handler) past(c *resource.Catalog) *past {
	if c == h.c.Catalog() {
		p := &past{catalog: c, documents: h.documents()}
		if h.c.PastOpenAPI != nil {
			p.openAPI = h.c.PastOpenAPI(c)
		}
		return p
	}
	h.pasts.mu.Lock()
	defer h.pasts.mu.Unlock()
	for i, p := range h.pasts.all {
		if p.catalog == c {
			h.pasts.all = append(append(h.pasts.all[:i:i], h.pasts.all[i+1:]...), p)
			return p
		}
	}
	p := &past{catalog: c, documents: newDocuments(c, h.documents().Documents)}
	if h.c.PastOpenAPI != nil {
		p.openAPI = h.c.PastOpenAPI(c)
	}
	if h.pasts.all = append(h.pasts.all, p); len(h.pasts.all) > maxPasts {
		h.pasts.all = append([]*past(nil), h.pasts.all[1:]...)
	}
	return p
}

// types returns the types that the request reads: those of the present, or of its instant. For an instant, enterInstant has
// run before.
func (q *request) types() *resource.Catalog {
	if q.instant != nil && q.instant.past != nil {
		return q.instant.past.catalog
	}
	return q.h.c.Catalog()
}

// documents returns the discovery documents of these types.
func (q *request) documents() *documents {
	if q.instant != nil {
		return q.instant.past.documents
	}
	return q.h.documents()
}

// openAPIHandler serves the OpenAPI documents of these types; nil: 404.
func (q *request) openAPIHandler() http.Handler {
	if q.instant != nil {
		return q.instant.past.openAPI
	}
	return q.h.c.OpenAPI
}

// now returns the time that ages refer to.
func (q *request) now() time.Time {
	if q.instant != nil {
		return q.instant.now
	}
	return q.h.c.Now()
}

// until returns the last revision of a watch as of an instant; zero: it has none.
func (q *request) until() (store.Revision, error) {
	if q.instant == nil || !q.query().Has("until") {
		return 0, nil
	}
	text := q.query().Get("until")
	r, err := strconv.ParseUint(text, 10, 64)
	newest := q.store().Any().Revision()
	switch until := store.Revision(r); {
	case err != nil:
		return 0, apierrors.NewBadRequest(fmt.Sprintf("until is no revision: %q", cut(text, 64)))
	case until < q.instant.revision:
		return 0, apierrors.NewBadRequest(fmt.Sprintf("until is %d, which is before the instant %d", until, q.instant.revision))
	case until > newest:
		return 0, apierrors.NewBadRequest(fmt.Sprintf("until is %d, which is later than the newest revision, %d", until, newest))
	default:
		return until, nil
	}
}

// ofInstant reports whether a path outside the API is served below the path of an instant. Documents and health checks are,
// pages about the process are not.
func ofInstant(path string) bool {
	switch path {
	case "/", "/index.html", "/version", "/version/", "/openapi/v2", "/openapi/v3":
		return true
	}
	return isHealth(path) || strings.HasPrefix(path, "/openapi/v3/") || strings.HasPrefix(path, "/version/")
}
