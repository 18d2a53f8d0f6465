package expression

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// observer wraps each step of a program while it is planned. A wrapped step pushes its value onto the
// frame of the evaluation and adds its cost. The costs are those of interpreter.CostObserver.
type observer struct {
	costs  *costs
	maxID  int64
	finish []func() error // called when the program is complete
	folds  []*observed    // comprehensions
}

// decorate wraps a step. It is an interpreter.InterpretableDecoratorV2.
func (o *observer) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	switch step := i.(type) {
	case *observed, *observedAttribute, *observedConst, *observedConstructor:
		return i, nil
	case interpreter.InterpretableAttribute:
		a := &observedAttribute{InterpretableAttribute: step, observer: o}
		o.finish = append(o.finish, a.complete)
		return a, nil
	case interpreter.InterpretableConst:
		c := &observedConst{InterpretableConst: step, value: step.Value(), id: step.ID()}
		o.see(c.id)
		return c, nil
	case interpreter.InterpretableConstructor:
		return o.constructor(step), nil
	}
	s := &observed{InterpretableV2: i}
	o.finish = append(o.finish, func() error { return o.complete(s) })
	return s, nil
}

// see records the IDs of steps.
func (o *observer) see(ids ...int64) {
	for _, id := range ids {
		o.maxID = max(o.maxID, id)
	}
}

// idsOf returns the IDs of steps.
func idsOf[S interface{ ID() int64 }](o *observer, steps ...S) []int64 {
	ids := make([]int64, len(steps))
	for i, s := range steps {
		ids[i] = s.ID()
	}
	o.see(ids...)
	return ids
}

// observed is a step that is neither an attribute, nor a constant, nor a constructor: a logical
// operator, a comprehension, or a call.
type observed struct {
	interpreter.InterpretableV2
	id    int64
	drops []int64 // values that an operator or a comprehension takes off the stack
	call  *call   // nil: the step is no call
}

// complete finds the values that a step takes off the stack.
func (o *observer) complete(s *observed) error {
	s.id = s.InterpretableV2.ID()
	o.see(s.id)
	switch name := fmt.Sprintf("%T", s.InterpretableV2); strings.TrimPrefix(name, "*interpreter.") {
	case "evalOr", "evalAnd":
		var terms []interpreter.InterpretableV2
		if err := readField(s.InterpretableV2, "terms", &terms); err != nil {
			return err
		}
		s.drops = idsOf(o, terms...)
	case "evalFold":
		var of interpreter.InterpretableV2
		if err := readField(s.InterpretableV2, "iterRange", &of); err != nil {
			return err
		}
		s.drops = idsOf(o, of)
		o.folds = append(o.folds, s)
	default:
		if c, ok := s.InterpretableV2.(interpreter.InterpretableCall); ok {
			s.call = o.costs.callOf(c, idsOf(o, c.Args()...))
		}
	}
	return nil
}

// Eval implements interpreter.Interpretable.
func (s *observed) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// Exec evaluates the step.
func (s *observed) Exec(vars *interpreter.ExecutionFrame) ref.Val {
	value := s.InterpretableV2.Exec(vars)
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

// observedConst is a constant.
type observedConst struct {
	interpreter.InterpretableConst
	value ref.Val
	id    int64
}

// Eval implements interpreter.Interpretable.
func (s *observedConst) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// Exec evaluates the step.
func (s *observedConst) Exec(vars *interpreter.ExecutionFrame) ref.Val {
	if f := frameOf(vars); f != nil {
		f.push(s.value, s.id)
	}
	return s.value
}

// observedConstructor makes a list, a map or an object.
type observedConstructor struct {
	interpreter.InterpretableConstructor
	id   int64
	args []int64
	cost uint64
}

func (o *observer) constructor(step interpreter.InterpretableConstructor) *observedConstructor {
	s := &observedConstructor{InterpretableConstructor: step, id: step.ID()}
	o.see(s.id)
	switch step.Type() {
	case types.ListType:
		s.cost = common.ListCreateBaseCost
	case types.MapType:
		s.cost = common.MapCreateBaseCost
	default:
		s.cost = common.StructCreateBaseCost
	}
	o.finish = append(o.finish, func() error {
		s.args = idsOf(o, step.InitVals()...)
		return nil
	})
	return s
}

// Eval implements interpreter.Interpretable.
func (s *observedConstructor) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// Exec evaluates the step.
func (s *observedConstructor) Exec(vars *interpreter.ExecutionFrame) ref.Val {
	value := s.InterpretableConstructor.Exec(vars)
	f := frameOf(vars)
	f.takeArgs(s.args)
	f.cost += s.cost
	f.push(value, s.id)
	return value
}

// observedAttribute is a variable with qualifiers, or a conditional.
type observedAttribute struct {
	interpreter.InterpretableAttribute
	observer *observer // nil in a complete program

	id    int64
	drops []int64
	cost  uint64
}

// complete finds the cost of the attribute, and the values that it takes off the stack.
func (s *observedAttribute) complete() error {
	s.id = s.InterpretableAttribute.ID()
	drops, cost, err := s.observer.attribute(s.InterpretableAttribute)
	s.drops, s.cost = drops, cost
	s.observer.see(s.id)
	s.observer.see(drops...)
	return err
}

// attribute returns the values that an attribute takes off the stack, and its cost.
func (o *observer) attribute(a interpreter.InterpretableAttribute) ([]int64, uint64, error) {
	of := a.Attr()
	drops, cost := []int64{of.ID()}, uint64(common.SelectAndIdentCost)
	if fmt.Sprintf("%T", of) == "*interpreter.conditionalAttribute" {
		var condition interpreter.InterpretableV2
		var truthy, falsy interpreter.Attribute
		if err := readField(of, "expr", &condition); err != nil {
			return nil, 0, err
		}
		if err := readField(of, "truthy", &truthy); err != nil {
			return nil, 0, err
		}
		if err := readField(of, "falsy", &falsy); err != nil {
			return nil, 0, err
		}
		drops, cost = []int64{falsy.ID(), truthy.ID(), condition.ID()}, 0
	}
	if fmt.Sprintf("%T", a) == "*interpreter.evalTestOnly" {
		cost -= common.SelectAndIdentCost // has() costs nothing; for a conditional, that is less than it costs
	}
	return drops, cost, nil
}

// Eval implements interpreter.Interpretable.
func (s *observedAttribute) Eval(vars interpreter.Activation) ref.Val {
	return s.Exec(interpreter.AsFrame(vars))
}

// Exec evaluates the step.
func (s *observedAttribute) Exec(vars *interpreter.ExecutionFrame) ref.Val {
	value := s.InterpretableAttribute.Exec(vars)
	f := frameOf(vars)
	for _, id := range s.drops {
		f.drop(id)
	}
	f.cost += s.cost
	f.push(value, s.id)
	return value
}

// AddQualifier adds a qualifier, and wraps it.
func (s *observedAttribute) AddQualifier(q interpreter.Qualifier) (interpreter.Attribute, error) {
	o := s.observer
	switch of := q.(type) {
	case interpreter.ConstantQualifier:
		q = newConstQualifier(of)
		o.see(of.ID())
	case *observedAttribute:
		a := &observedAttributeQualifier{Attribute: of.InterpretableAttribute}
		o.finish = append(o.finish, func() (err error) {
			a.id = a.Attribute.ID()
			a.drops, a.cost, err = o.attribute(of.InterpretableAttribute)
			o.see(a.id)
			o.see(a.drops...)
			return err
		})
		q = a
	case interpreter.Attribute:
		a := &observedAttributeQualifier{Attribute: of, cost: 1}
		o.finish = append(o.finish, func() error {
			a.id = of.ID()
			o.see(a.id)
			return nil
		})
		q = a
	default:
		q = &observedQualifier{Qualifier: of, id: of.ID()}
		o.see(of.ID())
	}
	_, err := s.InterpretableAttribute.AddQualifier(q)
	return s, err
}

// observedConstQualifier is a qualifier such as .name or [0].
type observedConstQualifier struct {
	interpreter.ConstantQualifier
	id int64

	// name is that of a field, empty for another qualifier. The fields of an object are looked up
	// here: the qualifier of cel-go tries the types of maps in Go first.
	name types.String
	test bool // the qualifier is the last one of has()
	// last is where the object that was seen last has the field.
	last atomic.Pointer[place]
}

func newConstQualifier(of interpreter.ConstantQualifier) *observedConstQualifier {
	q := &observedConstQualifier{ConstantQualifier: of, id: of.ID()}
	if fmt.Sprintf("%T", of) == "*interpreter.testOnlyQualifier" {
		q.test = readField(of, "ConstantQualifier", &of) == nil
	}
	if fmt.Sprintf("%T", of) == "*interpreter.stringQualifier" {
		q.name, _ = of.Value().(types.String)
	}
	return q
}

// find looks up the field of an object. Unless decided, the qualifier of cel-go has to do it: for other
// values, and for its errors.
func (q *observedConstQualifier) find(of any, test bool) (value ref.Val, found, decided bool) {
	o, ok := of.(*object)
	if !ok || q.name == "" {
		return nil, false, false
	}
	value, found = o.named(q.name, &q.last)
	if found {
		return value, true, !types.IsUnknownOrError(value)
	}
	return nil, false, test
}

// Qualify implements interpreter.Qualifier.
func (q *observedConstQualifier) Qualify(vars interpreter.Activation, o any) (any, error) {
	f := frameOf(vars)
	if value, found, decided := q.find(o, q.test); decided {
		f.qualified(q.id)
		if q.test {
			return found, nil
		}
		return value, nil
	}
	out, err := q.ConstantQualifier.Qualify(vars, o)
	f.qualified(q.id)
	return out, err
}

// QualifyIfPresent implements interpreter.Qualifier.
func (q *observedConstQualifier) QualifyIfPresent(vars interpreter.Activation, o any, presenceOnly bool) (any, bool, error) {
	var out any
	var err error
	value, present, decided := q.find(o, true)
	if decided {
		out = value
	} else {
		out, present, err = q.ConstantQualifier.QualifyIfPresent(vars, o, presenceOnly)
	}
	if present || presenceOnly {
		frameOf(vars).qualified(q.id)
	}
	return out, present, err
}

// QualifierValueEquals reports whether the qualifier is a value.
func (q *observedConstQualifier) QualifierValueEquals(value any) bool {
	of, ok := q.ConstantQualifier.(interface{ QualifierValueEquals(value any) bool })
	return ok && of.QualifierValueEquals(value)
}

// observedAttributeQualifier is a qualifier whose value is computed: [object.index].
type observedAttributeQualifier struct {
	interpreter.Attribute
	id    int64
	drops []int64
	cost  uint64
}

// Qualify implements interpreter.Qualifier.
func (q *observedAttributeQualifier) Qualify(vars interpreter.Activation, o any) (any, error) {
	out, err := q.Attribute.Qualify(vars, o)
	q.done(vars)
	return out, err
}

// QualifyIfPresent implements interpreter.Qualifier.
func (q *observedAttributeQualifier) QualifyIfPresent(vars interpreter.Activation, o any, presenceOnly bool) (any, bool, error) {
	out, present, err := q.Attribute.QualifyIfPresent(vars, o, presenceOnly)
	if present || presenceOnly {
		q.done(vars)
	}
	return out, present, err
}

func (q *observedAttributeQualifier) done(vars interpreter.Activation) {
	f := frameOf(vars)
	for _, id := range q.drops {
		f.drop(id)
	}
	f.cost += q.cost
	f.push(nil, q.id)
}

// observedQualifier is any other qualifier.
type observedQualifier struct {
	interpreter.Qualifier
	id int64
}

// Qualify implements interpreter.Qualifier.
func (q *observedQualifier) Qualify(vars interpreter.Activation, o any) (any, error) {
	out, err := q.Qualifier.Qualify(vars, o)
	frameOf(vars).qualified(q.id)
	return out, err
}

// QualifyIfPresent implements interpreter.Qualifier.
func (q *observedQualifier) QualifyIfPresent(vars interpreter.Activation, o any, presenceOnly bool) (any, bool, error) {
	out, present, err := q.Qualifier.QualifyIfPresent(vars, o, presenceOnly)
	if present || presenceOnly {
		frameOf(vars).qualified(q.id)
	}
	return out, present, err
}
