package builtin

import (
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/coordination"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// coordinationGroup has Leases.
func coordinationGroup() resource.Group {
	return group("coordination.k8s.io", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "leases", Kind: "Lease"},
			New:   object[coordinationv1.Lease], Namespaced: true,
			Strategy: resource.Strategy{
				AllowCreateOnUpdate: true, Metadata: resource.MetadataRules{AnyFinalizer: true, Recheck: resource.RecheckUpdate},
				Validate:       validates(coordination.ValidateLease),
				ValidateUpdate: updates(coordination.ValidateLeaseUpdate),
			},
		},
	}})
}
