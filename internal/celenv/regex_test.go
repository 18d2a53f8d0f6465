package celenv_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// patternCalls are calls with % as the pattern that are true if it matches all of s.
var patternCalls = []string{`s.matches(%)`, `matches(s, %)`, `s.find(%) == s`, `s.findAll(%) == [s]`, `s.findAll(%, 1) == [s]`}

// evaluateWith evaluates an expression with the variables s, p and l, and returns its cost too.
func evaluateWith(t *testing.T, expression string, vars map[string]any) (value any, cost uint64, err error) {
	t.Helper()
	env, err := celenv.Base().StoredExpressionsEnv().Extend(cel.Variable("s", cel.StringType), cel.Variable("p", cel.StringType), cel.Variable("l", cel.ListType(cel.StringType)))
	if err != nil {
		t.Fatal(err)
	}
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	got, details, err := program.Eval(vars)
	if err != nil {
		return nil, 0, err
	}
	return got.Value(), *details.ActualCost(), nil
}

// TestPatterns calls the functions with a pattern, as a constant and computed, with texts of both sides of the limit.
func TestPatterns(t *testing.T) {
	const large = `^((((a{1,10}){1,10}){1,10})*)*$`
	const exceeded = "cost limit exceeded"
	for _, call := range patternCalls {
		for _, argument := range []string{"'" + large + "'", "p"} {
			expression := strings.ReplaceAll(call, "%", argument)
			if got, _, err := evaluateWith(t, expression, map[string]any{"s": "aaaa", "p": large}); err != nil || got != true {
				t.Errorf("%s: got %v, %v", expression, got, err)
			}
			if _, _, err := evaluateWith(t, expression, map[string]any{"s": strings.Repeat("a", 20_000), "p": large}); err == nil || !strings.Contains(err.Error(), exceeded) {
				t.Errorf("%s: a long text: %v", expression, err)
			}
			// A thousand of these calls exceed the limit.
			if got, cost, err := evaluateWith(t, expression, map[string]any{"s": strings.Repeat("a", 50), "p": large}); err != nil || got != true || cost < 1000 {
				t.Errorf("%s: a short text: %v, %v with a cost of %d", expression, got, err, cost)
			}
		}
	}
	// It reads the text to its end for each result.
	if _, cost, err := evaluateWith(t, `s.findAll('a*b|a').size() > 0`, map[string]any{"s": strings.Repeat("a", 2000)}); err != nil || cost < 100_000 {
		t.Errorf("findAll: %v with a cost of %d", err, cost)
	}
}

// TestUsualPatterns checks a thousand names, and a long text.
func TestUsualPatterns(t *testing.T) {
	const label = `[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?`
	const name = `^` + label + `(\\.` + label + `)*$`
	names := slices.Repeat([]string{"a-service.of-some-namespace.in-a-region.example.com"}, 1000)
	for expression, most := range map[string]uint64{
		`l.all(s, s.matches('` + name + `'))`:        500_000,
		`l.all(s, s.find('` + name + `') == s)`:      500_000,
		`l.all(s, s.matches('^[a-z.-]+$'))`:          50_000,
		`l.all(s, s.matches(p))`:                     100_000,
		`l.all(s, s.findAll('[a-z]+').size() == 10)`: 50_000,
		`s.matches('^[a-z.-]+$')`:                    500_000,
		`s.findAll('[a-z]+', 1000).size() == 1`:      500_000,
	} {
		got, cost, err := evaluateWith(t, expression, map[string]any{"l": names, "p": "^[a-z.-]+$", "s": strings.Repeat("a", 1<<20)})
		if err != nil || got != true || cost > most {
			t.Errorf("%s: got %v, %v with a cost of %d", expression, got, err, cost)
		}
	}
}

// TestManyPatterns: the constant patterns of an expression are bounded together, whatever functions have them.
func TestManyPatterns(t *testing.T) {
	env, err := celenv.Base().StoredExpressionsEnv().Extend(cel.Variable("s", cel.StringType))
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		pattern string
		n       int
		want    string
	}{
		{strings.Repeat("a{1000}", 4), 6, ""},
		{strings.Repeat("a{1000}", 4), 7, "at most 50000 instructions together"},
		{"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", 100, ""},
		{"(?i)[" + strings.Repeat("b-\U0001e942", 9) + "]", 1, ""}, // it takes long to parse
		{"(?i)[" + strings.Repeat("b-\U0001e942", 9) + "]", 2, "too many Unicode classes"},
		{"(?i)[" + strings.Repeat("b-\U0001e942", 9) + "]", 500, "too many Unicode classes"}, // half a minute, if each were parsed
	} {
		var calls []string
		for i := range row.n {
			calls = append(calls, strings.ReplaceAll(patternCalls[i%len(patternCalls)], "%", "'"+row.pattern+"'"))
		}
		switch _, _, issues := celenv.Compile(env, strings.Join(calls, " || "), 1); {
		case row.want == "" && issues.Err() != nil:
			t.Errorf("%d of %.30s: %v", row.n, row.pattern, issues.Err())
		case row.want != "" && (issues.Err() == nil || !strings.Contains(issues.Err().Error(), row.want)):
			t.Errorf("%d of %.30s: %v, want %s", row.n, row.pattern, issues.Err(), row.want)
		}
	}
}

// TestLargePatterns uses patterns that take long to parse or to compile.
func TestLargePatterns(t *testing.T) {
	env, err := celenv.Base().NewExpressionsEnv().Extend(cel.Variable("s", cel.StringType))
	if err != nil {
		t.Fatal(err)
	}
	for large, want := range map[string]string{
		strings.Repeat("a{1000}", 20):                      "a pattern must have at most 10000 instructions",
		"(?i)[" + strings.Repeat("b-\U0001e942", 20) + "]": "too many Unicode classes",
	} {
		for _, call := range patternCalls {
			constant := strings.ReplaceAll(call, "%", "'"+large+"'")
			if _, _, issues := celenv.Compile(env, constant, 1); issues.Err() == nil || !strings.Contains(issues.Err().Error(), want) {
				t.Errorf("%.60s: %v", constant, issues.Err())
			}
			if _, _, err := evaluateWith(t, strings.ReplaceAll(call, "%", "p"), map[string]any{"s": "", "p": large}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s with %.20s: %v", call, large, err)
			}
		}
	}
	if _, _, err := evaluateWith(t, "s.matches(p)", map[string]any{"s": "", "p": "[" + strings.Repeat("ab", 40_000) + "]"}); err == nil || !strings.Contains(err.Error(), "a computed pattern must have at most") {
		t.Errorf("a long pattern: %v", err)
	}
	// Each is compiled.
	for _, p := range []string{"a{1000}b{1000}c{1000}", `(?i)[b-\x{1e942}a-\x{1e942}c-\x{1e942}]`, strings.Repeat(`\pL`, 100)} {
		if _, _, err := evaluateWith(t, "l.exists(x, s.matches(p + x))", map[string]any{"s": "", "p": p, "l": slices.Repeat([]string{"x"}, 150)}); err == nil || !strings.Contains(err.Error(), "cost limit exceeded") {
			t.Errorf("many times %.20s: %v", p, err)
		}
	}
}
