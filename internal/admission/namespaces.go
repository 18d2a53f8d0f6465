package admission

import (
	"context"
	"encoding/json"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// ApplyNamespaceRules gives a registry the rules of the plugins NamespaceLifecycle and
// NamespaceAutoProvision. They apply before the chain, since a create needs its namespace before
// it has a name. The type is that of Namespaces.
func ApplyNamespaceRules(r *registry.Registry, enabled Plugins, of *resource.Type) {
	r.Namespaces.Unchecked = !enabled.On("NamespaceLifecycle")
	if !enabled.On("NamespaceAutoProvision") {
		return
	}
	r.Namespaces.Provision = func(ctx context.Context, name string) error {
		body, err := json.Marshal(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil {
			return err
		}
		_, err = r.Create(ctx, registry.Target{Type: of}, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: "kube-apiserver"})
		return err
	}
}

// namespaceExists requires that the namespace of a request exists. With NamespaceLifecycle it
// always does for a create.
func namespaceExists(*Config) registry.Plugin {
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Namespace != "" && t.Type.Collection != namespaces && o != admissionv1.Connect
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			if a.State.Get(namespaces, a.Namespace) == nil {
				return apierrors.NewNotFound(corev1.Resource("namespaces"), a.Namespace)
			}
			return nil
		},
	}
}
