package builtin

import (
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/apiregistration"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// apiregistrationGroup says which servers answer for which groups.
func apiregistrationGroup() resource.Group {
	return group("apiregistration.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "apiservices", Kind: "APIService", New: object[apiregistrationv1.APIService],
			AnyFinalizer:   true,
			Categories:     inAPIExtensions,
			Subresources:   []resource.Subresource{statusWith(updates(apiregistration.ValidateStatus))},
			StatusKeeps:    allMetadata,
			ValidateName:   pathSegment,
			Default:        defaults(apiregistration.DefaultAPIService),
			NewStatus:      defaults(apiregistration.NewStatus),
			Validate:       validates(apiregistration.ValidateAPIService),
			ValidateUpdate: updates(apiregistration.ValidateAPIServiceUpdate),
		},
	}})
}
