// Package gated clears the fields of disabled features. Clients may send them, because the schemas of a version have the
// fields of all its features; kube-apiserver drops them without an error. It leaves them where the stored object uses the
// feature already, so that an object keeps what another server stored in it.
package gated

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/features"
)

// Fields finds the fields of the features that are disabled in a profile. It is safe for concurrent use.
//
// A walk visits only the parts of an object that can have such a field. So each Go type has a node, which is made when an
// object of the type is written for the first time.
type Fields struct {
	profile *features.Profile
	nodes   sync.Map // reflect.Type: *node

	mu   sync.Mutex
	bits map[string]uint // of the gates
}

// New returns the fields that are disabled in a profile.
func New(p *features.Profile) *Fields { return &Fields{profile: p, bits: map[string]uint{}} }

// node is a struct type that has disabled fields, or contains such a type.
type node struct {
	disabled []disabled
	inner    []inner
	// absent: a pointer to the struct is removed with the last of its fields.
	absent bool
}

// absent are the types whose empty values kube-apiserver does not store.
var absent = []reflect.Type{reflect.TypeFor[corev1.Lifecycle]()}

// statefulSet has the templates of claims, whose fields kube-apiserver stores as they are sent.
var statefulSet = reflect.TypeFor[appsv1.StatefulSetSpec]()

// disabled is a field of a disabled feature, by its index.
type disabled struct {
	index int
	gate  gates
}

// inner is a field whose value contains disabled fields.
type inner struct {
	index int
	node  *node
}

// gates is a set of disabled gates.
type gates uint64

// most is how many gates have a bit of their own. Further ones share the last bit.
const most = 64

// Clear clears the fields of disabled features in an object, and reports whether it had any. Old is the stored object, nil
// for a new one: fields of a feature that it uses stay. If keep is true, nothing is cleared.
func (f *Fields) Clear(o, old runtime.Object, keep bool) bool {
	v := reflect.ValueOf(o)
	n := f.of(v.Type())
	if n == nil {
		return false
	}
	used := n.walk(v, 0)
	if used != 0 && old != nil && reflect.TypeOf(old) == v.Type() {
		used &^= n.walk(reflect.ValueOf(old), 0)
	}
	if used != 0 && !keep {
		n.walk(v, used)
	}
	return used != 0
}

// walk returns the gates of the disabled fields that are set in a value, and clears those of some gates.
func (n *node) walk(v reflect.Value, clear gates) (used gates) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			if used = n.walk(v.Elem(), clear); n.absent && used&clear != 0 && v.Elem().IsZero() {
				v.SetZero()
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			used |= n.walk(v.Index(i), clear)
		}
	case reflect.Map:
		used = n.walkMap(v, clear)
	case reflect.Struct:
		for _, d := range n.disabled {
			if field := v.Field(d.index); !field.IsZero() {
				if used |= d.gate; clear&d.gate != 0 {
					field.SetZero()
				}
			}
		}
		for _, i := range n.inner {
			used |= i.node.walk(v.Field(i.index), clear)
		}
	}
	return used
}

// walkMap is walk for the values of a map, which cannot be changed in place.
func (n *node) walkMap(v reflect.Value, clear gates) (used gates) {
	for each := v.MapRange(); each.Next(); {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(each.Value())
		of := n.walk(value, clear)
		if used |= of; of&clear != 0 {
			v.SetMapIndex(each.Key(), value)
		}
	}
	return used
}

// of returns the node of the struct that a type consists of, nil if it has no disabled fields.
func (f *Fields) of(t reflect.Type) *node {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if n, known := f.nodes.Load(t); known {
		return n.(*node)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.make(t)
}

// make is of with the lock.
func (f *Fields) make(t reflect.Type) *node {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	version, published := strings.CutPrefix(t.PkgPath(), "k8s.io/api/")
	if t.Kind() != reflect.Struct || !published {
		return nil
	}
	if n, known := f.nodes.Load(t); known {
		return n.(*node)
	}
	n := &node{absent: slices.Contains(absent, t)}
	for i := range t.NumField() {
		field := t.Field(i)
		if t == statefulSet && field.Name == "VolumeClaimTemplates" {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if gate := f.profile.Disabled(version, t.Name(), name); gate != "" && name != "" {
			n.disabled = append(n.disabled, disabled{i, f.bit(gate)})
		} else if of := f.make(field.Type); of != nil {
			n.inner = append(n.inner, inner{i, of})
		}
	}
	if len(n.disabled)+len(n.inner) == 0 {
		n = nil
	}
	f.nodes.Store(t, n)
	return n
}

func (f *Fields) bit(gate string) gates {
	i, known := f.bits[gate]
	if !known {
		i = min(uint(len(f.bits)), most-1)
		f.bits[gate] = i
	}
	return 1 << i
}
