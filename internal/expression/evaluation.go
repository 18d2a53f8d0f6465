package expression

import (
	"context"
	"errors"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Input has the values of variables. Values are nil (null), values of package cel, types that
// encoding/json decodes to with int64 for whole numbers, or a *Lazy that makes one of these. An
// Input must not be changed while it is in use. Copies share the Lazy values.
type Input struct {
	Object, OldObject, Params, Request, Namespace any
	// Authorizer and RequestResource are the values of authorizer and
	// authorizer.requestResource. Expressions that use them fail if they are nil.
	Authorizer, RequestResource any
}

// Lazy is a value that is made when an expression first uses it. It is not safe for concurrent use.
type Lazy struct {
	// Make makes the value. It is called once. An error fails the expressions that use the value.
	Make func() (any, error)

	made  bool
	value any
}

// get returns a value of an Input.
func get(v any) any {
	l, ok := v.(*Lazy)
	if !ok {
		return v
	}
	if !l.made {
		value, err := l.Make()
		if err != nil {
			value = types.WrapErr(err)
		}
		l.made, l.value = true, value
	}
	return l.value
}

// Evaluation evaluates expressions one after the other within one budget of cost. Each variable of
// the composition is evaluated once, when an expression first uses it. It is not safe for concurrent
// use.
type Evaluation struct {
	ctx         context.Context
	in          *Input
	composition *Composition
	budget      int64
	variables   *variables // made with the first use
}

// NewEvaluation returns an evaluation with the budget. Programs that use composited variables need
// the composition that they were compiled with, or a longer one. ctx ends comprehensions.
func NewEvaluation(ctx context.Context, in *Input, c *Composition, budget int64) *Evaluation {
	return &Evaluation{ctx: ctx, in: in, composition: c, budget: budget}
}

// Budget returns the cost that is left, or -1 after it was exceeded.
func (e *Evaluation) Budget() int64 { return e.budget }

// Eval evaluates an expression. Errors are *apiservercel.Error. After one for which [Fatal] is true,
// no expression of the evaluation can be evaluated.
func (e *Evaluation) Eval(p *Program) (ref.Val, error) {
	if e.budget < 0 {
		return nil, outOfBudget()
	}
	if p.err != nil {
		return nil, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: "compilation error: " + p.err.Error(), Cause: p.err}
	}
	value, cost, err := p.run.Eval(e.ctx, e)
	if !e.charge(cost) {
		return nil, outOfBudget()
	}
	if err != nil {
		return nil, &apiservercel.Error{Type: apiservercel.ErrorTypeInvalid, Detail: "expression '" + p.text + "' resulted in error: " + err.Error()}
	}
	return value, nil
}

// charge takes a cost from the budget, and reports whether it sufficed.
func (e *Evaluation) charge(cost uint64) bool {
	if e.budget < 0 || cost > uint64(e.budget) {
		e.budget = -1
		return false
	}
	e.budget -= int64(cost)
	return true
}

func outOfBudget() error {
	return &apiservercel.Error{
		Type:   apiservercel.ErrorTypeInvalid,
		Detail: "validation failed due to running out of cost budget, no further validation rules will be run",
		Cause:  apiservercel.ErrOutOfBudget,
	}
}

// Fatal reports whether an error of Eval ends the whole evaluation.
func Fatal(err error) bool {
	return errors.Is(err, apiservercel.ErrOutOfBudget) || errors.Is(err, apiservercel.ErrInternal)
}

// ResolveName returns the value of a variable. It implements cel.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	switch name {
	case Object:
		return get(e.in.Object), true
	case OldObject:
		return get(e.in.OldObject), true
	case Params:
		return get(e.in.Params), true
	case Request:
		return get(e.in.Request), true
	case NamespaceObject:
		return get(e.in.Namespace), true
	case Authorizer:
		return get(e.in.Authorizer), e.in.Authorizer != nil
	case RequestResource:
		return get(e.in.RequestResource), e.in.RequestResource != nil
	case Composited:
		if e.variables == nil {
			e.variables = newVariables(e)
		}
		return e.variables, true
	}
	return nil, false
}

// Parent returns nil. It implements cel.Activation.
func (e *Evaluation) Parent() cel.Activation { return nil }
