package builtin

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiextensions"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// apiextensionsGroup is the definitions of custom resources.
func apiextensionsGroup() resource.Group {
	return group("apiextensions.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition", New: object[apiextensionsv1.CustomResourceDefinition],
			ShortNames: []string{"crd", "crds"}, Categories: inAPIExtensions,
			Generation:     true,
			Subresources:   []resource.Subresource{status},
			Default:        defaults(apiextensions.Default),
			NewStatus:      defaults(apiextensions.NewStatus),
			PrepareUpdate:  prepares(apiextensions.KeepStored),
			Validate:       validates(apiextensions.Validate),
			ValidateUpdate: updates(apiextensions.ValidateUpdate),
		},
	}})
}
