package resource

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Display is how objects are selected and shown in tables.
type Display struct {
	// Fields are the selectable fields, without metadata.name and metadata.namespace.
	Fields []Field
	// FieldError is the error for a field that is not selectable: a format with one
	// string. Empty: the error names the two fields of metadata, and metadata.namespace
	// is selectable even if the kind is not namespaced.
	FieldError string
	// Columns are those of a table; nil: the kind cannot be shown as one. The versions of
	// a resource share them.
	Columns *Columns
}

// Field is a selectable field.
type Field struct {
	// Name is the name in selectors: "spec.nodeName".
	Name string
	// Paths are the paths of the value in the stored JSON. The first value that is not
	// empty counts. Nil: the path is Name. Empty but not nil: the field is always empty.
	Paths [][]string
	// Default is the value if all paths are empty: mostly "", "false" for a bool, "0" for a
	// number.
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
	// Place returns the sort key of an object, which is in the stored version. The sort is
	// stable. Nil: rows are not sorted.
	Place func(o runtime.Object) int32
	// First reports whether, of two objects of a list, o is preferred. Other is nil if no object is
	// preferred yet; First may still return false. The preferred object of a list has the cells of CellsOfFirst. Nil: all have those of Cells.
	First func(o, other runtime.Object) bool
	// CellsOfFirst is Cells for that object.
	CellsOfFirst func(o runtime.Object, row *Row)
	// NoneIsNull: a table without rows has null, not an empty list.
	NoneIsNull bool
}

// Members select members of an object in JSON, at any depth. Nil selects all. A value is
// immutable and safe for concurrent use.
type Members struct {
	only map[string]*Members
	not  map[string]bool
}

// MembersOf selects the members with the given paths, such as "spec.containers.name". Items
// of a list have the path of the list.
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

// AllButManagedFields selects all members but metadata.managedFields.
var AllButManagedFields = &Members{
	only: map[string]*Members{"metadata": {not: map[string]bool{"managedFields": true}}},
	not:  map[string]bool{},
}

// Of returns the selection within a member. Ok is false if the member is not selected.
func (m *Members) Of(name []byte) (inner *Members, ok bool) {
	if inner, ok = m.only[string(name)]; ok || m.not == nil {
		return inner, ok
	}
	return nil, !m.not[string(name)]
}
