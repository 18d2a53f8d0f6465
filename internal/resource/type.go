// Package resource describes what a server serves. A Type is data: one value
// says everything that routing, discovery, OpenAPI, authorization and the verbs
// need to know of one resource at one version. Built-in kinds, custom resources
// and aggregated APIs differ in who supplies the value, not in the code that
// serves it. A Catalog is the immutable set of what is served now.
package resource

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Type is one resource of one served group and version. It is immutable once it
// is part of a Catalog.
type Type struct {
	Group, Version string
	// Kind is that of one object; the list's kind is Kind + "List".
	Kind string
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
	// never stored.
	Collection string

	// Stored is the type whose version the stored bytes have; nil when it is this
	// one. Then ToStored and FromStored convert; they may use their argument up.
	Stored     *Type
	ToStored   func(runtime.Object) (runtime.Object, error)
	FromStored func(runtime.Object) (runtime.Object, error)

	// Fields can be selected by, beside metadata.name and metadata.namespace.
	Fields []Field

	// New makes an empty object.
	New func() runtime.Object

	// ValidateName checks metadata.name; prefix is set for a generateName. Each
	// string says what is wrong.
	ValidateName func(name string, prefix bool) []string

	// CreateOnUpdate: a PUT of an absent object creates it (row A3).
	CreateOnUpdate bool
	// UnconditionalUpdate: a PUT without resourceVersion overwrites (row D11).
	UnconditionalUpdate bool
	// DeleteReturnsObject: the answer to an immediate deletion is the object, not a
	// Status (row D1).
	DeleteReturnsObject bool
	// Generation: metadata.generation counts changes of the desired state (row G6).
	Generation bool
	// StatusOnCreate: a create keeps the status of the body (nodes).
	StatusOnCreate bool
	// StatusKeepsLabels: an update of the status subresource keeps the labels and
	// annotations that are stored... only where kube-apiserver does so.
	StatusKeepsLabels bool

	// Default fills in what the client left out. It runs on create and on update,
	// before validation. Nil: nothing.
	Default func(runtime.Object)
	// PrepareCreate sets what only the server may set; nil: nothing.
	PrepareCreate func(runtime.Object)

	// Deprecated is the text of a Warning for each request; empty: none.
	Deprecated string
}

// Subresource is a path below an object.
type Subresource struct {
	Name string
	// Kind is what it exchanges. In discovery the group and version stand only
	// where they are not those of the resource.
	Kind  schema.GroupVersionKind
	Verbs []string
}

// Field is a selectable field.
type Field struct {
	// Name is that of the selector: "spec.nodeName".
	Name string
	// Paths are where the value stands in the stored JSON: the first that is there
	// and not empty counts. Nil: the parts of Name.
	Paths [][]string
	// Default is the value when no path has one ("" for most, "false" for a bool,
	// "0" for a number).
	Default string
}

// GroupVersionKind of one object.
func (t *Type) GroupVersionKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind}
}

// GroupVersion of the type.
func (t *Type) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: t.Group, Version: t.Version}
}

// GroupResource as errors and the store name it.
func (t *Type) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.Group, Resource: t.Resource}
}

// Allows tells whether discovery lists the verb.
func (t *Type) Allows(verb string) bool {
	for _, v := range t.Verbs {
		if v == verb {
			return true
		}
	}
	return false
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
