package expression

import (
	"context"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/tidemark-dev/tidemark/internal/unexported"
)

// Replace returns a program that has the results, the errors and the costs of program, in linear time. text is the
// expression that program was compiled from. It is for the programs of libraries that take none. The returned program
// compiles text again, before its first evaluation. If this version of cel-go has other fields, it evaluates program.
// It is safe for concurrent use.
func Replace(program cel.Program, text string) cel.Program {
	if !canReport() {
		return program
	}
	return &replacement{of: program, text: text}
}

// replacement is the program that Replace returns.
type replacement struct {
	once    sync.Once
	text    string
	of      cel.Program // nil after the expression was planned
	planned *Planned    // nil: of is evaluated
}

// Eval implements cel.Program.
func (r *replacement) Eval(input any) (ref.Val, *cel.EvalDetails, error) {
	return r.ContextEval(context.Background(), input)
}

// ContextEval implements cel.Program.
func (r *replacement) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	r.once.Do(r.plan)
	if r.planned == nil {
		return r.of.ContextEval(ctx, input)
	}
	vars, err := interpreter.NewActivation(input)
	if err != nil {
		return nil, nil, err
	}
	value, cost, err := r.planned.Eval(ctx, vars)
	return value, report(cost), err
}

// Replaced reports whether a program is one of Replace, and is not evaluated by the library.
func Replaced(program cel.Program) bool {
	r, ok := program.(*replacement)
	if !ok {
		return false
	}
	r.once.Do(r.plan)
	return r.planned != nil
}

// plan plans the expression in the environment of its program.
func (r *replacement) plan() {
	var env *cel.Env
	if err := readField(r.of, "Env", &env); err != nil {
		return
	}
	ast, issues := env.Compile(r.text)
	if issues.Err() != nil {
		return
	}
	planned, err := NewPlanner(env).Plan(ast)
	if err != nil || planned.program != nil {
		return
	}
	r.of, r.planned = nil, planned
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
