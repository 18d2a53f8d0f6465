// Package httpapi is the only home of net/http: routes, negotiation, limits,
// streaming, and the one place that writes an error as a Status. The way of a
// request: recover from panics, count it, limit it, authenticate, authorize,
// route to a verb of the registry, write the answer.
package httpapi

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Config is what a handler needs. Every field without "nil" or "empty" in its
// comment is required.
type Config struct {
	Registry *registry.Registry
	// Catalog returns what is served now.
	Catalog func() *resource.Catalog
	Authn   authn.Authenticator
	Authz   authz.Authorizer
	// AnonymousAuth: a request without credentials is system:anonymous, not 401.
	AnonymousAuth bool
	// Media are the serializations that there are.
	Media wire.Served
	// OpenAPI serves /openapi/v2 and /openapi/v3...; nil: 404.
	OpenAPI http.Handler
	// Pages are further documents, at paths of their own; empty: none.
	Pages []Page
	// Version is gitVersion of /version: "v1.36.3+tidemark.0.1.0".
	Version string
	// Commit and BuildDate are those of /version; empty: not known.
	Commit, BuildDate string
	// Checks are the named checks of /healthz, /livez and /readyz, in order, after
	// "ping", which is always there. Empty: only that one.
	Checks []Check
	// Metrics returns further metrics of /metrics. It is called for each scrape, must be
	// cheap, and is safe for concurrent use; nil: there are none.
	Metrics func() []Metric
	// Log gets panics and refused writes; nil: nothing is logged.
	Log *slog.Logger
	// Now is the clock of log lines and durations; nil: time.Now.
	Now func() time.Time
	// RepresentationBytes bounds the cache of representations that are not stored: compressed
	// lists, which get at most a third of it, and objects as protobuf, CBOR, table rows or
	// other versions. 64 MiB hold 10,000 pods. The cache counts as history. Zero: 96 MiB.
	RepresentationBytes int64
	// Limits: zero fields mean those of DefaultLimits.
	Limits Limits
}

// Check is one line of /readyz?verbose.
type Check struct {
	Name string
	// Live: part of /livez and /healthz too.
	Live bool
	// Probe tells what is wrong. It is called for each request, must be cheap, and
	// is safe for concurrent use.
	Probe func() error
	// Note is what else there is to say while nothing is wrong; nil: nothing. It is as
	// Probe.
	Note func() string
}

// Page is a document at a path outside the API, for GET alone.
type Page struct {
	// Path has no slash at its end; one that a client adds does not matter.
	Path string
	// Media is its media type, the only one there is.
	Media string
	// Read returns the document. It is called for each request, must be cheap, and is
	// safe for concurrent use.
	Read func() ([]byte, error)
}

// Metric is one value of /metrics.
type Metric struct {
	// Name is the whole name: "tidemark_store_revision".
	Name string
	Help string
	// Labels distinguish metrics of one name, which all have the same label names; nil:
	// there is one metric of the name.
	Labels map[string]string
	// Counter: the value only grows. Otherwise the metric is a gauge.
	Counter bool
	Value   float64
}
