package builtin

import (
	policyv1 "k8s.io/api/policy/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/policy"
	"github.com/tidemark-dev/tidemark/internal/resource"
)

// policyGroup is limits to voluntary disruption. Eviction, which is in it too, is a
// subresource of Pods.
func policyGroup() resource.Group {
	return group("policy", version{"v1", []resource.Type{
		{
			Resource: "poddisruptionbudgets", Kind: "PodDisruptionBudget", New: object[policyv1.PodDisruptionBudget],
			MetadataApart: true,
			AnyFinalizer:  true,
			Namespaced:    true, ShortNames: []string{"pdb"},
			Generation:     true,
			Subresources:   []resource.Subresource{statusWith(updates(policy.ValidateBudgetStatus))},
			Validate:       validates(policy.ValidateBudget),
			ValidateUpdate: updates(policy.ValidateBudgetUpdate),
		},
	}})
}
