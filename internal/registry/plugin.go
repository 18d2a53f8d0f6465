package registry

import (
	"context"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/tracing"
)

// Plugin is a plugin of the admission chain. Each of its functions may be nil, and is called by
// many goroutines at once.
type Plugin struct {
	// Name is the plugin's name in kube-apiserver's flags; empty for a part of the server that
	// cannot be disabled.
	Name string
	// Handles reports whether the plugin handles an operation on a target, by the state of the
	// request. It is called before any object is read, and must be cheap. Nil: it handles all.
	Handles func(s *store.State, t Target, o Operation) bool
	// Users reports whether the plugin handles the writes of a user, who is nil for the server
	// itself. Nil: it handles those of all.
	Users func(u *authn.User) bool
	// Clients restricts the plugin to the writes of clients and controllers (Attributes.Client),
	// and excludes those of the server itself.
	Clients bool
	// Mutate changes a.Object before validation, or refuses the request with an error. No field
	// manager owns the fields that it sets.
	Mutate func(ctx context.Context, a *Attributes) error
	// Replaces is set if Mutate changes the object by Attributes.Replace alone, and not a.Object.
	Replaces bool
	// Complete changes a.Object after the last mutating plugin and before validation. It sets
	// fields that the strategy of a kind cannot set, and is called once for a request. No field manager owns the
	// fields that it sets.
	Complete func(ctx context.Context, a *Attributes) error
	// Causes returns errors of the object that depend on other objects or on the user. They are part
	// of the response that has the other errors of the object. An error refuses the request alone.
	Causes func(ctx context.Context, a *Attributes) (field.ErrorList, error)
	// Validate may refuse the request with an error, after the object was validated.
	Validate func(ctx context.Context, a *Attributes) error
	// Record adds to the transaction, or refuses the request with an error. It is not called
	// for a dry-run.
	Record func(ctx context.Context, t *Transaction) error
	// Commit replaces the commit of a transaction, and returns the same as store.Store.Apply. At
	// most one plugin has it.
	Commit func(ctx context.Context, t *Transaction) ([]*store.Object, error)
}

func (p *Plugin) handles(s *store.State, w *write, o Operation) bool {
	return !(p.Clients && w.as == nil) && (p.Handles == nil || p.Handles(s, w.Target, o)) && (p.Users == nil || p.Users(w.by))
}

// Objects returns a Plugin.Handles for operations on the objects of a collection, and not on their
// subresources.
func Objects(collection string, operations ...Operation) func(*store.State, Target, Operation) bool {
	return func(_ *store.State, t Target, o Operation) bool {
		return t.Subresource == "" && t.Type.Collection == collection && slices.Contains(operations, o)
	}
}

// handles reports whether any plugin that satisfies has handles the operation of a write.
func (r *Registry) handles(w *write, s *store.State, o Operation, has func(p *Plugin) bool) bool {
	if !w.admitted() {
		return false
	}
	for i := range r.Plugins {
		if p := &r.Plugins[i]; has(p) && p.handles(s, w, o) {
			return true
		}
	}
	return false
}

// maxPlugins is how many plugins a Registry can have.
const maxPlugins = 128

// pluginSet is a set of plugins, by their places in Registry.Plugins.
type pluginSet [maxPlugins / 64]uint64

func (s *pluginSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// handling returns the plugins that handle a request. The mutating and validating ones do not
// handle a write that is a part of another request.
func (r *Registry) handling(a *Attributes) (s pluginSet) {
	if len(r.Plugins) > maxPlugins {
		panic("too many admission plugins")
	}
	admitted := a.w.admitted()
	for i := range r.Plugins {
		p := &r.Plugins[i]
		if (admitted || p.Record != nil || p.Commit != nil) && p.handles(a.State, a.w, a.Operation) {
			s[i/64] |= 1 << (i % 64)
		}
	}
	return s
}

// any reports whether a plugin that handles the request satisfies has.
func (a *Attributes) any(has func(p *Plugin) bool) bool {
	if !a.w.admitted() {
		return false
	}
	for i := range a.registry.Plugins {
		if a.handling.has(i) && has(&a.registry.Plugins[i]) {
			return true
		}
	}
	return false
}

// changesObjects reports whether the plugin may change objects.
func changesObjects(p *Plugin) bool { return p.Mutate != nil || p.Complete != nil }

// readsObjects reports whether the plugin needs the objects of a request before its commit.
func readsObjects(p *Plugin) bool { return changesObjects(p) || p.Causes != nil || p.Validate != nil }

// mutate calls the mutating plugins, and calls them once more if one of them wants that.
func (r *Registry) mutate(ctx context.Context, a *Attributes) error {
	a.mutating = true
	defer func() { a.mutating = false }()
	if err := r.mutateOnce(ctx, a); err != nil {
		return err
	}
	if a.reinvoke {
		a.Reinvoking = true
		if err := r.mutateOnce(ctx, a); err != nil {
			return err
		}
	}
	return a.takeManaged()
}

func (r *Registry) mutateOnce(ctx context.Context, a *Attributes) error {
	return r.timed(ctx, a, func(ctx context.Context, p *Plugin) (called bool, err error) {
		if p.Mutate == nil {
			return false, nil
		}
		if !p.Replaces {
			defer a.versions.changed()
		}
		if err := p.Mutate(ctx, a); err != nil {
			return true, err
		}
		return true, a.settle(ctx)
	})
}

// finish calls the plugins that complete an object.
func (r *Registry) finish(ctx context.Context, a *Attributes) error {
	for i := range r.Plugins {
		if p := &r.Plugins[i]; p.Complete != nil && a.w.admitted() && a.handling.has(i) {
			if err := p.Complete(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// admit calls the validating plugins.
func (r *Registry) admit(ctx context.Context, a *Attributes) error {
	a.versions.changed()
	return r.timed(ctx, a, func(ctx context.Context, p *Plugin) (called bool, err error) {
		if p.Validate == nil {
			return false, nil
		}
		return true, p.Validate(ctx, a)
	})
}

// causes returns the errors that plugins find in the object.
func (r *Registry) causes(ctx context.Context, a *Attributes) (errs field.ErrorList, err error) {
	if !a.w.admitted() {
		return nil, nil
	}
	for i := range r.Plugins {
		if p := &r.Plugins[i]; p.Causes != nil && a.handling.has(i) {
			more, err := p.Causes(ctx, a)
			if err != nil {
				return nil, err
			}
			errs = append(errs, more...)
		}
	}
	return errs, nil
}

// Observation is how long a part of admission took.
type Observation struct {
	// Plugin is the place of the plugin in Registry.Plugins, -1 for a phase as a whole.
	Plugin int
	// Validating is true for the validating phase, false for the mutating one.
	Validating bool
	Operation  Operation
	// Refused reports whether the request was refused.
	Refused  bool
	Duration time.Duration
}

// phase returns the name of the phase.
func (o *Observation) phase() string {
	if o.Validating {
		return "validating admission"
	}
	return "mutating admission"
}

// timed calls a phase of each plugin that handles the request, and observes how long that takes. A
// reading of the clock ends one plugin and begins the next.
func (r *Registry) timed(ctx context.Context, a *Attributes, phase func(ctx context.Context, p *Plugin) (called bool, err error)) (err error) {
	if !a.w.admitted() {
		return nil
	}
	var begin, last time.Time
	var span trace.Span // nil before a plugin is called
	o := Observation{Validating: !a.mutating, Operation: a.Operation}
	for i := range r.Plugins {
		if !a.handling.has(i) {
			continue
		}
		if r.Observe != nil && begin.IsZero() {
			begin = time.Now()
			last = begin
			ctx, span = tracing.Start(ctx, o.phase())
		}
		var called bool
		called, err = phase(ctx, &r.Plugins[i])
		if r.Observe != nil && called {
			now := time.Now()
			o.Plugin, o.Duration, o.Refused = i, now.Sub(last), err != nil
			r.Observe(o)
			last = now
		}
		if err != nil {
			break
		}
	}
	if err == nil {
		// A plugin that ignores failures has decided nothing in a request whose time was over.
		err = ctx.Err()
	}
	if span != nil {
		span.End()
	}
	if r.Observe != nil {
		o.Plugin, o.Duration, o.Refused = -1, last.Sub(begin), err != nil
		r.Observe(o)
		if t := timesOf(ctx); t != nil {
			t.admission.Add(int64(o.Duration))
		}
	}
	return err
}

// admitDelete calls the plugins for a deletion. It reads the object only if a plugin handles the
// deletion.
func (r *Registry) admitDelete(ctx context.Context, a *Attributes, current *store.Object) (err error) {
	if !a.any(readsObjects) {
		return nil
	}
	if a.Old, _, err = a.readOrRescue(ctx, current); err != nil {
		return err
	}
	if err := r.mutate(ctx, a); err != nil {
		return err
	}
	return r.admit(ctx, a)
}
