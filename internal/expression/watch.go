package expression

import (
	"fmt"
	"strings"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// A watcher wraps each step of a program, so that the frame of an evaluation learns of its value and
// counts its cost. The steps and their costs are those of interpreter.CostObserver.
type watcher struct {
	costs  *costs
	maxID  int64
	finish []func() error // called when the program is complete
}

// decorate wraps a step. It is an interpreter.InterpretableDecorator.
func (w *watcher) decorate(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	switch step := i.(type) {
	case *watched, *watchedAttribute, *watchedConst, *watchedConstructor:
		return i, nil
	case interpreter.InterpretableAttribute:
		a := &watchedAttribute{InterpretableAttribute: step, watcher: w}
		w.finish = append(w.finish, a.complete)
		return a, nil
	case interpreter.InterpretableConst:
		c := &watchedConst{InterpretableConst: step, value: step.Value(), id: step.ID()}
		w.see(c.id)
		return c, nil
	case interpreter.InterpretableConstructor:
		return w.constructor(step), nil
	}
	s := &watched{Interpretable: i}
	w.finish = append(w.finish, func() error { return w.complete(s) })
	return s, nil
}

// see notes an ID of a step.
func (w *watcher) see(ids ...int64) {
	for _, id := range ids {
		w.maxID = max(w.maxID, id)
	}
}

// idsOf returns the IDs of steps. Their type is another one in later versions of cel-go.
func idsOf[S interface{ ID() int64 }](w *watcher, steps ...S) []int64 {
	ids := make([]int64, len(steps))
	for i, s := range steps {
		ids[i] = s.ID()
	}
	w.see(ids...)
	return ids
}

// watched is a step that is neither an attribute, nor a constant, nor a constructor: a logical
// operator, a comprehension, or a call.
type watched struct {
	interpreter.Interpretable
	id    int64
	drops []int64 // values that an operator or a comprehension takes off the stack
	call  *call   // nil: the step is no call
}

// complete finds what a step takes off the stack.
func (w *watcher) complete(s *watched) error {
	s.id = s.Interpretable.ID()
	w.see(s.id)
	switch name := fmt.Sprintf("%T", s.Interpretable); strings.TrimPrefix(name, "*interpreter.") {
	case "evalOr", "evalAnd":
		var terms []interpreter.Interpretable
		if err := take(s.Interpretable, "terms", &terms); err != nil {
			return err
		}
		s.drops = idsOf(w, terms...)
	case "evalFold":
		var of interpreter.Interpretable
		if err := take(s.Interpretable, "iterRange", &of); err != nil {
			return err
		}
		s.drops = idsOf(w, of)
	default:
		if c, ok := s.Interpretable.(interpreter.InterpretableCall); ok {
			s.call = w.costs.callOf(c, idsOf(w, c.Args()...))
		}
	}
	return nil
}

// Eval evaluates the step.
func (s *watched) Eval(vars interpreter.Activation) ref.Val {
	value := s.Interpretable.Eval(vars)
	f := frameOf(vars)
	if s.call != nil {
		f.called(s.call, value)
	} else {
		for _, id := range s.drops {
			f.drop(id)
		}
	}
	f.push(value, s.id)
	return value
}

// watchedConst is a constant.
type watchedConst struct {
	interpreter.InterpretableConst
	value ref.Val
	id    int64
}

// Eval evaluates the step.
func (s *watchedConst) Eval(vars interpreter.Activation) ref.Val {
	if f := frameOf(vars); f != nil {
		f.push(s.value, s.id)
	}
	return s.value
}

// watchedConstructor makes a list, a map or an object.
type watchedConstructor struct {
	interpreter.InterpretableConstructor
	id   int64
	args []int64
	cost uint64
}

func (w *watcher) constructor(step interpreter.InterpretableConstructor) *watchedConstructor {
	s := &watchedConstructor{InterpretableConstructor: step, id: step.ID()}
	w.see(s.id)
	switch step.Type() {
	case types.ListType:
		s.cost = common.ListCreateBaseCost
	case types.MapType:
		s.cost = common.MapCreateBaseCost
	default:
		s.cost = common.StructCreateBaseCost
	}
	w.finish = append(w.finish, func() error {
		s.args = idsOf(w, step.InitVals()...)
		return nil
	})
	return s
}

// Eval evaluates the step.
func (s *watchedConstructor) Eval(vars interpreter.Activation) ref.Val {
	value := s.InterpretableConstructor.Eval(vars)
	f := frameOf(vars)
	f.takeArgs(s.args)
	f.cost += s.cost
	f.push(value, s.id)
	return value
}

// watchedAttribute is a variable with qualifiers, or a conditional.
type watchedAttribute struct {
	interpreter.InterpretableAttribute
	watcher *watcher // nil in a complete program

	id    int64
	drops []int64
	cost  uint64
}

// complete finds the cost of the attribute, and what it takes off the stack.
func (s *watchedAttribute) complete() error {
	s.id = s.InterpretableAttribute.ID()
	drops, cost, err := s.watcher.attribute(s.InterpretableAttribute)
	s.drops, s.cost = drops, cost
	s.watcher.see(s.id)
	s.watcher.see(drops...)
	return err
}

// attribute returns what an attribute takes off the stack, and its cost.
func (w *watcher) attribute(a interpreter.InterpretableAttribute) ([]int64, uint64, error) {
	of := a.Attr()
	drops, cost := []int64{of.ID()}, uint64(common.SelectAndIdentCost)
	if fmt.Sprintf("%T", of) == "*interpreter.conditionalAttribute" {
		var condition interpreter.Interpretable
		var truthy, falsy interpreter.Attribute
		if err := take(of, "expr", &condition); err != nil {
			return nil, 0, err
		}
		if err := take(of, "truthy", &truthy); err != nil {
			return nil, 0, err
		}
		if err := take(of, "falsy", &falsy); err != nil {
			return nil, 0, err
		}
		drops, cost = []int64{falsy.ID(), truthy.ID(), condition.ID()}, 0
	}
	if fmt.Sprintf("%T", a) == "*interpreter.evalTestOnly" {
		cost -= common.SelectAndIdentCost // has() costs nothing; for a conditional, that is less than it costs
	}
	return drops, cost, nil
}

// Eval evaluates the step.
func (s *watchedAttribute) Eval(vars interpreter.Activation) ref.Val {
	value := s.InterpretableAttribute.Eval(vars)
	f := frameOf(vars)
	for _, id := range s.drops {
		f.drop(id)
	}
	f.cost += s.cost
	f.push(value, s.id)
	return value
}

// AddQualifier adds a qualifier, and wraps it.
func (s *watchedAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	w := s.watcher
	switch of := q.(type) {
	case interpreter.ConstantQualifier:
		q = &watchedConstQualifier{ConstantQualifier: of, id: of.ID()}
		w.see(of.ID())
	case *watchedAttribute:
		a := &watchedAttributeQualifier{Attribute: of.InterpretableAttribute}
		w.finish = append(w.finish, func() (err error) {
			a.id = a.Attribute.ID()
			a.drops, a.cost, err = w.attribute(of.InterpretableAttribute)
			w.see(a.id)
			w.see(a.drops...)
			return err
		})
		q = a
	case interpreter.Attribute:
		a := &watchedAttributeQualifier{Attribute: of, cost: 1}
		w.finish = append(w.finish, func() error {
			a.id = of.ID()
			w.see(a.id)
			return nil
		})
		q = a
	default:
		q = &watchedQualifier{Qualifier: of, id: of.ID()}
		w.see(of.ID())
	}
	_, err := s.InterpretableAttribute.AddQualifier(q)
	return s, err
}

// watchedConstQualifier is a qualifier such as .name or [0].
type watchedConstQualifier struct {
	interpreter.ConstantQualifier
	id int64
}

// Qualify implements interpreter.Qualifier.
func (q *watchedConstQualifier) Qualify(vars interpreter.Activation, o any) (any, error) {
	out, err := q.ConstantQualifier.Qualify(vars, o)
	frameOf(vars).qualified(q.id)
	return out, err
}

// QualifyIfPresent implements interpreter.Qualifier.
func (q *watchedConstQualifier) QualifyIfPresent(vars interpreter.Activation, o any, presenceOnly bool) (any, bool, error) {
	out, present, err := q.ConstantQualifier.QualifyIfPresent(vars, o, presenceOnly)
	if present || presenceOnly {
		frameOf(vars).qualified(q.id)
	}
	return out, present, err
}

// QualifierValueEquals reports whether the qualifier is a value.
func (q *watchedConstQualifier) QualifierValueEquals(value any) bool {
	of, ok := q.ConstantQualifier.(interface{ QualifierValueEquals(value any) bool })
	return ok && of.QualifierValueEquals(value)
}

// watchedAttributeQualifier is a qualifier whose value is computed: [object.index].
type watchedAttributeQualifier struct {
	interpreter.Attribute
	id    int64
	drops []int64
	cost  uint64
}

// Qualify implements interpreter.Qualifier.
func (q *watchedAttributeQualifier) Qualify(vars interpreter.Activation, o any) (any, error) {
	out, err := q.Attribute.Qualify(vars, o)
	q.done(vars)
	return out, err
}

// QualifyIfPresent implements interpreter.Qualifier.
func (q *watchedAttributeQualifier) QualifyIfPresent(vars interpreter.Activation, o any, presenceOnly bool) (any, bool, error) {
	out, present, err := q.Attribute.QualifyIfPresent(vars, o, presenceOnly)
	if present || presenceOnly {
		q.done(vars)
	}
	return out, present, err
}

func (q *watchedAttributeQualifier) done(vars interpreter.Activation) {
	f := frameOf(vars)
	for _, id := range q.drops {
		f.drop(id)
	}
	f.cost += q.cost
	f.push(nil, q.id)
}

// watchedQualifier is any other qualifier.
type watchedQualifier struct {
	interpreter.Qualifier
	id int64
}

// Qualify implements interpreter.Qualifier.
func (q *watchedQualifier) Qualify(vars interpreter.Activation, o any) (any, error) {
	out, err := q.Qualifier.Qualify(vars, o)
	frameOf(vars).qualified(q.id)
	return out, err
}

// QualifyIfPresent implements interpreter.Qualifier.
func (q *watchedQualifier) QualifyIfPresent(vars interpreter.Activation, o any, presenceOnly bool) (any, bool, error) {
	out, present, err := q.Qualifier.QualifyIfPresent(vars, o, presenceOnly)
	if present || presenceOnly {
		frameOf(vars).qualified(q.id)
	}
	return out, present, err
}
