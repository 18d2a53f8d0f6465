package registry

import (
	"cmp"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Each write goes through one chain of plugins, in the order of Registry.Plugins:
//
//	decode, default in the version of the request, convert to the stored version
//	Mutate     plugins change the object, or refuse the request
//	           restore fields that the request cannot change
//	Complete   plugins set fields that the strategy of the kind cannot set
//	           validate the object
//	Validate   plugins refuse the request
//	           encode the object, track the owners of its fields
//	Record     plugins add to the transaction that stores the object
//	           commit the transaction, all of it or nothing
//
// The state that a plugin reads may change before the transaction is committed. A plugin that
// depends on it adds a condition in Record (Transaction.Need, Claim, Unclaimed). If a condition does
// not hold at the newest state, the request starts again from the body that the client sent, so
// that each plugin decides by the newer state. No plugin keeps anything between Mutate and the
// commit.

// Operation is the operation of a request, as in an AdmissionReview.
type Operation = admissionv1.Operation

// Attributes describe a request to admission plugins, like the admission attributes of Kubernetes.
// Target has the requested resource, version and subresource, the namespace and the name. The name
// of a new object is set, too; one that the server generates only in the validating phase.
type Attributes struct {
	Target
	// Operation is CREATE, UPDATE, DELETE or CONNECT. A patch or an apply is an UPDATE, or a
	// CREATE if it creates the object. Object has the options of a CONNECT.
	Operation Operation
	// Kind is the kind of Object and Old, in the stored version.
	Kind schema.GroupVersionKind
	// User is the client; nil for the server itself. It must not be changed.
	User *authn.User
	// DryRun reports whether the request is a dry-run: nothing is stored.
	DryRun bool
	// Object is the object to store, nil for a DELETE. Old is the stored object, nil for a CREATE.
	// Both are the whole object, also at a subresource. In Mutate, Object is as the client sent it,
	// with defaults; fields that the request cannot change are restored later. Only Mutate may
	// change Object; Old must not be changed.
	Object, Old runtime.Object
	// NameGenerated reports whether the server made the name of a new object, from its
	// generateName.
	NameGenerated bool
	// State is the state that plugins must use to decide on the request.
	State *store.State

	// Reinvoking reports whether the mutating plugins run for the second time, since one of them has
	// called Reinvoke.
	Reinvoking bool

	w           *write
	annotations map[string]string
	versions    versions
	local       map[any]any
	// mutating is true in the mutating phase; reinvoke is set by Reinvoke.
	mutating, reinvoke bool
	registry           *Registry
	handling           pluginSet
	// before is the current object of an update, zero otherwise.
	before currentObject
	// sentName is the name that the client gave a new object.
	sentName string
	// sentVersion is the resource version that the client gave a new object. Only the response of a
	// dry-run has it.
	sentVersion store.Revision
	// body is the body of a subresource with its own type, in the mutating phase.
	body runtime.Object
	// managed are the managed fields that plugins see, if managedShown is true. A plugin may
	// replace them.
	managed                      []metav1.ManagedFieldsEntry
	managedShown, managedChanged bool
	// replaced reports whether a plugin has called Set.
	replaced bool
}

// RequestedKind returns the kind of the request's body.
func (a *Attributes) RequestedKind() schema.GroupVersionKind {
	return formOf(a.Type, a.Subresource).Kind
}

// RequestVerb returns the verb that the request was authorized for: "create", "update", "delete", or "patch" for a patch or an apply.
func (a *Attributes) RequestVerb() string {
	switch {
	case a.w.source == fromPatch:
		return "patch"
	case a.Operation == admissionv1.Delete:
		return "delete"
	case a.Operation == admissionv1.Create:
		return "create"
	}
	return "update"
}

// RequestedResource returns the resource that the request was sent to.
func (a *Attributes) RequestedResource() schema.GroupVersionResource {
	return a.Type.GroupVersion().WithResource(a.Type.Resource)
}

// Resource returns the resource of Object and Old, in the stored version.
func (a *Attributes) Resource() schema.GroupVersionResource {
	return a.stored().GroupVersion().WithResource(a.Type.Resource)
}

// RequestedName returns the name in the request's path: empty for a POST.
func (a *Attributes) RequestedName() string { return a.w.Name }

// maxPluginWarnings bounds the warnings that a request keeps: a policy may have thousands of params. Clients get
// fewer, since their headers have a limit.
const maxPluginWarnings = 1000

// Warn adds a warning to the response, even if the request is refused.
func (a *Attributes) Warn(text string) {
	if len(a.w.warnings) < maxPluginWarnings {
		a.w.warnings = append(a.w.warnings, text)
	}
}

// Forbidden returns the error of a plugin that refuses the request. The format is that of
// fmt.Errorf. Like the request, the error for an object of a deletecollection has no name.
func (a *Attributes) Forbidden(format string, args ...any) error {
	name := a.Name
	if a.w != nil && a.w.collection {
		name = ""
	}
	if meta, ok := a.Object.(metav1.Object); ok && name == "" { // the name is generated later
		name = cmp.Or(meta.GetName(), meta.GetGenerateName())
	}
	return apierrors.NewForbidden(a.Type.GroupResource(), cmp.Or(name, "Unknown"), fmt.Errorf(format, args...))
}

// Annotate adds an annotation to the audit event of the request. A key keeps its first value.
func (a *Attributes) Annotate(key, value string) { annotate(&a.annotations, key, value) }

func annotate(all *map[string]string, key, value string) {
	if *all == nil {
		*all = map[string]string{}
	}
	if _, ok := (*all)[key]; !ok {
		(*all)[key] = value
	}
}

// Annotations returns the audit annotations that plugins added.
func (a *Attributes) Annotations() map[string]string { return a.annotations }

// Options returns a new copy of the request's options with their kind: *metav1.CreateOptions,
// *metav1.UpdateOptions (for a patch, too) or *metav1.DeleteOptions. It is nil for a CONNECT.
func (a *Attributes) Options() runtime.Object {
	o, version := a.w.options, metav1.SchemeGroupVersion
	switch {
	case a.w.deletion != nil:
		return withKind(a.deleteOptions(), version.WithKind("DeleteOptions"))
	case a.Operation == admissionv1.Connect:
		return nil
	case a.Operation == admissionv1.Create:
		made := &metav1.CreateOptions{DryRun: nonEmpty(o.DryRun), FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
		return withKind(made, version.WithKind("CreateOptions"))
	}
	made := &metav1.UpdateOptions{DryRun: nonEmpty(o.DryRun), FieldManager: o.FieldManager, FieldValidation: o.FieldValidation}
	return withKind(made, version.WithKind("UpdateOptions"))
}

// deleteOptions returns a copy of the options of a deletion. kube-apiserver sets the UID of namespaces
// and definitions itself, so plugins see it.
func (a *Attributes) deleteOptions() *metav1.DeleteOptions {
	o := a.w.deletion.DeepCopy()
	old, ok := a.Old.(metav1.Object)
	if !ok || a.Type.GroupResource() != schemaNamespaces && a.Type.Collection != definitionsCollection {
		return o
	}
	if o.Preconditions == nil {
		o.Preconditions = &metav1.Preconditions{}
	}
	if o.Preconditions.UID == nil {
		uid := old.GetUID()
		o.Preconditions.UID = &uid
	}
	return o
}

// attributes returns the attributes of a write. Object is nil for a deletion, old for a create.
func (r *Registry) attributes(w *write, o Operation, s *store.State, object, old runtime.Object) *Attributes {
	a := &Attributes{Target: w.Target, Operation: o, Kind: w.stored().GroupVersionKind(), DryRun: w.dryRun, Object: object, Old: old, State: s, w: w, registry: r}
	a.User, w.attrs = w.by, a
	a.handling = r.handling(a)
	if meta, ok := object.(metav1.Object); ok && a.Name == "" {
		a.Name = meta.GetName()
	}
	return a
}
