package expression

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// costly are expressions with every kind of step. object.l is a list, object.m a map, object.s a text.
var costly = []string{
	"1 + 1 == 2", "object.n > 2 && object.s == 'text'", "object.nope == 1 || true", "true || object.nope == 1", "object.nope == 1 && object.n == 1",
	"object.l.all(x, x > 0)", "object.l.all(x, x > 0 && x < 100)", "object.l.exists(x, x == 3 || x == 5)", "object.l.exists_one(x, x == 3)",
	"object.l.map(x, x * 2)", "object.l.map(x, x > 2, x * 2).size()", "object.l.filter(x, x % 2 == 0)", "object.l.all(x, object.l.all(y, x + y > 0 && x - y < 10))",
	"object.d.all(k, object.d[k] == k || k.startsWith('e'))", "object.d.map(k, k).join(',')", "object.m['a']", "object.l[0] + object.l[object.n]", "object.l[object.l[0]]",
	"object.m[object.s]", "object.d.e.f", "object['d']['e'].f", "has(object.d)", "has(object.d.e.g)", "has(object.nope.a)", "!has(object.nope)",
	"(object.n > 2 ? object.d : object.m).e.f", "has((object.n > 2 ? object.d : object.m).e)", "object.n > 2 ? 'a' : object.s", "(object.n > 20 ? object.l : [1, 2])[0]",
	"[object.n, object.n].size()", "{'a': object.n}.size()", "{object.s: object.n}[object.s]", "[1, 2] + object.l", "'a' in object.m", "2 in object.l", "2 in [1, 2, 3]", "object.n in [1, 2, 3]",
	"object.?nope.orValue(3)", "object.?d.?e.orValue({})", "object[?'nope'].hasValue()", "optional.of(object.s).or(optional.of('b')).value()", "object.?d.optMap(x, x.e).orValue(1)",
	"object.s.matches('t.*t')", "object.s.matches(object.s)", "object.s.contains('ex')", "object.s.startsWith('te') && object.s.endsWith('xt')", "object.s + 'a' + object.s",
	"object.s < 'u'", "bytes(object.s)", "string(b'abc')", "string(object.n)", "int('12') + 1", "double(object.n) / 2.0", "duration('1h') < duration('2h')", "timestamp('2026-01-01T00:00:00Z').getFullYear()",
	"object.s.find('e.')", "object.s.findAll('[a-z]')", "object.s.split('')", "object.s.replace('t', 'tt')", "object.s.upperAscii()", "object.s.substring(1, 2)", "'%s %d'.format([object.s, object.n])",
	"sets.contains(object.l, [1, 2])", "sets.intersects(object.l, object.l)", "sets.equivalent(object.l, object.l)", "lists.range(10)", "object.l.distinct()", "object.l.sort()", "object.l.reverse()", "object.l.slice(0, 2)",
	"[[1], [2]].flatten()", "[dyn([1]), dyn([2, 3]), dyn(3)].flatten(2)", "object.l.sum()", "object.l.min()", "object.l.max()", "object.l.isSorted()", "object.l.indexOf(2)", "object.l.sortBy(x, -x)",
	"object.l == [1, 2, 3, 4, 5]", "object.m == {'a': 'a'}", "object.d == object.d", "object.l != object.l",
	"url('https://example.com:80/a?b=c').getHost()", "isURL(object.s)", "quantity('1Gi').isGreaterThan(quantity('1Mi'))", "quantity('1').add(3).asInteger()", "ip('1.2.3.4').family()", "cidr('10.0.0.0/8').containsIP('10.1.2.3')",
	"format.dns1123Label().validate(object.s)", "semver('1.2.3').major()", "isSemver('v1')",
	"object.o.transformList(k, v, k + v)", "object.m.transformMap(k, v, v)", "object.l.transformList(i, v, i > 1, v)", "object.l.all(i, v, i < v)", "object.l.existsOne(i, v, i == v)",
	"dyn(object.s) == 'text'", "type(object.s) == string", "type(object.n)", "null == object.nothing", "-object.n", "!(object.n > 1)", "size(object.s) + object.l.size()", "object.l.exists(x, object.m.exists(k, k == string(x)))",
	"request.operation", "variables.v + variables.v", "variables.w.all(x, x in variables.w)", "variables.?v.orValue(2)",
	"object.l.all(x, [1, 2, 3].exists(y, y == x || x > 3))", "object.l.map(x, {'l': [x]}).map(o, o.l[0])", "1 / 0 == 1 || object.n > 1", "object.l[99]", "object.l.map(x, x / 0)",
	"object.l.all(x, x / 0 > 0)", "object.l.all(x, 10 / (x - 2) > 0)", "object.l.all(x, x < 3 && 10 / (x - 5) < 0)", "object.l.exists(x, 10 / (x - 1) > 2)", "object.l.exists(x, 10 / (x - 5) > 20)",
	"object.l.all(x, object.d)", "object.l.exists(x, object.s)", "object.l.all(x, object.nope)", "object.l.exists(x, dyn(x) == 2)", "object.s.all(x, true)", "dyn(object.n).exists(x, true)", "[].all(x, false)", "[].exists(x, true)",
	"object.m.all(k, object.m[k] != '')", "object.m.exists(k, k == 'absent')", "!object.l.all(x, !(x == 3)) && object.l.exists(x, x == 1)", "object.l.all(x, object.l.exists(x, x == 3))", "object.nope.all(x, true) || true",
	"object.l.map(x, object.l.all(y, y >= x)).exists(b, b)", "lists.range(300).all(x, lists.range(300).all(y, lists.range(300).all(z, x + y + z >= 0)))", "lists.range(2000).exists(x, lists.range(2000).exists(y, x + y < 0))",
	"lists.range(20).all(x, lists.range(20).all(y, x + y >= 0 && (x == y || x != y)))",
}

// TestCosts compares results, errors and costs with those of CEL's own programs.
func TestCosts(t *testing.T) {
	in := &Input{
		Object: map[string]any{
			"n": int64(3), "s": "text", "l": []any{int64(1), int64(2), int64(3), int64(4), int64(5)}, "m": map[string]any{"a": "a", "b": "c", "text": "x"},
			"d": map[string]any{"e": map[string]any{"f": "g"}}, "nothing": nil, "o": map[string]any{"a": "b"},
		},
		Request: map[string]any{"operation": "CREATE"},
	}
	v := Variables{}
	composition := new(Composition)
	composition, _ = composition.With("v", "object.n", v, Stored)
	composition, _ = composition.With("w", "object.l.map(x, x + variables.v)", v, Stored)
	v.Composited = composition
	env, err := environmentOf(v.environment(Stored))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range costly {
		p, failed := Compile(text, v, Stored)
		if failed != nil {
			t.Errorf("%s: %v", text, failed)
			continue
		}
		value, cost, err := p.run.Eval(t.Context(), NewEvaluation(t.Context(), in, composition, Budget))
		env.mu.Lock()
		release := env.declare(composition)
		ast, issues := env.Compile(text)
		release()
		env.mu.Unlock()
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, planErr := env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
		if planErr != nil {
			t.Fatal(planErr)
		}
		wantValue, details, wantErr := program.ContextEval(t.Context(), NewEvaluation(t.Context(), in, composition, Budget))
		if want := *details.ActualCost(); cost != want {
			t.Errorf("%s: costs %d, want %d", text, cost, want)
		}
		if fmt.Sprint(err) != fmt.Sprint(wantErr) {
			t.Errorf("%s: error %v, want %v", text, err, wantErr)
		}
		if err == nil && wantErr == nil && wantValue.Equal(value) != types.True {
			t.Errorf("%s: got %v, want %v", text, value, wantValue)
		}
	}
}

// TestLongComprehension evaluates a comprehension up to the limit of cost. It takes seconds if a
// step takes the longer the more steps were before it.
func TestLongComprehension(t *testing.T) {
	in := &Input{Object: map[string]any{"s": strings.Repeat("x", 100_000)}}
	p, err := Compile("object.s.split('').all(x, x == 'x' && x != 'y')", Variables{}, Stored)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEvaluation(t.Context(), in, nil, Budget)
	value, failed := e.Eval(p)
	if failed != nil || value != types.True || e.Budget() > Budget-500_000 {
		t.Errorf("got %v, %v with a budget of %d left", value, failed, e.Budget())
	}
}

// TestOtherVersions: with a version of cel-go whose fields are unknown, expressions still have their
// results and costs.
func TestOtherVersions(t *testing.T) {
	env, err := environmentOf(Variables{}.environment(Stored))
	if err != nil {
		t.Fatal(err)
	}
	if env.planner.interpreter == nil {
		t.Fatal("the fields of this version of cel-go are unknown: every expression is slower")
	}
	broken, err := ownPlanner(env.Env)
	if err != nil {
		t.Fatal(err)
	}
	broken.costs.trackers, broken.costs.estimator = nil, free{}
	if err := broken.probe(); err == nil {
		t.Error("a planner with other costs is used")
	}
	broken.costs = nil
	if err := broken.probe(); err == nil {
		t.Error("a planner that panics is used")
	}
	other := &Planner{env: env.Env}
	in := &Input{Object: map[string]any{"n": int64(3), "l": []any{int64(1), int64(2)}}}
	for _, text := range []string{
		"object.l.all(x, x < object.n)", "object.nope", "object.n", "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))", "object.l.map(x, [x])[1][0] == 2",
	} {
		ast, issues := env.Compile(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		var got [2]string
		for i, m := range []*Planner{env.planner, other} {
			p, err := m.Plan(ast)
			if err != nil {
				t.Fatal(err)
			}
			value, err := NewEvaluation(t.Context(), in, nil, Budget).Eval(&Program{text: text, run: p})
			got[i] = fmt.Sprint(value, err)
		}
		if got[0] != got[1] {
			t.Errorf("%s: got %s, want %s", text, got[1], got[0])
		}
	}
}

// free estimates that calls cost nothing.
type free struct{}

func (free) CallCost(string, string, []ref.Val, ref.Val) *uint64 { return new(uint64) }
