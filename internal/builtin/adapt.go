package builtin

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// pointerTo is the pointer to the Go type of a kind.
type pointerTo[T any] interface {
	*T
	runtime.Object
}

// defaults adapts a function that changes one object of a kind: Default, PrepareCreate,
// Status.New.
func defaults[T any, P pointerTo[T]](f func(*T)) func(runtime.Object) {
	return func(o runtime.Object) { f(o.(P)) }
}

// prepares adapts a function that restores fields in an update of a kind, and reports whether it
// changed next. Next is a shallow copy, so the function must replace slices, maps and pointers in it
// instead of changing what they refer to.
func prepares[T any, P pointerTo[T]](f func(next, current *T) bool) func(sent, current runtime.Object) runtime.Object {
	return func(sent, current runtime.Object) runtime.Object {
		next := new(T)
		if *next = *sent.(P); f(next, current.(P)) {
			return P(next)
		}
		return sent
	}
}

// sets adapts a function that copies the body of a request for a subresource into an object.
func sets[T any, P pointerTo[T]](f func(o, sent *T)) func(o, sent runtime.Object) error {
	return func(o, sent runtime.Object) error {
		f(o.(P), sent.(P))
		return nil
	}
}

// validates adapts a function that checks a new object of a kind.
func validates[T any, P pointerTo[T]](f func(*T) field.ErrorList) func(context.Context, runtime.Object) field.ErrorList {
	return func(_ context.Context, o runtime.Object) field.ErrorList { return f(o.(P)) }
}

// updates adapts a function that checks an update of a kind.
func updates[T any, P pointerTo[T]](f func(o, old *T) field.ErrorList) func(ctx context.Context, o, old runtime.Object) field.ErrorList {
	return func(_ context.Context, o, old runtime.Object) field.ErrorList {
		return tolerateOld(f(o.(P), old.(P)), old)
	}
}

// warns adapts a function that returns warnings for a create (old is nil) or an update.
func warns[T any, P pointerTo[T]](f func(o, old *T) []string) func(o, old runtime.Object) []string {
	return func(o, old runtime.Object) []string {
		if old == nil {
			return f(o.(P), nil)
		}
		return f(o.(P), old.(P))
	}
}
