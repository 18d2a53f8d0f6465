package match

import (
	"context"
	"encoding/json"
	"sync/atomic"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Input has the variables of expressions for a request in one form. Its values are made when an
// expression first uses them. It serves one goroutine, and is valid until the object changes.
type Input struct {
	expression.Input
	// conditions has the variables of match conditions: no namespaceObject, and the requested
	// resource.
	conditions expression.Input
	checks     *checker // nil: there is no authorizer
}

// NewInput returns the input of a request in the form v, which Attributes.Lean or In returned. az decides
// for the variable authorizer; nil: expressions that use it fail.
func NewInput(ctx context.Context, a *registry.Attributes, v *registry.Versioned, az authz.Authorizer) *Input {
	in := &Input{}
	in.Object = objectOf(v.Object, v.Complete, func() (any, error) {
		if err := v.Complete(); err != nil {
			return nil, err
		}
		object, _, err := v.Trees()
		return object, err
	})
	in.OldObject = objectOf(v.Old, nil, func() (any, error) {
		_, old, err := v.Trees()
		return old, err
	})
	request := func(resource schema.GroupVersionResource) *expression.Lazy {
		return &expression.Lazy{Make: func() (any, error) { return requestOf(a, v.Kind, resource) }}
	}
	in.Request = request(v.Resource)
	if az != nil {
		in.authorizerValues(ctx, a, az)
	}
	in.conditions = in.Input
	if resource := a.RequestedResource(); resource != v.Resource {
		in.conditions.Request = request(resource)
	}
	if a.Namespace != "" {
		in.Namespace = &expression.Lazy{Make: func() (any, error) { return namespaceOf(a.State, a.Namespace) }}
	}
	return in
}

// objectOf returns the value of an object. Custom resources are trees already.
func objectOf(o runtime.Object, complete func() error, tree func() (any, error)) any {
	switch o.(type) {
	case nil:
		return nil
	case interface{ Tree() map[string]any }:
		return &expression.Lazy{Make: tree}
	}
	return expression.Typed(o, complete)
}

// Namespace returns the namespace that expressions see: that of the request. The namespace of a
// Namespace is the Namespace itself.
func Namespace(a *registry.Attributes) string {
	if isNamespaces(a.Target) {
		return a.Name
	}
	return a.Namespace
}

// SetParams sets the variable params. Nil is null.
func (in *Input) SetParams(params any) { in.Params, in.conditions.Params = params, params }

// requestOf returns the value of the variable request: an AdmissionRequest without uid and objects.
func requestOf(a *registry.Attributes, kind schema.GroupVersionKind, resource schema.GroupVersionResource) (any, error) {
	sent := a.Forms()[0]
	request := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(kind), Resource: metav1.GroupVersionResource(resource), SubResource: a.Subresource,
		RequestKind: (*metav1.GroupVersionKind)(&sent.Kind), RequestResource: (*metav1.GroupVersionResource)(&sent.Resource),
		RequestSubResource: a.Subresource,
		Name:               a.ShownName(), Namespace: Namespace(a), Operation: a.Operation, DryRun: &a.DryRun,
		Options: runtime.RawExtension{Object: a.Options()},
	}
	if client := a.Client(); client != nil {
		request.UserInfo = client.Info()
	}
	return expression.Typed(request, nil), nil
}

// rememberedNamespaces caches values of namespaceObject, by the hash of the name.
var rememberedNamespaces [64]atomic.Pointer[namespaceValue]

type namespaceValue struct {
	object *store.Object
	value  map[string]any
}

// namespaceOf returns the value of the variable namespaceObject. It must not be changed.
func namespaceOf(s *store.State, name string) (any, error) {
	o := s.Get("namespaces", name)
	if o == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, name)
	}
	slot := &rememberedNamespaces[slotOf(o, len(rememberedNamespaces))]
	if n := slot.Load(); n != nil && n.object == o {
		return n.value, nil
	}
	var n corev1.Namespace
	if err := json.Unmarshal(o.Bytes(), &n); err != nil {
		return nil, err
	}
	m := &n.ObjectMeta
	value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.Name, GenerateName: m.GenerateName, UID: m.UID, ResourceVersion: m.ResourceVersion, Generation: m.Generation,
			CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
			Labels: m.Labels, Annotations: m.Annotations, Finalizers: m.Finalizers,
		},
		Spec: n.Spec, Status: n.Status,
	})
	if err != nil {
		return nil, err
	}
	slot.Store(&namespaceValue{o, value})
	return value, nil
}
