package builtin

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/storage"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// storageGroup has StorageClasses, CSI drivers, and the attachments of volumes.
func storageGroup(p *features.Profile) resource.Group {
	defaultDriver := storage.DefaultDriver
	if !p.Enabled(features.VolumeLimits) {
		defaultDriver = storage.DefaultDriverWithoutLimits
	}
	return group("storage.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "csidrivers", Kind: "CSIDriver"},
			New:   object[storagev1.CSIDriver],
			Strategy: resource.Strategy{
				Metadata: recheckUpdate, Generation: resource.Generation{CountChanges: true}, Deletion: returnsObject,
				Default:        defaults(defaultDriver),
				Validate:       validates(storage.ValidateDriver),
				ValidateUpdate: updates(storage.ValidateDriverUpdate),
				Warnings:       warns(storage.DriverWarnings),
			},
		},
		{
			Names:        resource.Names{Resource: "csinodes", Kind: "CSINode"},
			New:          object[storagev1.CSINode],
			Subresources: []resource.Subresource{statusWith(updates(storage.ValidateNodeStatus))},
			Strategy: resource.Strategy{
				Metadata: recheckNew, Status: statusAlone, Deletion: returnsObject,
				Validate:       validates(storage.ValidateNode),
				ValidateUpdate: updates(storage.ValidateNodeUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "csistoragecapacities", Kind: "CSIStorageCapacity"},
			New:   object[storagev1.CSIStorageCapacity], Namespaced: true,
			Strategy: resource.Strategy{
				Validate:       validates(storage.ValidateCapacity),
				ValidateUpdate: updates(storage.ValidateCapacityUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "storageclasses", Kind: "StorageClass", ShortNames: []string{"sc"}},
			New:   object[storagev1.StorageClass],
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Deletion: returnsObject,
				Default:        defaults(storage.DefaultClass),
				Validate:       validates(storage.ValidateClass),
				ValidateUpdate: updates(storage.ValidateClassUpdate),
				Warnings:       warns(storage.ClassWarnings),
			},
		},
		{
			Names:        resource.Names{Resource: "volumeattachments", Kind: "VolumeAttachment"},
			New:          object[storagev1.VolumeAttachment],
			Subresources: []resource.Subresource{statusWith(updates(storage.ValidateAttachmentUpdate))},
			Strategy: resource.Strategy{
				Metadata: recheckNew, Status: statusAlone, Deletion: returnsObject,
				Default:        defaults(storage.DefaultAttachment),
				Validate:       validates(storage.ValidateAttachment),
				ValidateUpdate: updates(storage.ValidateAttachmentUpdate),
			},
		},
		{
			Names: resource.Names{Resource: "volumeattributesclasses", Kind: "VolumeAttributesClass", ShortNames: []string{"vac"}},
			New:   object[storagev1.VolumeAttributesClass],
			Strategy: resource.Strategy{
				AllowUnconditionalUpdate: true, Deletion: returnsObject,
				Validate:       validates(storage.ValidateAttributes),
				ValidateUpdate: updates(storage.ValidateAttributesUpdate),
			},
		},
	}})
}
