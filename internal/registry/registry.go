// Package registry holds the verbs: the only home of what get, list, watch,
// create, update, patch, apply, delete and deletecollection mean. Each verb is one straight function that reads
// from top to bottom in the order in which things happen. It knows nothing of
// HTTP; its errors are *apierrors.StatusError.
package registry

import (
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Registry is the verbs over a store. Its methods are safe for concurrent use.
type Registry struct {
	Store *store.Store
	// Now is the wall clock for creationTimestamp and timeouts; nil: time.Now.
	Now func() time.Time
	// BookmarkInterval is the time between bookmarks; zero: 60 s (row W8).
	BookmarkInterval time.Duration
	// FutureWait is how long a read waits for a revision that is not reached yet;
	// zero: 3 s (row P4).
	FutureWait time.Duration
	// Plugins are the admission chain, in order; empty: every write is admitted.
	Plugins []Plugin
	// Virtual answers for the resources that are not stored; nil: there are none.
	Virtual Virtual
	// GenerateName makes a name from metadata.generateName; nil: as Kubernetes does, with
	// five random characters.
	GenerateName func(base string) string

	schemas   sync.Map // *resource.Type, or weak.Pointer of a structural schema: *apply.Schema
	unchanged apply.Unchanged
}

func (r *Registry) now() time.Time {
	if r.Now != nil {
		return r.Now()
	}
	return time.Now()
}

func (r *Registry) futureWait() time.Duration {
	if r.FutureWait > 0 {
		return r.FutureWait
	}
	return 3 * time.Second
}

func (r *Registry) bookmarkInterval() time.Duration {
	if r.BookmarkInterval > 0 {
		return r.BookmarkInterval
	}
	return time.Minute
}
