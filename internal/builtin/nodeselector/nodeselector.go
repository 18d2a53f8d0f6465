// Package nodeselector has the rules of node selectors, which Pods, volumes and devices have.
package nodeselector

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// Validate checks a node selector.
func Validate(errs *check.Errors, s *corev1.NodeSelector, at *field.Path) {
	at = at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		errs.Required(at, "", "must have at least one node selector term")
	}
	for i := range s.NodeSelectorTerms {
		validateTerm(errs, &s.NodeSelectorTerms[i], at.Index(i), false)
	}
}

// ValidatePreference checks a term that is only preferred. Its values need not be valid
// values of labels.
func ValidatePreference(errs *check.Errors, t *corev1.NodeSelectorTerm, at *field.Path) {
	validateTerm(errs, t, at, true)
}

func validateTerm(errs *check.Errors, t *corev1.NodeSelectorTerm, at *field.Path, anyValue bool) {
	for i := range t.MatchExpressions {
		q, at := &t.MatchExpressions[i], at.Child("matchExpressions").Index(i)
		switch q.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			if len(q.Values) == 0 {
				errs.Required(at, "values", "must be specified when `operator` is 'In' or 'NotIn'")
			}
		case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
			if len(q.Values) > 0 {
				errs.Forbidden(at, "values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
			}
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			if len(q.Values) != 1 {
				errs.Required(at, "values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
			}
		default:
			errs.Invalid(at, "operator", q.Operator, "not a valid selector operator")
		}
		errs.QualifiedName(at, "key", q.Key)
		for j := 0; j < len(q.Values) && !anyValue; j++ {
			errs.Each(at.Child("values").Index(j), "", q.Values[j], validation.IsValidLabelValue(q.Values[j]))
		}
	}
	for i := range t.MatchFields {
		validateField(errs, &t.MatchFields[i], at.Child("matchFields").Index(i))
	}
}

func validateField(errs *check.Errors, q *corev1.NodeSelectorRequirement, at *field.Path) {
	switch q.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(q.Values) != 1 {
			errs.Required(at, "values", "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		errs.Invalid(at, "operator", q.Operator, "not a valid selector operator")
	}
	if q.Key != metav1.ObjectNameField {
		errs.Invalid(at, "key", q.Key, "not a valid field selector key")
		return
	}
	for i, name := range q.Values {
		errs.Each(at.Child("values").Index(i), "", name, check.SubdomainFaults(name))
	}
}

// DeprecatedLabels maps deprecated labels of nodes to warnings that name the replacement.
var DeprecatedLabels = map[string]string{
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"failure-domain.beta.kubernetes.io/region":      `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	"failure-domain.beta.kubernetes.io/zone":        `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	"beta.kubernetes.io/instance-type":              `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"app.kubernetes.io/created-by":                  `deprecated since v1.9`,
	"scheduler.alpha.kubernetes.io/preferAvoidPods": `deprecated since v1.22; use Taints and Tolerations instead`,
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// Warnings warns about deprecated labels in the terms of a selector. At is the path of the list of
// terms.
func Warnings(s *corev1.NodeSelector, at *field.Path) (all []string) {
	for i := range s.NodeSelectorTerms {
		for j, q := range s.NodeSelectorTerms[i].MatchExpressions {
			if why, ok := DeprecatedLabels[q.Key]; ok {
				all = append(all, fmt.Sprintf("%s: %s is %s", at.Index(i).Child("matchExpressions").Index(j).Child("key"), q.Key, why))
			}
		}
	}
	return all
}
