package builtin

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiextensions"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// apiextensionsGroup has CustomResourceDefinitions.
func apiextensionsGroup() resource.Group {
	return group("apiextensions.k8s.io", version{"v1", []resource.Type{
		{
			Names:        resource.Names{Resource: "customresourcedefinitions", Kind: "CustomResourceDefinition", ShortNames: []string{"crd", "crds"}, Categories: inAPIExtensions},
			New:          object[apiextensionsv1.CustomResourceDefinition],
			Subresources: []resource.Subresource{statusWith(updates(apiextensions.ValidateStatus))},
			Strategy: resource.Strategy{
				Metadata: resource.MetadataRules{AnyFinalizer: true},
				Status:   resource.StatusRules{New: defaults(apiextensions.NewStatus)}, Generation: counted,
				Deletion:       resource.Deletion{Blocked: func(o runtime.Object) bool { return apiextensions.Held(o.(*apiextensionsv1.CustomResourceDefinition)) }, Prepare: defaults(apiextensions.PrepareDelete), Policy: definitionPolicy},
				Default:        defaults(apiextensions.Default),
				PrepareUpdate:  prepares(apiextensions.KeepStored),
				Validate:       validates(apiextensions.Validate),
				ValidateUpdate: updates(apiextensions.ValidateUpdate),
				Warnings:       warns(apiextensions.Warnings),
			},
		},
	}})
}

// definitionPolicy ignores the propagation policy of the first request to delete a definition, as
// kube-apiserver does.
func definitionPolicy(o runtime.Object, options *metav1.DeleteOptions) *metav1.DeleteOptions {
	if o.(metav1.Object).GetDeletionTimestamp() == nil {
		return nil
	}
	return options
}
