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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

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
	// Completing are what completes new objects of a collection, in this order, before
	// they are validated, with what no field manager owns; nil: nothing does.
	Completing map[string][]Completion
	// Admission is asked about each write, in this order; empty: every write is
	// admitted.
	Admission []Step
	// Reserve completes objects of a collection with what follows from others, before they
	// are validated: addresses that no two have, the class that is the default. Nil: there
	// is nothing of that sort.
	Reserve map[string]Reserve
	// Following makes the version that follows an object of a collection in the step that
	// stores it. Nil: nothing follows.
	Following map[string]Follow
	// Actions answer creates that store nothing under the name they are sent to; nil:
	// there are none.
	Actions map[Place]Action
	// Sources make the objects of kinds that are read and never stored; nil: there are
	// none.
	Sources map[schema.GroupResource]Source

	schemas   sync.Map // *resource.Type, or weak.Pointer of a structural schema: *apply.Schema
	unchanged apply.Unchanged
	writes    writes
}

// Reserve completes an object in the stored version that shall be stored, of which old
// is what is stored, nil for a new one. No field manager owns what it sets. Release is
// called when the write has ended, whether the object is stored then or not; nil: there
// is nothing to let go of. It is safe for concurrent use.
type Reserve func(next, old runtime.Object, dryRun bool) (release func(), err error)

// Follow makes the version that follows an object about to be stored, of which old is
// what is stored, nil for a new one. Then has another status, and may lack what is
// neither metadata nor status; nil: nothing follows. Release is called when the write has
// ended, whether the object is stored then or not; nil: there is nothing to let go of. It
// is safe for concurrent use.
type Follow func(o, old runtime.Object) (then runtime.Object, release func())

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
	if r.Reads(t) {
		return r.getSource(ctx, t)
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
