package apply

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

type noDefaults struct{}

func (noDefaults) Default(runtime.Object) {}

// TestAllKinds fills objects of all built-in kinds at random, creates and updates
// them: managed fields are the library's, with the empty objects and the reset
// fields of the kind.
func TestAllKinds(t *testing.T) {
	r := testrand.New(t)
	text, err := embeddedText()
	if err != nil {
		t.Fatal(err)
	}
	lines := index(text)
	converter := applyconfigurations.NewTypeConverter(clientscheme.Scheme)
	var all []schema.GroupVersionKind
	for gvk := range clientscheme.Scheme.AllKnownTypes() {
		all = append(all, gvk)
	}
	slices.SortFunc(all, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	seen, straight := 0, 0
	for _, gvk := range all {
		empty, err := clientscheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		n, ok := reflect.Zero(reflect.TypeOf(empty).Elem()).Interface().(modelNamer)
		if _, object := empty.(metav1.Object); !ok || !object || lines[n.OpenAPIModelName()] == "" {
			continue
		}
		known := empty.DeepCopyObject()
		known.GetObjectKind().SetGroupVersionKind(gvk)
		if _, err := converter.ObjectToTyped(known); err != nil {
			continue // these are not applied
		}
		seen++
		s, err := Builtin(gvk, empty)
		if err != nil {
			t.Fatal(err)
		}
		for sub := range map[string]bool{"": true, "status": true} {
			var resets map[fieldpath.APIVersion]fieldpath.Filter
			if f := s.resets[sub]; f != nil {
				resets = map[fieldpath.APIVersion]fieldpath.Filter{fieldpath.APIVersion(s.apiVersion()): f.library}
			}
			theirs, err := managedfields.NewDefaultFieldManager(converter, clientscheme.Scheme, noDefaults{}, clientscheme.Scheme, gvk, gvk.GroupVersion(), sub, resets)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				k := kindHistory{t: t, s: s, theirs: theirs, empty: empty, sub: sub, fill: filler(r)}
				straight += k.run()
			})
		}
	}
	if seen < 60 || straight < 3*seen {
		t.Errorf("%d kinds, %d writes went straight", seen, straight)
	}
}

type kindHistory struct {
	t      *testing.T
	s      *Schema
	theirs *managedfields.FieldManager
	empty  runtime.Object
	sub    string
	fill   *randfill.Filler
}

// run creates and updates three times, and returns how many writes took the fast path.
func (k *kindHistory) run() (straight int) {
	live, managed := k.empty.DeepCopyObject(), []byte(nil)
	var old []byte
	for i, manager := range []string{"one", "two", "one"} {
		time.Sleep(time.Second)
		next := k.object()
		data := k.bytes(next)
		entries, err := parseManaged(managed)
		if err != nil {
			k.t.Fatal(err)
		}
		w := Write{Manager: manager, Subresource: k.sub, Time: time.Now()}
		if _, ok := k.s.updateFast(entries, old, data, w); ok {
			straight++
		}
		got, err := k.s.Update(managed, old, data, w)
		if err != nil {
			k.t.Fatal(err)
		}
		want := k.theirs.UpdateNoErrors(live.DeepCopyObject(), next.DeepCopyObject(), manager)
		var wanted []byte
		if m := want.(metav1.Object).GetManagedFields(); len(m) > 0 {
			wanted, _ = json.Marshal(m)
		}
		if string(got) != string(wanted) {
			k.t.Fatalf("%v %q, write %d\nold  %s\nnext %s\ngot  %s\nwant %s", k.s.kind, k.sub, i, old, data, got, wanted)
		}
		live, managed, old = want, got, data
	}
	return straight
}

func (k *kindHistory) bytes(o runtime.Object) []byte {
	o.(metav1.Object).SetManagedFields(nil)
	data, err := json.Marshal(o)
	if err != nil {
		k.t.Fatal(err)
	}
	return data
}

// object is one as it comes from a store.
func (k *kindHistory) object() runtime.Object {
	o := k.empty.DeepCopyObject()
	k.fill.Fill(o)
	o.GetObjectKind().SetGroupVersionKind(k.s.kind)
	meta := o.(metav1.Object)
	meta.SetUID("uid")
	data := k.bytes(o)
	o = k.empty.DeepCopyObject()
	if err := json.Unmarshal(data, o); err != nil {
		k.t.Fatalf("%v: %s", err, data)
	}
	return o
}

// source is chance in the older form.
type source struct{ *rand.Rand }

func (s source) Int63() int64 { return s.Int64() }
func (s source) Seed(int64)   {}

func filler(r *rand.Rand) *randfill.Filler {
	word := func() string { return []string{"a", "b", "c", "d<", "e f"}[r.IntN(5)] }
	return randfill.New().RandSource(source{r}).NilChance(0.4).NumElements(1, 3).MaxDepth(9).Funcs(
		func(s *string, _ randfill.Continue) { *s = word() },
		func(t *metav1.Time, _ randfill.Continue) { *t = metav1.Unix(r.Int64N(2_000_000_000), 0) },
		func(t *metav1.MicroTime, _ randfill.Continue) {
			*t = metav1.NewMicroTime(time.Unix(r.Int64N(2_000_000_000), 1000))
		},
		func(d *metav1.Duration, _ randfill.Continue) { d.Duration = time.Duration(r.IntN(9)) * time.Second },
		func(q *resource.Quantity, _ randfill.Continue) {
			*q = resource.MustParse([]string{"1", "100m", "2Gi"}[r.IntN(3)])
		},
		func(v *intstr.IntOrString, _ randfill.Continue) {
			*v = []intstr.IntOrString{intstr.FromInt32(3), intstr.FromString("x")}[r.IntN(2)]
		},
		func(e *runtime.RawExtension, _ randfill.Continue) { e.Raw = []byte(`{"a":{"b":[1]}}`) },
		func(e *[]metav1.ManagedFieldsEntry, _ randfill.Continue) { *e = nil },
		func(f *metav1.FieldsV1, _ randfill.Continue) { *f = metav1.FieldsV1{} },
	)
}
