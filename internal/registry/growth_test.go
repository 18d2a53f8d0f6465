package registry_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

var (
	growthAll = flag.Bool("growth-all", false, "TestGrowth tries all lists, and not a random sample")
	growthFew = flag.Int("growth-few", 1000, "how many entries TestGrowth begins with; it compares them with four times as many, or as many as a body brings")
	growthOf  = flag.String("growth-of", "", "what the kind and list that TestGrowth tries contain")
)

const (
	// growthSample is how many combinations of a list and its entries TestGrowth tries.
	growthSample = 12
	// growthNoise is the CPU time below which a step is not compared.
	growthNoise = 50 * time.Millisecond
	// growthBytes is the most that an object has: a body brings 3 MiB.
	growthBytes = 5 << 19
)

// TestGrowth sends objects with many entries in one of their lists or maps through the
// verbs: the time that a verb takes grows as the entries do. It tries a random sample of
// the lists of all kinds; -growth-all tries all.
func TestGrowth(t *testing.T) {
	tier.Full(t)
	g := growth{t: t, few: *growthFew, responded: map[string]int{}}
	chance := testrand.New(t)
	type combination struct {
		typ  *resource.Type
		base runtime.Object
		list testkinds.List
		name string
		text string
	}
	var all []combination
	var lists testkinds.Lists
	for typ, base := range growthBases(t) {
		for _, l := range lists.Of(base) {
			for _, e := range testkinds.Entries {
				if strings.Contains(typ.Kind+" "+l.Name+" "+e.Name, *growthOf) {
					all = append(all, combination{typ, base, l, e.Name, e.Text})
				}
			}
		}
	}
	if *growthOf == "" && len(all) < 600 {
		t.Errorf("%d lists and maps were found", len(all))
	}
	chance.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if !*growthAll && len(all) > growthSample {
		all = all[:growthSample]
	}
	for _, c := range all {
		g.typ, g.base = c.typ, c.base
		g.try(c.list, c.name, c.text)
	}
	t.Logf("%d lists; successes of the steps: %v", len(all), g.responded)
}

// growthBases are an object of each kind that can be created. Of the parts of a template
// that exclude each other not all suit each other.
func growthBases(t *testing.T) iter.Seq2[*resource.Type, runtime.Object] {
	const attempts = 8
	return func(yield func(*resource.Type, runtime.Object) bool) {
		done := map[*resource.Type]bool{}
		for i := range uint64(attempts) {
			for _, o := range testkinds.Objects(t, "../../test/kinds/testdata/objects", "x", rand.New(rand.NewPCG(1, i))) {
				typ := typeOf(o)
				if typ == nil || done[typ] {
					continue
				}
				base := testkinds.Typed(t, o, typ.New())
				if typ.Kind == "IPAddress" {
					base.(metav1.Object).SetName("10.77.0.7")
				}
				_, err := newServer(t, store.Options{}).Create(t.Context(), growthTarget(typ, ""), registry.Body{Media: wire.JSON, Bytes: asJSON(t, base)}, registry.WriteOptions{})
				if done[typ] = err == nil; done[typ] && !yield(typ, base) {
					return
				}
				if err != nil && i == attempts-1 {
					t.Errorf("%s: %v", typ.Kind, err)
				}
			}
		}
	}
}

func growthTarget(typ *resource.Type, name string) registry.Target {
	t := registry.Target{Type: typ, Name: name}
	if typ.Namespaced {
		t.Namespace = "default"
	}
	return t
}

// typeOf is the type of a template; nil: its objects are not stored.
func typeOf(o map[string]any) *resource.Type {
	for typ := range builtin.Catalog().Types() {
		if typ.Kind == o["kind"] && typ.GroupVersion().String() == o["apiVersion"] && typ.Collection != "" {
			return typ
		}
	}
	return nil
}

type growth struct {
	t         *testing.T
	few       int
	typ       *resource.Type
	base      runtime.Object
	responded map[string]int
}

// try compares n entries with 4n.
func (g *growth) try(l testkinds.List, name, text string) {
	size := 1 + (len(asJSON(g.t, l.Fill(g.base, text, 101)))-len(asJSON(g.t, l.Fill(g.base, text, 1))))/100
	most := growthBytes / size / 4
	n := min(g.few, most)
	slow := testkinds.Growth(n, growthNoise, func(n int) testkinds.Steps { return g.run(l.Fill(g.base, text, n)) })
	if slow != "" {
		g.t.Errorf("%s %s, %s: %s", g.typ.Kind, l.Name, name, slow)
	}
}

// run sends an object through the verbs of a new server: as a new one, and as the next
// version of the base and of itself.
func (g *growth) run(filled runtime.Object) testkinds.Steps {
	s := newServer(g.t, store.Options{})
	took := testkinds.Steps{}
	step := func(name string, do func() error) {
		err := took.Do(name, do)
		if *growthOf != "" && err != nil {
			g.t.Logf("%s: %.300v", name, err)
		}
		if err == nil {
			g.responded[name]++
		}
	}
	ctx := context.Background()
	base, much := asJSON(g.t, g.base), asJSON(g.t, filled)
	at, in := growthTarget(g.typ, g.base.(metav1.Object).GetName()), growthTarget(g.typ, "")
	put := func(o runtime.Object) func() error {
		o = o.DeepCopyObject()
		return func() error {
			stored := s.Store.Any().Get(g.typ.Collection, keyOf(at))
			o.(metav1.Object).SetResourceVersion(fmt.Sprint(uint64(stored.Modified)))
			text := asJSON(g.t, o)
			_, err := s.Update(ctx, at, registry.Body{Media: wire.JSON, Bytes: text}, registry.WriteOptions{FieldManager: "putter"})
			return err
		}
	}
	patch := func(p types.PatchType, text []byte, manager string) func() error {
		return func() error {
			_, err := s.Patch(ctx, at, registry.Patch{Type: p, Bytes: text}, registry.WriteOptions{FieldManager: manager})
			return err
		}
	}
	applied := func(text []byte, manager string) func() error {
		return func() error {
			_, err := s.Patch(ctx, at, registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: text}, registry.WriteOptions{FieldManager: manager, Force: new(true)})
			return err
		}
	}
	step("create", func() error {
		_, err := s.Create(ctx, in, registry.Body{Media: wire.JSON, Bytes: much}, registry.WriteOptions{FieldManager: "creator"})
		return err
	})
	if s.Store.Any().Get(g.typ.Collection, keyOf(at)) == nil {
		_, err := s.Create(ctx, in, registry.Body{Media: wire.JSON, Bytes: base}, registry.WriteOptions{FieldManager: "creator"})
		if err != nil {
			g.t.Fatalf("%s: %v", g.typ.Kind, err)
		}
	}
	step("read", func() error { return g.read(s, at) })
	step("put the same", put(filled))
	step("put few", put(g.base))
	step("put many", put(filled))
	step("strategic patch", patch(types.StrategicMergePatchType, much, "patcher"))
	step("merge patch", patch(types.MergePatchType, much, "patcher"))
	step("json patch", patch(types.JSONPatchType, []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}},{"op":"copy","from":"/metadata/labels","path":"/metadata/annotations"},{"op":"remove","path":"/metadata/labels/a"}]`), "patcher"))
	step("put few again", put(g.base))
	step("apply few", applied(base, "one"))
	step("apply many", applied(much, "one"))
	step("apply many by another", applied(much, "two"))
	step("apply few by another", applied(base, "two"))
	step("apply few of many", applied(base, "one"))
	step("strategic patch of few", patch(types.StrategicMergePatchType, much, "patcher"))
	return took
}

// read reads an object in all its forms, and selects it.
func (g *growth) read(s *server, at registry.Target) error {
	ctx := context.Background()
	got, err := s.Get(ctx, at, "")
	if err != nil {
		return err
	}
	value, err := wire.As(ctx, at.Type, got.Stored.Bytes())
	if err != nil {
		return err
	}
	if _, err := wire.MessageOf(at.Type, value); err != nil {
		return err
	}
	o, err := wire.Unmarshal(got.Stored.Bytes(), at.Type.StoredVersion().New)
	if err != nil {
		return err
	}
	if at.Type.Display.Columns != nil {
		at.Type.Display.Columns.Cells(o, new(resource.Row))
	}
	if _, err := wire.MetadataOf(value); err != nil {
		return err
	}
	l, err := s.List(ctx, registry.Target{Type: at.Type}, &metainternal.ListOptions{
		LabelSelector: labels.SelectorFromSet(labels.Set{"a": "b"}),
		FieldSelector: fields.OneTermNotEqualSelector("metadata.name", "y"),
	})
	if err != nil {
		return err
	}
	defer l.Close()
	for _, err := range l.Items {
		if err != nil {
			return err
		}
	}
	return nil
}

func keyOf(t registry.Target) string {
	if t.Namespace != "" {
		return t.Namespace + "/" + t.Name
	}
	return t.Name
}

func asJSON(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
