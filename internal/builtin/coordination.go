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
			Namespaced:     true,
			CreateOnUpdate: true,
			Default:        defaults(coordination.DefaultLease),
			Validate:       validates(coordination.ValidateLease),
			ValidateUpdate: updates(coordination.ValidateLeaseUpdate),
		},
	}})
}
