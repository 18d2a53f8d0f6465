package admission

import (
	"context"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// definitionGuard begins the name of the guard that the deletion of a definition claims, and
// that new objects of its kind hold to.
const definitionGuard = "definition/"

// customObjects refuses a new custom resource whose definition was deleted after the request
// had begun, for example while its body was on its way. It would stay forever.
func customObjects(*Config) registry.Plugin {
	deleting := derived.NewMemo(1024, func(o *store.Object) (bool, error) { return registry.MetadataOf(o).Deleting, nil })
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Custom != nil && o == admissionv1.Create || t.Type.Collection == crd.Collection && o != admissionv1.Create
		},
		Record: func(_ context.Context, t *registry.Transaction) error {
			if t.Type.Collection == crd.Collection {
				if own := t.Own(); own.Value == nil || own.Deleting {
					t.Claim(definitionGuard + t.Name)
				}
				return nil
			}
			d := t.State.Get(crd.Collection, t.Type.Collection)
			if d == nil {
				return apierrors.NewGenericServerResponse(http.StatusNotFound, "post", t.Type.GroupResource(), t.Name, "", 0, false)
			}
			if is, _ := deleting.Of(d); is {
				return t.Forbidden("create not allowed while custom resource definition is terminating")
			}
			t.Unclaimed(definitionGuard + t.Type.Collection)
			return nil
		},
	}
}
