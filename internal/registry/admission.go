package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Admission is a write as admission sees it, after everything that the verb does
// to the object and before it is stored.
type Admission struct {
	Target
	// Verb is create, update (patches and applies, too) or delete.
	Verb string
	// Object is what shall be stored, in the stored version; nil for a deletion.
	Object runtime.Object
	// Old is what is stored, whatever the subresource; nil for a creation.
	Old runtime.Object
	// DryRun: the write will not be made.
	DryRun bool
	// Warnings go out with the answer.
	Warnings []string
	// Refusal is what a Completion refuses the write with once it is found valid: what
	// is wrong with the object itself is said first. Nil: nothing.
	Refusal error

	ends []func(stored bool)
}

// OnEnd has a Step's function called when the write has ended, and told whether it is
// stored. The answer to the client waits for it.
func (a *Admission) OnEnd(f func(stored bool)) { a.ends = append(a.ends, f) }

// Completion sets in a new object what follows from other objects, or refuses it
// with an error. It is safe for concurrent use.
type Completion func(ctx context.Context, a *Admission) error

// Step is a part of admission. Its functions are called by many goroutines at once.
type Step struct {
	// Wants tells whether the step has a say in a verb (as in Admission) on a target.
	// It is asked before anything is read. Nil: in all.
	Wants func(t Target, verb string) bool
	// Admit refuses a write by an error, and may warn.
	Admit func(ctx context.Context, a *Admission) error
}

func (s *Step) wants(t Target, verb string) bool { return s.Wants == nil || s.Wants(t, verb) }

// asks tells whether any step has a say.
func (r *Registry) asks(t Target, verb string) bool {
	for i := range r.Admission {
		if r.Admission[i].wants(t, verb) {
			return true
		}
	}
	return false
}

// begin is the beginning of a write's admission, which end ends.
func (r *Registry) begin(w *write) {
	if w.era == nil && len(r.Admission) > 0 {
		w.era = r.writes.enter()
	}
}

// admit asks the chain; an error refuses the write.
func (r *Registry) admit(ctx context.Context, w *write, object, old runtime.Object) error {
	verb := "update"
	switch {
	case old == nil:
		verb = "create"
	case object == nil:
		verb = "delete"
	}
	r.begin(w)
	if !r.asks(w.Target, verb) {
		return nil
	}
	a := &Admission{Target: w.Target, Verb: verb, Object: object, Old: old, DryRun: w.dryRun}
	defer func() { w.ends = append(w.ends, a.ends...) }()
	for i := range r.Admission {
		if !r.Admission[i].wants(w.Target, verb) {
			continue
		}
		err := r.Admission[i].Admit(ctx, a)
		w.warnings = append(w.warnings, a.Warnings...)
		a.Warnings = nil
		if err != nil {
			return err
		}
	}
	return nil
}

// admitDelete asks the chain about a deletion.
func (r *Registry) admitDelete(ctx context.Context, w *write, current *store.Object) error {
	r.begin(w)
	if !r.asks(w.Target, "delete") {
		return nil // the object need not be read
	}
	old, err := w.read(ctx, current)
	if err != nil {
		return err
	}
	return r.admit(ctx, w, nil, old)
}
