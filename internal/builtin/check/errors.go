package check

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Errors collects the errors of an object. Its methods take a path and the name of a member below
// it, or "" for the path itself. The path of a member is made only for an error. The zero value is
// empty and ready for use.
//
// Only as many errors are made as a response contains; more are only counted. An error takes half a
// kilobyte or more, and a body of a few kilobytes can have thousands of errors.
type Errors struct{ list field.ErrorList }

// MaxErrors is the maximum number of errors that are made for an object. It is resource.MaxErrors, which this package must not import.
const MaxErrors = 1000

// countedOnly is in the list for each error that is only counted. It sorts after all paths.
var countedOnly = &field.Error{Type: field.ErrorTypeTooMany, Field: "~", Detail: "more errors"}

// full reports whether the next error is only counted, and counts it.
func (e *Errors) full() bool {
	if len(e.list) < MaxErrors {
		return false
	}
	e.list = append(e.list, countedOnly)
	return true
}

// List returns the errors in the order in which they were added, nil when there are none.
func (e *Errors) List() field.ErrorList { return e.list }

// Len returns the number of errors.
func (e *Errors) Len() int { return len(e.list) }

// Add appends errors.
func (e *Errors) Add(errs ...*field.Error) { e.list = append(e.list, errs...) }

// SortFrom sorts the errors from the given index on by their paths. Code that ranges over a map
// calls it to make their order deterministic.
func (e *Errors) SortFrom(start int) {
	if len(e.list)-start > 1 {
		InOrder(e.list[start:])
	}
}

// Member returns the path of a member, or the path itself when the name is "".
func Member(at *field.Path, name string) *field.Path {
	switch {
	case name == "":
		return at
	case at == nil:
		return field.NewPath(name)
	}
	return at.Child(name)
}

// Required reports a missing member.
func (e *Errors) Required(at *field.Path, name, detail string) {
	if !e.full() {
		e.Add(field.Required(Member(at, name), detail))
	}
}

// Invalid reports a value that breaks a rule.
func (e *Errors) Invalid(at *field.Path, name string, value any, detail string) {
	if !e.full() {
		e.Add(field.Invalid(Member(at, name), value, detail))
	}
}

// Forbidden reports a member that may not be set.
func (e *Errors) Forbidden(at *field.Path, name, detail string) {
	if !e.full() {
		e.Add(field.Forbidden(Member(at, name), detail))
	}
}

// Immutable checks that a member does not change.
func (e *Errors) Immutable(at *field.Path, name string, next, old any) {
	if !equality.Semantic.DeepEqual(next, old) {
		e.Invalid(at, name, Bare(next), apivalidation.FieldImmutableErrorMsg)
	}
}

// Duplicate reports a value that occurs twice.
func (e *Errors) Duplicate(at *field.Path, name string, value any) {
	if !e.full() {
		e.Add(field.Duplicate(Member(at, name), value))
	}
}

// NotFound reports a reference to something that does not exist.
func (e *Errors) NotFound(at *field.Path, name string, value any) {
	if !e.full() {
		e.Add(field.NotFound(Member(at, name), value))
	}
}

// Each reports a value as invalid once for each message.
func (e *Errors) Each(at *field.Path, name string, value any, messages []string) {
	for _, m := range messages {
		e.Invalid(at, name, value, m)
	}
}

// NonNegative checks that a number is 0 or more.
func (e *Errors) NonNegative(at *field.Path, name string, n int64) {
	if n < 0 {
		e.Add(NotNegative(n, Member(at, name))...)
	}
}

// Positive checks that a number is 1 or more.
func (e *Errors) Positive(at *field.Path, name string, n int32) {
	if n <= 0 {
		e.Invalid(at, name, int64(n), "must be greater than zero")
	}
}

// AtMostReplicas checks the number of replicas that are in some state.
func (e *Errors) AtMostReplicas(at *field.Path, name string, n, replicas int32) {
	if n > replicas {
		e.Invalid(at, name, n, "cannot be greater than status.replicas")
	}
}

// QualifiedName checks a name with or without a domain, such as the key of a label.
func (e *Errors) QualifiedName(at *field.Path, name, value string) {
	e.Each(at, name, value, QualifiedNameFaults(value))
}

// IP checks an IP address.
func (e *Errors) IP(at *field.Path, name, value string) {
	e.Add(validation.IsValidIPForLegacyField(Member(at, name), value, true, nil)...)
}

// LabelSelector checks a label selector. A nil selector is valid.
func (e *Errors) LabelSelector(s *metav1.LabelSelector, at *field.Path) {
	e.Add(Selector(s, nil, at)...)
}

// NonNegativeIfSet checks that a number is 0 or more, or not set.
func NonNegativeIfSet[T int32 | int64](e *Errors, at *field.Path, name string, n *T) {
	if n != nil {
		e.NonNegative(at, name, int64(*n))
	}
}

// Enum checks that a value is one of the allowed ones.
func Enum[T ~string](e *Errors, at *field.Path, name string, value T, allowed []T) {
	if !slices.Contains(allowed, value) {
		e.Add(OneOf(value, allowed, Member(at, name))...)
	}
}

// RequiredEnum is Enum for a value that must not be empty.
func RequiredEnum[T ~string](e *Errors, at *field.Path, name string, value T, allowed []T) {
	if value == "" {
		e.Required(at, name, "")
		return
	}
	Enum(e, at, name, value, allowed)
}
