package admission

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// definitionNames gives definitions of custom resources their names, in the transaction that
// stores them: a second version of the definition reports them. It claims each name, so that
// no two definitions get the same. It also keeps all definitions together within their limit.
func definitionNames(c *Config) registry.Plugin {
	if c.Names == nil {
		return registry.Plugin{}
	}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Collection == crd.Collection && o != admissionv1.Delete
		},
		Record: func(ctx context.Context, t *registry.Transaction) error {
			d := t.Object.(*apiextensionsv1.CustomResourceDefinition)
			if t.Own().Value == nil {
				return nil // it is removed
			}
			if t.Subresource == "" {
				release, err := c.Names.Reserve(t.Name, t.Own().Value)
				if err != nil {
					return apierrors.NewForbidden(t.Type.GroupResource(), t.Name, err)
				}
				t.Hold(release)
				if next := c.Names.Named(d); next != nil {
					if err := t.NextStatus(ctx, next); err != nil {
						return err
					}
					d = next
				}
			}
			old, _ := t.Old.(*apiextensionsv1.CustomResourceDefinition)
			for _, name := range crd.Acquired(d, old) {
				t.Claim(name)
			}
			return nil
		},
	}
}
