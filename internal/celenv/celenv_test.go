package celenv_test

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

func evaluate(t *testing.T, env *cel.Env, expression string) (any, error) {
	t.Helper()
	ast, issues := env.Compile(expression)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", expression, issues.Err())
	}
	program, err := env.Program(ast)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	value, _, err := program.Eval(map[string]any{})
	if err != nil {
		return nil, err
	}
	return value.Value(), nil
}

func TestBase(t *testing.T) {
	set := celenv.Base()
	if again := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()); again != set {
		t.Error("the libraries have another environment")
	}
	for name, env := range map[string]*cel.Env{"new": set.NewExpressionsEnv(), "stored": set.StoredExpressionsEnv()} {
		for expression, want := range map[string]any{
			`quantity("1.5Gi").isGreaterThan(quantity("1e9"))`: true,
			`quantity("1e-128").asApproximateFloat() > 0.0`:    true,
			`isQuantity("100m")`:                               true,
			`isQuantity("1e-1000000000")`:                      false,
			`isQuantity("x")`:                                  false,
			`"%.3f %.1f %s %%.9".format([1.0, 2.25, "x"])`:     "1.000 2.2 x %.9",
		} {
			got, err := evaluate(t, env, expression)
			if err != nil || got != want {
				t.Errorf("%s: %s: got %v, %v", name, expression, got, err)
			}
		}
		for expression, want := range map[string]string{
			`quantity("1e-1000000000")`:        "a quantity must have",
			`quantity("1e1000000000")`:         "a quantity must have",
			`"%.1000000f".format([1.0])`:       "the precision",
			`"%%%s%.999999e".format([1, 1.0])`: "the precision",
		} {
			if got, err := evaluate(t, env, expression); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: got %v, %v", name, expression, got, err)
			}
		}
	}
}
