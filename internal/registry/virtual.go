package registry

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Virtual are the resources and subresources that are answered and not stored. Its methods
// are safe for concurrent use.
type Virtual interface {
	// Creator returns the function that answers a create of the target; nil if creates of the
	// target store an object.
	Handler(t Target) VirtualHandler
	// Source returns what makes the objects of a kind that is only read; nil if they are
	// stored.
	Source(t Target) *Source
}

// Creator answers a create that stores nothing under the name it was sent to. It returns
// the answer, which may be the body, completed; nil: a Status that reports success.
type VirtualHandler func(ctx context.Context, c *VirtualRequest) (runtime.Object, error)

// Call is a create that a Creator answers.
type VirtualRequest struct {
	Registry *Registry
	Target   Target
	// Sent is the body: decoded, in the namespace of the request.
	Sent runtime.Object
	// By is who asks.
	By *authn.User
	// DryRun: nothing may be stored.
	DryRun bool
}

// Answer is the answer to a Call.
type VirtualAnswer struct {
	// Value is the JSON of the answer.
	Value []byte
	// Status is set instead when the answer is a Status.
	Status *metav1.Status
	// Warnings go out as headers.
	Warnings []string
}

// Acts reports whether a create of the target is answered by a Creator.
func (r *Registry) CreatesVirtual(t Target) bool { return r.virtualHandler(t) != nil }

func (r *Registry) virtualHandler(t Target) VirtualHandler {
	if r.Virtual == nil {
		return nil
	}
	return r.Virtual.Handler(t)
}

// accessReviews are answered in every namespace: an error would disclose to clients which
// may not read a namespace whether it exists.
var accessReviews = schema.GroupResource{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}

// Act has a Creator answer a create.
func (r *Registry) CreateVirtual(ctx context.Context, t Target, b Body, o WriteOptions) (VirtualAnswer, error) {
	w, err := newWrite(t, &o, "CreateOptions", "")
	if err != nil {
		return VirtualAnswer{}, err
	}
	sent, err := w.decode(b)
	if err != nil {
		return VirtualAnswer{Warnings: w.warnings}, err
	}
	named := t
	if meta, ok := sent.(metav1.Object); ok {
		if err := setNamespace(t, meta); err != nil {
			return VirtualAnswer{Warnings: w.warnings}, err
		}
		if named.Name == "" {
			named.Name = meta.GetName()
		}
	}
	if t.Type.GroupResource() != accessReviews {
		if err := checkNamespace(r.Store.Any(), named); err != nil {
			return VirtualAnswer{Warnings: w.warnings}, err
		}
	}
	made, err := r.virtualHandler(t)(ctx, &VirtualRequest{Registry: r, Target: t, Sent: sent, By: o.By, DryRun: w.dryRun})
	if err != nil {
		return VirtualAnswer{Warnings: w.warnings}, status(err)
	}
	if made == nil {
		return VirtualAnswer{Status: &metav1.Status{Status: metav1.StatusSuccess, Code: 201}, Warnings: w.warnings}, nil
	}
	made.GetObjectKind().SetGroupVersionKind(t.Exchanged().GroupVersionKind())
	value, err := json.Marshal(made)
	return VirtualAnswer{Value: value, Warnings: w.warnings}, err
}
