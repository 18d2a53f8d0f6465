//lint:file-ignore SA1019 Endpoints are deprecated, and served.

package builtin_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestConfigMap(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: m}}", []testkinds.Rule{
		{"valid", "data: {a.b-c_d: x}\nbinaryData: {e: eA==}", ""},
		{"a key is valid", "data: {a/b: x}\nbinaryData: {c d: eA==}", "data[a/b]: Invalid value: \"a/b\": a valid config key must consist of...\nbinaryData[c d]: Invalid value: \"c d\": a valid config key must consist of..."},
		{"a key is text or bytes", "data: {a: x}\nbinaryData: {a: eA==}", `data[a]: Invalid value: "a": duplicate of key present in binaryData`},
		{"a mebibyte", "data: {a: \"{x*1048577}\"}", "[]: Too long: may not be more than 1048576 bytes"},
	}, func(o *corev1.ConfigMap) []string { return testkinds.Texts(core.ValidateConfigMap(o)) })
	testkinds.Updates(t, "{metadata: {name: m}, data: {a: x}}", []testkinds.Update{
		{"data changes", "", "data: {a: z}", ""},
		{"immutable: the flag stays", "immutable: true", "immutable: false", "immutable: Forbidden: field is immutable when `immutable` is set"},
		{"immutable: data stays", "immutable: true", "data: {a: z}", "data: Forbidden: field is immutable when `immutable` is set"},
		{"immutable: binaryData stays", "immutable: true", "binaryData: {b: eA==}", "binaryData: Forbidden: field is immutable when `immutable` is set"},
		{"immutable: metadata changes", "immutable: true", "metadata.labels: {a: b}", ""},
		{"the new object is checked", "", "data: {a/b: x}", `data[a/b]: Invalid value: "a/b": a valid config key must consist of...`},
	}, func(o, old *corev1.ConfigMap) []string { return testkinds.Texts(core.ValidateConfigMapUpdate(o, old)) })
}

func TestSecret(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: s}}", []testkinds.Rule{
		{"a key is valid", "data: {a/b: eA==}", `data[a/b]: Invalid value: "a/b": a valid config key must consist of...`},
		{"basic auth needs a user or a password", "type: kubernetes.io/basic-auth", "data[username]: Required value\ndata[password]: Required value"},
		{"basic auth: one is enough", "type: kubernetes.io/basic-auth\ndata: {password: \"\"}", ""},
		{"ssh needs a key", "type: kubernetes.io/ssh-auth", "data[ssh-privatekey]: Required value"},
		{"tls needs a pair", "type: kubernetes.io/tls", "data[tls.crt]: Required value\ndata[tls.key]: Required value"},
		{"a token names its account", "type: kubernetes.io/service-account-token", "metadata.annotations[kubernetes.io/service-account.name]: Required value"},
		{"dockercfg is required", "type: kubernetes.io/dockercfg", "data[.dockercfg]: Required value"},
		{"dockercfg is JSON", "type: kubernetes.io/dockercfg\ndata: {.dockercfg: eA==}", `data[.dockercfg]: Invalid value: "<secret contents redacted>": invalid character 'x' looking for beginning of value`},
		{"dockerconfigjson is JSON", "type: kubernetes.io/dockerconfigjson\ndata: {.dockerconfigjson: W10=}", `data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into Go value of type map[string]interface {}`},
	}, func(o *corev1.Secret) []string {
		core.DefaultSecret(o)
		return testkinds.Texts(core.ValidateSecret(o))
	})
	testkinds.Updates(t, "{metadata: {name: s}, type: Opaque, data: {a: eA==}}", []testkinds.Update{
		{"the type stays", "", "type: a/b", `type: Invalid value: "a/b": field is immutable`},
		{"immutable: the flag stays", "immutable: true", "immutable: null", "immutable: Forbidden: field is immutable when `immutable` is set"},
		{"immutable: data stays", "immutable: true", "data: {}", "data: Forbidden: field is immutable when `immutable` is set"},
	}, func(o, old *corev1.Secret) []string { return testkinds.Texts(core.ValidateSecretUpdate(o, old)) })
	testkinds.Rules(t, "{metadata: {name: s}}", []testkinds.Rule{
		{"no certificate", "type: kubernetes.io/tls\ndata: {tls.crt: eA==, tls.key: eA==}", "tls: failed to find any PEM data in certificate input"},
		{"another type", "data: {tls.crt: eA==}", ""},
	}, func(o *corev1.Secret) []string { return core.SecretWarnings(o, nil) })
}

func TestEndpoints(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: e}, subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}]}]}", []testkinds.Rule{
		{"valid", "subsets[0].addresses[0]: {ip: \"2001:db8::1\", hostname: a, nodeName: b}", ""},
		{"there is an address", "subsets[0].addresses: []", "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"},
		{"an address is one", "subsets[0].addresses[0].ip: a", "subsets[0].addresses[0].ip: Invalid value: \"a\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)\nsubsets[0].addresses[0].ip: Invalid value: \"a\": must be a valid IP address"},
		{"not unspecified", "subsets[0].addresses[0].ip: 0.0.0.0", `subsets[0].addresses[0].ip: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`},
		{"not loopback", "subsets[0].notReadyAddresses: [{ip: \"::1\"}]", `subsets[0].notReadyAddresses[0].ip: Invalid value: "::1": may not be in the loopback range (127.0.0.0/8, ::1/128)`},
		{"not link-local", "subsets[0].addresses[0].ip: 169.254.0.1", `subsets[0].addresses[0].ip: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`},
		{"not link-local multicast", "subsets[0].addresses[0].ip: 224.0.0.1", `subsets[0].addresses[0].ip: Invalid value: "224.0.0.1": may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)`},
		{"a hostname is a label", "subsets[0].addresses[0].hostname: A", `subsets[0].addresses[0].hostname: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a node is a name", "subsets[0].addresses[0].nodeName: A", `subsets[0].addresses[0].nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"of several ports each has a name", "subsets[0].ports[1]: {port: 81, name: b}", "subsets[0].ports[0].name: Required value"},
		{"a name is a label", "subsets[0].ports[0].name: A", `subsets[0].ports[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a port is in range", "subsets[0].ports[0].port: 65536", "subsets[0].ports[0].port: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"a protocol is known", "subsets[0].ports[0].protocol: tcp", `subsets[0].ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		{"appProtocol is a name", "subsets[0].ports[0].appProtocol: a b", `subsets[0].ports[0].appProtocol: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
	}, func(o *corev1.Endpoints) []string {
		core.DefaultEndpoints(o)
		return testkinds.Texts(core.ValidateEndpoints(o))
	})
	testkinds.Updates(t, "{metadata: {name: e}, subsets: [{addresses: []}]}", []testkinds.Update{
		{"wrong subsets may stay", "", "metadata.labels: {a: b}", ""},
		{"changed subsets are checked", "", "subsets[1]: {}", "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`\nsubsets[1]: Required value: must specify `addresses` or `notReadyAddresses`"},
	}, func(o, old *corev1.Endpoints) []string {
		return testkinds.Texts(core.ValidateEndpointsUpdate(o, old))
	})
	testkinds.Rules(t, "{metadata: {name: e}, subsets: [{addresses: [{ip: 010.0.0.1}], notReadyAddresses: [{ip: \"2001:DB8::1\"}]}]}", []testkinds.Rule{
		{"unusual addresses", "metadata.name: f", "subsets[0].addresses[0].ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"\nsubsets[0].notReadyAddresses[0].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"},
		{"those of the controller", "metadata.labels: {endpoints.kubernetes.io/managed-by: endpoint-controller}", ""},
	}, func(o *corev1.Endpoints) []string { return core.EndpointsWarnings(o, nil) })
}

func TestEvent(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: e, namespace: default}, involvedObject: {namespace: default}}", []testkinds.Rule{
		{"valid", "reason: a", ""},
		{"of an object elsewhere", "involvedObject.namespace: other", `involvedObject.namespace: Invalid value: "other": does not match event.namespace`},
		{"of an object without a namespace", "involvedObject: {}\nmetadata.namespace: other", `involvedObject.namespace: Invalid value: "": does not match event.namespace`},
		{"with a time: elsewhere", "eventTime: 2020-01-01T00:00:00.000000Z\ninvolvedObject: {}\nmetadata.namespace: other\nreportingComponent: a\nreportingInstance: b\naction: c\nreason: d", `involvedObject.namespace: Invalid value: "": does not match event.namespace`},
		{"with a zero time: required", "eventTime: 0001-01-01T00:00:00.000000Z\nreportingComponent: a", "reportingInstance: Required value\naction: Required value\nreason: Required value"},
		{"with a time: required", "eventTime: 2020-01-01T00:00:00.000000Z", "reportingComponent: Required value\nreportingComponent: Invalid value: \"\": name part must be non-empty\nreportingComponent: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nreportingInstance: Required value\naction: Required value\nreason: Required value"},
		{"with a time: too long", "eventTime: 2020-01-01T00:00:00.000000Z\nreportingComponent: a\nreportingInstance: \"{a*129}\"\naction: \"{b*129}\"\nreason: \"{c*129}\"\nmessage: \"{d*1025}\"", "reportingInstance: Invalid value: \"\": can have at most 128 characters\naction: Invalid value: \"\": can have at most 128 characters\nreason: Invalid value: \"\": can have at most 128 characters\nmessage: Invalid value: \"\": can have at most 1024 characters"},
	}, func(o *corev1.Event) []string { return testkinds.Texts(core.ValidateEvent(o)) })
	const fresh = "{metadata: {name: e, namespace: default}, involvedObject: {namespace: default}, eventTime: 2020-01-01T00:00:00.000000Z, reportingComponent: a, reportingInstance: b, action: c, reason: d, type: Normal}"
	testkinds.Rules(t, fresh, []testkinds.Rule{
		{"new: valid", "message: a", ""},
		{"new: metadata", "metadata.name: A", `metadata.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"new: a time is required", "eventTime: null", "eventTime: Required value"},
		{"new: a type is known", "type: Bad", `type: Invalid value: "": has invalid value: Bad`},
		{"new: what is old is not set", "firstTimestamp: 2020-01-01T00:00:00Z\nlastTimestamp: 2020-01-01T00:00:00Z\ncount: 1\nsource: {component: a}", "firstTimestamp: Invalid value: \"\": needs to be unset\nlastTimestamp: Invalid value: \"\": needs to be unset\ncount: Invalid value: \"\": needs to be unset\nsource: Invalid value: \"\": needs to be unset"},
		{"new: a zero time is set", "eventTime: 0001-01-01T00:00:00.000000Z\nfirstTimestamp: 0001-01-01T00:00:00Z\nlastTimestamp: 0001-01-01T00:00:00Z\nseries: {count: 2, lastObservedTime: 0001-01-01T00:00:00.000000Z}", "firstTimestamp: Invalid value: \"\": needs to be unset\nlastTimestamp: Invalid value: \"\": needs to be unset"},
		{"new: a finalizer has a domain", "metadata.finalizers: [a]", `metadata.finalizers[0]: Invalid value: "a": name is neither a standard finalizer name nor is it fully qualified`},
		{"new: a series of two", "series: {count: 1}", "series.count: Invalid value: \"\": should be at least 2\nseries.lastObservedTime: Required value"},
	}, func(o *corev1.Event) []string { return testkinds.Texts(core.ValidateNewEvent(o)) })
	testkinds.Updates(t, fresh, []testkinds.Update{
		{"the series changes", "", "series: {count: 2, lastObservedTime: 2020-01-01T00:00:00.000000Z}", `metadata.resourceVersion: Invalid value: "": must be specified for an update`},
		{"the series is checked", "", "series: {count: 1}", "metadata.resourceVersion: Invalid value: \"\": must be specified for an update\nseries.count: Invalid value: \"\": should be at least 2\nseries.lastObservedTime: Required value"},
		{"an old wrong series stays", "series: {count: 1}", "metadata.labels: {a: b}", `metadata.resourceVersion: Invalid value: "": must be specified for an update`},
		{"nothing else changes", "", "reason: x\nmessage: x\ntype: Warning\naction: x\nreportingComponent: x\nreportingInstance: x\nrelated: {name: x}\ncount: 1", "metadata.resourceVersion: Invalid value: \"\": must be specified for an update\nreason: Invalid value: \"x\": field is immutable\nmessage: Invalid value: \"x\": field is immutable\ncount: Invalid value: 1: field is immutable\nreason: Invalid value: \"x\": field is immutable\ntype: Invalid value: \"Warning\": field is immutable\naction: Invalid value: \"x\": field is immutable\nrelated: Invalid value: {\"Kind\":\"\",\"Namespace\":\"\",\"Name\":\"x\",\"UID\":\"\",\"APIVersion\":\"\",\"ResourceVersion\":\"\",\"FieldPath\":\"\"}: field is immutable\nreportingController: Invalid value: \"x\": field is immutable\nreportingInstance: Invalid value: \"x\": field is immutable"},
		{"the time stays", "", "eventTime: 2021-01-01T00:00:00.000000Z", "metadata.resourceVersion: Invalid value: \"\": must be specified for an update\neventTime: Invalid value: \"2021-01-01T00:00:00.000000Z\": field is immutable"},
	}, func(o, old *corev1.Event) []string { return testkinds.Texts(core.ValidateNewEventUpdate(o, old)) })
}

func TestLimitRange(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: l}, spec: {limits: [{type: Container}]}}", testkinds.Below("spec.limits[0]", []testkinds.Rule{
		{"valid", ": {type: Container, min: {cpu: 1}, max: {cpu: 4}, default: {cpu: 3}, defaultRequest: {cpu: 2}, maxLimitRequestRatio: {cpu: 2}}", ""},
		{"a type is known", ": {type: Node}", `type: Invalid value: "Node": must be a standard limit type or fully qualified`},
		{"a type is a name", ": {type: a b}", `type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"types are unique", "spec.limits[1]: {type: Container}", `spec.limits[1].type: Duplicate value: "Container"`},
		{"a resource is one of containers", ": {type: Container, max: {storage: 1}}", "max[storage]: Invalid value: \"storage\": must be a standard resource for containers\ndefault[storage]: Invalid value: \"storage\": must be a standard resource for containers\ndefaultRequest[storage]: Invalid value: \"storage\": must be a standard resource for containers"},
		{"Pods have no defaults", ": {type: Pod, default: {cpu: 1}, defaultRequest: {cpu: 1}}", "default: Forbidden: may not be specified when `type` is 'Pod'\ndefaultRequest: Forbidden: may not be specified when `type` is 'Pod'"},
		{"claims have a size", ": {type: PersistentVolumeClaim}", "limits: Required value: either minimum or maximum storage value is required, but neither was provided"},
		{"min is at most max", ": {type: Pod, min: {cpu: 2}, max: {cpu: 1}}", `min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`},
		{"min is at most the request", ": {type: Container, min: {cpu: 2}, defaultRequest: {cpu: 1}}", `defaultRequest[cpu]: Invalid value: "1": min value 2 is greater than default request value 1`},
		{"a request is at most max", ": {type: Container, max: {cpu: 1}, defaultRequest: {cpu: 2}, default: {cpu: 2}}", "defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than max value 1\ndefault[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1"},
		{"a request is at most the limit", ": {type: Container, default: {cpu: 1}, defaultRequest: {cpu: 2}}", `defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than default limit value 1`},
		{"a ratio is 1 at least", ": {type: Pod, maxLimitRequestRatio: {cpu: 500m}}", `maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1`},
		{"a ratio is at most max by min", ": {type: Pod, min: {cpu: 1}, max: {cpu: 2}, maxLimitRequestRatio: {cpu: 3}}", `maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000`},
		{"extended resources are requested in full", ": {type: Container, default: {a.b/c: 2}, defaultRequest: {a.b/c: 1}}", `defaultRequest[a.b/c]: Invalid value: "1": default value 2 must equal to defaultRequest value 1 in a.b/c`},
	}), func(o *corev1.LimitRange) []string {
		core.DefaultLimitRange(o)
		return testkinds.Texts(core.ValidateLimitRange(o))
	})
	testkinds.Rules(t, "{metadata: {name: l}, spec: {limits: [{type: Container}]}}", testkinds.Below("spec.limits[0]", []testkinds.Rule{
		{"default: from max", "max: {cpu: 2}", "default.cpu: 2\ndefaultRequest.cpu: 2"},
		{"default: from min", "min: {cpu: 2}", "defaultRequest.cpu: 2"},
		{"default: from the limit", "default: {cpu: 2}\nmin: {cpu: 1}", "defaultRequest.cpu: 2"},
	}), func(o *corev1.LimitRange) []string { return testkinds.Changes(o, core.DefaultLimitRange) })
}

func TestNamespaceRules(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: ns}}", []testkinds.Rule{
		{"valid", "spec: {finalizers: [kubernetes, a.b/c]}", ""},
		{"a finalizer has a domain", "spec: {finalizers: [a]}", `spec.finalizers: Invalid value: "a": name is neither a standard finalizer name nor is it fully qualified`},
		{"a finalizer is a name", "spec: {finalizers: [a b]}", "spec.finalizers: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nspec.finalizers: Invalid value: \"a b\": name is neither a standard finalizer name nor is it fully qualified"},
	}, func(o *corev1.Namespace) []string { return testkinds.Texts(core.ValidateNamespace(o)) })
	testkinds.Updates(t, "{metadata: {name: ns}, status: {phase: Active}}", []testkinds.Update{
		{"active", "", "metadata.labels: {a: b}", ""},
		{"terminating when it is deleted", "", "status.phase: Terminating", "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty"},
		{"not active when it is deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z", "status.phase: Active", "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty"},
	}, func(o, old *corev1.Namespace) []string { return testkinds.Texts(core.ValidateNamespaceStatus(o, old)) })
	testkinds.Updates(t, "{metadata: {name: ns}}", []testkinds.Update{
		{"finalize: a finalizer has a domain", "", "spec: {finalizers: [kubernetes, a]}", `spec.finalizers[1]: Invalid value: "a": name is neither a standard finalizer name nor is it fully qualified`},
	}, func(o, old *corev1.Namespace) []string { return testkinds.Texts(core.ValidateFinalize(o, old)) })
}

func TestResourceQuota(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: q}}", testkinds.Below("spec", []testkinds.Rule{
		{"valid", "hard: {pods: 1, requests.cpu: 1, count/foos.example.com: 1}\nscopes: [NotBestEffort]", ""},
		{"a resource is known", "hard: {disk: 1}", "hard[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified\nhard[disk]: Invalid value: \"disk\": must be a standard resource for quota"},
		{"an amount is not negative", "hard: {pods: -1}", `hard[pods]: Invalid value: "-1": must be greater than or equal to 0`},
		{"an amount of objects is whole", "hard: {pods: 500m}", `hard[pods]: Invalid value: "500m": must be an integer`},
		{"a scope is known", "scopes: [Any]", `scopes: Invalid value: ["Any"]: unsupported scope`},
		{"a scope fits the resource", "hard: {services: 1}\nscopes: [Terminating]", `scopes: Invalid value: ["Terminating"]: unsupported scope applied to resource`},
		{"BestEffort counts Pods alone", "hard: {cpu: 1}\nscopes: [BestEffort]", `scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`},
		{"scopes exclude each other", "scopes: [Terminating, NotTerminating]", `scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes`},
		{"selector: a scope is known", "scopeSelector: {matchExpressions: [{scopeName: Any, operator: Exists}]}", `scopeSelector.matchExpressions.scopeName: Invalid value: "Any": unsupported scope`},
		{"selector: a scope fits the resource", "hard: {cpu: 1}\nscopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Exists}]}", `scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":[{"ScopeName":"BestEffort","Operator":"Exists","Values":null}]}: unsupported scope applied to resource`},
		{"selector: Exists for most scopes", "scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: In, values: [a]}]}", `scopeSelector.matchExpressions.operator: Invalid value: "In": must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity`},
		{"selector: In needs values", "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}", "scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"},
		{"selector: Exists has no values", "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Exists, values: [a]}]}", "scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"},
		{"selector: an operator is known", "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: Is}]}", `scopeSelector.matchExpressions.operator: Invalid value: "Is": not a valid selector operator`},
		{"selector: scopes exclude each other", "scopeSelector: {matchExpressions: [{scopeName: BestEffort, operator: Exists}, {scopeName: NotBestEffort, operator: Exists}]}", "scopeSelector.matchExpressions: Invalid value: null: conflicting scopes"},
	}), func(o *corev1.ResourceQuota) []string { return testkinds.Texts(core.ValidateResourceQuota(o)) })
	testkinds.Rules(t, "{metadata: {name: q}}", []testkinds.Rule{
		{"warning: requests over limits", "spec.hard: {limits.cpu: 1, requests.cpu: 2, limits.memory: -0, memory: 1Gi, limits.ephemeral-storage: 1, requests.ephemeral-storage: 2}",
			"ResourceQuota requests.cpu (2) should be less than limits.cpu (1)\nResourceQuota memory (1Gi) should be less than limits.memory (0)\nResourceQuota requests.ephemeral-storage (2) should be less than limits.ephemeral-storage (1)"},
		{"warning: requests.cpu counts before cpu", "spec.hard: {limits.cpu: 1, requests.cpu: 1, cpu: 2}", ""},
		{"warning: not for ephemeral-storage", "spec.hard: {limits.ephemeral-storage: 1, ephemeral-storage: 2}", ""},
	}, func(o *corev1.ResourceQuota) []string { return core.ResourceQuotaWarnings(o, nil) })
	testkinds.Updates(t, "{metadata: {name: q}}", []testkinds.Update{
		{"no warning of an update", "", "spec.hard: {limits.cpu: 1, cpu: 2}", ""},
	}, core.ResourceQuotaWarnings)
	testkinds.Updates(t, "{metadata: {name: q}, spec: {scopes: [BestEffort, Terminating]}}", []testkinds.Update{
		{"the order of scopes changes", "", "spec.scopes: [Terminating, BestEffort]", ""},
		{"scopes stay", "", "spec.scopes: [BestEffort]", `spec.scopes: Invalid value: ["BestEffort"]: field is immutable`},
	}, func(o, old *corev1.ResourceQuota) []string {
		return testkinds.Texts(core.ValidateResourceQuotaUpdate(o, old))
	})
	testkinds.Updates(t, "{metadata: {name: q}}", []testkinds.Update{
		{"status: amounts", "", "status: {hard: {disk: 1}, used: {pods: -1}}", "status.hard[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified\nstatus.hard[disk]: Invalid value: \"disk\": must be a standard resource for quota\nstatus.used[pods]: Invalid value: \"-1\": must be greater than or equal to 0"},
	}, func(o, old *corev1.ResourceQuota) []string {
		return testkinds.Texts(core.ValidateResourceQuotaStatus(o, old))
	})
}

func TestServiceAccount(t *testing.T) {
	testkinds.Updates(t, "{metadata: {name: a}}", []testkinds.Update{
		{"the annotation is new", "", "metadata.annotations: {kubernetes.io/enforce-mountable-secrets: a}", "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"},
		{"the annotation is known", "metadata.annotations: {kubernetes.io/enforce-mountable-secrets: a}", "metadata.labels: {a: b}", ""},
	}, core.ServiceAccountWarnings)
	testkinds.Rules(t, "{metadata: {name: a}}", []testkinds.Rule{
		{"references keep their names", "secrets: [{name: s, kind: Secret, uid: a}]", "secrets[0].kind: removed\nsecrets[0].uid: removed"},
	}, func(o *corev1.ServiceAccount) []string { return testkinds.Changes(o, core.PrepareServiceAccount) })
}

func TestReplicationController(t *testing.T) {
	const rc = "{metadata: {name: r}, spec: {selector: {app: a}, template: {metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i}]}}}}"
	testkinds.Rules(t, rc, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "replicas: 2", ""},
		{"minReadySeconds is not negative", "minReadySeconds: -1", "minReadySeconds: Invalid value: -1: must be greater than or equal to 0"},
		{"replicas are not negative", "replicas: -1", "replicas: Invalid value: -1: must be greater than or equal to 0"},
		{"a selector is required", "selector: {}\ntemplate.metadata.labels: null", "selector: Required value"},
		{"a template is required", "template: null", "template: Required value"},
		{"a selector selects the template", "selector: {app: b}", "template.metadata.labels: Invalid value: {\"app\":\"a\"}: `selector` does not match template `labels`"},
		{"the template is checked", "template.spec.containers: []", "template.spec.containers: Required value"},
		{"Pods run on", "template.spec.restartPolicy: Never", `template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"`},
		{"Pods have no deadline", "template.spec.activeDeadlineSeconds: 5", "template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported"},
	}), func(o *corev1.ReplicationController) []string {
		core.DefaultReplicationController(o)
		return testkinds.Texts(core.ValidateReplicationController(o))
	})
	testkinds.Updates(t, rc, []testkinds.Update{
		{"status: not negative", "", "status: {replicas: -1, fullyLabeledReplicas: -2, readyReplicas: -2, availableReplicas: -2, observedGeneration: -1}", "status.replicas: Invalid value: -1: must be greater than or equal to 0\nstatus.fullyLabeledReplicas: Invalid value: -2: must be greater than or equal to 0\nstatus.readyReplicas: Invalid value: -2: must be greater than or equal to 0\nstatus.availableReplicas: Invalid value: -2: must be greater than or equal to 0\nstatus.observedGeneration: Invalid value: -1: must be greater than or equal to 0"},
		{"status: not more than replicas", "", "status: {replicas: 1, fullyLabeledReplicas: 2, readyReplicas: 2, availableReplicas: 2}", "status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas\nstatus.readyReplicas: Invalid value: 2: cannot be greater than status.replicas\nstatus.availableReplicas: Invalid value: 2: cannot be greater than status.replicas"},
		{"status: not more available than ready", "", "status: {replicas: 1, availableReplicas: 1}", "status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas"},
	}, func(o, old *corev1.ReplicationController) []string {
		return testkinds.Texts(core.ValidateReplicationControllerStatus(o, old))
	})
	testkinds.Updates(t, rc, []testkinds.Update{
		{"warnings are of the old template", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "spec.replicas: 2\nspec.template.spec.nodeSelector: null", `spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"no change, no warnings", "spec.template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "metadata.labels: {a: b}", ""},
	}, core.ReplicationControllerWarnings)
}

func TestPodTemplate(t *testing.T) {
	const base = "{metadata: {name: t}, template: {spec: {containers: [{name: c, image: i}]}}}"
	testkinds.Rules(t, base, []testkinds.Rule{
		{"the template is checked", "template.spec.containers: []", "template.spec.containers: Required value"},
	}, func(o *corev1.PodTemplate) []string {
		core.DefaultPodTemplate(o)
		return testkinds.Texts(core.ValidatePodTemplate(o))
	})
	testkinds.Updates(t, base, []testkinds.Update{
		{"a changed template is warned of", "", "template.spec.nodeSelector: {beta.kubernetes.io/os: a}", `template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead`},
		{"an unchanged one is not", "template.spec.nodeSelector: {beta.kubernetes.io/os: a}", "metadata.labels: {a: b}", ""},
	}, core.PodTemplateWarnings)
}
