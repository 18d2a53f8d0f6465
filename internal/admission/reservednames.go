package admission

import (
	"context"
	"fmt"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// reservedNames keeps clients from creating webhooks and policies with the names of those in files. If there
// can be none in files, it warns of the names.
func reservedNames(c *Config) registry.Plugin {
	p := registry.Plugin{Handles: func(_ *store.State, t registry.Target, o registry.Operation) bool {
		return o == admissionv1.Create && t.Subresource == "" && t.Type.Group == admissionregistrationv1.GroupName
	}}
	text := fmt.Sprintf("names ending with %q are reserved for static manifest-based configurations and cannot be managed via the API", manifest.Suffix)
	reserved := func(a *registry.Attributes) (name string, ok bool) {
		name = a.Object.(metav1.Object).GetName()
		return name, strings.HasSuffix(name, manifest.Suffix)
	}
	if c.Configuration.StaticManifests {
		p.Causes = func(_ context.Context, a *registry.Attributes) (field.ErrorList, error) {
			if name, ok := reserved(a); ok {
				return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), name, text)}, nil
			}
			return nil, nil
		}
		return p
	}
	p.Validate = func(_ context.Context, a *registry.Attributes) error {
		if _, ok := reserved(a); ok {
			a.Warn("metadata.name: " + text)
		}
		return nil
	}
	return p
}
