package httpapi

import (
	"net/http"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Replica is a Handler whose reads that may be old go to a replica of the store. Everything else is that of
// the Handler: authentication and authorization, admission, limits, faults, the catalog.
type Replica struct {
	h           *Handler
	reads       *store.Replica
	prefix      string
	collections []string
}

// Replica returns a handler for a replica of the store. It reads the named collections from the replica, and others from
// the store. Without names, it reads all from the replica. The prefix was cut off the paths of requests, in addition to
// Config.Prefix; audit events have it.
func (h *Handler) Replica(reads *store.Replica, prefix string, collections []string) *Replica {
	return &Replica{h, reads, prefix, collections}
}

// behind reports whether reads of a collection go to the replica.
func (p *Replica) behind(collection string) bool {
	return len(p.collections) == 0 || slices.Contains(p.collections, collection)
}

// ServeHTTP implements http.Handler.
func (p *Replica) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.h.handle(w, r, place{prefix: p.prefix, replica: p})
}
