package builtin

import (
	policyv1 "k8s.io/api/policy/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/policy"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// policyGroup has PodDisruptionBudgets. Eviction, which belongs to the group too, is a subresource
// of Pods.
func policyGroup() resource.Group {
	return group("policy", version{"v1", []resource.Type{
		{
			Names: resource.Names{Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", ShortNames: []string{"pdb"}},
			New:   object[policyv1.PodDisruptionBudget], Namespaced: true,
			Subresources: []resource.Subresource{statusWith(updates(policy.ValidateBudgetStatus))},
			Strategy: resource.Strategy{
				Metadata: resource.MetadataRules{AnyFinalizer: true, Recheck: resource.RecheckNothing}, Generation: counted,
				Validate:       validates(policy.ValidateBudget),
				ValidateUpdate: updates(policy.ValidateBudgetUpdate),
			},
		},
	}})
}
