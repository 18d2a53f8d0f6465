package crd

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

type props = apiextensionsv1.JSONSchemaProps

func one[T any](r *rand.Rand, all ...T) T { return all[r.IntN(len(all))] }

func some[T any](r *rand.Rand, v T) *T {
	if r.IntN(3) > 0 {
		return nil
	}
	return &v
}

// randomSchema makes a schema of values up to a depth.
func randomSchema(r *rand.Rand, depth int) props {
	p := props{Type: one(r, "string", "integer", "number", "boolean", "object", "array"), Nullable: r.IntN(6) == 0}
	if depth == 0 {
		p.Type = one(r, "string", "integer", "number", "boolean")
	}
	switch p.Type {
	case "string":
		p.MinLength, p.MaxLength = some(r, int64(r.IntN(3))), some(r, int64(r.IntN(6)))
		p.Pattern = one(r, "", "", "^[a-z]*$", "b", "[")
		p.Format = one(r, "", "", "date-time", "ipv4", "byte", "uuid", "no-such-format")
		if r.IntN(6) == 0 {
			p.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}, {Raw: []byte(`"bé"`)}}
		}
		randomTexts(r, &p)
	case "integer", "number":
		p.Minimum, p.Maximum = some(r, float64(r.IntN(4)-2)), some(r, one(r, 1.5, 3, 1e10, 1e300))
		p.ExclusiveMinimum, p.ExclusiveMaximum = p.Minimum != nil && r.IntN(2) == 0, p.Maximum != nil && r.IntN(2) == 0
		p.MultipleOf = some(r, 0.5)
		p.Format = one(r, "", "", "int32", "int64", "double", "float")
		if r.IntN(8) == 0 {
			p.Enum = []apiextensionsv1.JSON{{Raw: []byte(`1`)}, {Raw: []byte(`2.5`)}}
		}
	case "array":
		item := randomSchema(r, depth-1)
		p.Items = &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &item}
		p.MinItems, p.MaxItems = some(r, int64(r.IntN(2))), some(r, int64(r.IntN(4)))
	case "object":
		randomMembers(r, &p, depth)
	}
	if r.IntN(12) == 0 {
		return props{XIntOrString: true, AnyOf: one(r, nil, []props{{Type: "integer"}, {Type: "string"}})}
	}
	return p
}

// randomTexts gives the schema of a string alternatives now and then.
func randomTexts(r *rand.Rand, p *props) {
	parts := func() (all []props) {
		for range 1 + r.IntN(3) {
			all = append(all, props{MinLength: some(r, int64(r.IntN(4))), MaxLength: some(r, int64(r.IntN(4))), Pattern: one(r, "", "^[a-z]*$", "b")})
		}
		return all
	}
	switch r.IntN(10) {
	case 0:
		p.AllOf = parts()
	case 1:
		p.AnyOf = parts()
	case 2:
		p.OneOf = parts()
	case 3:
		p.Not = &parts()[0]
	}
}

func randomMembers(r *rand.Rand, p *props, depth int) {
	p.MinProperties, p.MaxProperties = some(r, int64(r.IntN(2))), some(r, int64(r.IntN(4)))
	if r.IntN(3) == 0 {
		more := randomSchema(r, depth-1)
		p.AdditionalProperties = &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &more}
		return
	}
	p.Properties = map[string]props{}
	for _, name := range []string{"a", "b", "c"} {
		p.Properties[name] = randomSchema(r, depth-1)
	}
	if r.IntN(3) == 0 {
		p.Required = []string{one(r, "a", "b")}
	}
	if r.IntN(4) == 0 {
		p.AnyOf = []props{{Required: []string{"a"}}, {Required: []string{"c"}}}
	}
	p.XPreserveUnknownFields = some(r, true)
}

// randomValue makes a value that may be right.
func randomValue(r *rand.Rand, s *structuralschema.Structural) any {
	if r.IntN(12) == 0 {
		return one(r, any(nil), any("x"), any(int64(7)), any(2.5), any(true), any([]any{}), any(map[string]any{}))
	}
	switch s.Type {
	case "string":
		return one(r, "", "a", "b", "bé", "abcabc", "10.0.0.1", "2024-01-01T00:00:30Z", "aGk=", "0123abcd-0000-1111-8222-333344445555")
	case "integer":
		return one(r, int64(0), 1, 2, 3, -1, -2, 1<<31, 1<<53, 1<<62)
	case "number":
		return one(r, any(int64(1)), any(int64(2)), any(0.5), any(1.5), any(2.25), any(1e20), any(3e300))
	case "boolean":
		return r.IntN(2) == 0
	case "array":
		made := []any{}
		for range r.IntN(3) {
			made = append(made, randomValue(r, s.Items))
		}
		return made
	case "object":
		made := map[string]any{}
		for _, name := range []string{"a", "b", "c"} {
			p, ok := s.Properties[name]
			if !ok && s.AdditionalProperties != nil {
				p, ok = *s.AdditionalProperties.Structural, true
			}
			if ok && r.IntN(3) > 0 {
				made[name] = randomValue(r, &p)
			}
		}
		return made
	}
	return one(r, any(int64(3)), any("25%"), any(1.5))
}

// internalProps is a schema as the library has it.
func internalProps(t *testing.T, p *props) *apiextensions.JSONSchemaProps {
	t.Helper()
	made := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(p, made, nil); err != nil {
		t.Fatal(err)
	}
	return made
}

// TestFitsLikeLibrary checks that the library has no errors for an object that fits.
func TestFitsLikeLibrary(t *testing.T) {
	r := testrand.New(t)
	fit, right := 0, 0
	for range 3000 {
		p := randomSchema(r, 3)
		made := internalProps(t, &p)
		s, err := structuralschema.NewStructural(made)
		if err != nil {
			t.Fatal(err)
		}
		validator, _, err := apivalidation.NewSchemaValidator(made)
		if err != nil {
			t.Fatal(err)
		}
		c := &compiled{structural: s}
		for range 10 {
			v := randomValue(r, s)
			errs := apivalidation.ValidateCustomResource(nil, v, validator)
			if len(errs) == 0 {
				right++
			}
			if !c.fits(*s, v) {
				continue
			}
			if fit++; len(errs) > 0 {
				schema, _ := json.Marshal(p)
				value, _ := json.Marshal(v)
				t.Fatalf("%s fits %s: %v", value, schema, errs)
			}
		}
	}
	if t.Logf("%d of %d right values fit", fit, right); fit < right/2 {
		t.Error("too few")
	}
}

// TestNarrow checks that rules have the same results with a schema that has only the members that
// they name.
func TestNarrow(t *testing.T) {
	text := props{Type: "string"}
	p := props{Type: "object", Properties: map[string]props{"namespace": text, "d-e": text, "inner": {Type: "object", Properties: map[string]props{"x": text, "y": text}}}}
	for _, name := range []string{"a", "b", "c", "f", "g", "h", "i", "j"} {
		p.Properties[name] = text
	}
	v := map[string]any{"a": "1", "b": "2", "namespace": "n", "d-e": "3", "inner": map[string]any{"x": "1"}, "g": "4"}
	for rule, left := range map[string]int{
		"self.a == '1' && self.b != 'x'":                      2,
		"self.a == 'x'":                                       1,
		"self.__namespace__ == 'n' && self.d__dash__e == '4'": 2,
		"self.inner == oldSelf.inner":                         1,
		"self.inner.x == '2' || has(self.g)":                  2,
		"has(self.h) || has(self.inner.y)":                    2,
		"self == oldSelf":                                     11,
		"[self].all(s, s.a == '1')":                           11,
		"self.a == 'self.b' || self . b == '2'":               11,
		"self.?c.hasValue()":                                  1,
		"self.c == 'x'":                                       1,
	} {
		p.XValidations = apiextensionsv1.ValidationRules{{Rule: rule}}
		s, err := structuralschema.NewStructural(internalProps(t, &p))
		if err != nil {
			t.Fatal(err)
		}
		whole, narrowed := cel.NewValidator(s, false, celconfig.PerCallLimit), cel.NewValidator(rulesOf(s), false, celconfig.PerCallLimit)
		narrow(narrowed)
		if got := len(narrowed.Schema.Properties); got != left {
			t.Errorf("%s: %d properties are left, want %d", rule, got, left)
		}
		for _, old := range []any{nil, map[string]any{"a": "1", "inner": map[string]any{"x": "1"}}, v} {
			want, cost := whole.Validate(t.Context(), nil, s, v, old, celconfig.RuntimeCELCostBudget)
			got, same := narrowed.Validate(t.Context(), nil, s, v, old, celconfig.RuntimeCELCostBudget)
			if want.ToAggregate() == nil != (got.ToAggregate() == nil) || len(want) != len(got) || cost != same {
				t.Errorf("%s of %v: %v, budget %d, want %v, %d", rule, old, got, same, want, cost)
			}
		}
	}
}

// TestNarrowBelow: the same for rules at several depths. One rule reads a field that the others
// do not name.
func TestNarrowBelow(t *testing.T) {
	text := props{Type: "string"}
	leaf := func(rules ...string) props {
		p := props{Type: "object", Properties: map[string]props{"k": text, "x": text, "y": text, "d-e": text}}
		for _, r := range rules {
			p.XValidations = append(p.XValidations, apiextensionsv1.ValidationRule{Rule: r, MessageExpression: "'have ' + self.k"})
		}
		return p
	}
	list, keyed := "map", leaf("self.x == oldSelf.x")
	keyed.Required = []string{"k"}
	named := leaf("self.y == '1'")
	all := []string{"self.one.x == '1'", "!has(self.two) || self.two == oldSelf.two", "self.list.all(e, e.x != e.y)", "has(self.map.a) && self.map.a.x == '1'",
		"self.?one.?d__dash__e.orValue('') == 'e'", "size(self.one.x) == 1 && self.one.y.startsWith('2')", "'self.one' == self.one.k", "self.one . x == '1'", "self.?one.value // is it?\n().y == '1'"}
	v := func(x string) map[string]any {
		one := map[string]any{"k": "a", "x": x, "y": "2", "d-e": "e"}
		return map[string]any{"one": one, "two": one, "list": []any{one}, "map": map[string]any{"a": one}, "more": map[string]any{"deep": one}}
	}
	r, n := testrand.New(t), 30
	if tier.IsFull(t) {
		n = 300
	}
	for range n {
		p := props{Type: "object", Properties: map[string]props{
			"one": leaf(), "two": leaf("self.x == '1'"), "more": {Type: "object", Properties: map[string]props{"deep": named, "other": leaf()}},
			"list": {Type: "array", XListType: &list, XListMapKeys: []string{"k"}, Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &keyed}},
			"map":  {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &named}},
		}}
		for _, rule := range all {
			if r.IntN(3) == 0 {
				p.XValidations = append(p.XValidations, apiextensionsv1.ValidationRule{Rule: rule, FieldPath: []string{"", ".two.y"}[r.IntN(2)]})
			}
		}
		s, err := structuralschema.NewStructural(internalProps(t, &p))
		if err != nil {
			t.Fatal(err)
		}
		whole, narrowed := cel.NewValidator(s, false, celconfig.PerCallLimit), cel.NewValidator(rulesOf(s), false, celconfig.PerCallLimit)
		narrow(narrowed)
		for _, old := range []any{nil, v("1"), v("2")} {
			for _, x := range []string{"1", "2"} {
				want, cost := whole.Validate(t.Context(), nil, s, v(x), old, celconfig.RuntimeCELCostBudget)
				got, same := narrowed.Validate(t.Context(), nil, s, v(x), old, celconfig.RuntimeCELCostBudget)
				if a, b := sortedErrors(got), sortedErrors(want); !slices.Equal(a, b) || cost != same {
					t.Fatalf("%v of %v:\n%q, budget %d, want\n%q, %d", p.XValidations, old, a, same, b, cost)
				}
			}
		}
	}
}

func sortedErrors(errs field.ErrorList) (all []string) {
	for _, e := range errs {
		all = append(all, e.Error())
	}
	slices.Sort(all)
	return all
}
