package builtin

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/discovery"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// discoveryGroup has EndpointSlices.
func discoveryGroup() resource.Group {
	return group("discovery.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "endpointslices", Kind: "EndpointSlice"},
			New:   object[discoveryv1.EndpointSlice], Namespaced: true,
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckNew,
				Generation:     resource.Generation{Initial: 1, CountChanges: true, CountMetadata: resource.Labels},
				Default:        defaults(discovery.DefaultSlice),
				PrepareCreate:  defaults(discovery.PrepareSlice),
				PrepareUpdate:  prepares(discovery.PrepareSliceUpdate),
				Validate:       validates(discovery.ValidateSlice),
				ValidateUpdate: updates(discovery.ValidateSliceUpdate),
				Warnings:       warns(discovery.SliceWarnings),
			},
		},
	}})
}
