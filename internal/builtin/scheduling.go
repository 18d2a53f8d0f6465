package builtin

import (
	schedulingv1 "k8s.io/api/scheduling/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/scheduling"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// schedulingGroup has PriorityClasses.
func schedulingGroup() resource.Group {
	return group("scheduling.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "priorityclasses", Kind: "PriorityClass", ShortNames: []string{"pc"}},
			New:   object[schedulingv1.PriorityClass],
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: resource.Generation{Initial: 1},
				Default:        defaults(scheduling.DefaultPriorityClass),
				Validate:       validates(scheduling.ValidatePriorityClass),
				ValidateUpdate: updates(scheduling.ValidatePriorityClassUpdate),
			},
		},
	}})
}
