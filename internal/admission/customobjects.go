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

// customObjects rejects a custom resource whose definition was deleted after the request began, for
// example while its body arrived. A new object would stay forever. If the definition was created
// again meanwhile, an object that was decoded and validated by the former schema must not be stored
// for the new one.
func customObjects(*Config) registry.Plugin {
	type state struct {
		uid      string
		deleting bool
	}
	states := derived.NewMemo(1024, func(o *store.Object) (state, error) {
		m := registry.MetadataOf(o)
		return state{string(m.UID), m.Deleting}, nil
	})
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Custom != nil && (o == admissionv1.Create || o == admissionv1.Update) || t.Type.Collection == crd.Collection && o != admissionv1.Create
		},
		Record: func(_ context.Context, t *registry.Transaction) error {
			if t.Type.Collection == crd.Collection {
				if own := t.Own(); own.Value == nil || own.Deleting {
					t.Claim(definitionGuard + t.Name)
				}
				return nil
			}
			var now state
			if d := t.State.Get(crd.Collection, t.Type.Collection); d != nil {
				now, _ = states.Of(d)
			}
			switch {
			case now.uid != t.Type.Custom.UID:
				verb := map[admissionv1.Operation]string{admissionv1.Create: "post", admissionv1.Update: "put"}[t.Operation]
				return apierrors.NewGenericServerResponse(http.StatusNotFound, verb, t.Type.GroupResource(), t.Name, "", 0, false)
			case t.Operation == admissionv1.Update: // the object that it replaces is gone before its definition is
				return nil
			case now.deleting:
				return t.Forbidden("create not allowed while custom resource definition is terminating")
			}
			t.Unclaimed(definitionGuard + t.Type.Collection)
			return nil
		},
	}
}
