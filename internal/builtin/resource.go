package builtin

import (
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/devices"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// resourceGroup is devices, and the claims to them.
func resourceGroup() resource.Group {
	return group("resource.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "deviceclasses", Kind: "DeviceClass", New: object[resourcev1.DeviceClass],
			UnconditionalUpdate: true, DeleteReturnsObject: true, Generation: true,
			Default:        defaults(devices.DefaultClass),
			Validate:       validates(devices.ValidateClass),
			ValidateUpdate: updates(devices.ValidateClassUpdate),
		},
		{
			Resource: "resourceclaims", Kind: "ResourceClaim", New: object[resourcev1.ResourceClaim],
			Namespaced:          true,
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Subresources:   []resource.Subresource{{Name: "status", Verbs: getPatchUpdate, Set: sets(devices.SetClaimStatus), Validate: updates(devices.ValidateClaimStatus)}},
			StatusKeeps:    allMetadata,
			Default:        defaults(devices.DefaultClaim),
			Validate:       validates(devices.ValidateClaim),
			ValidateUpdate: updates(devices.ValidateClaimUpdate),
		},
		{
			Resource: "resourceclaimtemplates", Kind: "ResourceClaimTemplate", New: object[resourcev1.ResourceClaimTemplate],
			Namespaced:          true,
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Default:        defaults(devices.DefaultTemplate),
			Validate:       validates(devices.ValidateTemplate),
			ValidateUpdate: updates(devices.ValidateTemplateUpdate),
		},
		{
			Resource: "resourceslices", Kind: "ResourceSlice", New: object[resourcev1.ResourceSlice],
			MetadataOnce:        true,
			UnconditionalUpdate: true, DeleteReturnsObject: true, Generation: true,
			Fields:         fields("spec.driver", "spec.nodeName"),
			FieldError:     "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s",
			Default:        defaults(devices.DefaultSlice),
			PrepareCreate:  defaults(devices.PrepareSlice),
			PrepareUpdate:  prepares(devices.PrepareSliceUpdate),
			Warnings:       warns(devices.WarnOfSlice),
			Validate:       validates(devices.ValidateSlice),
			ValidateUpdate: updates(devices.ValidateSliceUpdate),
		},
	}})
}
