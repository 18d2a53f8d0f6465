package crd

import (
	"math/rand/v2"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestCheckSchemaLikeLibrary compares the errors of values of a usual size with those of the
// library, and the validity of large ones, for creates and updates.
func TestCheckSchemaLikeLibrary(t *testing.T) {
	r := testrand.New(t)
	wrong, n := 0, 100
	if tier.IsFull(t) {
		n = 1000
	}
	for i := range n {
		p, long := randomSchema(r, 3), i%20 == 0
		if long {
			p = combined(r)
		}
		made := internalProps(t, &p)
		s, err := structuralschema.NewStructural(made)
		if err != nil {
			t.Fatal(err)
		}
		validator, whole, err := apivalidation.NewSchemaValidator(made)
		if err != nil {
			t.Fatal(err)
		}
		c := &compiled{structural: s, whole: whole}
		for range 3 {
			old, v := randomValue(r, s), randomValue(r, s)
			if long {
				old, v = longList(r), longList(r)
			} else if r.IntN(2) == 0 {
				old = v
			}
			same := func() *common.CorrelatedObject {
				return common.NewCorrelatedObject(v, old, &model.Structural{Structural: s})
			}
			for verb, lists := range map[string][2]field.ErrorList{
				"create": {c.checkSchema(t.Context(), nil, v, whole, nil), apivalidation.ValidateCustomResource(nil, v, validator)},
				"update": {c.checkSchema(t.Context(), nil, v, whole, same()), apivalidation.ValidateCustomResourceUpdate(nil, v, old, validator, apivalidation.WithRatcheting(same()))},
			} {
				got, want := words(lists[0]), words(lists[1])
				if len(want) > 0 {
					wrong++
				}
				if (len(got) == 0) != (len(want) == 0) || !long && !slices.Equal(got, want) {
					t.Fatalf("%s: %.3000q, want %.3000q", verb, got, want)
				}
			}
		}
	}
	if wrong < n/10 {
		t.Errorf("%d values were wrong", wrong)
	}
}

// combined is a list of strings, combined to random lengths.
func combined(r *rand.Rand) props {
	p := props{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{Type: "string"}}}
	length := func() props {
		return props{MinItems: some(r, int64(r.IntN(3000))), MaxItems: some(r, int64(r.IntN(3000)))}
	}
	all := []props{length(), length()}
	switch r.IntN(4) {
	case 0:
		p.AllOf = all
	case 1:
		p.AnyOf = all
	case 2:
		p.OneOf = all
	default:
		p.Not = &all[0]
	}
	return p
}

// longList has up to three times as many items as errors are looked for, now and then
// wrong ones.
func longList(r *rand.Rand) any {
	list := make([]any, resource.MaxErrors+r.IntN(2*resource.MaxErrors))
	item := one(r, any("a"), any("a"), any("a"), any(int64(1)))
	for i := range list {
		list[i] = item
	}
	return list
}

func words(errs field.ErrorList) []string {
	var all []string
	for _, e := range errs {
		all = append(all, e.Error())
	}
	slices.Sort(all)
	return all
}
