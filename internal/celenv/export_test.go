package celenv

import "github.com/google/cel-go/cel"

// WorkIn returns the work to check an expression, without a limit.
func WorkIn(env *cel.Env, text string) (float64, error) {
	parsed, issues := env.Parse(text)
	if issues.Err() != nil {
		return 0, issues.Err()
	}
	w := newWeigher(env, 1)
	w.most = 1e300
	w.all(parsed.NativeRep().Expr())
	return w.work, nil
}
