package expression

import (
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// maxVariableDepth bounds how deep variables that use each other are evaluated: each level takes
// memory of the stack, which ends the process when it is full.
const maxVariableDepth = 1000

// variables is the value of the variable variables. It evaluates a field when it is used first.
type variables struct {
	e      *Evaluation
	values []ref.Val // of the fields of the composition; nil before the first use
	depth  int
}

var variablesType = types.NewObjectType("kubernetes.variables", traits.IndexerType|traits.FieldTesterType|traits.IterableType)

func newVariables(e *Evaluation) *variables {
	v := &variables{e: e}
	if e.composition != nil {
		v.values = make([]ref.Val, len(e.composition.all))
	}
	return v
}

// Find returns the value of a field.
func (v *variables) Find(key ref.Val) (ref.Val, bool) {
	name, ok := key.(types.String)
	if !ok {
		return types.MaybeNoSuchOverloadErr(key), true
	}
	plain, ok := apiservercel.Unescape(string(name))
	if !ok {
		return nil, false
	}
	i, ok := v.e.composition.find(plain)
	if !ok {
		return nil, false
	}
	if v.values[i] == nil {
		v.values[i] = v.evaluate(&v.e.composition.all[i])
	}
	return v.values[i], true
}

// evaluate evaluates a field, and charges its cost. When the budget is exceeded, further fields
// fail at once: the expression that uses them fails in any case.
func (v *variables) evaluate(f *compositionField) ref.Val {
	e := v.e
	switch {
	case f.program.err != nil:
		return types.NewErr("composited variable %q fails to compile: %v", f.name, f.program.err)
	case e.budget < 0:
		return types.WrapErr(outOfBudget())
	case v.depth >= maxVariableDepth:
		return types.NewErr("composited variable %q fails to evaluate: variables use each other more than %d levels deep", f.name, maxVariableDepth)
	}
	v.depth++
	value, cost, err := f.program.run.Eval(e.ctx, e)
	v.depth--
	e.charge(cost)
	if err != nil {
		return types.NewErr("composited variable %q fails to evaluate: %v", f.name, err)
	}
	return value
}

// Get returns the value of a field, or an error.
func (v *variables) Get(key ref.Val) ref.Val {
	if value, ok := v.Find(key); ok {
		return value
	}
	return types.ValOrErr(key, "no such key: %v", key)
}

// Contains reports whether there is a field. It evaluates the field, whose error is the result.
func (v *variables) Contains(key ref.Val) ref.Val {
	value, ok := v.Find(key)
	if value != nil && types.IsUnknownOrError(value) {
		return value
	}
	return types.Bool(ok)
}

// Size returns the number of fields.
func (v *variables) Size() ref.Val {
	if v.e.composition == nil {
		return types.Int(0)
	}
	return types.Int(len(v.e.composition.all))
}

// Iterator returns an iterator over the values of the fields.
func (v *variables) Iterator() traits.Iterator { return &variablesIterator{of: v} }

// ConvertToNative returns an error.
func (v *variables) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("disallowed conversion from %q to %q", variablesType.TypeName(), t.Name())
}

// ConvertToType converts to the value's own type, and to its type.
func (v *variables) ConvertToType(t ref.Type) ref.Val {
	switch t {
	case variablesType:
		return v
	case types.TypeType:
		return variablesType
	}
	return types.NewErr("disallowed conversion from %q to %q", variablesType.TypeName(), t.TypeName())
}

// Equal reports whether other is the same value.
func (v *variables) Equal(other ref.Val) ref.Val {
	o, ok := other.(*variables)
	if !ok {
		return types.MaybeNoSuchOverloadErr(other)
	}
	return types.Bool(v == o)
}

// Type returns the type.
func (v *variables) Type() ref.Type { return variablesType }

// Value returns an error: no native value exists.
func (v *variables) Value() any { return types.NoSuchOverloadErr() }

// variablesIterator iterates over the values of all fields.
type variablesIterator struct {
	of   *variables
	next int
}

// HasNext reports whether there is another value.
func (i *variablesIterator) HasNext() ref.Val { return types.Bool(i.next < len(i.of.values)) }

// Next returns the next value.
func (i *variablesIterator) Next() ref.Val {
	i.next++
	return i.of.Get(types.String(i.of.e.composition.all[i.next-1].name))
}

// ConvertToNative returns an error.
func (i *variablesIterator) ConvertToNative(t reflect.Type) (any, error) {
	return nil, fmt.Errorf("disallowed conversion to %q", t.Name())
}

// ConvertToType returns an error.
func (i *variablesIterator) ConvertToType(t ref.Type) ref.Val {
	return types.NewErr("disallowed conversion to %q", t.TypeName())
}

// Equal reports whether other is the same iterator.
func (i *variablesIterator) Equal(other ref.Val) ref.Val {
	o, ok := other.(*variablesIterator)
	return types.Bool(ok && o == i)
}

// Type returns the type of iterators.
func (i *variablesIterator) Type() ref.Type { return types.IteratorType }

// Value returns nil: no native value exists.
func (i *variablesIterator) Value() any { return nil }
