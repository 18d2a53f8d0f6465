package expression

import (
	"strconv"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// Composition is the variables of a policy: the fields of the variable variables. It is immutable,
// and safe for concurrent use. The zero value has no fields.
type Composition struct {
	all   []compositionField
	index map[string]int // of the last field of a name in all
	types string         // the names and types of the fields, as one text
	decls map[string]*apiservercel.DeclField
}

type compositionField struct {
	name    string
	program *Program
}

// With returns the composition with one more variable, which may use those before it and those that
// v declares. One that does not compile is added, too: each use of it fails with the error.
func (c *Composition) With(name, text string, v Variables, mode environment.Type) (*Composition, *apiservercel.Error) {
	v.Composited = c
	program, err := Compile(text, v, mode)
	n := len(c.all)
	next := &Composition{
		all:   append(c.all[:n:n], compositionField{name, program}),
		index: make(map[string]int, n+1), decls: make(map[string]*apiservercel.DeclField, n+1),
	}
	for name, i := range c.index {
		next.index[name] = i
	}
	for name, d := range c.decls {
		next.decls[name] = d
	}
	declared := declType(program.output)
	next.index[name] = n
	next.decls[name] = apiservercel.NewDeclField(name, declared, true, nil, nil)
	next.types = c.types + strconv.Quote(name) + declared.CelType().String() + ";"
	return next, err
}

// signature identifies the names and types of the fields. Expressions with the same signature
// compile to the same program.
func (c *Composition) signature() string {
	if c == nil {
		return ""
	}
	return c.types
}

func (c *Composition) fields() map[string]*apiservercel.DeclField {
	if c == nil {
		return nil
	}
	return c.decls
}

// declType returns the type that a variable has for the expressions which use it. Objects have type
// dyn, as do variables that do not compile.
func declType(t *cel.Type) *apiservercel.DeclType {
	if t == nil {
		return apiservercel.DynType
	}
	if scalar, ok := scalars[t]; ok {
		return scalar
	}
	if t.HasTrait(traits.ContainerType) && t.HasTrait(traits.IndexerType) {
		switch p := t.Parameters(); len(p) {
		case 1:
			return apiservercel.NewListType(declType(p[0]), -1)
		case 2:
			return apiservercel.NewMapType(declType(p[0]), declType(p[1]), -1)
		}
	}
	return apiservercel.DynType
}

var scalars = map[*cel.Type]*apiservercel.DeclType{
	cel.AnyType:       apiservercel.AnyType,
	cel.BoolType:      apiservercel.BoolType,
	cel.BytesType:     apiservercel.BytesType,
	cel.DoubleType:    apiservercel.DoubleType,
	cel.DurationType:  apiservercel.DurationType,
	cel.IntType:       apiservercel.IntType,
	cel.NullType:      apiservercel.NullType,
	cel.StringType:    apiservercel.StringType,
	cel.TimestampType: apiservercel.TimestampType,
	cel.UintType:      apiservercel.UintType,
}
