// Package resource describes what a server serves. A Type is data: one value
// says everything that routing, discovery, OpenAPI, authorization and the verbs
// need to know of one resource at one version. Built-in kinds, custom resources
// and aggregated APIs differ in who supplies the value, not in the code that
// serves it. A Catalog is the immutable set of what is served now.
package resource

import (
	"context"
	"net/url"
	"slices"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Type is one resource of one served group and version. It is immutable once it
// is part of a Catalog.
type Type struct {
	// ID tells the type from all others of the process, those of other catalogs among
	// them: what is kept of objects names it, and does not keep the type. The first
	// catalog that it is a part of gives it one; zero: it is in none.
	ID uint64

	Group, Version string
	// Kind is that of one object, ListKind of a list; empty: Kind + "List".
	Kind, ListKind string
	// Resource is the plural in the URL, Singular its singular ("" never).
	Resource, Singular string
	ShortNames         []string
	Categories         []string
	Namespaced         bool
	// Verbs are those of discovery, sorted.
	Verbs []string
	// Subresources are sorted by name.
	Subresources []Subresource

	// Collection names the objects in the store: the group-resource, as
	// "configmaps" or "deployments.apps". Types of different versions that serve the
	// same objects share it. Empty for a virtual resource, which is answered and
	// never stored: what is sent to it needs no name.
	Collection string

	// Stored is the type whose version the stored bytes have; nil when it is this
	// one. Then ToStored and FromStored convert; they may use their argument up. A
	// webhook that they call is given up when the context is done.
	// What a client sends is first defaulted in its own version (Default), then
	// converted. All later steps are those of the stored version: the status that is
	// emptied or kept, Stored.PrepareCreate, Stored.PrepareUpdate.
	Stored     *Type
	ToStored   func(context.Context, runtime.Object) (runtime.Object, error)
	FromStored func(context.Context, runtime.Object) (runtime.Object, error)
	// Settled tells for sure of a stored value that FromStored would change nothing of
	// it; nil: that is not known.
	Settled func(value []byte) bool
	// FromStoredAll is FromStored of several objects, in their order, where that costs
	// less than one after the other: somebody else is asked. Nil: it does not.
	FromStoredAll func(context.Context, []runtime.Object) ([]runtime.Object, error)
	// Versions are the types of all versions of the same objects, this one among them, and
	// those that are not served (any more): who owns what may be told in each of them.
	// Nil: there is no other.
	Versions []*Type

	// Fields can be selected by, beside metadata.name and metadata.namespace. The
	// latter is that of objects in namespaces: kinds without namespaces have "" there.
	Fields []Field
	// FieldError says that a label is not one of Fields: a format for fmt with one
	// string. Empty: the kind has no such words of its own, and whatever is not known
	// is "X" is not a known field selector: only "metadata.name",
	// "metadata.namespace". A kind that has them and no namespaces does not know
	// metadata.namespace either.
	FieldError string

	// OwnSteps: the steps between reading and storing are those of this version, not of
	// the stored one: an object is converted when it is read, and again when it is
	// encoded.
	OwnSteps bool

	// New makes an empty object.
	New func() runtime.Object
	// Decode reads an object from JSON that a client sent, where New does not say which
	// members there are. Complaints are those of field validation (rows F1 to F5). Nil:
	// New says.
	Decode func(body []byte) (o runtime.Object, complaints []string, err error)
	// Parts reach into objects; nil: those of Go structs.
	Parts *Parts
	// OpenAPI makes the schema of the kind that clients are shown, in version 2 or 3, in
	// which the metadata refers to that of all objects. Nil: it is that of the Go type.
	OpenAPI func(version int) (*spec.Schema, error)
	// Structural is what OpenAPI is made of, for managed fields to follow; nil where there
	// is no such schema. It is not the caller's to change, and may be another one when it is
	// asked for again. Not set: the Go type says it.
	Structural func() (*structuralschema.Structural, error)
	// Stamp changes with what OpenAPI makes; empty: it never does.
	Stamp string
	// Explicit: what is served is no part of the server, and everything says in full what
	// it is of: items of lists their kind, discovery group and version, refusals the
	// resource. What is not served is no page at all (row X14).
	Explicit bool
	// Outdated is set when what defined the type says something else by now: what is
	// stored may not be what this type shows. The types of one definition share it. Nil:
	// that cannot be.
	Outdated *atomic.Bool
	// AnyFinalizer: names of finalizers need no domain. Custom resources warn of such.
	AnyFinalizer bool
	// NoStrategic: the kind has no merge keys, and takes no strategic merge patch.
	NoStrategic bool
	// Closed says why no object can be created now; empty: they can be.
	Closed string

	// Relation says how another kind stands to this one; nil: no other is known.
	Relation func(schema.GroupVersionKind) Relation

	// ValidateName checks metadata.name; prefix is set for a generateName. Each
	// string says what is wrong. It is never nil.
	ValidateName func(name string, prefix bool) []string

	// CreateOnUpdate: a PUT of an absent object creates it (row A3).
	CreateOnUpdate bool
	// UnconditionalUpdate: a PUT without resourceVersion overwrites (row D11).
	UnconditionalUpdate bool
	// DeleteReturnsObject: the answer to an immediate deletion is the object, not a
	// Status (row D1).
	DeleteReturnsObject bool
	// Generation: metadata.generation is 1 at first and counts changes of the desired
	// state, which is everything but metadata and status (row G6).
	Generation bool
	// GenerationStays: it is 1, whatever changes.
	GenerationStays bool
	// GenerationLate: a new object has none; the first change makes it 1.
	GenerationLate bool
	// GenerationCounts are parts of metadata whose changes count too.
	GenerationCounts Metadata
	// StatusOnCreate: a create keeps the status of the body (nodes). All other kinds
	// with a status subresource start with an empty one.
	StatusOnCreate bool
	// StatusKeeps are parts of metadata that an update of the status subresource
	// cannot change; it can change the others (row A11).
	StatusKeeps Metadata

	// Default fills in what the client left out, and merges what it may write in
	// two ways. It runs on create and on update, on the object as the client sent it
	// and once a name is generated, before validation. Nil: nothing.
	Default func(runtime.Object)
	// NewStatus fills in the status of a new object, after it was emptied; nil: it
	// stays empty.
	NewStatus func(runtime.Object)
	// PrepareCreate sets what only the server may set, beside the status. No field
	// manager owns it. Nil: nothing.
	PrepareCreate func(runtime.Object)
	// SetCreator writes into an object who creates it; nil: it does not say so.
	SetCreator func(o runtime.Object, by authenticationv1.UserInfo)
	// PrepareUpdate puts back into next what an update of the object itself cannot
	// change, beside its status and the system fields of its metadata; nil: nothing.
	// It must not change current.
	PrepareUpdate func(next, current runtime.Object)

	// Validate checks what is the kind's own in a new object, ValidateUpdate what an
	// update of the object itself made of an old one, both in the stored version, with
	// the paths, words and order of kube-apiserver. Metadata is checked already. Nil:
	// nothing can be wrong; where Stored has one, too, this one is asked of what comes
	// in this version. Neither may change its arguments. When the context is done, they may
	// return early: what they return then does not count.
	Validate       func(ctx context.Context, o runtime.Object) field.ErrorList
	ValidateUpdate func(ctx context.Context, o, old runtime.Object) field.ErrorList
	// MetadataOnce: an update of the object checks metadata as that of an update alone.
	// Most kinds check it as that of a new object, too, and say twice what is wrong.
	MetadataOnce bool
	// MetadataApart: the kind checks no metadata of its own. A new object whose kind
	// finds something wrong says nothing of metadata, and an update says it twice less.
	MetadataApart bool
	// Warnings are what goes out with the answer to a create (old is nil) or an update
	// of the object itself, whose objects are in the stored version; nil: none.
	Warnings func(o, old runtime.Object) []string
	// Tolerated is what ValidateUpdate, or that of a subresource, found wrong in an
	// object and let pass: it goes out as warnings, even if something else is refused.
	// Nil: nothing ever is.
	Tolerated func(o runtime.Object) []string

	// GracePeriod makes objects of the kind stop before they go (row D8): it returns
	// how many seconds an object may take, which asked, if it is not nil, wants to be
	// so many. Nil: they go at once.
	GracePeriod func(o runtime.Object, asked *int64) int64
	// Held reports whether something beside finalizers holds the deletion of an object
	// back: the content of a namespace. Nil: nothing does.
	Held func(o runtime.Object) bool
	// PrepareDelete sets what shows that a deletion has begun, beside the metadata;
	// nil: nothing does.
	PrepareDelete func(o runtime.Object)
	// Orphans: a deletion that says nothing of dependents orphans them.
	// NoDependents: objects of the kind have none, whatever a deletion says (row D4).
	Orphans, NoDependents bool
	// OrphansWarning is the text of a Warning when Orphans counts; empty: none.
	OrphansWarning string

	// Deprecated is the text of a Warning for each request; empty: none.
	Deprecated string

	// Columns are those of a table of objects; nil: the kind cannot be shown as one.
	// Types of one collection share them.
	Columns *Columns
}

// Relation is how a kind stands to a type: it decides what is said to a body of
// that kind (row A13).
type Relation uint8

// The relations.
const (
	// UnknownKind is what is not served at all.
	UnknownKind Relation = iota
	// OtherKind cannot be made into the type.
	OtherKind
	// OtherVersion is the same kind in another version.
	OtherVersion
	// NotConverted is any other kind, where nothing of the sort is looked for.
	NotConverted
)

// Metadata is a set of members of an object's metadata.
type Metadata uint8

// The members of metadata that rules speak of.
const (
	Labels Metadata = 1 << iota
	Annotations
	Finalizers
	OwnerReferences
)

// Has reports whether all of m are in the set.
func (s Metadata) Has(m Metadata) bool { return s&m == m }

// Subresource is a path below an object.
type Subresource struct {
	Name string
	// Kind is what it exchanges. In discovery the group and version stand only
	// where they are not those of the resource.
	Kind  schema.GroupVersionKind
	Verbs []string

	// Exchange is the type of what is read and written below the path, where that is
	// not the object itself (Scale). Then View makes it from a copy of the stored
	// object, which it may use up.
	Exchange *Type
	View     func(o runtime.Object) (runtime.Object, error)
	// Set puts what was sent into a copy of the stored object: an Exchange, or the
	// object in its stored version. Nil: the status is what the path writes.
	Set func(o, sent runtime.Object) error
	// MetadataAsNew: it checks metadata as that of a new object, too.
	MetadataAsNew bool
	// Validate checks what the path made of an old object, as ValidateUpdate does; nil:
	// nothing can be wrong.
	Validate func(ctx context.Context, o, old runtime.Object) field.ErrorList
	// Warnings are what goes out with the answer to an update; nil: none.
	Warnings func(o, old runtime.Object) []string
	// Replicas is where in the object stands what an Exchange that is a Scale has as
	// spec.replicas: who owns the one owns the other. Nil: it is no Scale.
	Replicas []string

	// Connect tells where requests below the path go on to: to what runs a stored
	// object, with the parameters of the query. Empty, without an error: nothing runs
	// yet, and there is nothing to answer. Nil: the path is no connection (row A12).
	Connect func(o runtime.Object, options url.Values) (host string, err error)
}

// Written reports whether the path is read and written as the object is.
func (s *Subresource) Written() bool { return s.Set != nil || s.Name == "status" }

// Field is a selectable field.
type Field struct {
	// Name is that of the selector: "spec.nodeName".
	Name string
	// Paths are where the value stands in the stored JSON: the first that is there
	// and not empty counts. Nil: the parts of Name. Empty but not nil: the field can
	// be asked for and is empty for every object.
	Paths [][]string
	// Default is the value when no path has one ("" for most, "false" for a bool,
	// "0" for a number).
	Default string
}

// List is the kind of a list of objects.
func (t *Type) List() string {
	if t.ListKind != "" {
		return t.ListKind
	}
	return t.Kind + "List"
}

// GroupVersionKind of one object.
func (t *Type) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind}
}

// At returns the version of the type that apiVersion names, nil when there is none.
func (t *Type) At(apiVersion string) *Type {
	for _, v := range t.Versions {
		if v.GroupVersion().String() == apiVersion {
			return v
		}
	}
	return nil
}

// GroupVersion of the type.
func (t *Type) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: t.Group, Version: t.Version}
}

// GroupResource as errors and the store name it.
func (t *Type) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.Group, Resource: t.Resource}
}

// Allows reports whether discovery lists the verb.
func (t *Type) Allows(verb string) bool {
	for _, v := range t.Verbs {
		if v == verb {
			return true
		}
	}
	return false
}

// Discovered are the verbs that discovery lists: those of a type of which nothing new
// can be made do not write.
func (t *Type) Discovered() []string {
	if t.Closed == "" {
		return t.Verbs
	}
	return slices.DeleteFunc(slices.Clone(t.Verbs), func(verb string) bool { return verb == "create" || verb == "update" || verb == "patch" })
}

// Subresource returns the subresource of that name, nil when there is none.
func (t *Type) Subresource(name string) *Subresource {
	for i := range t.Subresources {
		if t.Subresources[i].Name == name {
			return &t.Subresources[i]
		}
	}
	return nil
}
