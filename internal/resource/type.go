// Package resource describes the resources that a server serves. A Type is data: it has
// all that routing, discovery, OpenAPI, authorization and the verbs need to know about one
// resource at one version. The same code serves built-in and custom kinds; only their Types
// come from different places. A Catalog is the immutable set of Types that is served now.
package resource

import (
	"context"
	"net/url"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Type is one resource at one served version. It is immutable once it is part of a
// Catalog.
type Type struct {
	// ID is unique in the process, across catalogs. Caches use it as a key, so that they do
	// not keep the Type alive. The first Catalog with the Type assigns it; zero: there is
	// none yet.
	ID uint64

	Names
	Namespaced bool
	// Verbs are those of the resource itself, sorted as discovery shows them.
	Verbs []string
	// Subresources are sorted by name.
	Subresources []Subresource
	// Deprecated is the text of a Warning that every request gets; empty: none.
	Deprecated string

	// Collection names the objects in the store: the group-resource, as "configmaps" or
	// "deployments.apps". All versions of a resource share it. Empty for a virtual
	// resource, whose objects are never stored and need no name.
	Collection string
	// New makes an empty object.
	New func() runtime.Object
	// Conversion converts from and to the stored version; nil: this is the stored
	// version.
	Conversion *Conversion
	// Versions are the Types of all versions of the resource, including this one and
	// versions that are not served, because managed fields may name any of them. Nil: there
	// is only this one.
	Versions []*Type

	Strategy Strategy
	Display  Display
	// Custom is set for a kind that a definition adds; nil: the kind is built in.
	Custom *Custom
}

// Names are the names of a resource and its kind.
type Names struct {
	Group, Version string
	// Kind is the kind of one object, ListKind of a list; empty: Kind + "List".
	Kind, ListKind string
	// Resource is the plural, as in the URL. Singular is its singular, never empty in a
	// Catalog.
	Resource, Singular string
	ShortNames         []string
	Categories         []string
}

// GroupVersionKind returns the kind of one object.
func (n *Names) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: n.Group, Version: n.Version, Kind: n.Kind}
}

// GroupVersion returns the group and version.
func (n *Names) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: n.Group, Version: n.Version}
}

// GroupResource returns the group and the plural.
func (n *Names) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: n.Group, Resource: n.Resource}
}

// List returns the kind of a list of objects.
func (n *Names) List() string {
	if n.ListKind != "" {
		return n.ListKind
	}
	return n.Kind + "List"
}

// At returns the version of the resource that an apiVersion names, nil if there is none.
func (t *Type) At(apiVersion string) *Type {
	for _, v := range t.Versions {
		if v.GroupVersion().String() == apiVersion {
			return v
		}
	}
	return nil
}

// Allows reports whether discovery lists the verb.
func (t *Type) Allows(verb string) bool { return slices.Contains(t.Verbs, verb) }

// Discovered returns the verbs that discovery lists: a resource whose definition is
// terminating is not written.
func (t *Type) Discovered() []string {
	if t.Custom == nil || !t.Custom.Terminating {
		return t.Verbs
	}
	return slices.DeleteFunc(slices.Clone(t.Verbs), func(verb string) bool { return verb == "create" || verb == "update" || verb == "patch" })
}

// Subresource returns the subresource of that name, nil if there is none.
func (t *Type) Subresource(name string) *Subresource {
	for i := range t.Subresources {
		if t.Subresources[i].Name == name {
			return &t.Subresources[i]
		}
	}
	return nil
}

// Subresource is a path below an object.
type Subresource struct {
	Name string
	// Kind is the kind of the objects in requests and responses. Discovery shows its group and
	// version only where they differ from those of the resource.
	Kind  schema.GroupVersionKind
	Verbs []string

	// Exchange is the Type of the objects in requests and responses, where that is not the kind of
	// the object itself but, say, a Scale. View makes it from a stored object, which it may modify.
	Exchange *Type
	View     func(o runtime.Object, of Purpose) (runtime.Object, error)
	// Set writes the object that a client sent, an Exchange or else the object in its stored
	// version, into a copy of the stored object. Nil: the status is written.
	Set func(o, sent runtime.Object) error
	// MetadataAsNew: an update repeats the checks of the metadata of a new object.
	MetadataAsNew bool
	// Validate checks an update as Strategy.ValidateUpdate does; nil: nothing can be
	// wrong.
	Validate func(ctx context.Context, o, old runtime.Object) field.ErrorList
	// Warnings returns the warnings for an update; nil: there are none.
	Warnings func(o, old runtime.Object) []string
	// Replicas is the path of the field in the object that a Scale shows as spec.replicas: the
	// managers of one own the other. Nil: the subresource is not a Scale.
	Replicas []string

	// Connect returns the host that runs a stored object, to which a request with these
	// parameters would be forwarded. Empty without an error: nothing runs yet, and the
	// response is empty. Nil: the subresource is not a connection.
	Connect func(o runtime.Object, options url.Values) (host string, err error)
	// Options makes the empty options of a connection, which admission plugins see. Nil: the
	// request is not a connection but a read.
	Options func() runtime.Object
}

// A Purpose is the reason for which View is called.
type Purpose uint8

const (
	// ForRead: a GET returns it. A value that it cannot do without is an error if it is absent.
	ForRead Purpose = iota
	// ForPatch: a patch is applied to it. Set refuses the result if such a value is still absent.
	ForPatch
	// ForWrite: an apply changes it, admission plugins and the client that writes get it. Absent
	// values are zero.
	ForWrite
)

// Written reports whether the subresource is read and written as the object is.
func (s *Subresource) Written() bool { return s.Set != nil || s.Name == "status" }

// Conversion converts between the version of a Type and the stored version. Its
// functions may modify their arguments. A webhook that they call is abandoned when the
// context is done.
type Conversion struct {
	// Stored is the Type of the stored version.
	Stored     *Type
	ToStored   func(context.Context, runtime.Object) (runtime.Object, error)
	FromStored func(context.Context, runtime.Object) (runtime.Object, error)
	// FromStoredAll converts several objects at once and keeps their order. It is set
	// where a webhook converts, because one call for all is cheaper.
	FromStoredAll func(context.Context, []runtime.Object) ([]runtime.Object, error)
	// AlreadyCurrent reports whether FromStored is sure to leave a stored value as it
	// is; nil: it never is sure.
	AlreadyCurrent func(value []byte) bool
	// PerRequest: objects are converted when they are read and again when they are stored, and the
	// strategy runs in this version. Otherwise the object that a client sends is defaulted in this
	// version, converted once, and the strategy of the stored version does the rest.
	PerRequest bool
}

// StoredVersion returns the Type of the stored version, which may be t itself.
func (t *Type) StoredVersion() *Type {
	if t.Conversion == nil {
		return t
	}
	return t.Conversion.Stored
}

// StrategyVersion returns the Type whose strategy applies to writes. Objects are in its
// version then.
func (t *Type) StrategyVersion() *Type {
	if t.ConvertsPerRequest() {
		return t
	}
	return t.StoredVersion()
}

// ConvertsPerRequest reports whether there is a Conversion with PerRequest.
func (t *Type) ConvertsPerRequest() bool { return t.Conversion != nil && t.Conversion.PerRequest }

// ConvertsByWebhook reports whether a webhook converts, which may be slow.
func (t *Type) ConvertsByWebhook() bool {
	return t.Conversion != nil && t.Conversion.FromStoredAll != nil
}
