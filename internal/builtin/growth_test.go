package builtin_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

var (
	growthAll = flag.Bool("growth-all", false, "TestGrowth tries all lists, and not a part of them by chance")
	growthOf  = flag.String("growth-of", "", "what the lists that TestGrowth tries have in their names")
)

// growthPart: one of so many combinations of a list and its entries is tried.
const growthPart = 8

// TestGrowth gives each list and each map of each kind many entries, different ones and
// equal ones, right ones and wrong ones: what defaulting, validation, warnings and columns
// take grows as the entries do. It tries a part of the
// lists, by chance; -growth-all tries all.
func TestGrowth(t *testing.T) {
	few := 1000
	if testing.Short() {
		few = 500
	}
	g := growth{t: t, chance: testrand.New(t), few: few, seen: map[string]bool{}}
	objects := map[string]runtime.Object{}
	for _, o := range testkinds.Objects(t, "../../test/kinds/testdata/objects", "x", rand.New(rand.NewPCG(1, 1))) {
		for typ := range builtin.Catalog().Types() {
			if typ.Kind != o["kind"] || typ.GroupVersion().String() != o["apiVersion"] || typ.Collection == "" {
				continue
			}
			text, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			made := typ.New()
			if err := json.Unmarshal(text, made); err != nil {
				t.Fatalf("%s: %v", typ.Kind, err)
			}
			objects[typ.GroupVersionKind().String()] = made
		}
	}
	for typ := range builtin.Catalog().Types() {
		if typ.Collection == "" || typ.Kind == "Scale" {
			continue
		}
		o := objects[typ.GroupVersionKind().String()]
		if o == nil {
			o = typ.New()
		}
		g.typ, g.base = typ, o
		g.walk(reflect.TypeOf(o).Elem(), nil, nil)
	}
	if g.fields < 300 {
		t.Errorf("%d lists and maps were tried", g.fields)
	}
	t.Logf("%d lists and maps", g.fields)
}

type growth struct {
	t      *testing.T
	chance *rand.Rand
	few    int
	typ    *resource.Type
	base   runtime.Object
	// seen are the fields that were tried, as those of Pods in all workloads.
	seen   map[string]bool
	fields int
}

// walk tries the lists and maps of a type, which stands at a path of an object.
func (g *growth) walk(t reflect.Type, path []int, names []string) {
	if len(path) > 14 || strings.Count(strings.Join(names, "."), "[0]") > 4 {
		return
	}
	switch t {
	case reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[apiresource.Quantity](), reflect.TypeFor[metav1.TypeMeta]():
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		g.walk(t.Elem(), path, names)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			id := fmt.Sprint(t, ".", f.Name)
			if !f.IsExported() || g.seen[id] {
				continue
			}
			k := f.Type.Kind()
			if k == reflect.Pointer {
				k = f.Type.Elem().Kind()
			}
			if k == reflect.Slice || k == reflect.Map || k == reflect.Struct {
				g.seen[id] = true
				g.walk(f.Type, append(path[:len(path):len(path)], i), append(names[:len(names):len(names)], f.Name))
			}
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return
		}
		g.try(path, names)
		g.walk(t.Elem(), append(path[:len(path):len(path)], -1), append(names[:len(names):len(names)], "[0]"))
	case reflect.Map:
		g.try(path, names)
	}
}

// at returns the value at a path, and makes what is not there.
func at(o runtime.Object, path []int) reflect.Value {
	v := reflect.ValueOf(o).Elem()
	for _, i := range path {
		v = made(v)
		if i >= 0 {
			v = v.Field(i)
			continue
		}
		if v.Len() == 0 {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		}
		v = v.Index(0)
	}
	return made(v)
}

// made is what a pointer points to.
func made(v reflect.Value) reflect.Value {
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		v = v.Elem()
	}
	return v
}

// entries are the ways in which a list is filled: the text that an entry has in its
// strings, in which %d is its number, and whether its numbers differ.
var entries = []struct{ name, text string }{
	{"names", "n-%d"},
	{"garbage", "-/\x01 %d"},
	{"copies", ""},
}

// try fills the list or the map at a path.
func (g *growth) try(path []int, names []string) {
	g.fields++
	for _, e := range entries {
		if !*growthAll && g.chance.IntN(growthPart) > 0 {
			continue
		}
		if !strings.Contains(g.typ.Kind+" "+strings.Join(names, "."), *growthOf) {
			continue
		}
		// What looks wrong is looked at again, with more: then chance weighs less.
		for n := g.few; ; n *= 4 {
			few, many := g.fastest(path, e.text, n), g.fastest(path, e.text, 4*n)
			if many < bound*few || many < noise {
				break
			}
			if n == 4*g.few {
				g.t.Errorf("%s %s, %s: %d entries take %v, %d %v", g.typ.Kind, strings.Join(names, "."), e.name, n, few, 4*n, many)
				break
			}
		}
	}
}

const (
	// bound is how much longer four times as many entries may take. What compares each
	// with each takes sixteen times as long.
	bound = 10
	// noise is what other work on the machine can add to a measurement.
	noise = 20 * time.Millisecond
)

// fastest is how long n entries take, in the fastest of two attempts.
func (g *growth) fastest(path []int, text string, n int) time.Duration {
	o := g.fill(path, text, n)
	return min(g.measure(o), g.measure(o))
}

// fill is the base with n entries at a path.
func (g *growth) fill(path []int, text string, n int) runtime.Object {
	o := g.base.DeepCopyObject()
	v := at(o, path)
	if v.Kind() == reflect.Map {
		m := reflect.MakeMapWithSize(v.Type(), n)
		var value reflect.Value
		for iter := v.MapRange(); iter.Next(); {
			value = iter.Value()
		}
		for i := range n {
			key, one := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			if value.IsValid() {
				one.Set(value)
			}
			number(key, "k%d"+text, i, 1)
			number(one, text, i, 3)
			m.SetMapIndex(key, one)
		}
		v.Set(m)
		return o
	}
	list := reflect.MakeSlice(v.Type(), n, n)
	for i := range n {
		if v.Len() > 0 {
			deepCopy(list.Index(i), v.Index(0))
		}
		number(list.Index(i), text, i, 4)
	}
	v.Set(list)
	return o
}

func deepCopy(to, from reflect.Value) {
	if into := from.Addr().MethodByName("DeepCopyInto"); into.IsValid() {
		into.Call([]reflect.Value{to.Addr()})
	} else {
		to.Set(from)
	}
}

// number puts a text with a number into the strings of a value, and the number into its
// numbers; no text leaves the value as it is.
func number(v reflect.Value, text string, i, depth int) {
	if text == "" || depth == 0 {
		return
	}
	switch o := v.Addr().Interface().(type) {
	case *metav1.Time, *metav1.MicroTime, *runtime.RawExtension:
		return
	case *apiresource.Quantity:
		*o = *apiresource.NewQuantity(int64(i), apiresource.DecimalSI)
		return
	case *intstr.IntOrString:
		*o = intstr.FromInt32(int32(i%60000 + 1))
		return
	}
	differ := strings.Contains(text, "%d")
	switch v.Kind() {
	case reflect.String:
		// What has to be one of a few words stays what it is.
		if v.String() == "" || strings.ToLower(v.String()) == v.String() {
			if differ {
				text = fmt.Sprintf(text, i)
			}
			v.SetString(text)
		}
	case reflect.Int32, reflect.Int64:
		if differ {
			v.SetInt(int64(i%60000 + 1))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			number(v.Elem(), text, i, depth)
		}
	case reflect.Struct:
		for j := range v.NumField() {
			if v.Type().Field(j).IsExported() {
				number(v.Field(j), text, i, depth-1)
			}
		}
	case reflect.Slice:
		for j := range v.Len() {
			number(v.Index(j), text, i, depth-1)
		}
	}
}

// measure runs what a kind does with an object that a client sends: as a new one, and as
// the next version of itself and of the base.
func (g *growth) measure(sent runtime.Object) time.Duration {
	typ := g.typ
	o, old := sent.DeepCopyObject(), g.base.DeepCopyObject()
	var copies []runtime.Object
	for range 3 {
		copies = append(copies, sent.DeepCopyObject())
	}
	begin := time.Now()
	for _, x := range append([]runtime.Object{o, old}, copies...) {
		if typ.Default != nil {
			typ.Default(x)
		}
	}
	if typ.Stored != nil {
		for _, x := range []*runtime.Object{&o, &old, &copies[0], &copies[1], &copies[2]} {
			var err error
			if *x, err = typ.ToStored(context.Background(), *x); err != nil {
				return 0
			}
		}
		typ = typ.Stored
	}
	if typ.PrepareCreate != nil {
		typ.PrepareCreate(o)
	}
	if typ.Validate != nil {
		typ.Validate(o)
	}
	if typ.Warnings != nil {
		typ.Warnings(o, nil)
		typ.Warnings(o, old)
		typ.Warnings(o, copies[1])
	}
	for _, was := range []runtime.Object{old, copies[1]} {
		next := copies[0]
		if typ.PrepareUpdate != nil {
			typ.PrepareUpdate(next, was)
		}
		if typ.ValidateUpdate != nil {
			typ.ValidateUpdate(next, was)
		}
		if typ.Tolerated != nil {
			typ.Tolerated(next)
		}
		for i := range typ.Subresources {
			s := &typ.Subresources[i]
			if s.Exchange == nil && s.Validate != nil {
				s.Validate(next, was)
			}
			if s.Exchange == nil && s.Warnings != nil {
				s.Warnings(next, was)
			}
		}
	}
	if typ.Reach() != nil {
		typ.Reach().SameDesired(copies[0], copies[1])
	}
	if typ.Columns != nil {
		typ.Columns.Cells(o, new(resource.Row))
	}
	return time.Since(begin)
}
