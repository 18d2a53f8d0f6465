package expression

import (
	"context"
	"fmt"
	"reflect"
	"unsafe"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/interpreter"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Why not cel.Program: its cost tracker takes quadratic time in the number of iterations of a
// comprehension, because it searches a growing stack for values that are not there; and it makes
// maps for each evaluation, which cost more than a small expression. The planner and the interpreter
// are those of cel.Program, with the options that the libraries give it. The costs are the same: a
// test compares them.
//
// This reads fields of cel-go that are not exported. A program that embeds the server may have a
// version of cel-go with other fields, and then gets a cel.Program. Its results are the same, but it
// is slower, and calls have no limits but their costs.

// machine plans the programs of an environment.
type machine struct {
	env         *cel.Env
	interpreter interpreter.Interpreter // nil: this version of cel-go needs cel.Program
	options     []interpreter.PlannerOption
	costs       *costs
}

// newMachine returns the machine of an environment.
func newMachine(env *cel.Env) *machine {
	m, err := ownMachine(env)
	if err == nil {
		err = m.probe()
	}
	if err != nil {
		return &machine{env: env}
	}
	return m
}

// probed has the kinds of steps whose costs depend on fields of cel-go.
const probed = `object.l.all(x, x > 0 && x < 9) && (object.s == 'a' || has(object.m.a)) && (object.l[0] > 0 ? object.m : {}).a == object.l[object.l[0] - 1] && [object.s + 'a'].size() == 1`

// probe returns an error unless a program of the machine has the result and the cost of a cel.Program.
func (m *machine) probe() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the planner has panicked: %v", p)
		}
	}()
	ast, issues := m.env.Compile(probed)
	if issues.Err() != nil {
		return issues.Err()
	}
	own, err := m.planOwn(ast)
	if err != nil {
		return err
	}
	other, err := m.planOther(ast)
	if err != nil {
		return err
	}
	vars, err := interpreter.NewActivation(map[string]any{
		Object: map[string]any{"l": []any{int64(1), int64(2)}, "s": "b", "m": map[string]any{"a": int64(1)}},
	})
	if err != nil {
		return err
	}
	got, cost, err := own.eval(context.Background(), vars)
	want, wantCost, wantErr := other.eval(context.Background(), vars)
	if err != nil || wantErr != nil || got != types.True || want != types.True || cost != wantCost {
		return fmt.Errorf("got %v, %v with the cost %d; want %v, %v with %d", got, err, cost, want, wantErr, wantCost)
	}
	return nil
}

// ownMachine returns a machine that does not use cel.Program. It takes the options of libraries from
// one, which has no methods that return them.
func ownMachine(env *cel.Env) (*machine, error) {
	ast, issues := env.Compile("true")
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	program, err := env.Program(ast)
	if err != nil {
		return nil, err
	}
	m := &machine{env: env, costs: &costs{}}
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
	if m.interpreter != nil {
		if p, err := m.planOwn(ast); err == nil {
			return p, nil
		}
	}
	return m.planOther(ast)
}

// planOther makes a cel.Program.
func (m *machine) planOther(ast *cel.Ast) (*planned, error) {
	program, err := m.env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		return nil, err
	}
	return &planned{program: program}, nil
}

// planOwn makes a program of the machine.
func (m *machine) planOwn(ast *cel.Ast) (*planned, error) {
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
