package builtin

import (
	migrationv1 "k8s.io/api/storagemigration/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/storagemigration"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// storagemigrationGroup has the requests to write stored objects again, in the current version.
func storagemigrationGroup() resource.Group {
	return group("storagemigration.k8s.io", version{"v1", []resource.Type{
		{
			Names:        resource.Names{Resource: "storageversionmigrations", Kind: "StorageVersionMigration"},
			New:          object[migrationv1.StorageVersionMigration],
			Subresources: []resource.Subresource{statusWith(updates(storagemigration.ValidateStatus))},
			Strategy: resource.Strategy{
				Status:         statusAlone,
				Validate:       validates(storagemigration.Validate),
				ValidateUpdate: updates(storagemigration.ValidateUpdate),
			},
		},
	}})
}
