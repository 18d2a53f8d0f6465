package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Display is how objects are selected and shown in tables.
type Display struct {
	// Fields can be selected by, as well as metadata.name and, for namespaced kinds,
	// metadata.namespace.
	Fields []Field
	// FieldError is the error for a field that cannot be selected by: a format for fmt
	// with one string. Empty: the error says which two fields there are, and
	// metadata.namespace is allowed even if the kind is not namespaced.
	FieldError string
	// Columns are those of a table; nil: the kind cannot be shown as one. The versions of
	// a resource share them.
	Columns *Columns
}

// Field is a selectable field.
type Field struct {
	// Name is the name in selectors: "spec.nodeName".
	Name string
	// Paths lead to the value in the stored JSON. The first one that leads to a value
	// that is not empty counts. Nil: the path that Name says. Empty but not nil: the
	// field is empty for all objects.
	Paths [][]string
	// Default is the value if no path leads to one: mostly "", "false" for a bool, "0"
	// for a number.
	Default string
}

// Columns are how objects of a kind are shown in a table. A value is immutable and safe
// for concurrent use.
type Columns struct {
	// Definitions returns the definitions of the columns, in order, as a JSON list.
	Definitions func() []byte
	// Cells writes the cells of one object, which is in the stored version: one for each
	// column. It must not modify the object.
	Cells func(o runtime.Object, row *Row)
	// Reads are the members that Cells reads; others may be missing. Nil: all.
	Reads *Members
	// Place returns the position of an object, which is in the stored version: rows are
	// sorted by it, and those with the same one keep the order of the list. Nil: rows
	// are not sorted.
	Place func(o runtime.Object) int32
	// NoneIsNull: a table without rows has null instead of an empty list.
	NoneIsNull bool
}

// Members are some of the members of an object as JSON, at any depth. Nil stands for
// all. A value is immutable and safe for concurrent use.
type Members struct {
	only map[string]*Members
	not  map[string]bool
}

// MembersOf are those that paths lead to, each with all that is in it. A path is
// names with dots between them, and goes through lists: "spec.containers.name".
func MembersOf(paths ...string) *Members {
	m := &Members{only: map[string]*Members{}}
	for _, path := range paths {
		at := m
		for {
			name, rest, more := strings.Cut(path, ".")
			if !more {
				at.only[name] = nil
				break
			}
			if at.only[name] == nil {
				at.only[name] = &Members{only: map[string]*Members{}}
			}
			at, path = at.only[name], rest
		}
	}
	return m
}

// AllButManagedFields are what most who look at an object want of it.
var AllButManagedFields = &Members{
	only: map[string]*Members{"metadata": {not: map[string]bool{"managedFields": true}}},
	not:  map[string]bool{},
}

// Of returns what of a member belongs to them: nothing, when it is not one of them.
func (m *Members) Of(name []byte) (inner *Members, ok bool) {
	if inner, ok = m.only[string(name)]; ok || m.not == nil {
		return inner, ok
	}
	return nil, !m.not[string(name)]
}
