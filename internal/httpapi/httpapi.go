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
)

// Config is what a handler needs. Every field without "nil" in its comment is
// required.
type Config struct {
	Registry *registry.Registry
	// Catalog returns what is served now.
	Catalog func() *resource.Catalog
	Authn   authn.Authenticator
	Authz   authz.Authorizer
	// AnonymousAuth: a request without credentials is system:anonymous, not 401.
	AnonymousAuth bool
	// OpenAPI serves /openapi/v2 and /openapi/v3...; nil: 404.
	OpenAPI http.Handler
	// Version is gitVersion of /version: "v1.36.3+tidemark.0.1.0".
	Version string
	// Checks are the named checks of /healthz, /livez and /readyz, in order.
	Checks []Check
	Log    *slog.Logger
	Now    func() time.Time
	Limits Limits
}

// Check is one line of /readyz?verbose.
type Check struct {
	Name string
	// Live: part of /livez too.
	Live  bool
	Probe func() error
}
