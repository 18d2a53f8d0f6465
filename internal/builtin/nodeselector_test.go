package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
	"github.com/tidemark-dev/tidemark/internal/builtin/nodeselector"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestNodeSelector(t *testing.T) {
	testkinds.Rules(t, "{nodeSelectorTerms: [{}]}", testkinds.Below("nodeSelectorTerms[0]", []testkinds.Rule{
		{"valid", ": {matchExpressions: [{key: a, operator: In, values: [b]}, {key: c, operator: Gt, values: [\"1\"]}], matchFields: [{key: metadata.name, operator: In, values: [d]}]}", ""},
		{"In needs values", "matchExpressions: [{key: a, operator: In}]", "matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"},
		{"NotIn needs values", "matchExpressions: [{key: a, operator: NotIn}]", "matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"},
		{"Exists has no values", "matchExpressions: [{key: a, operator: Exists, values: [b]}]", "matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"},
		{"Gt has one value", "matchExpressions: [{key: a, operator: Gt, values: [\"1\", \"2\"]}]", "matchExpressions[0].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'"},
		{"an operator is known", "matchExpressions: [{key: a, operator: Is}]", `matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`},
		{"a key is a label", "matchExpressions: [{key: a b, operator: Exists}]", `matchExpressions[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"a value is that of a label", "matchExpressions: [{key: a, operator: In, values: [b c]}]", `matchExpressions[0].values[0]: Invalid value: "b c": a valid label must be an empty...`},
		{"field: one value", "matchFields: [{key: metadata.name, operator: In, values: [a, b]}]", "matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector"},
		{"field: an operator is known", "matchFields: [{key: metadata.name, operator: Exists}]", `matchFields[0].operator: Invalid value: "Exists": not a valid selector operator`},
		{"field: only the name", "matchFields: [{key: metadata.uid, operator: In, values: [a]}]", `matchFields[0].key: Invalid value: "metadata.uid": not a valid field selector key`},
		{"field: a name is valid", "matchFields: [{key: metadata.name, operator: In, values: [A]}]", `matchFields[0].values[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
	}), func(s *corev1.NodeSelector) []string {
		var errs check.Errors
		nodeselector.Validate(&errs, s, nil)
		return testkinds.Texts(errs.List())
	})
	testkinds.Rules(t, "{nodeSelectorTerms: [{}]}", []testkinds.Rule{
		{"a term is required", "nodeSelectorTerms: []", "required.nodeSelectorTerms: Required value: must have at least one node selector term"},
	}, func(s *corev1.NodeSelector) []string {
		var errs check.Errors
		nodeselector.Validate(&errs, s, field.NewPath("required"))
		return testkinds.Texts(errs.List())
	})
}

func TestNodeSelectorWarnings(t *testing.T) {
	testkinds.Rules(t, "{nodeSelectorTerms: [{}]}", []testkinds.Rule{
		{"deprecated labels", "nodeSelectorTerms[1]: {matchExpressions: [{key: a}, {key: beta.kubernetes.io/os}]}", `terms[1].matchExpressions[1].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead`},
	}, func(s *corev1.NodeSelector) []string { return nodeselector.Warnings(s, field.NewPath("terms")) })
}
