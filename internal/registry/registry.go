// Package registry holds the verbs: the only home of what get, list, watch,
// create, update and delete mean. Each verb is one straight function that reads
// from top to bottom in the order in which things happen. It knows nothing of
// HTTP; its errors are *apierrors.StatusError.
package registry

import (
	"context"
	"iter"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// Warnings go out as headers.
	Warnings []string
}

// WriteOptions are the parameters of create and update, checked here.
type WriteOptions struct {
	DryRun          []string
	FieldManager    string
	FieldValidation string
	// UserAgent names the manager when FieldManager is empty.
	UserAgent string
}

// Get reads one object. Rows P4, P6, P7; the table of readtable.go.
func (r *Registry) Get(ctx context.Context, t Target, resourceVersion string) (Object, error) {
	panic("contract")
}

// List is a list that is ready to be written: what stands before the items is
// known.
type List struct {
	// Type is that of the items, which are in its stored version.
	Type      *resource.Type
	Revision  store.Revision
	Continue  string
	Remaining *int64
	// Items yields the items once; an error ends the list, whose answer then has to
	// be cut off.
	Items iter.Seq2[*store.Object, error]
	// Close releases what the list holds. It has to be called.
	Close func()
}

// List reads a collection: the table of readtable.go decides from which state.
func (r *Registry) List(ctx context.Context, t Target, o *metainternal.ListOptions) (*List, error) {
	panic("contract")
}

// Event is what a watch sends. Object is nil for BOOKMARK and ERROR.
type Event struct {
	Type   EventType
	Object *store.Object
	// Revision is that of a bookmark; InitialEventsEnd asks for the annotation.
	Revision         store.Revision
	InitialEventsEnd bool
	// Status is that of an ERROR; the watch has ended.
	Status *metav1.Status
}

// EventType is one of the five of the protocol.
type EventType string

const (
	Added    EventType = "ADDED"
	Modified EventType = "MODIFIED"
	Deleted  EventType = "DELETED"
	Bookmark EventType = "BOOKMARK"
	Error    EventType = "ERROR"
)

// Watch is a running watch, used by one goroutine.
type Watch struct{ unfinished }

// Watch starts a watch: rows W1 to W15. Options that are not valid are errors
// here; what the protocol reports in the stream (410, 504) comes as an ERROR
// event.
func (r *Registry) Watch(ctx context.Context, t Target, o *metainternal.ListOptions) (*Watch, error) {
	panic("contract")
}

// Next appends the events that are there to buf, waits for the first one when
// there is none, and returns the slice. It returns io.EOF at the end of the watch
// (timeoutSeconds, the context, an ERROR event before). It never appends more
// than the capacity of buf, which is at least one.
func (w *Watch) Next(ctx context.Context, buf []Event) ([]Event, error) { panic("contract") }

// Close releases the watch. It is idempotent.
func (w *Watch) Close() { panic("contract") }

// Create stores a new object: rows A7 to A9, A13, A14, G4 to G6.
func (r *Registry) Create(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	panic("contract")
}

// Update replaces an object, or its status: rows A3, A8, A11, D11, G1 to G6.
func (r *Registry) Update(ctx context.Context, t Target, b Body, o WriteOptions) (Object, error) {
	panic("contract")
}

// Delete removes an object: rows D1, D6, D7.
func (r *Registry) Delete(ctx context.Context, t Target, o *metav1.DeleteOptions) (Object, error) {
	panic("contract")
}

type unfinished struct{}
