package expression

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/tidemark-dev/tidemark/internal/celenv"
)

// Composition is the variables of a policy: the fields of the variable variables. It is immutable,
// and safe for concurrent use. The zero value has no fields.
type Composition struct {
	all []compositionField
	// shared is the part that longer compositions have, too: a policy with n variables has n
	// compositions. It describes more fields than all if others were made from this one.
	shared *sharedFields
	sum    [sha256.Size]byte // of the names and types of the fields
	work   int               // of the programs of the fields: see celenv.MaxWork
	most   int               // of the types of the fields: see celenv.Deepest
}

type compositionField struct {
	name    string
	program *Program
}

// sharedFields is about the fields of the longest of several compositions.
type sharedFields struct {
	mu    sync.Mutex // guards the fields below
	len   int
	index map[string][]int // of names in Composition.all; the last one counts
	decls map[string]*apiservercel.DeclField
}

// With returns the composition with one more variable, which may use those before it and those that
// v declares. One that does not compile is added, too: each use of it fails with the error.
func (c *Composition) With(name, text string, v Variables, mode environment.Type) (*Composition, *apiservercel.Error) {
	v.Composited = c
	program, err := Compile(text, v, mode)
	declared := declType(program.output)
	next := &Composition{shared: c.shared, work: c.work + program.work, most: max(c.most, celenv.Deepest(declared))}
	next.sum = sha256.Sum256(fmt.Appendf(c.sum[:], "%q %s", name, declared.CelType()))
	if c.shared.extend(len(c.all), name, declared) {
		next.all = append(c.all, compositionField{name, program}) // no other composition has that place
	} else {
		// Another composition extends this one.
		next.all = append(c.all[:len(c.all):len(c.all)], compositionField{name, program})
		next.shared = c.copied()
		next.shared.add(name, declared)
	}
	return next, err
}

// Work returns the work to compile all variables: see celenv.MaxWork.
func (c *Composition) Work() int { return c.work }

// largest returns the number of parts of the largest type of a field.
func (c *Composition) largest() int {
	if c == nil {
		return 0
	}
	return c.most
}

// extend adds a field behind the first n, and reports whether that was possible.
func (s *sharedFields) extend(n int, name string, declared *apiservercel.DeclType) bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.len != n {
		return false
	}
	s.add(name, declared)
	return true
}

// add adds a field; mu is held.
func (s *sharedFields) add(name string, declared *apiservercel.DeclType) {
	s.index[name] = append(s.index[name], s.len)
	s.decls[name] = apiservercel.NewDeclField(name, declared, true, nil, nil)
	s.len++
}

// copied returns descriptions of the fields of this composition alone.
func (c *Composition) copied() *sharedFields {
	s := &sharedFields{index: map[string][]int{}, decls: map[string]*apiservercel.DeclField{}}
	for i := range c.all {
		s.add(c.all[i].name, declType(c.all[i].program.output))
	}
	return s
}

// find returns the index of a field.
func (c *Composition) find(name string) (int, bool) {
	if c == nil || c.shared == nil {
		return 0, false
	}
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	all := c.shared.index[name]
	i, _ := slices.BinarySearch(all, len(c.all)) // the first that is not in c
	if i == 0 {
		return 0, false
	}
	return all[i-1], true
}

// signature identifies the names and types of the fields. Expressions with the same signature
// compile to the same program.
func (c *Composition) signature() string {
	if c == nil {
		return ""
	}
	return string(c.sum[:])
}

// fields returns the types of the fields. They are valid until release.
func (c *Composition) fields() (types map[string]*apiservercel.DeclField, release func()) {
	if c == nil || c.shared == nil {
		return nil, func() {}
	}
	c.shared.mu.Lock()
	if c.shared.len == len(c.all) {
		return c.shared.decls, c.shared.mu.Unlock
	}
	c.shared.mu.Unlock()
	return c.copied().decls, func() {}
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
