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

// Custom is what sets a custom kind apart from a built-in one. A definition describes it,
// which may change, and its objects are trees of JSON.
//
// Clients see the difference, too. Items of lists and discovery name the kind in full.
// Errors name the resource as the definition does. A path that is not served is a plain
// 404 page, not a Status. There is no strategic merge patch.
type Custom struct {
	// Decode reads an object that a client sent as JSON. The complaints are those of
	// field validation.
	Decode func(body []byte) (o runtime.Object, complaints []string, err error)
	// OpenAPI returns the published schema for version 2 or 3 of OpenAPI. In it the
	// metadata is a reference.
	OpenAPI func(version int) (*spec.Schema, error)
	// Structural returns the schema that managed fields follow, nil if the kind has none.
	// The result is shared and may be another one at each call.
	Structural func() (*structuralschema.Structural, error)
	// Stamp changes whenever OpenAPI does.
	Stamp string
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
	// ClearStatus empties the status of an object, CopyStatus copies that of another.
	ClearStatus func(o runtime.Object)
	CopyStatus  func(to, from runtime.Object)
	// SameDesired reports whether two objects differ in nothing but metadata and status.
	// A kind without the subresource "status" has no status in this sense.
	SameDesired func(a, b runtime.Object) bool
}

// Parts returns the functions that access parts of the objects.
func (t *Type) Parts() *Parts {
	if t.Custom != nil {
		return &t.Custom.Parts
	}
	return &structParts
}

// structParts are those of pointers to structs with fields of the usual names.
var structParts = Parts{ClearStatus: clearStatus, CopyStatus: copyStatus, SameDesired: sameDesired}

// statusFields maps each Go type to the index of its field Status, -1 for none. Servers
// share it because Go types are the same for all.
var statusFields sync.Map

// statusOf returns the status of an object; it is not valid if the kind has none.
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

// sameMeaning compares what two pointers point to. The quantities "1" and "1000m" are the
// same, and so are nil and an empty list. The faster comparison comes first: it succeeds
// nearly always.
func sameMeaning(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
