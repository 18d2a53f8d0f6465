package core

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Faults collects what is wrong with an object. Its methods take a path and the
// name of a member below it, "" for the path itself: the member's path is only made
// when something is wrong. The zero value is empty.
type Faults struct{ list field.ErrorList }

// List is what was found, in order; nil: nothing.
func (f *Faults) List() field.ErrorList { return f.list }

// Add appends what others found.
func (f *Faults) Add(errs ...*field.Error) { f.list = append(f.list, errs...) }

func member(at *field.Path, name string) *field.Path {
	switch {
	case name == "":
		return at
	case at == nil:
		return field.NewPath(name)
	}
	return at.Child(name)
}

// Required: the member has to be there.
func (f *Faults) Required(at *field.Path, name, detail string) {
	f.Add(field.Required(member(at, name), detail))
}

// Invalid: the value cannot be.
func (f *Faults) Invalid(at *field.Path, name string, value any, detail string) {
	f.Add(field.Invalid(member(at, name), value, detail))
}

// Forbidden: the member cannot be there.
func (f *Faults) Forbidden(at *field.Path, name, detail string) {
	f.Add(field.Forbidden(member(at, name), detail))
}

// Duplicate: the value stands somewhere else, too.
func (f *Faults) Duplicate(at *field.Path, name string, value any) {
	f.Add(field.Duplicate(member(at, name), value))
}

// NotFound: nothing has the name that the value says.
func (f *Faults) NotFound(at *field.Path, name string, value any) {
	f.Add(field.NotFound(member(at, name), value))
}

// Each: the value is invalid, once for each of the messages.
func (f *Faults) Each(at *field.Path, name string, value any, messages []string) {
	for _, m := range messages {
		f.Invalid(at, name, value, m)
	}
}

// NonNegative checks a number.
func (f *Faults) NonNegative(at *field.Path, name string, n int64) {
	if n < 0 {
		f.Add(check.NotNegative(n, member(at, name))...)
	}
}

// NonNegativeIfSet checks a number that may not be there.
func NonNegativeIfSet[T int32 | int64](f *Faults, at *field.Path, name string, n *T) {
	if n != nil {
		f.NonNegative(at, name, int64(*n))
	}
}

// SetMissing sets what is not there.
func SetMissing[T any](to **T, value T) {
	if *to == nil {
		*to = &value
	}
}

// OneOf checks that a value is one of those that there are.
func OneOf[T ~string](f *Faults, at *field.Path, name string, value T, allowed []T) {
	if !slices.Contains(allowed, value) {
		f.Add(check.OneOf(value, allowed, member(at, name))...)
	}
}

// requiredOneOf is OneOf of what has to be said.
func requiredOneOf[T ~string](f *Faults, at *field.Path, name string, value T, allowed []T) {
	if value == "" {
		f.Required(at, name, "")
		return
	}
	OneOf(f, at, name, value, allowed)
}

// sortFrom brings into one order what was found while ranging over a map.
func (f *Faults) sortFrom(start int) {
	if len(f.list)-start > 1 {
		check.InOrder(f.list[start:])
	}
}

// seen are strings that stood before. The zero value has none.
type seen = check.Seen[string]
