package expression

import (
	"context"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/tidemark-dev/tidemark/internal/unexported"
)

// Replacer replaces programs of libraries that take none. It has a planner for each of their environments, so keep it for
// programs that share one, and no longer. The zero value is ready to use. It is not safe for concurrent use.
type Replacer struct {
	planners map[*cel.Env]*Planner
}

// Replace returns a program that has the results, the errors and the costs of program, in linear time and in less memory.
// text is the expression that program was compiled from. Replace compiles it again. If this version of cel-go has other
// fields, it returns program.
func (r *Replacer) Replace(program cel.Program, text string) cel.Program {
	var env *cel.Env
	if !canReport() || readField(program, "Env", &env) != nil {
		return program
	}
	planner := r.planners[env]
	if planner == nil {
		planner = NewPlanner(env)
		if r.planners == nil {
			r.planners = map[*cel.Env]*Planner{}
		}
		r.planners[env] = planner
	}
	ast, issues := env.Compile(text)
	if issues.Err() != nil {
		return program
	}
	planned, err := planner.Plan(ast)
	if err != nil || planned.program != nil {
		return program
	}
	return replacement{planned}
}

// replacement is the program that Replace returns.
type replacement struct{ *Planned }

// Eval implements cel.Program.
func (r replacement) Eval(input any) (ref.Val, *cel.EvalDetails, error) {
	return r.ContextEval(context.Background(), input)
}

// ContextEval implements cel.Program.
func (r replacement) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	vars, err := interpreter.NewActivation(input)
	if err != nil {
		return nil, nil, err
	}
	value, cost, err := r.Planned.Eval(ctx, vars)
	return value, report(cost), err
}

// Replaced reports whether a program is one of Replace, and is not evaluated by the library.
func Replaced(program cel.Program) bool {
	_, ok := program.(replacement)
	return ok
}

// report returns the details of an evaluation with a cost. cel-go has no function that makes them.
func report(cost uint64) *cel.EvalDetails {
	details, tracker := new(cel.EvalDetails), new(interpreter.CostTracker)
	if to, err := unexported.Field[uint64](tracker, "cost"); err == nil {
		*to = cost
	}
	if to, err := unexported.Field[*interpreter.CostTracker](details, "costTracker"); err == nil {
		*to = tracker
	}
	return details
}

// canReport reports whether this version of cel-go has the fields that report writes.
var canReport = sync.OnceValue(func() bool {
	const probe = 7
	cost := report(probe).ActualCost()
	return cost != nil && *cost == probe
})
