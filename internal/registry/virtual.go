package registry

import (
	"context"
	"encoding/json"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Virtual has the resources and subresources that are not stored. Its methods are safe for
// concurrent use.
type Virtual interface {
	// Handler returns the handler of creates at the target; nil if they store an object.
	Handler(t Target) VirtualHandler
	// Source returns the source of the target's objects; nil if they are stored.
	Source(t Target) *Source
}

// VirtualHandler responds to a create at a virtual resource. It returns the response, which may be the
// completed body. Nil stands for a Status that reports success. It must call VirtualRequest.Admit,
// when the body is complete and before anything is changed.
type VirtualHandler func(ctx context.Context, c *VirtualRequest) (runtime.Object, error)

// VirtualRequest is a create at a virtual resource.
type VirtualRequest struct {
	Registry *Registry
	Target   Target
	// Sent is the decoded body, in the namespace of the request.
	Sent runtime.Object
	// By is the client.
	By *authn.User
	// DryRun reports whether the request is a dry-run: nothing may be stored.
	DryRun bool

	warnings    []string
	annotations map[string]string
	attrs       *Attributes
	admitted    bool
}

// Admit calls the validating plugins. They see Sent.
func (c *VirtualRequest) Admit(ctx context.Context) error {
	c.admitted = true
	c.attrs.Object = c.Sent
	return c.Registry.admit(ctx, c.attrs)
}

// ManagedFields returns the managed fields of a new object: those of Sent as the client sent it. A
// handler must call it before it changes Sent.
func (c *VirtualRequest) ManagedFields(ctx context.Context) ([]metav1.ManagedFieldsEntry, error) {
	return c.attrs.shownManagedFields(ctx)
}

// Warn adds a warning to the headers of the response.
func (c *VirtualRequest) Warn(text string) { c.warnings = append(c.warnings, text) }

// Annotate adds an annotation to the audit event of the request. A key keeps its first value.
func (c *VirtualRequest) Annotate(key, value string) { annotate(&c.annotations, key, value) }

// VirtualResponse is the response to a create at a virtual resource.
type VirtualResponse struct {
	// Value is the response as JSON.
	Value []byte
	// Status is set instead of Value if the response is a Status.
	Status *metav1.Status
	// Warnings are for the headers of the response.
	Warnings []string
	// Annotations are for the audit event of the request, with an error, too; nil: there are
	// none.
	Annotations map[string]string
}

// CreatesVirtual reports whether a create at the target is served by a VirtualHandler.
func (r *Registry) CreatesVirtual(t Target) bool { return r.virtualHandler(t) != nil }

func (r *Registry) virtualHandler(t Target) VirtualHandler {
	if r.Virtual == nil {
		return nil
	}
	return r.Virtual.Handler(t)
}

// accessReviews get a response in namespaces that do not exist, too. An error would tell clients
// without read permission which namespaces exist.
var accessReviews = schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}

// CreateVirtual makes a create at a virtual resource. The target must have a VirtualHandler
// (CreatesVirtual). It decides by the most recent state, once: a handler may write several objects.
func (r *Registry) CreateVirtual(ctx context.Context, t Target, b Body, o WriteOptions) (VirtualResponse, error) {
	if _, err := r.Store.MostRecent(ctx); err != nil {
		return VirtualResponse{}, readStatus(err)
	}
	w, err := newWrite(t, &o, "CreateOptions", "")
	if err != nil {
		return VirtualResponse{}, err
	}
	w.identify(ctx)
	sent, err := w.decode(ctx, b)
	if err != nil {
		return VirtualResponse{Warnings: w.warnings}, err
	}
	w.sent(sent)
	named := t
	if meta, ok := sent.(metav1.Object); ok {
		if err := setNamespace(t, meta); err != nil {
			return VirtualResponse{Warnings: w.warnings}, err
		}
		if named.Name == "" {
			named.Name = meta.GetName()
		}
	}
	if t.Type.GroupResource() != accessReviews {
		if _, err := r.openNamespace(ctx, named, w.dryRun); err != nil {
			return VirtualResponse{Warnings: w.warnings}, err
		}
	}
	if fill := t.Exchanged().Strategy.Default; fill != nil {
		fill(sent)
	}
	call := &VirtualRequest{Registry: r, Target: t, By: o.By, DryRun: w.dryRun}
	made, err := r.admitVirtual(ctx, w, named, sent, call)
	for key, value := range w.annotations() {
		annotate(&call.annotations, key, value)
	}
	response := VirtualResponse{Warnings: append(w.warnings, call.warnings...), Annotations: call.annotations}
	switch {
	case err != nil:
		return response, status(err)
	case made == nil:
		response.Status = &metav1.Status{Status: metav1.StatusSuccess, Code: 201}
		return response, nil
	}
	made.GetObjectKind().SetGroupVersionKind(t.Exchanged().GroupVersionKind())
	response.Value, err = json.Marshal(made)
	return response, err
}

// admitVirtual calls the mutating plugins for a create at a virtual resource, and then its handler
// with the body that they made.
func (r *Registry) admitVirtual(ctx context.Context, w *write, named Target, sent runtime.Object, call *VirtualRequest) (runtime.Object, error) {
	w.virtual = true
	a := r.attributes(w, admissionv1.Create, r.Store.Any(), sent, nil)
	a.Name, a.Kind = named.Name, named.Exchanged().GroupVersionKind()
	if a.any(changesObjects) {
		var err error
		if w.owners.client, err = a.clientBytes(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.mutate(ctx, a); err != nil {
		return nil, err
	}
	call.Sent, call.attrs = a.Object, a
	made, err := r.virtualHandler(w.Target)(context.WithValue(ctx, virtualKey{}, w.Subresource), call)
	if err == nil && !call.admitted {
		return nil, errors.New("the handler has not called the validating plugins")
	}
	return made, err
}
