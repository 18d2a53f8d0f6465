package expression

import (
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/common/types"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// TestLimits evaluates expressions that would take all time or memory. Each has to end within
// seconds of CPU time: with an error, or because it is harmless.
func TestLimits(t *testing.T) {
	numbers := make([]any, 200_000)
	for i := range numbers {
		numbers[i] = int64(len(numbers) - i)
	}
	in := &Input{Object: map[string]any{
		"s": strings.Repeat("x", 1<<20), "l": numbers, "n": int64(1 << 60),
	}}
	double := func(start, end string, n int) string {
		text := "[" + start + "]"
		for i := range n {
			v := string(rune('a'+i%26)) + strings.Repeat("z", i/26)
			text += ".map(" + v + ", " + v + " + " + v + ")"
		}
		return text + end
	}
	tree := func(end string) string { return "[dyn(1)]" + strings.Repeat(".map(a, dyn([a, a]))", 30) + end }
	for name, text := range map[string]string{
		"equal":      tree(".all(x, x == x)"),
		"includes":   tree(".all(x, [x].includes(x))"),
		"same":       tree(".all(x, {'a': x}.includes({'a': x}))"),
		"range":      "lists.range(object.n).size() > 0",
		"replace":    "object.s.replace('x', object.s).size() > 0",
		"empty":      "object.s.replace('', object.s).size() > 0",
		"join":       "object.l.map(x, 'a').join(object.s).size() > 0",
		"format":     "'%s%s'.format([object.s, object.s + object.s + object.s + object.s + object.s + object.s + object.s + object.s + object.s + object.s]).size() > 0",
		"precision":  "'%.999999999f'.format([1.0]).size() > 0",
		"intersects": "sets.intersects(object.l, object.l.map(x, -x))",
		"equivalent": "sets.equivalent(object.l, object.l)",
		"distinct":   "object.l.distinct().size() > 0",
		"doubled":    double("[1]", ".all(x, x.size() > 0 && 2 in x)", 60),
		"nothing":    double("[]", ".all(x, 1 in x)", 16),
		"texts":      double("'x'", ".all(x, x.size() > 0)", 60),
		"nested":     "object.l.all(a, object.l.all(b, object.l.all(c, a + b + c > 0)))",
		"regex":      "object.s.matches('(x*)*y')",
		"contains":   "object.s.contains(object.s + 'y')",
	} {
		p, failed := Compile(text, Variables{}, Stored)
		if failed != nil {
			t.Errorf("%s: %v", name, failed)
			continue
		}
		start := testkinds.CPUTime()
		value, err := NewEvaluation(t.Context(), in, nil, Budget).Eval(p)
		if err == nil && name != "nothing" && name != "regex" {
			t.Errorf("%s: got %v, want an error", name, value)
		}
		if err != nil && !strings.Contains(err.Error(), tooExpensive) && !strings.Contains(err.Error(), "is larger than 100") && !Fatal(err) {
			t.Errorf("%s: %.200v", name, err)
		}
		if took := testkinds.CPUTime() - start; took > 20*time.Second {
			t.Errorf("%s took %v", name, took)
		}
	}
}

// TestDeepVariables evaluates variables that use each other.
func TestDeepVariables(t *testing.T) {
	v := Variables{Composited: new(Composition)}
	last := "0"
	for i := range maxVariableDepth + 10 {
		name := "v" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + strings.Repeat("y", i/26)
		v.Composited, _ = v.Composited.With(name, last+" + 1", v, Stored)
		last = "variables." + name
	}
	p, failed := Compile(last+" > 0", v, Stored)
	if failed != nil {
		t.Fatal(failed)
	}
	_, err := NewEvaluation(t.Context(), &Input{}, v.Composited, Budget).Eval(p)
	if err == nil || !strings.Contains(err.Error(), "levels deep") || len(err.Error()) > 1<<20 {
		t.Errorf("got %.300v", err)
	}
}

// FuzzEval compiles and evaluates any text.
func FuzzEval(f *testing.F) {
	for _, text := range costly {
		f.Add(text)
	}
	in := &Input{Object: map[string]any{"n": int64(3), "s": "text", "l": []any{int64(1), "a", nil}, "m": map[string]any{"a": "b"}}}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 200 {
			return
		}
		p, failed := Compile(text, Variables{Params: true}, Stored)
		e := NewEvaluation(t.Context(), in, nil, Budget)
		value, err := e.Eval(p)
		if failed != nil && err == nil {
			t.Errorf("%q does not compile, and is %v", text, value)
		}
		if err == nil && types.IsUnknownOrError(value) {
			t.Errorf("%q: an error is a value: %v", text, value)
		}
	})
}

// TestForkedCompositions extends a composition twice, and declares a name twice.
func TestForkedCompositions(t *testing.T) {
	v := Variables{}
	base, _ := new(Composition).With("a", "1", v, Stored)
	one, _ := base.With("b", "variables.a + 1", v, Stored)
	two, _ := base.With("b", "'text'", v, Stored)
	three, _ := one.With("a", "'again'", v, Stored)
	for _, test := range []struct {
		c    *Composition
		text string
		ok   bool
	}{
		{one, "variables.b == 2", true}, {two, "variables.b == 'text'", true}, {two, "variables.b == 2", false}, {base, "variables.b == 2", false},
		{three, "variables.a == 'again'", true}, {one, "variables.a == 1", true},
	} {
		p, failed := Compile(test.text, Variables{Composited: test.c}, Stored)
		if (failed == nil) != test.ok {
			t.Errorf("%s: %v, want that it compiles: %v", test.text, failed, test.ok)
			continue
		}
		if value, err := NewEvaluation(t.Context(), &Input{}, test.c, Budget).Eval(p); test.ok && (err != nil || value != types.True) {
			t.Errorf("%s: got %v, %v", test.text, value, err)
		}
	}
}
