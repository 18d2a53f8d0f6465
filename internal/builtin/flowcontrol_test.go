package builtin_test

import (
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/flowcontrol"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestFlowSchema(t *testing.T) {
	const schema = "{metadata: {name: f}, spec: {priorityLevelConfiguration: {name: l}, rules: [{subjects: [{kind: User, user: {name: u}}], nonResourceRules: [{verbs: [get], nonResourceURLs: [/a]}]}]}}"
	const rule = "rules[0]"
	testkinds.Rules(t, schema, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "matchingPrecedence: 10000", ""},
		{"a precedence is positive", "matchingPrecedence: -1", "matchingPrecedence: Invalid value: -1: must be a positive value"},
		{"a precedence is 10000 at most", "matchingPrecedence: 10001", "matchingPrecedence: Invalid value: 10001: must not be greater than 10000"},
		{"the first precedence is exempt's", "matchingPrecedence: 1", "matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1"},
		{"a distinguisher is known", "distinguisherMethod: {type: Any}", `distinguisherMethod.type: Unsupported value: {"Type":"Any"}: supported values: "ByNamespace", "ByUser"`},
		{"a level is required", "priorityLevelConfiguration: {name: ''}", "priorityLevelConfiguration.name: Required value: must reference a priority level"},
		{"a level is a name", "priorityLevelConfiguration: {name: A}", `priorityLevelConfiguration.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a rule has subjects and rules", rule + ": {}", "rules[0].subjects: Required value: subjects must contain at least one value\nrules[0]: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"},
		{"a subject is of a known kind", rule + ".subjects: [{kind: Any}]", `rules[0].subjects[0].kind: Unsupported value: "Any": supported values: "Group", "ServiceAccount", "User"`},
		{"a user is required", rule + ".subjects: [{kind: User}]", "rules[0].subjects[0].user: Required value: user is required when subject kind is 'User'"},
		{"a group has a name", rule + ".subjects: [{kind: Group, group: {name: ''}}]", "rules[0].subjects[0].group.name: Required value"},
		{"a service account is required", rule + ".subjects: [{kind: ServiceAccount}]", "rules[0].subjects[0].serviceAccount: Required value: serviceAccount is required when subject kind is 'ServiceAccount'"},
		{"a service account has names", rule + ".subjects: [{kind: ServiceAccount, serviceAccount: {name: '', namespace: ''}}]", "rules[0].subjects[0].serviceAccount.name: Required value\nrules[0].subjects[0].serviceAccount.namespace: Required value: must specify namespace for service account"},
		{"a service account has valid names", rule + ".subjects: [{kind: ServiceAccount, serviceAccount: {name: A, namespace: A}}]", "rules[0].subjects[0].serviceAccount.name: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\nrules[0].subjects[0].serviceAccount.namespace: Invalid value: \"A\": a lowercase RFC 1123 label must consist of..."},
		{"a subject is of one kind", rule + ".subjects: [{kind: User, user: {name: a}, group: {name: b}}]", "rules[0].subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'"},
		{"a resource rule: required", rule + ".resourceRules: [{}]", "rules[0].resourceRules[0].verbs: Required value: verbs must contain at least one value\nrules[0].resourceRules[0].apiGroups: Required value: resource rules must supply at least one api group\nrules[0].resourceRules[0].resources: Required value: resource rules must supply at least one resource\nrules[0].resourceRules[0].namespaces: Required value: resource rules that are not cluster scoped must supply at least one namespace"},
		{"a resource rule: verbs are known", rule + ".resourceRules: [{verbs: [any], apiGroups: [''], resources: [a], namespaces: [A]}]", "rules[0].resourceRules[0].verbs: Unsupported value: [\"any\"]: supported values: \"create\", \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"\nrules[0].resourceRules[0].namespaces[0]: Invalid value: \"A\": each member of this list must be '*' or a DNS-1123 label; a lowercase RFC 1123 label must consist of..."},
		{"a resource rule: a star is alone", rule + ".resourceRules: [{verbs: ['*', get], apiGroups: ['*', a], resources: ['*', a], namespaces: ['*', a]}]", "rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs\nrules[0].resourceRules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other api groups\nrules[0].resourceRules[0].resources: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other resources\nrules[0].resourceRules[0].namespaces: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other namespaces"},
		{"a path is required", rule + ".nonResourceRules: [{verbs: [get]}]", "rules[0].nonResourceRules[0].nonResourceURLs: Required value: nonResourceURLs must contain at least one value"},
		{"a path is one", rule + ".nonResourceRules: [{verbs: [get], nonResourceURLs: ['', a, '/a b', //a, '/*/a', /a*]}]", "rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"\": must not be empty\nrules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"a\": must start with slash\nrules[0].nonResourceRules[0].nonResourceURLs[2]: Invalid value: \"/a b\": must not contain white-space\nrules[0].nonResourceRules[0].nonResourceURLs[3]: Invalid value: \"//a\": must not contain double slash\nrules[0].nonResourceRules[0].nonResourceURLs[4]: Invalid value: \"/*/a\": wildcard can only do suffix matching\nrules[0].nonResourceRules[0].nonResourceURLs[5]: Invalid value: \"/a*\": wildcard can only do suffix matching"},
		{"status: conditions have types", "status: {conditions: [{}, {}]}", "status.conditions[0].type: Required value\nstatus.conditions[1].type: Duplicate value: \"\"\nstatus.conditions[1].type: Required value"},
		{"the fixed schemas stay", "metadata.name: catch-all", ": Invalid value: ...}: spec of 'catch-all' must equal the fixed value"},
	}), func(f *flowcontrolv1.FlowSchema) []string {
		flowcontrol.DefaultFlowSchema(f)
		return testkinds.Texts(flowcontrol.ValidateFlowSchema(f))
	})
	testkinds.Rules(t, schema, []testkinds.Rule{
		{"default: a precedence", "metadata.labels: {a: b}", "spec.matchingPrecedence: 1000"},
	}, func(f *flowcontrolv1.FlowSchema) []string {
		return testkinds.Changes(f, flowcontrol.DefaultFlowSchema)
	})
}

func TestPriorityLevel(t *testing.T) {
	const level = "{metadata: {name: l}, spec: {type: Limited, limited: {limitResponse: {type: Reject}}}}"
	testkinds.Rules(t, level, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "limited: {limitResponse: {type: Queue, queuing: {}}}", ""},
		{"a type is required", "type: ''", "type: Required value"},
		{"a type is known", "type: Any", `type: Unsupported value: "Any": supported values: "Exempt", "Limited"`},
		{"Exempt is exempt's", "type: Exempt", "type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'\nlimited: Forbidden: must be nil if the type is not Limited"},
		{"Limited has limits alone", "limited: null\nexempt: {}", "exempt: Forbidden: must be nil if the type is Limited\nlimited: Required value: must not be empty when type is Limited"},
		{"shares are not negative", "limited.nominalConcurrencyShares: -1", "limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer"},
		{"a percentage to lend", "limited.lendablePercent: 101", "limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive"},
		{"a percentage to borrow", "limited.borrowingLimitPercent: -1", "limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"},
		{"a response is required", "limited: {}", "limited.limitResponse.type: Required value"},
		{"a response is known", "limited: {limitResponse: {type: Any}}", `limited.limitResponse.type: Unsupported value: "Any": supported values: "Queue", "Reject"`},
		{"Reject has no queues", "limited: {limitResponse: {type: Reject, queuing: {}}}", "limited.limitResponse.queuing: Forbidden: must be nil if limited.limitResponse.type is not Limited"},
		{"Queue has queues", "limited: {limitResponse: {type: Queue}}", "limited.limitResponse.queuing: Required value: must not be empty if limited.limitResponse.type is Limited"},
		{"queues are positive", "limited: {limitResponse: {type: Queue, queuing: {queues: -1, handSize: -1, queueLengthLimit: -1}}}", "limited.limitResponse.queuing.queueLengthLimit: Invalid value: -1: must be positive\nlimited.limitResponse.queuing.queues: Invalid value: -1: must be positive\nlimited.limitResponse.queuing.handSize: Invalid value: -1: must be positive"},
		{"queues are bounded", "limited: {limitResponse: {type: Queue, queuing: {queues: 10000001}}}", "limited.limitResponse.queuing.queues: Invalid value: 10000001: must not be greater than 10000000\nlimited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 10000001 and handSize 8 should not be greater than 60"},
		{"a hand is of the queues", "limited: {limitResponse: {type: Queue, queuing: {queues: 2, handSize: 3}}}", "limited.limitResponse.queuing.handSize: Invalid value: 3: should not be greater than queues (2)"},
		{"a hand has 60 bits", "limited: {limitResponse: {type: Queue, queuing: {queues: 1024, handSize: 7}}}", "limited.limitResponse.queuing.handSize: Invalid value: 7: required entropy bits of deckSize 1024 and handSize 7 should not be greater than 60"},
		{"the fixed levels stay", "metadata.name: catch-all", ": Invalid value: ...}: spec of 'catch-all' must equal the fixed value"},
	}), func(l *flowcontrolv1.PriorityLevelConfiguration) []string {
		flowcontrol.DefaultPriorityLevel(l)
		return testkinds.Texts(flowcontrol.ValidatePriorityLevel(l))
	})
	testkinds.Rules(t, level, []testkinds.Rule{
		{"default: queues", "spec.limited: {limitResponse: {type: Queue, queuing: {}}}", "spec.limited.lendablePercent: 0\nspec.limited.limitResponse.queuing.handSize: 8\nspec.limited.limitResponse.queuing.queueLengthLimit: 50\nspec.limited.limitResponse.queuing.queues: 64\nspec.limited.nominalConcurrencyShares: 30"},
		{"default: exempt", "spec: {type: Exempt, exempt: {}}", "spec.exempt.lendablePercent: 0\nspec.exempt.nominalConcurrencyShares: 0\nspec.exempt: removed"},
	}, func(l *flowcontrolv1.PriorityLevelConfiguration) []string {
		return testkinds.Changes(l, flowcontrol.DefaultPriorityLevel)
	})
}
