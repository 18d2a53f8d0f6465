package builtin_test

import (
	"testing"

	nodev1 "k8s.io/api/node/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/node"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestRuntimeClass(t *testing.T) {
	const class = "{metadata: {name: c}, handler: h}"
	testkinds.Rules(t, class, []testkinds.Rule{
		{"valid", "overhead: {podFixed: {cpu: 100m}}\nscheduling: {nodeSelector: {a: b}, tolerations: [{operator: Exists}]}", ""},
		{"a handler is required", "handler: ''", "handler: Required value"},
		{"a handler is a label", "handler: A", `handler: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"overhead has resources of containers", "overhead: {podFixed: {disk: 1}}", "overhead.limits[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified\noverhead.limits[disk]: Invalid value: \"disk\": must be a standard resource for containers"},
		{"a node selector has labels", "scheduling: {nodeSelector: {a b: c}}", `scheduling.nodeSelector: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"tolerations are valid", "scheduling: {tolerations: [{key: a, operator: Is}]}", `scheduling.tolerations[0].operator: Unsupported value: "Is": supported values: "Equal", "Exists"`},
		{"tolerations are unique", "scheduling: {tolerations: [{key: a, operator: Exists, effect: NoExecute}, {key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]}", `scheduling.tolerations[1]: Duplicate value: {"Key":"a","Operator":"Exists","Value":"","Effect":"NoExecute","TolerationSeconds":5}`},
	}, func(c *nodev1.RuntimeClass) []string { return testkinds.Texts(node.ValidateRuntimeClass(c)) })
	testkinds.Updates(t, class, []testkinds.Update{
		{"the handler stays", "", "handler: x", `handler: Invalid value: "x": field is immutable`},
	}, func(c, old *nodev1.RuntimeClass) []string {
		return testkinds.Texts(node.ValidateRuntimeClassUpdate(c, old))
	})
}
