package httpapi

import (
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Replica is a Handler whose reads that may be old go to a replica of the store. Everything else is that of
// the Handler: authentication and authorization, admission, limits, faults, the catalog.
type Replica struct {
	h      *Handler
	reads  *store.Replica
	prefix string
}

// Replica returns a handler for a replica of the store. The prefix was cut off the paths of requests, in
// addition to Config.Prefix; audit events have it.
func (h *Handler) Replica(reads *store.Replica, prefix string) *Replica {
	return &Replica{h, reads, prefix}
}

// ServeHTTP implements http.Handler.
func (p *Replica) ServeHTTP(w http.ResponseWriter, r *http.Request) { p.h.handle(w, r, p) }
