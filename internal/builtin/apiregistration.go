package builtin

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiregistration"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// apiregistrationGroup has APIServices.
func apiregistrationGroup() resource.Group {
	return group("apiregistration.k8s.io", version{"v1", []resource.Type{
		{
			Names:        resource.Names{Resource: "apiservices", Kind: "APIService", Categories: inAPIExtensions},
			New:          object[apiregistrationv1.APIService],
			Subresources: []resource.Subresource{statusWith(updates(apiregistration.ValidateStatus))},
			Strategy: resource.Strategy{
				Metadata:       resource.MetadataRules{ValidateName: pathSegment, AnyFinalizer: true},
				Status:         resource.StatusRules{New: defaults(apiregistration.NewStatus), Fixed: resource.AllMetadata},
				Default:        defaults(apiregistration.DefaultAPIService),
				Validate:       validates(apiregistration.ValidateAPIService),
				ValidateUpdate: updates(apiregistration.ValidateAPIServiceUpdate),
			},
		},
	}})
}
