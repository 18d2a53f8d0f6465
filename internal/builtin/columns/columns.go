// Package columns has the tables of the built-in kinds: the columns of each kind and the cells
// of an object, as kubectl prints them. Each kind is one row of data. A file has the kinds of
// one API group, or of a few small ones.
package columns

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apilabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// Of returns the columns of the kind of o, an object in the stored version. A kind without
// columns of its own has Name and Created At.
func Of(o runtime.Object) *resource.Columns {
	if c := kinds()[reflect.TypeOf(o)]; c != nil {
		return c
	}
	return standard
}

// kinds are all kinds with columns of their own.
var kinds = sync.OnceValue(func() map[reflect.Type]*resource.Columns {
	m := map[reflect.Type]*resource.Columns{}
	for _, of := range [][]kind{core, workloads, networks, storage, policies, others} {
		for _, k := range of {
			m[k.typ] = k.columns
		}
	}
	return m
})

// kind is the columns of one kind.
type kind struct {
	typ     reflect.Type
	columns *resource.Columns
}

// of returns the row of a kind: its column definitions and the function that writes the cells
// of an object. The definitions are a function because most are never used.
func of[P runtime.Object](definitions func() []column, cells func(P, *resource.Row)) kind {
	return kind{reflect.TypeFor[P](), &resource.Columns{
		Definitions: sync.OnceValue(func() []byte { return encode(definitions()) }),
		Cells:       func(o runtime.Object, r *resource.Row) { cells(o.(P), r) },
		Reads:       resource.AllButManagedFields,
	}}
}

// reading sets the members that the cells are made of. Other members are not decoded, which
// matters for a kind with many objects.
func (k kind) reading(members ...string) kind {
	k.columns.Reads = resource.MembersOf(members...)
	return k
}

// emptyAsNull makes a table without rows have null, not an empty list.
func (k kind) emptyAsNull() kind {
	k.columns.NoneIsNull = true
	return k
}

// sorted sets the sort key of the rows of a list.
func (k kind) sorted(place func(runtime.Object) int32) kind {
	k.columns.Place = place
	return k
}

// first sets the preferred object of a list, and its cells.
func (k kind) first(first func(o, other runtime.Object) bool, cells func(o runtime.Object, r *resource.Row)) kind {
	k.columns.First, k.columns.CellsOfFirst = first, cells
	return k
}

type column = metav1.TableColumnDefinition

func encode(c []column) []byte {
	b, err := json.Marshal(c)
	if err != nil { // plain data
		panic(err)
	}
	return b
}

// standard are the columns of kinds without columns of their own.
var standard = &resource.Columns{
	Definitions: sync.OnceValue(func() []byte {
		return encode([]column{name, {Name: "Created At", Type: "date", Description: age.Description}})
	}),
	Cells: func(o runtime.Object, r *resource.Row) {
		m := o.(metav1.Object)
		r.String(m.GetName())
		r.String(m.GetCreationTimestamp().UTC().Format(time.RFC3339))
	},
	Reads:      resource.MembersOf("metadata.name", "metadata.creationTimestamp"),
	NoneIsNull: true,
}

// documented is a type with descriptions of its fields.
type documented interface{ SwaggerDoc() map[string]string }

// str, num and flag return a column of strings, integers or booleans.
func str(name, text string) column  { return column{Name: name, Type: "string", Description: text} }
func num(name, text string) column  { return column{Name: name, Type: "integer", Description: text} }
func flag(name, text string) column { return column{Name: name, Type: "boolean", Description: text} }

// doc returns the description of a field.
func doc(of documented, field string) string { return of.SwaggerDoc()[field] }

// wide marks columns as shown by -o wide only.
func wide(c ...column) []column {
	for i := range c {
		c[i].Priority = 1
	}
	return c
}

// The columns of most kinds.
var (
	name = column{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}
	age  = str("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
)

// nameAndAge returns the columns Name and Age, with others between them.
func nameAndAge(between ...column) []column {
	return append(append([]column{name}, between...), age)
}

// since adds the age of an object.
func since(r *resource.Row, o metav1.Object) { r.Age(o.GetCreationTimestamp().Time) }

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// joined adds strings with commas between them.
func joined(r *resource.Row, s []string, otherwise string) { r.Or(strings.Join(s, ","), otherwise) }

// keys returns the sorted keys of a map.
func keys[K ~string, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// labels adds labels, or <none>.
func labels(r *resource.Row, m map[string]string) { r.String(apilabels.FormatLabels(m)) }

// selector adds a selector, or <none>.
func selector(r *resource.Row, s *metav1.LabelSelector) { r.String(metav1.FormatLabelSelector(s)) }

// few joins the first strings, and counts the others.
func few(all []string, most int, between string) string {
	if len(all) <= most {
		return strings.Join(all, between)
	}
	return strings.Join(all[:most], between) + " + " + itoa(len(all)-most) + " more..."
}
