package expression

import (
	"fmt"

	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
)

// quantifier is the comprehension that the macros all and exists make. For the result r and each item x,
//
//	all(x, p):    if @not_strictly_false(r),  r = r && p
//	exists(x, p): if @not_strictly_false(!r), r = r || p
//
// As long as r is true or false, only p is evaluated: the other steps have known values and costs. They
// cost more time than most predicates. When r is an error, all steps are evaluated.
type quantifier struct {
	id              int64
	result, item    string // names of variables
	over            interpreter.InterpretableV2
	condition, step interpreter.InterpretableV2
	predicate       interpreter.InterpretableV2
	last            interpreter.InterpretableV2 // the result of the comprehension

	start       types.Bool // the first value of r; the opposite value ends the comprehension
	stepID      int64
	predicateID int64
	// conditionCosts are those of the steps of the condition, in their order. readCost is that of
	// reading r in the step.
	conditionCosts []uint64
	readCost       uint64
}

// fold reads the parts of a comprehension of cel-go, which has the fields of evalFold.
func (q *quantifier) fold(of interpreter.InterpretableV2) (accu interpreter.InterpretableV2, err error) {
	q.id = of.ID()
	var second string
	var exhaustive, interruptable bool
	for _, f := range []func() error{
		func() error { return readField(of, "accuVar", &q.result) },
		func() error { return readField(of, "iterVar", &q.item) },
		func() error { return readField(of, "iterVar2", &second) },
		func() error { return readField(of, "iterRange", &q.over) },
		func() error { return readField(of, "accu", &accu) },
		func() error { return readField(of, "cond", &q.condition) },
		func() error { return readField(of, "step", &q.step) },
		func() error { return readField(of, "result", &q.last) },
		func() error { return readField(of, "exhaustive", &exhaustive) },
		func() error { return readField(of, "interruptable", &interruptable) },
	} {
		if err := f(); err != nil {
			return nil, err
		}
	}
	if second != "" || exhaustive || !interruptable {
		return nil, fmt.Errorf("a comprehension of another kind")
	}
	return accu, nil
}

// quantifierOf returns the quantifier that does the same as a comprehension, nil if there is none.
func quantifierOf(of interpreter.InterpretableV2) *quantifier {
	q := &quantifier{}
	accu, err := q.fold(of)
	if err != nil {
		return nil
	}
	start, ok := accu.(*observedConst)
	if !ok {
		return nil
	}
	if q.start, ok = start.value.(types.Bool); !ok || !q.readStep() || !q.readCondition() {
		return nil
	}
	return q
}

// readStep reads the step r && p or r || p, and reports whether it is one.
func (q *quantifier) readStep() bool {
	step, ok := q.step.(*observed)
	want := "*interpreter.evalAnd"
	if !q.start {
		want = "*interpreter.evalOr"
	}
	if !ok || fmt.Sprintf("%T", step.InterpretableV2) != want {
		return false
	}
	var terms []interpreter.InterpretableV2
	if readField(step.InterpretableV2, "terms", &terms) != nil || len(terms) != 2 {
		return false
	}
	read, ok := q.reads(terms[0])
	if !ok {
		return false
	}
	q.predicate, q.predicateID = terms[1], terms[1].ID()
	q.stepID, q.readCost = step.id, read
	return true
}

// readCondition reads the condition @not_strictly_false(r) or @not_strictly_false(!r), and reports
// whether it is one.
func (q *quantifier) readCondition() bool {
	arg, cost, ok := constantCall(q.condition, operators.NotStrictlyFalse)
	if !ok {
		return false
	}
	costs := []uint64{cost}
	if !q.start {
		if arg, cost, ok = constantCall(arg, operators.LogicalNot); !ok {
			return false
		}
		costs = []uint64{cost, costs[0]}
	}
	read, ok := q.reads(arg)
	q.conditionCosts = append([]uint64{read}, costs...)
	return ok
}

// reads reports whether a step is the variable r, and returns its cost.
func (q *quantifier) reads(step interpreter.InterpretableV2) (cost uint64, ok bool) {
	a, ok := step.(*observedAttribute)
	if !ok {
		return 0, false
	}
	of, ok := a.Attr().(interpreter.NamespacedAttribute)
	if !ok || len(of.Qualifiers()) > 0 {
		return 0, false
	}
	names := of.CandidateVariableNames()
	return a.cost, len(names) == 1 && names[0] == q.result
}

// constantCall returns the argument and the cost of a call of a function of one boolean, if the cost does
// not depend on the argument.
func constantCall(step interpreter.InterpretableV2, function string) (arg interpreter.InterpretableV2, cost uint64, ok bool) {
	s, ok := step.(*observed)
	if !ok || s.call == nil || s.call.function != function {
		return nil, 0, false
	}
	call, ok := s.InterpretableV2.(interpreter.InterpretableCall)
	if !ok || len(call.Args()) != 1 {
		return nil, 0, false
	}
	cost = s.call.cost([]ref.Val{types.True}, types.True)
	for _, b := range []types.Bool{types.True, types.False} {
		for _, result := range []types.Bool{types.True, types.False} {
			if s.call.cost([]ref.Val{b}, result) != cost {
				return nil, 0, false
			}
		}
	}
	return call.Args()[0], cost, true
}

// iteration has the variables of a quantifier while it is evaluated.
type iteration struct {
	of           *quantifier
	vars         interpreter.Activation
	frame        *frame
	exec         interpreter.ExecutionFrame // of the steps
	result, item ref.Val
}

// ResolveName implements interpreter.Activation.
func (i *iteration) ResolveName(name string) (any, bool) {
	switch name {
	case i.of.result:
		return i.result, true
	case i.of.item:
		return i.item, true
	}
	return i.vars.ResolveName(name)
}

// Parent implements interpreter.Activation.
func (i *iteration) Parent() interpreter.Activation { return i.vars }

// Unwrap returns the variables without those of the quantifier. cel-go calls it for the name of a variable that may not be
// one of those.
func (i *iteration) Unwrap() interpreter.Activation { return i.vars }

// ID implements interpreter.Interpretable.
func (q *quantifier) ID() int64 { return q.id }

// Eval implements interpreter.Interpretable.
func (q *quantifier) Eval(vars interpreter.Activation) ref.Val {
	return q.Exec(interpreter.AsFrame(vars))
}

// Exec implements interpreter.InterpretableV2.
func (q *quantifier) Exec(vars *interpreter.ExecutionFrame) ref.Val {
	over := q.over.Exec(vars)
	if types.IsUnknownOrError(over) {
		return over
	}
	if !over.Type().HasTrait(traits.IterableType) {
		return types.ValOrErr(over, "got '%T', expected iterable type", over)
	}
	f := frameOf(vars)
	i := f.iterate()
	defer f.iterated(i)
	*i = iteration{of: q, vars: vars.Activation, frame: f, result: q.start}
	i.exec.Activation = i
	if items, ok := over.(*sequence); ok {
		for n := range items.items {
			if more, interrupted := i.next(items.at(n)); interrupted {
				return types.NewErr(interruptedText)
			} else if !more {
				break
			}
		}
		return q.last.Exec(&i.exec)
	}
	for all := over.(traits.Iterable).Iterator(); all.HasNext() == types.True; {
		if more, interrupted := i.next(all.Next()); interrupted {
			return types.NewErr(interruptedText)
		} else if !more {
			break
		}
	}
	return q.last.Exec(&i.exec)
}

// next evaluates the quantifier for an item, and reports whether to continue.
func (i *iteration) next(item ref.Val) (more, interrupted bool) {
	q, f := i.of, i.frame
	i.item = item
	r, ok := i.result.(types.Bool)
	if !ok {
		if condition, ok := q.condition.Exec(&i.exec).(types.Bool); ok && condition != types.True {
			return false, false
		}
		i.result = q.step.Exec(&i.exec)
		return true, f.interrupted()
	}
	for _, cost := range q.conditionCosts {
		f.spend(cost)
	}
	if r != q.start {
		return false, false
	}
	f.spend(q.readCost)
	value := q.predicate.Exec(&i.exec)
	f.drop(q.predicateID)
	if _, ok := value.(types.Bool); !ok {
		if !types.IsError(value) {
			value = types.MaybeNoSuchOverloadErr(value)
		}
		value = types.LabelErrNode(q.stepID, value)
	}
	i.result = value
	return true, f.interrupted()
}
