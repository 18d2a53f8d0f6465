package admission

import (
	"context"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// unenforced maps collections whose objects this server stores without acting on them to the
// missing effect.
var unenforced = map[string]string{
	"apiservices.apiregistration.k8s.io": "no request is passed on to its service",
}

// unenforcedWarnings warns clients that write objects which this server stores and does not act
// on: users who rely on a policy must not believe that it holds.
func unenforcedWarnings(c *Config) registry.Plugin {
	if c.NoWarnings {
		return registry.Plugin{}
	}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Subresource == "" && o != admissionv1.Delete && unenforced[t.Type.Collection] != ""
		},
		Validate: func(_ context.Context, a *registry.Attributes) error {
			if s, ok := a.Object.(*apiregistrationv1.APIService); ok && s.Spec.Service == nil {
				return nil // the server serves that group itself
			}
			a.Warn(fmt.Sprintf("this server stores the %s and does not act on it: %s", a.Type.Kind, unenforced[a.Type.Collection]))
			return nil
		},
	}
}
