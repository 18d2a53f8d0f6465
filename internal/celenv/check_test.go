package celenv_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

func nested(open, in, end string, n int) string {
	return strings.Repeat(open, n) + in + strings.Repeat(end, n)
}

func joined(term, operator string, n int) string {
	return strings.TrimSuffix(strings.Repeat(term+operator, n), operator)
}

// joinedTwice avoids the limit on the depth of the parser: an operator that joins two operands makes a deep tree, but &&
// does not.
func joinedTwice(term, operator string, n int) string {
	return joined(joined(term, operator, 20)+" == d", " && ", n/20+1)
}

// bindings has n variables, each made from the one before.
func bindings(first, next, end string, n int) string {
	text := strings.ReplaceAll(end, "%", fmt.Sprint("v", n))
	for i := n; i > 0; i-- {
		text = fmt.Sprintf("cel.bind(v%d, %s, %s)", i, strings.ReplaceAll(next, "%", fmt.Sprint("v", i-1)), text)
	}
	return fmt.Sprintf("cel.bind(v0, %s, %s)", first, text)
}

// unified has n+1 variables with the type of an empty list, and finds that of each from the next.
func unified(item string, n int) string {
	text := "true"
	for i := range n {
		text += fmt.Sprintf(" && v%d == [%s]", i, strings.ReplaceAll(item, "%", fmt.Sprintf("v%d[0]", i+1)))
	}
	for i := range n + 1 {
		text = fmt.Sprintf("cel.bind(v%d, [], %s)", i, text)
	}
	return text
}

// checkShapes are shapes of expressions that may take long to check. The variable d has type dyn, and l is a list of strings.
var checkShapes = map[string]func(n int) string{
	"and":           func(n int) string { return joined("d.a == 1", " && ", n) },
	"literals":      func(n int) string { return joined("1==1", "&&", n) },
	"in":            func(n int) string { return joined("d in[1]", "&&", n) },
	"numbers":       func(n int) string { return joinedTwice("1", "+", n) },
	"sums":          func(n int) string { return joinedTwice("d", "+", n) },
	"texts":         func(n int) string { return joinedTwice("''", "+", n) },
	"empty sums":    func(n int) string { return joinedTwice("[]", "+", n) },
	"indexes":       func(n int) string { return joinedTwice("l[0]", "+", n) },
	"formats":       func(n int) string { return joinedTwice("'%s'.format([d])", "+", n) },
	"not":           func(n int) string { return strings.Repeat("!", n) + "true" },
	"lists":         func(n int) string { return "size(" + nested("[", "", "]", n) + ") > 0" },
	"full lists":    func(n int) string { return "size(" + nested("[", "1", "]", n) + ") > 0" },
	"maps":          func(n int) string { return "size(" + nested("{1:", "1", "}", n) + ") > 0" },
	"conditionals":  func(n int) string { return strings.Repeat("d?true:", n) + "true" },
	"calls":         func(n int) string { return nested("string(", "1", ")", n) + " > ''" },
	"dyn":           func(n int) string { return nested("dyn(", "1", ")", n) + " > ''" },
	"types":         func(n int) string { return nested("type(", "1", ")", n) + " == d" },
	"members":       func(n int) string { return "'a'" + strings.Repeat(".trim()", n) + " > ''" },
	"selects":       func(n int) string { return "d" + strings.Repeat(".a", n) + " > ''" },
	"optional":      func(n int) string { return "d" + strings.Repeat(".?a", n) + ".hasValue()" },
	"items":         func(n int) string { return "d" + strings.Repeat("[0]", n) + " > ''" },
	"optionals":     func(n int) string { return nested("optional.of(", "1", ")", n) + ".hasValue()" },
	"nested macros": func(n int) string { return nested("[1].map(a,", "1", ")", n) + ".size() > 0" },
	"nested all":    func(n int) string { return nested("[1].all(a,", "true", ")", n) },
	"wrapped":       func(n int) string { return "[1]" + strings.Repeat(".map(a,[a])", n) + ".size() > 0" },
	"doubled":       func(n int) string { return "[1]" + strings.Repeat(".map(a,{a:a})", n) + ".size() > 0" },
	"transformed":   func(n int) string { return "{1:1}" + strings.Repeat(".transformMap(k,v,{v:v})", n) + ".size() > 0" },
	"same":          func(n int) string { return "[1]" + strings.Repeat(".map(a,a)", n) + ".size() > 0" },
	"of":            func(n int) string { return "[1]" + strings.Repeat(".map(a,optional.of(a))", n) + ".size() > 0" },
	"filters":       func(n int) string { return "[1]" + strings.Repeat(".filter(a,true)", n) + ".size() > 0" },
	"sorted":        func(n int) string { return "[1]" + strings.Repeat(".sortBy(a,a)", n) + ".size() > 0" },
	"copied":        func(n int) string { return "optional.of(1)" + strings.Repeat(".optMap(a,a)", n) + ".hasValue()" },
	"flat":          func(n int) string { return "optional.of(1)" + strings.Repeat(".optFlatMap(a,d.?a)", n) + ".hasValue()" },
	"macros":        func(n int) string { return joined("[1].exists(a,a==1)", "&&", n) },
	"maps of lists": func(n int) string { return joined("l.map(a,a)==l", "&&", n) },
	"list":          func(n int) string { return "size([" + joined("1", ",", n) + "]) > 0" },
	"empty lists":   func(n int) string { return "size([" + joined("[]", ",", n) + "]) > 0" },
	"map":           func(n int) string { return "size({" + joined("1:1", ",", n) + "}) > 0" },
	"messages":      func(n int) string { return joined("google.protobuf.Int32Value{value:1}==1", "&&", n) },
	"patterns":      func(n int) string { return joined("'a'.matches('a')", "&&", n) },
	"sets":          func(n int) string { return joined("sets.contains(d,d)", "&&", n) },
	"bound":         func(n int) string { return bindings("1", "[%]", "[%] == d", n) },
	"bound maps":    func(n int) string { return bindings("1", "{%:%}", "[%] == d", n) },
	"unified":       func(n int) string { return unified("%", n) },
	"unified maps":  func(n int) string { return unified("{%:%}", n) },
	"unified sums":  func(n int) string { return unified("{%+%:[%]}", n) },
	"errors":        func(n int) string { return joined("(1+'')", "&&", n) },
}

func checkEnvironment(t *testing.T) *cel.Env {
	t.Helper()
	env, err := celenv.Base().StoredExpressionsEnv().Extend(ext.Bindings(), cel.Variable("d", cel.DynType), cel.Variable("l", cel.ListType(cel.StringType)))
	if err != nil {
		t.Fatal(err)
	}
	return env
}

// TestUsualExpressions compiles long expressions of usual shapes.
func TestUsualExpressions(t *testing.T) {
	env := checkEnvironment(t)
	for _, text := range []string{
		joined("d.a.b.c == 'value'", " || ", 500),
		joined("(d.a + 'x' + d.b == 'value')", " || ", 200),
		"'z' == (" + strings.Repeat("d.a == 'x' ? 'y' : ", 80) + "'z')",
		joined("d.l.all(x, x.name.startsWith('a') && x.value in ['b', 'c'])", " && ", 50),
		"d.x in ['" + joined("some", "','", 2000) + "']",
		joined("{'a': d.x, 'b': d.y}.a == {'x': [1, 2, 3]}.x[0]", " && ", 100),
		nested("string(", "d", ")", 100) + " == 'x'",
		`d.?spec.?foo.optMap(v, v.bar).optMap(w, w.baz).optMap(x, x.z).orValue("") == ""`,
		`d.?spec.?foo.optFlatMap(v, v.?bar).optFlatMap(w, w.?baz).optMap(x, x.z).orValue("") == ""`,
		`d.spec.containers.map(c, c.volumeMounts.map(m, {'a': m.name, 'b': dyn([m.path, m.x])})).exists(x, x[0].a == 'b')`,
		`[[[[[[[[1]]]]]]]].map(x, x.map(y, y.map(z, z.map(a, a)))) != [] && [{'a': [{'b': [{'c': {'d': [{}]}}]}]}].map(x, x.a).map(y, [y[0].b]) != []`,
		`cel.bind(a, d.x.map(x, x.y), cel.bind(b, d.y.filter(x, x in a), cel.bind(c, b.map(x, [x, x]), cel.bind(e, {'a': c}, e.a.size() > 0 && c.exists(q, q[0] in b)))))`,
		`d.labels.transformMap(k, v, v + 'x').transformMap(k, v, {'a': v}).transformMap(k, v, [v.a]).all(k, v, v[0] != k)`,
		`cel.bind(a, [], cel.bind(b, [a], cel.bind(c, {'a': b}, c.a == b && b == [a])))`,
	} {
		if _, work, issues := celenv.Compile(env, text, 1); issues != nil {
			t.Errorf("%.80s: work %d: %.300v", text, work, issues.Err())
		}
	}
}

// TestCostlyChecks compiles expressions that would take seconds to hours to check.
func TestCostlyChecks(t *testing.T) {
	env := checkEnvironment(t)
	for shape, n := range map[string]int{
		"lists": 240, "full lists": 240, "maps": 240, "optionals": 240, "wrapped": 100, "doubled": 40, "transformed": 40, "of": 100, "copied": 60, "flat": 60,
		"nested macros": 100, "bound maps": 40, "unified": 100, "unified maps": 40, "unified sums": 40, "empty sums": 800, "literals": 2000, "in": 2000, "maps of lists": 1000, "empty lists": 3000,
	} {
		if _, _, issues := celenv.Compile(env, checkShapes[shape](n), 1); issues == nil || !strings.Contains(issues.Err().Error(), "takes too long to check") && !strings.Contains(issues.Err().Error(), "must have at most 500 nodes") {
			t.Errorf("%s: %.300v", shape, issues.Err())
		}
	}
	// The types of variables count, too.
	if _, _, issues := celenv.Compile(env, joined("d2.a == d2.a", " && ", 10), 1000); issues == nil || !strings.Contains(issues.Err().Error(), "takes too long to check") {
		t.Errorf("a deep variable: %v", issues.Err())
	}
}

// TestCostlyRules looks at the rules of a schema that is stored already. A rule that takes too long does not compile.
func TestCostlyRules(t *testing.T) {
	const usual = "self.all(x, x > 0)"
	costly := checkShapes["lists"](240)
	rules := apiextensionsv1.ValidationRules{{Rule: costly, MessageExpression: costly}, {Rule: usual, MessageExpression: "'a' + 'b'"}}
	s := &apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"x": {
		Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{AllOf: []apiextensionsv1.JSONSchemaProps{{XValidations: rules}}}},
	}}}
	work := 0
	errs := celenv.CheckRules(s, field.NewPath("s"), &work)
	if len(errs) != 2 || errs[0].Field != "s.properties[x].items.allOf[0].x-kubernetes-validations[0].rule" || errs[1].Field != "s.properties[x].items.allOf[0].x-kubernetes-validations[0].messageExpression" {
		t.Errorf("got %v", errs)
	}
	celenv.DisableCostlyRules(s)
	env := checkEnvironment(t)
	if _, issues := env.Compile(rules[0].Rule); issues.Err() == nil || rules[0].Rule == costly || rules[0].MessageExpression == costly {
		t.Errorf("the rule is %q, its message %q", rules[0].Rule, rules[0].MessageExpression)
	}
	if rules[1].Rule != usual || rules[1].MessageExpression != "'a' + 'b'" {
		t.Errorf("the usual rule is %q, its message %q", rules[1].Rule, rules[1].MessageExpression)
	}
	// Arrays in arrays make deep types of the value.
	deep := &apiextensionsv1.JSONSchemaProps{Type: "string"}
	for range 200 {
		deep = &apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: deep}}
	}
	deep.XValidations = apiextensionsv1.ValidationRules{{Rule: joined("self == self", " && ", 10)}}
	if errs := celenv.CheckRules(deep, nil, &work); len(errs) != 1 {
		t.Errorf("deep arrays: %v", errs)
	}
}

// TestManyRules counts the rules of a schema, which take memory and time even if they are short.
func TestManyRules(t *testing.T) {
	for n, want := range map[int]int{500: 0, 1000: 0, 1001: 1, 1500: 500} {
		rules := make(apiextensionsv1.ValidationRules, n)
		for i := range rules {
			rules[i].Rule = "true"
		}
		if errs := celenv.CheckRules(&apiextensionsv1.JSONSchemaProps{XValidations: rules}, nil, new(int)); len(errs) != want {
			t.Errorf("%d rules: %d errors, want %d", n, len(errs), want)
		}
	}
}

// TestCheckTime compares the time to check the longest expression of each shape with that of a chain of comparisons.
func TestCheckTime(t *testing.T) {
	tier.Full(t)
	env := checkEnvironment(t)
	took := func(shape string) (time.Duration, int) {
		fits := func(n int) bool {
			work, err := celenv.WorkIn(env, checkShapes[shape](n))
			return err == nil && work <= celenv.MaxWork
		}
		n := 1
		for n < 3000 && fits(2*n) {
			n *= 2
		}
		for step := n / 2; step > 0; step /= 2 {
			if fits(n + step) {
				n += step
			}
		}
		parsed, issues := env.Parse(checkShapes[shape](n))
		if issues.Err() != nil {
			t.Fatalf("%s of %d: %v", shape, n, issues.Err())
		}
		least := time.Hour
		for range 2 {
			begin := testkinds.CPUTime()
			env.Check(parsed)
			least = min(least, testkinds.CPUTime()-begin)
		}
		return least, n
	}
	base, n := took("and")
	t.Logf("and: %d, %v", n, base)
	for shape := range checkShapes {
		if took, n := took(shape); took > 10*base {
			t.Errorf("%s of %d: %v, a chain of comparisons %v", shape, n, took, base)
		} else {
			t.Logf("%s: %d, %v", shape, n, took)
		}
	}
}
