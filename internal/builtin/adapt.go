package builtin

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// The functions of a kind take its own type; a row wants them for any object. These
// stand between: the verbs hand a function only objects of its row.

// defaults is the Default of a row.
func defaults[T runtime.Object](f func(T)) func(runtime.Object) {
	return func(o runtime.Object) { f(o.(T)) }
}

// prepares is the PrepareUpdate of a row.
func prepares[T runtime.Object](f func(next, current T)) func(next, current runtime.Object) {
	return func(next, current runtime.Object) { f(next.(T), current.(T)) }
}

// validates is the Validate of a row.
func validates[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(o runtime.Object) field.ErrorList { return f(o.(T)) }
}

// updates is the ValidateUpdate of a row, or the Validate of a subresource.
func updates[T runtime.Object](f func(o, old T) field.ErrorList) func(o, old runtime.Object) field.ErrorList {
	return func(o, old runtime.Object) field.ErrorList { return f(o.(T), old.(T)) }
}

// warns is the Warnings of a row. Old is nil for a create.
func warns[T runtime.Object](f func(o, old T) []string) func(o, old runtime.Object) []string {
	return func(o, old runtime.Object) []string {
		before, _ := old.(T)
		return f(o.(T), before)
	}
}
