package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/coordination"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// coordinationGroup is the leases with which clients elect leaders.
func coordinationGroup() resource.Group {
	return group("coordination.k8s.io", version{"v1", []resource.Type{
		{
			Resource: "leases", Kind: "Lease", New: object[coordinationv1.Lease],
			AnyFinalizer:   true,
			MetadataOnce:   true,
			Namespaced:     true,
			CreateOnUpdate: true,
			PrepareCreate:  defaults(coordination.PrepareLease),
			PrepareUpdate:  prepares(coordination.PrepareLeaseUpdate),
			Validate:       validates(coordination.ValidateLease),
			ValidateUpdate: updates(coordination.ValidateLeaseUpdate),
		},
	}})
}
