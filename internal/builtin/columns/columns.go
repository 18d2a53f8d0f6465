// Package columns says how the built-in kinds look as tables: the columns of each
// kind and the cells of an object, as kubectl prints them. A row of data for each
// kind, one file for each API group or for a few small ones.
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

// Of returns the columns of a kind, of which o is an object in the stored version:
// Name and Created At where it has none of its own.
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

// of makes the row of a kind out of its columns and what writes the cells. The
// columns are a function because few are ever asked for.
func of[P runtime.Object](definitions func() []column, cells func(P, *resource.Row)) kind {
	return kind{reflect.TypeFor[P](), &resource.Columns{
		Definitions: sync.OnceValue(func() []byte { return encode(definitions()) }),
		Cells:       func(o runtime.Object, r *resource.Row) { cells(o.(P), r) },
		Reads:       resource.AllButManagedFields,
	}}
}

// reading tells which members the cells are made of, for a kind that there are many
// of: the others are not decoded.
func (k kind) reading(members ...string) kind {
	k.columns.Reads = resource.MembersOf(members...)
	return k
}

// sorted has the rows of a list stand in an order.
func (k kind) sorted(place func(runtime.Object) int32) kind {
	k.columns.Place = place
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

// standard are the columns of kinds that have none of their own.
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

// documented is a type whose fields are described.
type documented interface{ SwaggerDoc() map[string]string }

// of a string, an integer, a boolean, with a description.
func str(name, text string) column  { return column{Name: name, Type: "string", Description: text} }
func num(name, text string) column  { return column{Name: name, Type: "integer", Description: text} }
func flag(name, text string) column { return column{Name: name, Type: "boolean", Description: text} }

// doc is the description of a field.
func doc(of documented, field string) string { return of.SwaggerDoc()[field] }

// wide has columns shown only where somebody asks for more.
func wide(c ...column) []column {
	for i := range c {
		c[i].Priority = 1
	}
	return c
}

// The columns that most kinds have.
var (
	name = column{Name: "Name", Type: "string", Format: "name", Description: metav1.ObjectMeta{}.SwaggerDoc()["name"]}
	age  = str("Age", metav1.ObjectMeta{}.SwaggerDoc()["creationTimestamp"])
)

// nameAndAge are the columns of a kind that has no others, or those between them.
func nameAndAge(between ...column) []column {
	return append(append([]column{name}, between...), age)
}

// since adds how long ago an object was created.
func since(r *resource.Row, o metav1.Object) { r.Age(o.GetCreationTimestamp().Time) }

func deref[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}

// joined adds strings with commas between them.
func joined(r *resource.Row, s []string, otherwise string) { r.Or(strings.Join(s, ","), otherwise) }

// keys are those of a map, in order.
func keys[K ~string, V any](m map[K]V) []K {
	return slices.Sorted(maps.Keys(m))
}

// labels adds labels, or <none>.
func labels(r *resource.Row, m map[string]string) { r.String(apilabels.FormatLabels(m)) }

// selector adds a selector, or <none>.
func selector(r *resource.Row, s *metav1.LabelSelector) { r.String(metav1.FormatLabelSelector(s)) }

// few is the first of some strings, and how many more there are.
func few(all []string, most int, between string) string {
	if len(all) <= most {
		return strings.Join(all, between)
	}
	return strings.Join(all[:most], between) + " + " + itoa(len(all)-most) + " more..."
}
