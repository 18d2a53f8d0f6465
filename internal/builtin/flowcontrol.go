package builtin

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/flowcontrol"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// flowcontrolGroup has FlowSchemas and PriorityLevelConfigurations.
func flowcontrolGroup() resource.Group {
	return group("flowcontrol.apiserver.k8s.io", version{"v1", []resource.Type{
		{
			Names:        resource.Names{Resource: "flowschemas", Kind: "FlowSchema"},
			New:          object[flowcontrolv1.FlowSchema],
			Subresources: []resource.Subresource{statusWith(updates(flowcontrol.ValidateFlowSchemaStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckNew, Status: statusAlone, Generation: counted,
				Default:        defaults(flowcontrol.DefaultFlowSchema),
				Validate:       validates(flowcontrol.ValidateFlowSchema),
				ValidateUpdate: updates(flowcontrol.ValidateFlowSchemaUpdate),
			},
		},
		{
			Names:        resource.Names{Resource: "prioritylevelconfigurations", Kind: "PriorityLevelConfiguration"},
			New:          object[flowcontrolv1.PriorityLevelConfiguration],
			Subresources: []resource.Subresource{statusWith(updates(flowcontrol.ValidatePriorityLevelStatus))},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckNew, Status: statusAlone, Generation: counted,
				Default:        defaults(flowcontrol.DefaultPriorityLevel),
				Validate:       validates(flowcontrol.ValidatePriorityLevel),
				ValidateUpdate: updates(flowcontrol.ValidatePriorityLevelUpdate),
			},
		},
	}})
}
