package crd

import (
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/unexported"
)

// ruled returns the schema of an object with fields of each type and the given rules.
func ruled(t *testing.T, rules ...apiextensionsv1.ValidationRule) *structuralschema.Structural {
	t.Helper()
	list := func(of props, kind string, keys ...string) props {
		return props{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &of}, XListType: &kind, XListMapKeys: keys}
	}
	p := props{Type: "object", XValidations: rules, Properties: map[string]props{
		"n": {Type: "integer"}, "f": {Type: "number"}, "s": {Type: "string"}, "b": {Type: "boolean"}, "nope": {Type: "string"},
		"time": {Type: "string", Format: "date-time"}, "either": {XIntOrString: true},
		"l":    list(props{Type: "integer"}, "atomic"),
		"set":  list(props{Type: "string"}, "set"),
		"keys": list(props{Type: "object", Properties: map[string]props{"k": {Type: "string"}, "v": {Type: "integer"}}, Required: []string{"k"}}, "map", "k"),
		"m":    {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &props{Type: "string"}}},
		"o":    {Type: "object", Properties: map[string]props{"a": {Type: "object", Properties: map[string]props{"b": {Type: "integer"}}}}, XPreserveUnknownFields: new(true)},
	}}
	s, err := structuralschema.NewStructural(internalProps(t, &p))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestReplacedPrograms compares the errors and the costs of rules with the library's programs with
// those of the replaced programs.
func TestReplacedPrograms(t *testing.T) {
	messages := []string{"", "'n is ' + string(self.n)", "self.l.map(x, string(x)).join(',')", "string(self.l[99])", "self.nope"}
	texts := []string{
		"self.n > 2", "self.n > 2 && self.s == 'text'", "self.nope == 'a' || self.b", "has(self.nope) && self.nope == 'a'", "!has(self.o.a.b)", "self.o.a.b == 1",
		"self.l.all(x, x >= 0)", "self.l.all(x, x > 2)", "self.l.exists(x, x == 3)", "self.l.exists_one(x, x == 3)", "self.l.map(x, x * 2).size() == 3", "self.l.filter(x, x > 1) == [2, 3]",
		"self.l.all(x, self.l.exists(y, x + y == 4))", "self.l.all(x, 10 / (x - 2) > 0)", "self.l.sum() > 5 && self.l.isSorted() && self.l.max() == 3", "self.l[1] == 2", "self.l[9] == 2",
		"self.set.all(s, s.startsWith('a'))", "'b' in self.set", "self.set == ['b', 'a']", "self.set + ['c'] == ['c', 'b', 'a']",
		"self.keys.all(e, e.v > 0)", "self.keys.exists(e, e.k == 'a' && e.v == 1)", "self.keys.map(e, e.k).join(',') == 'a,b'", "self.keys == oldSelf.keys",
		"self.m.all(k, self.m[k] != '')", "self.m.exists(k, k == 'absent')", "self.m.a == 'x'", "self.m['zzz'] == 'x'", "self.m.size() > 1 ? self.b : self.n == 3",
		"self.s.matches('^t.*t$')", "self.s.contains(self.s)", "self.s.find('x') == 'x'", "self.s.split('').all(c, c != 'q')", "self.s + self.s == 'texttext'", "size(self.s) < 4",
		"self.time > timestamp('2020-01-01T00:00:00Z')", "self.time.getFullYear() == 2026", "self.either == 1", "type(self.either) == int", "self.either > 3", "quantity(self.s).isGreaterThan(quantity('1'))",
		"self.f / 2.0 < 1.0", "self.f == double(self.n)", "oldSelf.n <= self.n", "self.l.all(x, x in oldSelf.l)", "[1, 2, 3].all(i, i > 1 || self.l.all(x, x > i))", "self.?o.?a.?b.orValue(5) == 5",
		"self.l.all(i, v, i < v)", "self.m.transformMap(k, v, v + 'a').size() == 2", "cidr('10.0.0.0/8').containsIP(self.s)", "self.metadata.name == 'x'", "optional.of(self.n).hasValue()",
	}
	object := func(n int64) map[string]any {
		return map[string]any{
			"n": n, "f": 1.5, "s": "text", "b": false, "time": "2026-11-30T00:00:00Z", "either": "a", "l": []any{n - 2, int64(2), int64(3)}, "set": []any{"b", "a"},
			"keys": []any{map[string]any{"k": "a", "v": int64(1)}, map[string]any{"k": "b", "v": n - 3}}, "m": map[string]any{"a": "x", "b": "y", "long": strings.Repeat("long", 5_000)}, "o": map[string]any{"a": map[string]any{"b": n}, "else": "z"},
			"metadata": map[string]any{"name": "x"},
		}
	}
	objects := []map[string]any{object(3), object(2), object(5), {"n": int64(1), "l": []any{}, "either": int64(1), "metadata": map[string]any{}}}
	var rules apiextensionsv1.ValidationRules
	for i, text := range texts {
		rule := apiextensionsv1.ValidationRule{Rule: text, MessageExpression: messages[i%len(messages)], Message: text}
		rules = append(rules, rule)
		if strings.Contains(text, "oldSelf.") {
			rule.Rule, rule.OptionalOldSelf = strings.ReplaceAll(text, "oldSelf.", "oldSelf.value()."), new(true)
			rules = append(rules, rule)
		}
	}
	for name, rules := range map[string]apiextensionsv1.ValidationRules{
		"all": rules,
		// They exceed the cost of one evaluation.
		"expensive": {{Rule: "self.m.long.contains(self.m.long)"}},
		"message":   {{Rule: "self.n < 0", MessageExpression: "string(self.m.long.contains(self.m.long))"}},
	} {
		s := ruled(t, rules...)
		library, replaced := cel.NewValidator(s, true, celconfig.PerCallLimit), cel.NewValidator(s, true, celconfig.PerCallLimit)
		replacePrograms(replaced)
		programs, err := unexported.Field[[]cel.CompilationResult](replaced, "compiledRules")
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range *programs {
			if c.Program == nil || !expression.Replaced(c.Program.(counted).Program) || c.MessageExpression != nil && !expression.Replaced(c.MessageExpression) {
				t.Errorf("the library evaluates %q: %v", rules[i].Rule, c.Error)
			}
		}
		for i, of := range objects {
			for _, old := range []any{nil, objects[0]} {
				want, wantLeft := library.Validate(t.Context(), nil, s, of, old, celconfig.RuntimeCELCostBudget)
				got, left := replaced.Validate(t.Context(), nil, s, of, old, celconfig.RuntimeCELCostBudget)
				if fmt.Sprint(got) != fmt.Sprint(want) || left != wantLeft || len(want) == 0 {
					t.Errorf("%s, object %d, old %v:\ngot  %v, %d left\nwant %v, %d left", name, i, old != nil, got, left, want, wantLeft)
				}
			}
		}
	}
}

// TestRuleTimes: the time of a rule is linear in the items of a list.
func TestRuleTimes(t *testing.T) {
	tier.Full(t)
	s := ruled(t, apiextensionsv1.ValidationRule{Rule: "self.l.all(x, x >= 0)"})
	rules := cel.NewValidator(s, true, celconfig.PerCallLimit)
	replacePrograms(rules)
	took := func(items int) time.Duration {
		list := make([]any, items)
		for i := range list {
			list[i] = int64(i)
		}
		begin := testkinds.CPUTime()
		if errs, _ := rules.Validate(t.Context(), nil, s, map[string]any{"l": list}, nil, celconfig.RuntimeCELCostBudget); len(errs) > 0 {
			t.Fatal(errs)
		}
		return testkinds.CPUTime() - begin
	}
	took(1) // plans the rule
	const attempts = 5
	for n := range attempts {
		short, long := took(8_000), took(128_000)
		if long < 64*short { // 16 times as many
			return
		}
		if n == attempts-1 {
			t.Errorf("8,000 items took %v, 128,000 took %v", short, long)
		}
	}
}
