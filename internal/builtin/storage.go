package builtin

import (
	storagev1 "k8s.io/api/storage/v1"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

// storageGroup is how volumes come to be and to nodes.
func storageGroup() resource.Group {
	return group("storage.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "csidrivers", Kind: "CSIDriver", New: object[storagev1.CSIDriver],
			DeleteReturnsObject: true,
		},
		{
			Resource: "csinodes", Kind: "CSINode", New: object[storagev1.CSINode],
			DeleteReturnsObject: true,
		},
		{
			Resource: "csistoragecapacities", Kind: "CSIStorageCapacity", New: object[storagev1.CSIStorageCapacity],
			Namespaced: true,
		},
		{
			Resource: "storageclasses", Kind: "StorageClass", New: object[storagev1.StorageClass],
			ShortNames:          []string{"sc"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
		},
		{
			Resource: "volumeattachments", Kind: "VolumeAttachment", New: object[storagev1.VolumeAttachment],
			DeleteReturnsObject: true,
			Subresources:        []resource.Subresource{status},
			StatusKeeps:         allMetadata,
		},
		{
			Resource: "volumeattributesclasses", Kind: "VolumeAttributesClass", New: object[storagev1.VolumeAttributesClass],
			ShortNames:          []string{"vac"},
			UnconditionalUpdate: true, DeleteReturnsObject: true,
			PrepareCreate: protect("kubernetes.io/vac-protection"),
		},
	}})
}
