package expression

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tidemark-dev/tidemark/internal/celenv"
	"github.com/tidemark-dev/tidemark/internal/unexported"
)

// A cel.Program is too slow for requests. Its cost tracker takes time quadratic in the iterations of a
// comprehension: it searches a growing stack for values that are not there. It also allocates maps for
// each evaluation, which cost more than a small expression. So this package plans programs itself, with
// the interpreter and the options of a cel.Program, and counts the cost in a frame. TestCosts compares
// the costs. See docs/decisions/0010-cel-evaluation.md.
//
// This reads fields of cel-go that are not exported. A program that embeds the server may have a
// version of cel-go with other fields, and then gets a cel.Program. Its results are the same, but it
// is slower.

// Planner plans programs that were compiled in one environment, which need not be one of this package. It is immutable, and
// safe for concurrent use.
type Planner struct {
	env         *cel.Env
	interpreter interpreter.Interpreter // nil: this version of cel-go needs cel.Program
	options     []interpreter.PlannerOption
	costs       *costs
}

// NewPlanner returns the planner of an environment.
func NewPlanner(env *cel.Env) *Planner {
	if !probe() {
		return &Planner{env: env}
	}
	p, err := ownPlanner(env)
	if err != nil {
		return &Planner{env: env}
	}
	return p
}

// probe reports whether planners work with this version of cel-go.
var probe = sync.OnceValue(func() bool {
	env, err := celenv.Base().StoredExpressionsEnv().Extend(cel.Variable(Object, cel.DynType))
	if err != nil {
		return false
	}
	p, err := ownPlanner(env)
	return err == nil && p.probe() == nil
})

// probed has the kinds of steps whose costs depend on fields of cel-go.
const probed = `object.l.all(x, x > 0 && x < 9) && object.l.exists(x, x == 2) && (object.s == 'a' || has(object.m.a)) && (object.l[0] > 0 ? object.m : {}).a == object.l[object.l[0] - 1] && [object.s + 'a'].size() == 1`

// probe returns an error unless a program of the planner, whose environment has the variable object, has the result and
// the cost of a cel.Program.
func (p *Planner) probe() (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the planner has panicked: %v", v)
		}
	}()
	ast, issues := p.env.Compile(probed)
	if issues.Err() != nil {
		return issues.Err()
	}
	own, err := p.planOwn(ast)
	if err != nil {
		return err
	}
	other, err := p.planOther(ast)
	if err != nil {
		return err
	}
	vars, err := interpreter.NewActivation(map[string]any{
		Object: map[string]any{"l": []any{int64(1), int64(2)}, "s": "b", "m": map[string]any{"a": int64(1)}},
	})
	if err != nil {
		return err
	}
	got, cost, err := own.Eval(context.Background(), vars)
	want, wantCost, wantErr := other.Eval(context.Background(), vars)
	if err != nil || wantErr != nil || got != types.True || want != types.True || cost != wantCost {
		return fmt.Errorf("got %v, %v with the cost %d; want %v, %v with %d", got, err, cost, want, wantErr, wantCost)
	}
	return nil
}

// ownPlanner returns a planner that does not use cel.Program. It takes the options of libraries from
// one, which has no methods that return them.
func ownPlanner(env *cel.Env) (*Planner, error) {
	ast, issues := env.Compile("true")
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	p := &Planner{env: env, costs: &costs{}}
	var regexes []*interpreter.RegexOptimization
	var trackers []interpreter.CostTrackerOption
	var planned any
	var factory interpreter.AttributeFactory
	for _, f := range []func() error{
		func() error { return readField(program, "plannerOptions", &p.options) },
		func() error { return readField(program, "regexOptimizations", &regexes) },
		func() error { return readField(program, "callCostEstimator", &p.costs.estimator) },
		func() error { return readField(program, "costOptions", &trackers) },
		func() error { return readInterpreter(program, "interpreter", &planned) },
		func() error { return readField(planned, "attrFactory", &factory) },
	} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	tracker, err := interpreter.NewCostTracker(nil, trackers...)
	if err != nil {
		return nil, err
	}
	if err := readField(tracker, "overloadTrackers", &p.costs.trackers); err != nil {
		return nil, err
	}
	dispatcher, err := newDispatcher(env)
	if err != nil {
		return nil, err
	}
	p.options = append(p.options[:len(p.options):len(p.options)], interpreter.InterruptableEval(), interpreter.Optimize(), interpreter.CompileRegexConstants(regexes...))
	p.interpreter = interpreter.NewInterpreter(dispatcher, env.Container, env.CELTypeProvider(), adapter{env.CELTypeAdapter()}, factory)
	return p, nil
}

// newDispatcher returns the functions of an environment.
func newDispatcher(env *cel.Env) (interpreter.Dispatcher, error) {
	dispatcher := interpreter.NewDispatcher()
	for _, f := range env.Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		if err := dispatcher.Add(bindings...); err != nil {
			return nil, err
		}
	}
	return dispatcher, nil
}

// Plan makes a program of a checked expression.
func (p *Planner) Plan(ast *cel.Ast) (*Planned, error) {
	if p.interpreter != nil {
		if own, err := p.planOwn(ast); err == nil {
			return own, nil
		}
	}
	return p.planOther(ast)
}

// planOther makes a cel.Program.
func (p *Planner) planOther(ast *cel.Ast) (*Planned, error) {
	program, err := p.env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return nil, err
	}
	return &Planned{program: program}, nil
}

// planOwn makes a program of the planner.
func (p *Planner) planOwn(ast *cel.Ast) (*Planned, error) {
	o := &observer{costs: p.costs}
	options := append(p.options[:len(p.options):len(p.options)], interpreter.CustomDecoratorV2(o.decorate))
	root, err := p.interpreter.NewInterpretable(ast.NativeRep(), options...)
	if err != nil {
		return nil, err
	}
	for _, f := range o.finish {
		if err := f(); err != nil {
			return nil, err
		}
	}
	for _, s := range o.folds {
		if q := quantifierOf(s.InterpretableV2); q != nil {
			s.InterpretableV2 = q
		}
	}
	return &Planned{root: root, ids: int(o.maxID) + 1}, nil
}

// readField copies a field that its package does not export into to.
func readField[T any](of any, name string, to *T) error {
	f, err := unexported.Field[T](of, name)
	if err == nil {
		*to = *f
	}
	return err
}

// readInterpreter is readField for an Interpreter, whose own fields are read next.
func readInterpreter(of any, name string, to *any) error {
	var i interpreter.Interpreter
	if err := readField(of, name, &i); err != nil {
		return err
	}
	*to = i
	return nil
}
