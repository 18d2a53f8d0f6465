package tidemark

import (
	"log/slog"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
)

// authorizer decides what users may do, and lists it.
type authorizer interface {
	authz.Authorizer
	authz.Ruler
}

// authorization returns the authorizer of all requests. It must be called after openStore.
func (s *Server) authorization(r *running, _ *slog.Logger) (authorizer, error) {
	r.rbac = rbac.New(r.store)
	return authz.Union{authz.Masters{}, r.rbac}, nil
}
