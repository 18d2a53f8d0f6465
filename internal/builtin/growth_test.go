package builtin_test

import (
	"context"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var (
	growthAll = flag.Bool("growth-all", false, "TestGrowth tries all lists, and not a part of them by chance")
	growthOf  = flag.String("growth-of", "", "what the lists that TestGrowth tries have in their names")
)

// growthPart is the inverse of the part of the combinations of a list and its entries that the test
// tries.
const growthPart = 8

// TestGrowth fills each list and each map of each kind with many entries: different and equal,
// valid and invalid. The cost of defaulting, validation, warnings and columns must grow in
// proportion. It tries a random part of the combinations; -growth-all tries all.
func TestGrowth(t *testing.T) {
	tier.Full(t)
	const few = 1000
	g := growth{t: t, chance: testrand.New(t), few: few}
	objects := map[string]runtime.Object{}
	for _, o := range testkinds.Objects(t, "../../test/kinds/testdata/objects", "x", rand.New(rand.NewPCG(1, 1))) {
		for typ := range builtin.Catalog().Types() {
			if typ.Kind != o["kind"] || typ.GroupVersion().String() != o["apiVersion"] || typ.Collection == "" {
				continue
			}
			objects[typ.GroupVersionKind().String()] = testkinds.Typed(t, o, typ.New())
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
		for _, l := range g.lists.Of(o) {
			g.try(l)
		}
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
	lists  testkinds.Lists
	fields int
}

// try fills a list or a map.
func (g *growth) try(l testkinds.List) {
	g.fields++
	for _, e := range testkinds.Entries {
		if !*growthAll && g.chance.IntN(growthPart) > 0 {
			continue
		}
		if !strings.Contains(g.typ.Kind+" "+l.Name, *growthOf) {
			continue
		}
		slow := testkinds.Growth(g.few, growthNoise, func(n int) testkinds.Steps { return g.measure(l.Fill(g.base, e.Text, n)) })
		if slow != "" {
			g.t.Errorf("%s %s, %s: %s", g.typ.Kind, l.Name, e.Name, slow)
		}
	}
}

// growthNoise is the CPU time below which a list is not compared.
const growthNoise = 20 * time.Millisecond

// measure runs the functions of a kind over an object that a client sends: as a new one,
// and as the next version of itself and of the base.
func (g *growth) measure(sent runtime.Object) testkinds.Steps {
	o, old := sent.DeepCopyObject(), g.base.DeepCopyObject()
	copies := []runtime.Object{sent.DeepCopyObject(), sent.DeepCopyObject(), sent.DeepCopyObject()}
	took := testkinds.Steps{}
	err := took.Do("all functions of the kind", func() error { return runKind(g.typ, o, old, copies) })
	if err != nil {
		return nil // the object has no stored version
	}
	return took
}

// runKind calls the functions of a kind as a create and two updates do: one from old, and one from
// one of three equal copies.
func runKind(typ *resource.Type, o, old runtime.Object, copies []runtime.Object) error {
	for _, x := range append([]runtime.Object{o, old}, copies...) {
		if typ.Strategy.Default != nil {
			typ.Strategy.Default(x)
		}
	}
	if typ.Conversion != nil {
		for _, x := range []*runtime.Object{&o, &old, &copies[0], &copies[1], &copies[2]} {
			var err error
			if *x, err = typ.Conversion.ToStored(context.Background(), *x); err != nil {
				return err
			}
		}
		typ = typ.StoredVersion()
	}
	if typ.Strategy.PrepareCreate != nil {
		typ.Strategy.PrepareCreate(o)
	}
	if typ.Strategy.Validate != nil {
		typ.Strategy.Validate(context.Background(), o)
	}
	if typ.Strategy.Warnings != nil {
		typ.Strategy.Warnings(o, nil)
		typ.Strategy.Warnings(o, old)
		typ.Strategy.Warnings(o, copies[1])
	}
	for _, was := range []runtime.Object{old, copies[1]} {
		next := copies[0]
		if typ.Strategy.PrepareUpdate != nil {
			next = typ.Strategy.PrepareUpdate(next, was)
		}
		if typ.Strategy.ValidateUpdate != nil {
			typ.Strategy.ValidateUpdate(context.Background(), next, was)
		}
		if typ.Strategy.Tolerated != nil {
			typ.Strategy.Tolerated(next)
		}
		for i := range typ.Subresources {
			s := &typ.Subresources[i]
			if s.Exchange == nil && s.Validate != nil {
				s.Validate(context.Background(), next, was)
			}
			if s.Exchange == nil && s.Warnings != nil {
				s.Warnings(next, was)
			}
		}
	}
	if typ.Parts() != nil {
		typ.Parts().SameDesired(copies[0], copies[1])
	}
	if typ.Display.Columns != nil {
		typ.Display.Columns.Cells(o, new(resource.Row))
	}
	return nil
}
