package registry

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Admission
//
// Each write goes through one chain of plugins, in the order of Registry.Plugins:
//
//	decode, default in the version of the request, convert to the stored version
//	Mutate     plugins change the object, or refuse the request
//	           restore what the request cannot change, validate the object
//	Validate   plugins refuse the request
//	           encode the object, track the owners of its fields
//	Record     plugins add to the transaction that stores the object
//	           commit the transaction, all of it or nothing
//
// What a plugin decides by may change before the transaction is committed. A plugin that
// depends on it says so in Record (Transaction.Need, Claim, Create). If the condition does not
// hold at the tip, the request starts again from the body that the client sent, so that each
// plugin decides by the newer state. No plugin keeps anything between Mutate and the commit.

// Operation is what a request does to an object, as in an AdmissionReview.
type Operation = admissionv1.Operation

// Attributes describe a request to admission plugins, as the admission attributes of
// Kubernetes do. Target has the requested resource, version and subresource, the namespace,
// and the name, which is set for a new object, too.
type Attributes struct {
	Target
	// Operation is CREATE, UPDATE or DELETE. A patch or an apply is an UPDATE, or a CREATE
	// if it creates the object.
	Operation Operation
	// Kind is the kind of Object and Old, in the stored version.
	Kind schema.GroupVersionKind
	// User is the client; nil for the server itself. It must not be changed.
	User *authn.User
	// DryRun: the write will not be made.
	DryRun bool
	// Object is the object as it will be stored; nil for a DELETE. Old is the stored object,
	// for any subresource; nil for a CREATE. Only Mutate may change Object; Old must not be
	// changed.
	Object, Old runtime.Object
	// State is the state that the request is decided by.
	State *store.State

	w           *write
	annotations map[string]string
}

// RequestedKind is the kind of the body that was sent.
func (a *Attributes) RequestedKind() schema.GroupVersionKind { return a.Exchanged().GroupVersionKind() }

// RequestedResource is the resource that the request was sent to.
func (a *Attributes) RequestedResource() schema.GroupVersionResource {
	return a.Type.GroupVersion().WithResource(a.Type.Resource)
}

// Resource is the resource of Object and Old, in the stored version.
func (a *Attributes) Resource() schema.GroupVersionResource {
	return a.stored().GroupVersion().WithResource(a.Type.Resource)
}

// Warn adds a warning to the answer, also to that of a request which is refused.
func (a *Attributes) Warn(text string) { a.w.warnings = append(a.w.warnings, text) }

// Annotate adds an annotation to the audit event of the request. The first value of a key
// counts.
func (a *Attributes) Annotate(key, value string) {
	if a.annotations == nil {
		a.annotations = map[string]string{}
	}
	if _, ok := a.annotations[key]; !ok {
		a.annotations[key] = value
	}
}

// Annotations are those that plugins added.
func (a *Attributes) Annotations() map[string]string { return a.annotations }

// Options returns the options of the request: *metav1.CreateOptions, *metav1.UpdateOptions,
// *metav1.PatchOptions or *metav1.DeleteOptions. It makes them at each call.
func (a *Attributes) Options() runtime.Object {
	o := a.w.options
	switch {
	case a.w.deletion != nil:
		return a.w.deletion.DeepCopy()
	case a.Operation == admissionv1.Create:
		return &metav1.CreateOptions{DryRun: wanted(o.DryRun), FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
	case a.w.source == fromPatch:
		return &metav1.PatchOptions{DryRun: wanted(o.DryRun), Force: o.Force, FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
	}
	return &metav1.UpdateOptions{DryRun: wanted(o.DryRun), FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
}

// Plugin is a plugin of the admission chain. Functions that are nil do nothing. All of them
// are called by many goroutines at once.
type Plugin struct {
	// Name is the name that kube-apiserver's flags know; empty for a part of the server
	// that cannot be disabled.
	Name string
	// Handles reports whether the plugin looks at an operation on a target, by the state that
	// the request is decided by. It is called before any object is read, and must be cheap. Nil:
	// it looks at all.
	Handles func(s *store.State, t Target, o Operation) bool
	// Mutate changes a.Object before it is validated, or refuses the request by an error. No
	// field manager owns what it sets.
	Mutate func(ctx context.Context, a *Attributes) error
	// Validate refuses the request by an error, after the object was validated.
	Validate func(ctx context.Context, a *Attributes) error
	// Record adds to the transaction, or refuses the request by an error. It is not called
	// for a dry-run.
	Record func(ctx context.Context, t *Transaction) error
	// Commit replaces the commit of a transaction, and returns what store.Store.Apply
	// does. At most one plugin has it.
	Commit func(ctx context.Context, t *Transaction) ([]*store.Object, error)
}

func (p *Plugin) handles(s *store.State, t Target, o Operation) bool {
	return p.Handles == nil || p.Handles(s, t, o)
}

// attributes describe a write. Object is nil for a deletion, old for a creation.
func (w *write) attributes(o Operation, s *store.State, object, old runtime.Object) *Attributes {
	a := &Attributes{Target: w.Target, Operation: o, Kind: w.stored().GroupVersionKind(), DryRun: w.dryRun, Object: object, Old: old, State: s, w: w}
	a.User = w.by
	if meta, ok := object.(metav1.Object); ok && a.Name == "" {
		a.Name = meta.GetName()
	}
	return a
}

// handles reports whether any plugin with one of the functions looks at an operation.
func (r *Registry) handles(s *store.State, t Target, o Operation, has func(p *Plugin) bool) bool {
	return slices.ContainsFunc(r.Plugins, func(p Plugin) bool { return has(&p) && p.handles(s, t, o) })
}

func mutates(p *Plugin) bool { return p.Mutate != nil }
func looksAt(p *Plugin) bool { return true }

// mutate calls the mutating plugins.
func (r *Registry) mutate(ctx context.Context, a *Attributes) error {
	return r.call(ctx, a, func(p *Plugin) func(context.Context, *Attributes) error { return p.Mutate })
}

// admit calls the validating plugins.
func (r *Registry) admit(ctx context.Context, a *Attributes) error {
	return r.call(ctx, a, func(p *Plugin) func(context.Context, *Attributes) error { return p.Validate })
}

func (r *Registry) call(ctx context.Context, a *Attributes, phase func(p *Plugin) func(context.Context, *Attributes) error) error {
	for i := range r.Plugins {
		p := &r.Plugins[i]
		if f := phase(p); f != nil && p.handles(a.State, a.Target, a.Operation) {
			if err := f(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// admitDelete calls the plugins for a deletion. The object is read only if one looks at it.
func (r *Registry) admitDelete(ctx context.Context, a *Attributes, current *store.Object) (err error) {
	if !r.handles(a.State, a.Target, a.Operation, looksAt) {
		return nil
	}
	if a.Old, err = a.read(ctx, current); err != nil {
		return err
	}
	if err := r.mutate(ctx, a); err != nil {
		return err
	}
	return r.admit(ctx, a)
}
