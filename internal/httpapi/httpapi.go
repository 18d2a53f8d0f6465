// Package httpapi serves the Kubernetes API over HTTP: routes, authentication and
// authorization of requests, limits, content negotiation, streaming, and errors as Status.
// The registry and the store below it do not know net/http.
//
// chain.go has the steps of a request in their order; verbs.go the verbs of resources, connect.go connections to nodes,
// forward.go requests for extension servers, history.go the resource changes, instant.go the states of the past; page.go
// all other paths.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Config configures a Handler. A field is required unless its comment describes its zero value.
type Config struct {
	Registry *registry.Registry
	// Catalog returns the types that are served now.
	Catalog func() *resource.Catalog
	Authn   authn.Authenticator
	Authz   authz.Authorizer
	// Audit takes the audit events of requests; nil: there are none.
	Audit *audit.Auditor
	// Media are the enabled serializations.
	Media wire.Served
	// Aggregation knows the extension servers; nil: there are none.
	Aggregation *aggregation.Aggregator
	// OpenAPI serves /openapi/v2 and /openapi/v3...; nil: 404.
	OpenAPI http.Handler
	// ReadOnly: requests that write are 405, reviews too.
	ReadOnly bool
	// Past returns the types that the state of a revision served, with the errors of store.Exact.
	Past func(context.Context, store.Revision) (*resource.Catalog, error)
	// PastType returns the type in which the state of a revision stored the objects of a definition, and when the definition
	// was made; nil: there was none. Known returns the type of an earlier call with the same time, or nil.
	PastType func(ctx context.Context, definition string, r store.Revision, known func(made store.Revision) *resource.Type) (*resource.Type, store.Revision, error)
	// PastOpenAPI returns a handler as OpenAPI for the types of an old state, without those of extension servers; nil: 404.
	PastOpenAPI func(*resource.Catalog) http.Handler
	// Connections connect clients to nodes, pods and services; nil: 501.
	Connections *connect.Connector
	// UserHeaders are the headers in which front proxies name users, UserHeaderPrefixes the beginnings of others. No backend
	// of a connection gets them, as it gets none that begin with X-Remote-. Empty: there are no others.
	UserHeaders, UserHeaderPrefixes []string
	// Pages are further documents, at paths of their own; empty: none.
	Pages []Page
	// Mounts are further handlers, at paths of their own; empty: none.
	Mounts []Mount
	// Missing returns the error for a path that is not served, after authorization. It is safe for concurrent use. If it
	// is nil or returns nil, the response is 404.
	Missing func(path string) error
	// Prefix was cut off the paths of requests: "/fork/try". Audit events have it. Empty: none.
	Prefix string
	// Version is gitVersion of /version: "v1.37.2+tidemark.0.1.0".
	Version string
	// Kubernetes are the versions whose kinds the server has; zero: the newest.
	Kubernetes features.Versions
	// Commit and BuildDate are for /version; empty: unknown.
	Commit, BuildDate string
	// Checks are the named checks of /healthz, /livez and /readyz, in order. The check "ping"
	// is always there before them.
	Checks []Check
	// Exposed write metrics of other parts: values that are known at a scrape, and metrics with many series. They are called
	// for each scrape, must be cheap, and are safe for concurrent use; empty: there are none.
	Exposed []exposition.Source
	// Collectors collect the metrics that other parts count with Prometheus' library; empty: there are none.
	Collectors []prometheus.Collector
	// Log gets panics, refused writes, and requests at LevelFailedRequests and LevelRequests; nil: nothing is
	// logged.
	Log *slog.Logger
	// SlowRequest is the time from which on a request is logged at the level Info. Zero: requests of more than
	// half a second are logged at LevelFailedRequests.
	SlowRequest time.Duration
	// Tracer records a span for each request, with children for its parts; nil: there are none.
	Tracer trace.Tracer
	// Profiling serves the profiles of the process at /debug/pprof.
	Profiling bool
	// Now is the clock that ages in tables are computed with; nil: time.Now.
	Now func() time.Time
	// Random fills a slice with random bytes, for the audit IDs of requests that write. It is safe for concurrent
	// use. Nil: they are unpredictable, as those of other requests are.
	Random func([]byte)
	// RepresentationBytes bounds the cache of representations that are not stored: compressed
	// lists, which get at most a third of it, and objects as protobuf, CBOR, table rows or
	// other versions. 64 MiB hold 10,000 pods. The cache counts as history. Zero: 96 MiB.
	RepresentationBytes int64
	// PlainStreams: no watch is compressed.
	PlainStreams bool
	// ShardedLists: lists and watches can be limited to a shard.
	ShardedLists bool
	// Limits holds the limits. A zero field means its value in DefaultLimits.
	Limits Limits
	// Behind is set on a server whose objects are a copy of another one's, and reports whether the copy is far behind.
	// Writes and reads of the most recent state wait until the copy is as new as their arrival; all other requests do so
	// while Behind returns true. It is safe for concurrent use. Nil: the objects are no copy.
	Behind func() bool
	// Faults are the injected faults; nil: none.
	Faults *fault.Set
	// NoFairness: requests beyond Limits.InFlight and Limits.MutatingInFlight are refused. Otherwise
	// stored FlowSchemas and PriorityLevelConfigurations decide how requests share these seats.
	NoFairness bool
}

// Check is one line of /readyz?verbose.
type Check struct {
	Name string
	// Live: part of /livez and /healthz too.
	Live bool
	// Healthz: part of /healthz too, not of /livez: a restart would not help.
	Healthz bool
	// Probe returns why the check fails, or nil. It is called for each request, must be
	// cheap, and must be safe for concurrent use.
	Probe func() error
	// Note returns a text to show after a check that succeeds; nil: there is none. It has to
	// be as cheap and safe as Probe. Clients without credentials see the text, so it must name no host, user or path.
	Note func() string
}

// Page is a document at a path outside the API, for GET alone.
type Page struct {
	// Path has no slash at its end. Requests may add one.
	Path string
	// Media is its only media type.
	Media string
	// Read returns the document. It is called for each request, must be cheap, and must be
	// safe for concurrent use.
	Read func() ([]byte, error)
}

// Mount is a handler at a path outside the API. Requests to it are authenticated and authorized by their
// path and method, as RBAC has it for URLs that are no resources.
type Mount struct {
	// Path has no slash at its end. The handler gets requests to it and to all paths below it.
	Path string
	// BodyBytes limits the body of a request: 413 above. The handler gets a request when its whole body was
	// read. Zero: requests have no body.
	BodyBytes int64
	// Timeout limits the time of a request, with that in which the client reads the response. Zero: that of all
	// other requests.
	Timeout time.Duration
	// Stream: the response ends with the request or when watches end, and takes no seat.
	Stream  bool
	Handler http.Handler
}
