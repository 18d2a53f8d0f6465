package flowcontrol

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// everything returns a rule that matches all requests of some groups.
func everything(groups ...string) flowcontrolv1.PolicyRulesWithSubjects {
	all := []string{every}
	r := flowcontrolv1.PolicyRulesWithSubjects{
		ResourceRules:    []flowcontrolv1.ResourcePolicyRule{{Verbs: all, APIGroups: all, Resources: all, ClusterScope: true, Namespaces: all}},
		NonResourceRules: []flowcontrolv1.NonResourcePolicyRule{{Verbs: all, NonResourceURLs: all}},
	}
	for _, g := range groups {
		r.Subjects = append(r.Subjects, flowcontrolv1.Subject{Kind: flowcontrolv1.SubjectKindGroup, Group: &flowcontrolv1.GroupSubject{Name: g}})
	}
	return r
}

func pointer(n int32) *int32 { return &n }

// The specs of the mandatory objects: without them, a request of an administrator could be
// rejected, or a request could have no level.
var (
	fixedSchemas = map[string]flowcontrolv1.FlowSchemaSpec{
		exempt: {
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: exempt},
			MatchingPrecedence:         1,
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{everything("system:masters")},
		},
		catchAll: {
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: catchAll},
			MatchingPrecedence:         highestPrecedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules:                      []flowcontrolv1.PolicyRulesWithSubjects{everything("system:unauthenticated", "system:authenticated")},
		},
	}
	fixedLevels = map[string]flowcontrolv1.PriorityLevelConfigurationSpec{
		exempt: {
			Type:   flowcontrolv1.PriorityLevelEnablementExempt,
			Exempt: &flowcontrolv1.ExemptPriorityLevelConfiguration{NominalConcurrencyShares: pointer(0), LendablePercent: pointer(0)},
		},
		catchAll: {
			Type: flowcontrolv1.PriorityLevelEnablementLimited,
			Limited: &flowcontrolv1.LimitedPriorityLevelConfiguration{
				NominalConcurrencyShares: pointer(5), LendablePercent: pointer(0),
				LimitResponse: flowcontrolv1.LimitResponse{Type: flowcontrolv1.LimitResponseTypeReject},
			},
		},
	}
)

// FixedSchema returns the spec of one of the mandatory FlowSchemas: "exempt" or "catch-all".
func FixedSchema(name string) flowcontrolv1.FlowSchemaSpec {
	spec := fixedSchemas[name]
	return *spec.DeepCopy()
}

// FixedLevel returns the spec of one of the mandatory PriorityLevelConfigurations: "exempt" or
// "catch-all".
func FixedLevel(name string) flowcontrolv1.PriorityLevelConfigurationSpec {
	spec := fixedLevels[name]
	return *spec.DeepCopy()
}
