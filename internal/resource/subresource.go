package resource

import (
	"context"
	"net/url"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Subresource is a path below an object.
type Subresource struct {
	Name string
	// Kind is what clients send and get. Discovery shows its group and version only where
	// they differ from those of the resource.
	Kind  schema.GroupVersionKind
	Verbs []string

	// Exchange is the Type of what clients send and get, where that is not the object
	// itself but, say, a Scale. View makes it from a stored object, which it may modify.
	Exchange *Type
	View     func(o runtime.Object) (runtime.Object, error)
	// Set writes what a client sent, an Exchange or else the object in its stored
	// version, into a copy of the stored object. Nil: the status is written.
	Set func(o, sent runtime.Object) error
	// MetadataAsNew: an update repeats the checks of the metadata of a new object.
	MetadataAsNew bool
	// Validate checks an update as Strategy.ValidateUpdate does; nil: nothing can be
	// wrong.
	Validate func(ctx context.Context, o, old runtime.Object) field.ErrorList
	// Warnings returns the warnings for an update; nil: there are none.
	Warnings func(o, old runtime.Object) []string
	// Replicas is the path in the object of what a Scale shows as spec.replicas: the
	// managers of one own the other. Nil: the subresource is not a Scale.
	Replicas []string

	// Connect returns the host that runs a stored object, to which a request with these
	// parameters would be forwarded. Empty without an error: nothing runs yet, and the
	// response is empty. Nil: the subresource is not a connection.
	Connect func(o runtime.Object, options url.Values) (host string, err error)
}

// Written reports whether the subresource is read and written as the object is.
func (s *Subresource) Written() bool { return s.Set != nil || s.Name == "status" }
