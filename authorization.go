package tidemark

import (
	"log/slog"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// authorizer decides what users may do, and lists it.
type authorizer interface {
	authz.Authorizer
	authz.Ruler
}

// authorization returns the authorizer of all requests. It must be called after openStore.
func (s *Server) authorization(_ *running, _ *slog.Logger) (authorizer, error) {
	return authz.Masters{}, nil
}
