// Package registry holds the verbs: the only home of what get, list, watch,
// create, update, patch, apply, delete and deletecollection mean. Each verb is one straight function that reads
// from top to bottom in the order in which things happen. It knows nothing of
// HTTP; its errors are *apierrors.StatusError.
package registry

import (
	"context"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/apply"
	"github.com/tidemark-dev/tidemark/internal/inflight"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
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

// Target is what a request is about.
type Target struct {
	Type *resource.Type
	// Subresource is empty for the object itself.
	Subresource string
	// Namespace is empty for a kind without namespaces, and for a list over all of
	// them. Name is empty for a collection.
	Namespace, Name string
}

// key is the place of the object in its collection.
func (t Target) key() string {
	if t.Type.Namespaced {
		return t.Namespace + "/" + t.Name
	}
	return t.Name
}

// split is the reverse of key.
func (t Target) split(key string) (namespace, name string) {
	if !t.Type.Namespaced {
		return "", key
	}
	namespace, name, _ = strings.Cut(key, "/")
	return namespace, name
}

// stored returns the type whose strategy applies to a write: the stored version, unless
// objects are converted per request.
func (t Target) stored() *resource.Type { return t.Type.StrategyVersion() }

// notFound is the answer to an object that is not there.
func (t Target) notFound() error {
	return apierrors.NewNotFound(t.Type.GroupResource(), t.Name)
}

// Body is what a client sent.
type Body struct {
	Media wire.MediaType
	Bytes []byte
}

// Object is the answer to a verb that answers with one object.
type Object struct {
	// Stored is of Target.Type, or of its Stored type: then the representation has
	// to be converted (wire).
	Stored *store.Object
	// Status is set instead when the answer is a Status (a deletion).
	Status *metav1.Status
	// Created: the answer's code is 201.
	Created bool
	// Accepted: the answer's code is 202, the deletion goes on (row D5).
	Accepted bool
	// Warnings go out as headers.
	Warnings []string
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

// Get reads one object: rows P4, P6, P7.
func (r *Registry) Get(ctx context.Context, t Target, resourceVersion string) (Object, error) {
	class, revision, err := parseVersion(resourceVersion)
	if err != nil {
		return Object{}, err
	}
	if s := r.source(t); s != nil {
		return s.get(ctx, t)
	}
	state, err := r.state(ctx, getTable[class], revision)
	if err != nil {
		return Object{}, err
	}
	o := state.Get(t.Type.Collection, t.key())
	if o == nil {
		return Object{}, t.notFound()
	}
	return Object{Stored: o}, nil
}

// state is the answer to the reads that need no history.
func (r *Registry) state(ctx context.Context, how read, revision store.Revision) (*store.State, error) {
	switch how {
	case anyState:
		return r.Store.Any(), nil
	case notOlderThan:
		var s *store.State
		err := r.waitFor(ctx, revision, func() (err error) {
			s, err = r.Store.NotOlderThan(ctx, revision, r.futureWait())
			return err
		})
		return s, status(err)
	}
	s, err := r.Store.MostRecent(ctx)
	return s, status(err)
}

// waitFor calls f, which waits until the revision is there. Meanwhile the request has no
// seat.
func (r *Registry) waitFor(ctx context.Context, revision store.Revision, f func() error) error {
	if revision <= r.Store.Any().Revision() {
		return f()
	}
	return inflight.Wait(ctx, 0, f)
}
