package expression

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/interpreter"
)

// Why not cel.Program: its cost tracker takes quadratic time in the number of iterations of a
// comprehension, because it searches a growing stack for values that are not there; and it makes
// maps for each evaluation, which cost more than a small expression. The planner and the interpreter
// are those of cel.Program, with the options that the libraries give it. The costs are the same: a
// test compares them.

// machine plans the programs of an environment.
type machine struct {
	interpreter interpreter.Interpreter
	options     []interpreter.PlannerOption
	costs       *costs
}

// newMachine returns the machine of an environment. It takes the options of libraries from a
// cel.Program, which has no methods that return them.
func newMachine(env *cel.Env) (*machine, error) {
	ast, issues := env.Compile("true")
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	m := &machine{costs: &costs{}}
	var regexes []*interpreter.RegexOptimization
	var trackers []interpreter.CostTrackerOption
	var planned any
	var factory interpreter.AttributeFactory
	tracker := &interpreter.CostTracker{}
	for _, f := range []func() error{
		func() error { return take(program, "plannerOptions", &m.options) },
		func() error { return take(program, "regexOptimizations", &regexes) },
		func() error { return take(program, "callCostEstimator", &m.costs.estimator) },
		func() error { return take(program, "costOptions", &trackers) },
		func() error { return takeAny(program, "interpreter", &planned) },
		func() error { return take(planned, "attrFactory", &factory) },
	} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	tracker, err = interpreter.NewCostTracker(nil, trackers...)
	if err != nil {
		return nil, err
	}
	if err := take(tracker, "overloadTrackers", &m.costs.trackers); err != nil {
		return nil, err
	}
	dispatcher, err := newDispatcher(env)
	if err != nil {
		return nil, err
	}
	m.options = append(m.options[:len(m.options):len(m.options)], interpreter.InterruptableEval(), interpreter.Optimize(), interpreter.CompileRegexConstants(regexes...))
	m.interpreter = interpreter.NewInterpreter(dispatcher, env.Container, env.CELTypeProvider(), env.CELTypeAdapter(), factory)
	return m, nil
}

// newDispatcher returns the functions of an environment, with limits.
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

// plan makes a program of a checked expression.
func (m *machine) plan(ast *cel.Ast) (*planned, error) {
	w := &watcher{costs: m.costs}
	options := append(m.options[:len(m.options):len(m.options)], interpreter.CustomDecorator(w.decorate))
	root, err := m.interpreter.NewInterpretable(ast.NativeRep(), options...)
	if err != nil {
		return nil, err
	}
	for _, f := range w.finish {
		if err := f(); err != nil {
			return nil, err
		}
	}
	return &planned{root: root, ids: int(w.maxID) + 1}, nil
}

// take sets to to the value of a field that its package does not export.
func take[T any](of any, name string, to *T) error {
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

// takeAny is take for a field of an interface type.
func takeAny(of any, name string, to *any) error {
	var made interpreter.Interpreter
	if err := take(of, name, &made); err != nil {
		return err
	}
	*to = made
	return nil
}
