package resource

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Parts reach into objects of a kind, beside their metadata. They are safe for
// concurrent use.
type Parts struct {
	// ClearStatus empties the status of an object, CopyStatus gives it that of another.
	ClearStatus func(o runtime.Object)
	CopyStatus  func(to, from runtime.Object)
	// SameDesired reports whether two objects are the same but for metadata and status,
	// or, where the kind has no status of its own, but for metadata: row G6.
	SameDesired func(a, b runtime.Object) bool
}

// Reach returns the parts of objects of the type.
func (t *Type) Reach() *Parts {
	if t.Parts != nil {
		return t.Parts
	}
	return &structParts
}

// structParts are those of pointers to structs with fields of the usual names.
var structParts = Parts{ClearStatus: clearStatus, CopyStatus: copyStatus, SameDesired: sameDesired}

// statusFields holds the index of the field Status of each Go type, -1 for none.
var statusFields sync.Map

// statusOf is the status of an object, not valid when its kind has none.
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

// sameMeaning compares what two pointers point to, for which "1" and "1000m" of a
// quantity are the same, nothing and an empty list too. Mostly they are the same to
// the letter, and the faster comparison says so.
func sameMeaning(a, b any) bool {
	return reflect.DeepEqual(a, b) || equality.Semantic.DeepEqual(a, b)
}
