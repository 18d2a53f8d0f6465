package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestTolerations(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.tolerations", []testkinds.Rule{
		{"valid", ": [{key: a, value: b, effect: NoSchedule}, {operator: Exists}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]", ""},
		{"a key is a name", ": [{key: a b, operator: Exists}]", `[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"without a key it is for all", ": [{value: a}]", "[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all values and all keys\""},
		{"seconds are for NoExecute", ": [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 5}]", "[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set"},
		{"a value is that of a label", ": [{key: a, value: a b}]", `[0].operator: Invalid value: "a b": a valid label must be an empty...`},
		{"Exists has no value", ": [{key: a, operator: Exists, value: b}]", "[0].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'"},
		{"an operator is known", ": [{key: a, operator: Is}]", `[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"`},
		{"Lt and Gt are alpha", ": [{key: a, operator: Lt, value: \"1\"}]", `[0].operator: Unsupported value: "Lt": supported values: "Equal", "Exists", "Lt", "Gt"`},
		{"an effect is known", ": [{key: a, operator: Exists, effect: Never}]", `[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`},
	}), podErrors)
}

func TestDefaultTolerations(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.tolerations", []testkinds.Rule{
		{"none", "spec.nodeName: a", "[0].effect: NoExecute\n[0].key: node.kubernetes.io/not-ready\n[0].operator: Exists\n[0].tolerationSeconds: 300\n[1].effect: NoExecute\n[1].key: node.kubernetes.io/unreachable\n[1].operator: Exists\n[1].tolerationSeconds: 300"},
		{"those of a node that is not ready", ": [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute}]", "[1].effect: NoExecute\n[1].key: node.kubernetes.io/unreachable\n[1].operator: Exists\n[1].tolerationSeconds: 300"},
		{"another effect", ": [{key: node.kubernetes.io/not-ready, operator: Exists, effect: NoSchedule}]", "[1].effect: NoExecute\n[1].key: node.kubernetes.io/not-ready\n[1].operator: Exists\n[1].tolerationSeconds: 300\n[2].effect: NoExecute\n[2].key: node.kubernetes.io/unreachable\n[2].operator: Exists\n[2].tolerationSeconds: 300"},
		{"all keys and all effects", ": [{operator: Exists}]", ""},
	}), func(p *corev1.Pod) []string {
		return testkinds.Changes(p, func(p *corev1.Pod) { podspec.DefaultTolerations(p) })
	})
}

func TestNodeAffinity(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.affinity.nodeAffinity", []testkinds.Rule{
		{"required: one term", "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}", "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term"},
		{"required: a valid term", "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a b, operator: Exists}]}]}", `requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '...`},
		{"preferred: a weight is positive", "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]", "preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100"},
		{"preferred: a weight is at most 100", "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 101, preference: {}}]", "preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100"},
		{"preferred: values are not checked", "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: In, values: [a b]}]}}]", ""},
		{"preferred: operators are checked", "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: a, operator: Is}]}}]", `preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`},
	}), podErrors)
}

func TestPodAffinity(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution", []testkinds.Rule{
		{"valid", ": [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}, matchLabelKeys: [c], mismatchLabelKeys: [d]}]", ""},
		{"a topology is required", ": [{labelSelector: {}}]", "[0].topologyKey: Required value: can not be empty\n[0].topologyKey: Invalid value: \"\": name part must be non-empty\n[0].topologyKey: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validatio..."},
		{"a topology is a label", ": [{topologyKey: a b, labelSelector: {}}]", `[0].topologyKey: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for valida...`},
		{"a selector of Pods is valid", ": [{topologyKey: a, labelSelector: {matchExpressions: [{key: a, operator: Is}]}}]", `[0].labelSelector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator`},
		{"a selector of namespaces is valid", ": [{topologyKey: a, namespaceSelector: {matchLabels: {a b: c}}}]", `[0].namespaceSelector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', reg...`},
		{"namespaces are names", ": [{topologyKey: a, namespaces: [A]}]", `[0].namespace: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"label keys need a selector", ": [{topologyKey: a, matchLabelKeys: [a], mismatchLabelKeys: [b]}]", "[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set\n[0].mismatchLabelKeys: Forbidden: must not be specified when labelSelector is not set"},
		{"label keys are names", ": [{topologyKey: a, labelSelector: {}, matchLabelKeys: [a b], mismatchLabelKeys: [c d]}]", "[0].matchLabelKeys[0]: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for...\n[0].mismatchLabelKeys[0]: Invalid value: \"c d\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used f..."},
		{"label keys are not in the selector twice", ": [{topologyKey: a, labelSelector: {matchLabels: {a: b}, matchExpressions: [{key: a, operator: Exists}]}, matchLabelKeys: [a]}]", `[0][0]: Invalid value: "a": exists in both matchLabelKeys and labelSelector`},
		{"label keys are in one of the lists", ": [{topologyKey: a, labelSelector: {}, matchLabelKeys: [a], mismatchLabelKeys: [a]}]", `[0].matchLabelKeys[0]: Invalid value: "a": exists in both matchLabelKeys and mismatchLabelKeys`},
	}), podErrors)
	testkinds.Rules(t, pod, testkinds.Below("spec.affinity.podAntiAffinity", []testkinds.Rule{
		{"anti: a weight is positive", "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, podAffinityTerm: {topologyKey: a, labelSelector: {}}}]", "preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100"},
		{"anti: a topology is required", "preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {labelSelector: {}}}]", "preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Required value: can not be empty\npreferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: \"\": name part must be non-empty\npreferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', reg..."},
	}), podErrors)
}

func TestTopologySpread(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.topologySpreadConstraints", []testkinds.Rule{
		{"valid", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, minDomains: 1, labelSelector: {}, nodeAffinityPolicy: Honor, nodeTaintsPolicy: Ignore}]", ""},
		{"maxSkew is positive", ": [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]", "[0].maxSkew: Invalid value: 0: must be greater than zero"},
		{"topologyKey is required", ": [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}]", "[0].topologyKey: Required value: can not be empty"},
		{"whenUnsatisfiable is known", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: Never}]", `[0].whenUnsatisfiable: Unsupported value: "Never": supported values: "DoNotSchedule", "ScheduleAnyway"`},
		{"constraints are unique", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]", `[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{a, DoNotSchedule}"`},
		{"minDomains is positive", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, minDomains: 0}]", "[0].minDomains: Invalid value: 0: must be greater than zero"},
		{"minDomains is for DoNotSchedule", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, minDomains: 1}]", "[0].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"},
		{"nodeAffinityPolicy is known", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeAffinityPolicy: \"No\"}]", `[0].nodeAffinityPolicy: Unsupported value: "No": supported values: "Honor", "Ignore"`},
		{"nodeTaintsPolicy is known", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: \"No\"}]", `[0].nodeTaintsPolicy: Unsupported value: "No": supported values: "Honor", "Ignore"`},
		{"label keys need a selector", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [a]}]", "[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"},
		{"a selector is valid", ": [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a b: c}}}]", `[0].labelSelector.matchLabels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
	}), podErrors)
}
