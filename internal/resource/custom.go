package resource

import (
	"reflect"
	"sync"
	"sync/atomic"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Custom has what only a custom kind has. Its definition may change, and its objects are
// trees of JSON.
//
// Clients see a difference as well. List items and discovery name the group, version and
// kind. Errors name the resource as the definition does. A path that is not served gets a
// plain 404 page, not a Status. There is no strategic merge patch.
type Custom struct {
	// Decode reads an object that a client sent as JSON. The complaints are the errors of
	// strict field validation.
	Decode func(body []byte) (o runtime.Object, complaints []string, err error)
	// DecodeMerged reads the result of an apply. Unlike Decode, it keeps nulls.
	DecodeMerged func(body []byte) (runtime.Object, error)
	// OpenAPI returns the published schema for version 2 or 3 of OpenAPI. Its metadata is a
	// reference.
	OpenAPI func(version int) (*spec.Schema, error)
	// Structural returns the schema for managed fields, nil if the kind has none. The
	// result is shared, and each call may return another one.
	Structural func() (*structuralschema.Structural, error)
	// UID is that of the definition. One that is deleted and made again has another.
	UID string
	// Stamp changes whenever OpenAPI does.
	Stamp string
	// Documents caches the OpenAPI documents that package openapi has made of the kind, for as long
	// as the Type is used.
	Documents sync.Map
	// Parts access the status and the desired state.
	Parts Parts
	// Outdated is set when the definition has changed and the Type may no longer fit the
	// stored objects. All Types of one definition share it.
	Outdated *atomic.Bool
	// Terminating: the definition is being deleted, and nothing can be created.
	Terminating bool
}

// Parts access parts of objects. They are safe for concurrent use.
type Parts struct {
	// ClearStatus empties the status of an object, CopyStatus copies the status of another.
	ClearStatus func(o runtime.Object)
	CopyStatus  func(to, from runtime.Object)
	// SameDesired reports whether two objects differ in nothing but metadata and status.
	// A kind without the subresource "status" has no status in this sense.
	SameDesired func(a, b runtime.Object) bool
	// SameStatus reports whether the status of two objects is the same. It is nil for a kind without the
	// subresource "status", and for built-in kinds.
	SameStatus func(a, b runtime.Object) bool
}

// Parts returns the functions that access parts of the objects.
func (t *Type) Parts() *Parts {
	if t.Custom != nil {
		return &t.Custom.Parts
	}
	return &structParts
}

// structParts are the Parts of built-in kinds: pointers to structs.
var structParts = Parts{ClearStatus: clearStatus, CopyStatus: copyStatus, SameDesired: sameDesired}

// statusFields maps each Go type to the index of its field Status, -1 for none. All servers
// share it: it is a function of the Go types, and there are as many as built-in kinds.
var statusFields sync.Map

// statusOf returns the status of an object, the zero Value if the kind has none.
func statusOf(o runtime.Object) reflect.Value {
	v := reflect.ValueOf(o).Elem()
	index, ok := statusFields.Load(v.Type())
	if !ok {
		n := -1
		if f, found := v.Type().FieldByName("Status"); found && len(f.Index) == 1 {
			n = f.Index[0]
		}
		index, _ = statusFields.LoadOrStore(v.Type(), n)
	}
	if index.(int) < 0 {
		return reflect.Value{}
	}
	return v.Field(index.(int))
}

func clearStatus(o runtime.Object) {
	if s := statusOf(o); s.IsValid() {
		s.SetZero()
	}
}

func copyStatus(to, from runtime.Object) {
	if s := statusOf(to); s.IsValid() {
		s.Set(statusOf(from))
	}
}

func sameDesired(a, b runtime.Object) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		switch va.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !sameMeaning(va.Field(i).Addr().Interface(), vb.Field(i).Addr().Interface()) {
			return false
		}
	}
	return true
}

// IdenticalDesired is Parts.SameDesired for built-in kinds, but an empty list or map differs from none.
func IdenticalDesired(a, b runtime.Object) bool {
	va, vb := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	for i := range va.NumField() {
		switch va.Type().Field(i).Name {
		case "TypeMeta", "ObjectMeta", "Status":
			continue
		}
		if !reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			return false
		}
	}
	return true
}

// sameMeaning compares the values of two pointers. The quantities "1" and "1000m" are equal,
// and so are nil and an empty list. The faster comparison comes first and nearly always
// succeeds.
func sameMeaning(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
