package builtin

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/storage"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// storageGroup is how volumes come to be and to nodes.
func storageGroup() resource.Group {
	return group("storage.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "csidrivers", Kind: "CSIDriver", New: object[storagev1.CSIDriver],
			MetadataOnce:        true,
			DeleteReturnsObject: true,
			Generation:          true,
			GenerationLate:      true,
			PrepareCreate:       defaults(storage.PrepareDriver),
			PrepareUpdate:       prepares(storage.PrepareDriverUpdate),
			Warnings:            warns(storage.WarnOfDriver),
			Default:             defaults(storage.DefaultDriver),
			Validate:            validates(storage.ValidateDriver),
			ValidateUpdate:      updates(storage.ValidateDriverUpdate),
		},
		{
			Resource: "csinodes", Kind: "CSINode", New: object[storagev1.CSINode],
			MetadataOnce:        true,
			DeleteReturnsObject: true,
			Validate:            validates(storage.ValidateNode),
			ValidateUpdate:      updates(storage.ValidateNodeUpdate),
		},
		{
			Resource: "csistoragecapacities", Kind: "CSIStorageCapacity", New: object[storagev1.CSIStorageCapacity],
			Namespaced:     true,
			Validate:       validates(storage.ValidateCapacity),
			ValidateUpdate: updates(storage.ValidateCapacityUpdate),
		},
		{
			Resource: "storageclasses", Kind: "StorageClass", New: object[storagev1.StorageClass],
			ShortNames:          []string{"sc"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			Default:        defaults(storage.DefaultClass),
			Validate:       validates(storage.ValidateClass),
			ValidateUpdate: updates(storage.ValidateClassUpdate),
			Warnings:       warns(storage.WarnOfClass),
		},
		{
			Resource: "volumeattachments", Kind: "VolumeAttachment", New: object[storagev1.VolumeAttachment],
			MetadataOnce:        true,
			DeleteReturnsObject: true,
			Subresources:        []resource.Subresource{statusWith(updates(storage.ValidateAttachmentUpdate))},
			StatusKeeps:         allMetadata,
			Default:             defaults(storage.DefaultAttachment),
			Validate:            validates(storage.ValidateAttachment),
			ValidateUpdate:      updates(storage.ValidateAttachmentUpdate),
		},
		{
			Resource: "volumeattributesclasses", Kind: "VolumeAttributesClass", New: object[storagev1.VolumeAttributesClass],
			ShortNames:          []string{"vac"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			PrepareCreate:  protect("kubernetes.io/vac-protection", nil),
			Validate:       validates(storage.ValidateAttributes),
			ValidateUpdate: updates(storage.ValidateAttributesUpdate),
		},
	}})
}
