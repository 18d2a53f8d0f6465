package builtin

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"

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
			AnyFinalizer:   true,
			Subresources:   []resource.Subresource{statusWith(updates(apiextensions.ValidateStatus))},
			Default:        defaults(apiextensions.Default),
			NewStatus:      defaults(apiextensions.NewStatus),
			PrepareUpdate:  prepares(apiextensions.KeepStored),
			Validate:       validates(apiextensions.Validate),
			ValidateUpdate: updates(apiextensions.ValidateUpdate),
			Warnings:       warns(apiextensions.Warnings),
			Held:           func(o runtime.Object) bool { return apiextensions.Held(o.(*apiextensionsv1.CustomResourceDefinition)) },
			PrepareDelete:  defaults(apiextensions.PrepareDelete),
		},
	}})
}
