package expression_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"

	"github.com/tidemark-dev/tidemark/internal/expression"
)

func TestCompileErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"object.x ==", "compilation failed: ERROR: <input>:1:12: Syntax error: mismatched input '<EOF>'"},
		{"1", "must evaluate to bool but got int"},
		{"params.x == 1", "undeclared reference to 'params'"},
		{"request.nope == 1", "undefined field 'nope'"},
		{"variables.b == 1", "undefined field 'b'"},
		{"variables.a == 'x'", "no matching overload for '_==_' applied to '(int, string)'"},
	}
	v := expression.Variables{}
	v.Composited, _ = new(expression.Composition).With("a", "1 + 1", v, expression.Stored)
	for _, test := range tests {
		_, err := expression.Compile(test.text, v, expression.New, cel.BoolType)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", test.text, err, test.want)
		}
	}
	_, err := expression.Compile("1", v, expression.New, cel.StringType, cel.NullType)
	if want := "must evaluate to one of [string null_type] but got int"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestEval(t *testing.T) {
	in := &expression.Input{
		Object:  map[string]any{"spec": map[string]any{"replicas": int64(3)}, "list": []any{"a", "b"}},
		Request: map[string]any{"operation": "CREATE"},
	}
	v := expression.Variables{}
	for _, one := range [][2]string{{"n", "object.spec.replicas"}, {"bad", "object.nope"}, {"twice", "variables.n * 2"}, {"broken", "1 +"}} {
		c := v.Composited
		if c == nil {
			c = &expression.Composition{}
		}
		v.Composited, _ = c.With(one[0], one[1], expression.Variables{}, expression.Stored)
	}
	tests := []struct{ text, want string }{
		{"object.spec.replicas == 3", "true"},
		{"oldObject == null", "true"},
		{"request.operation == 'CREATE' && namespaceObject == null", "true"},
		{"variables.twice == 6 && variables.n == 3", "true"},
		{"has(variables.n)", "true"},
		{"object.nope == 1", "expression 'object.nope == 1' resulted in error: no such key: nope"},
		{"variables.bad == 1", `expression 'variables.bad == 1' resulted in error: composited variable "bad" fails to evaluate: no such key: nope`},
		{"variables.broken == 1", `expression 'variables.broken == 1' resulted in error: composited variable "broken" fails to compile: compilation failed: ERROR: <input>:1:4: Syntax error: mismatched input '<EOF>'`},
		{"1 +", "compilation error: compilation failed: ERROR: <input>:1:4: Syntax error"},
	}
	e := expression.NewEvaluation(context.Background(), in, v.Composited, expression.Budget)
	for _, test := range tests {
		p, _ := expression.Compile(test.text, v, expression.Stored, cel.BoolType)
		got, err := e.Eval(p)
		text := ""
		if err != nil {
			text = err.Error()
		} else {
			text = map[bool]string{true: "true", false: "false"}[got.Value().(bool)]
		}
		if !strings.HasPrefix(text, test.want) {
			t.Errorf("%s: got %s, want %s", test.text, text, test.want)
		}
	}
}

func TestCost(t *testing.T) {
	list := make([]any, 1000)
	for i := range list {
		list[i] = int64(i)
	}
	in := &expression.Input{Object: map[string]any{"l": list}}
	eval := func(e *expression.Evaluation, text string) error {
		p, _ := expression.Compile(text, expression.Variables{}, expression.Stored, cel.BoolType)
		_, err := e.Eval(p)
		return err
	}
	e := expression.NewEvaluation(context.Background(), in, nil, expression.Budget)
	err := eval(e, "object.l.all(x, object.l.all(y, x + y >= 0))")
	if err == nil || !strings.HasSuffix(err.Error(), "resulted in error: operation cancelled: actual cost limit exceeded") || expression.Fatal(err) {
		t.Errorf("got %v, want that the limit of one expression is exceeded", err)
	}
	e = expression.NewEvaluation(context.Background(), in, nil, 100)
	if err := eval(e, "1 + 1 == 2"); err != nil {
		t.Error(err)
	}
	err = eval(e, "object.l.all(x, x >= 0)")
	if want := "validation failed due to running out of cost budget, no further validation rules will be run"; err == nil || err.Error() != want || !expression.Fatal(err) {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := eval(e, "true"); !expression.Fatal(err) {
		t.Errorf("an evaluation without budget continues: %v", err)
	}
}

func TestCancel(t *testing.T) {
	list := make([]any, 10000)
	for i := range list {
		list[i] = int64(i)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	e := expression.NewEvaluation(ctx, &expression.Input{Object: map[string]any{"l": list}}, nil, expression.Budget)
	p, _ := expression.Compile("object.l.all(x, x >= 0)", expression.Variables{}, expression.Stored, cel.BoolType)
	if _, err := e.Eval(p); err == nil || !strings.Contains(err.Error(), "operation interrupted") {
		t.Errorf("got %v, want an interrupted operation", err)
	}
}

func TestShared(t *testing.T) {
	a, _ := expression.Compile("object.shared == 1", expression.Variables{}, expression.Stored, cel.BoolType)
	b, _ := expression.Compile("object.shared == 1", expression.Variables{}, expression.Stored, cel.BoolType)
	if a != b {
		t.Error("equal expressions are compiled twice")
	}
}
