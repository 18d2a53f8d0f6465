package expression

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/interpreter"
)

// A cel.Program is too slow for admission. Its cost tracker takes time quadratic in the iterations of a
// comprehension: it searches a growing stack for values that are not there. It also allocates maps for
// each evaluation, which cost more than a small expression. So this package plans programs itself, with
// the interpreter and the options of a cel.Program, and counts the cost in a frame. TestCost compares
// the costs. See docs/decisions/0010-cel-evaluation.md.

// planner plans the programs of an environment. It is immutable, and safe for concurrent use.
type planner struct {
	interpreter interpreter.Interpreter
	options     []interpreter.PlannerOption
	costs       *costs
}

// newPlanner returns the planner of an environment. It reads the options of the libraries from the
// unexported fields of a cel.Program: no method returns them.
func newPlanner(env *cel.Env) (*planner, error) {
	ast, issues := env.Compile("true")
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	p := &planner{costs: &costs{}}
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
	p.interpreter = interpreter.NewInterpreter(dispatcher, env.Container, env.CELTypeProvider(), env.CELTypeAdapter(), factory)
	return p, nil
}

// newDispatcher returns the functions of an environment, each with its limit.
func newDispatcher(env *cel.Env) (interpreter.Dispatcher, error) {
	dispatcher := interpreter.NewDispatcher()
	for _, f := range env.Functions() {
		bindings, err := f.Bindings()
		if err != nil {
			return nil, err
		}
		limited := make([]*functions.Overload, len(bindings))
		for i, b := range bindings {
			limited[i] = limit(b)
		}
		if err := dispatcher.Add(limited...); err != nil {
			return nil, err
		}
	}
	return dispatcher, nil
}

// plan returns the program of a checked expression.
func (p *planner) plan(ast *cel.Ast) (*planned, error) {
	o := &observer{costs: p.costs}
	options := append(p.options[:len(p.options):len(p.options)], interpreter.CustomDecorator(o.decorate))
	root, err := p.interpreter.NewInterpretable(ast.NativeRep(), options...)
	if err != nil {
		return nil, err
	}
	for _, f := range o.finish {
		if err := f(); err != nil {
			return nil, err
		}
	}
	return &planned{root: root, ids: int(o.maxID) + 1}, nil
}

// readField copies the field of a struct that its package does not export into to. It returns an error
// if the struct has no field with this name and type, so that a new version of cel-go cannot go
// unnoticed.
func readField[T any](of any, name string, to *T) error {
	v := reflect.Indirect(reflect.ValueOf(of))
	if v.Kind() != reflect.Struct {
		return fmt.Errorf("%T has no field %s", of, name)
	}
	f := v.FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() || !f.CanAddr() {
		return fmt.Errorf("%T has no field %s of type %v", of, name, reflect.TypeFor[T]())
	}
	*to = *(*T)(unsafe.Pointer(f.UnsafeAddr()))
	return nil
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
