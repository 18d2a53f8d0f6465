// Package resource describes what a server serves. A Type is data: it says all that
// routing, discovery, OpenAPI, authorization and the verbs need to know about one
// resource at one version. Built-in and custom kinds differ in where their Types come
// from, not in the code that serves them. A Catalog is the immutable set of Types that
// is served now.
package resource

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Type is one resource at one served version. It is immutable once it is part of a
// Catalog.
type Type struct {
	// ID is unique in the process, across catalogs. Caches use it as a key, so that
	// they do not keep the Type alive. The first Catalog that has the Type assigns it;
	// zero: no Catalog has it.
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
	// Versions are the Types of all versions of the resource, this one and those that
	// are not served included: managed fields may name any of them. Nil: there is only
	// this one.
	Versions []*Type
	// Relation says how another kind relates to this one; nil: all are unknown.
	Relation func(schema.GroupVersionKind) Relation

	Strategy Strategy
	Display  Display
	// Custom is set for a kind that a definition adds; nil: the kind is built in.
	Custom *Custom
}

// Names are what a resource and its kind are called.
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

// GroupResource returns the name that errors and the store use.
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

// Relation is how another kind relates to a Type. It decides which error a body of
// that kind gets.
type Relation uint8

// The relations.
const (
	// UnknownKind is not served.
	UnknownKind Relation = iota
	// OtherKind cannot be converted to the Type.
	OtherKind
	// OtherVersion is another version of the same kind.
	OtherVersion
	// NotConverted is any other kind, where nothing is ever converted.
	NotConverted
)

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
