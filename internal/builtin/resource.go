package builtin

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/devices"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// resourceGroup has the kinds of dynamic resource allocation: devices and claims.
func resourceGroup() resource.Group {
	return group("resource.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "deviceclasses", Kind: "DeviceClass"},
			New:   object[resourcev1.DeviceClass],
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Generation: counted, Deletion: returnsObject,
				Metadata:       resource.MetadataRules{ValidateName: longName},
				Default:        defaults(devices.DefaultClass),
				Validate:       validates(devices.ValidateClass),
				ValidateUpdate: updates(devices.ValidateClassUpdate),
			},
		},
		{
			Names:        resource.Names{Resource: "devicetaintrules", Kind: "DeviceTaintRule"},
			New:          object[resourcev1.DeviceTaintRule],
			Subresources: []resource.Subresource{statusWith(updates(devices.ValidateTaintRuleStatus))},
			Strategy: resource.Strategy{
				Metadata: recheckUpdate, Status: statusAlone, Generation: counted,
				Default:        defaults(devices.DefaultTaintRule),
				PrepareUpdate:  prepares(devices.PrepareTaintRuleUpdate),
				Validate:       validates(devices.ValidateTaintRule),
				ValidateUpdate: updates(devices.ValidateTaintRuleUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "resourceclaims", Kind: "ResourceClaim"},
			New:   object[resourcev1.ResourceClaim], Namespaced: true,
			Subresources: []resource.Subresource{{Name: "status", Verbs: getPatchUpdate, Set: sets(devices.SetClaimStatus), Validate: updates(devices.ValidateClaimStatus)}},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Status: statusAlone, Deletion: returnsObject,
				Default:        defaults(devices.DefaultClaim),
				Validate:       validates(devices.ValidateClaim),
				ValidateUpdate: updates(devices.ValidateClaimUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate"},
			New:   object[resourcev1.ResourceClaimTemplate], Namespaced: true,
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Deletion: returnsObject,
				Default:        defaults(devices.DefaultTemplate),
				Validate:       validates(devices.ValidateTemplate),
				ValidateUpdate: updates(devices.ValidateTemplateUpdate),
			},
		},
		{
			Names:   resource.Names{Resource: "resourceslices", Kind: "ResourceSlice"},
			New:     object[resourcev1.ResourceSlice],
			Display: resource.Display{Fields: fields("spec.driver", "spec.nodeName", "spec.pool.name"), FieldError: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s"},
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Metadata: recheckUpdate, Generation: counted, Deletion: returnsObject,
				Default:        defaults(devices.DefaultSlice),
				Validate:       validates(devices.ValidateSlice),
				ValidateUpdate: updates(devices.ValidateSliceUpdate),
				Warnings:       warns(devices.SliceWarnings),
			},
		},
	}})
}
