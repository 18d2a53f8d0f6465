package builtin_test

import (
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	admission "github.com/tidemark-dev/tidemark/internal/builtin/admissionregistration"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const (
	webhookRule = "{operations: [CREATE], apiGroups: [''], apiVersions: [v1], resources: [pods]}"
	webhook     = "{metadata: {name: w}, webhooks: [{name: a.b.c, sideEffects: None, admissionReviewVersions: [v1], clientConfig: {url: 'https://a/b'}, rules: [" + webhookRule + "]}]}"
	binding     = "{metadata: {name: b}, spec: {policyName: p, validationActions: [Deny]}}"
)

func TestWebhooks(t *testing.T) {
	testkinds.Rules(t, webhook, testkinds.Below("webhooks[0]", []testkinds.Rule{
		{"a name has three parts", "name: a.b", `name: Invalid value: "a.b": should be a domain with at least three segments separated by dots`},

		{"failurePolicy is known", "failurePolicy: Any", `failurePolicy: Unsupported value: "Any": supported values: "Fail", "Ignore"`},
		{"matchPolicy is known", "matchPolicy: Any", `matchPolicy: Unsupported value: "Any": supported values: "Equivalent", "Exact"`},
		{"sideEffects are required", "sideEffects: null", "sideEffects: Required value: must specify one of None, NoneOnDryRun"},
		{"sideEffects are known", "sideEffects: Some", `sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"`},
		{"a timeout is 30 seconds at most", "timeoutSeconds: 31", "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"},
		{"a timeout is 1 second at least", "timeoutSeconds: 0", "timeoutSeconds: Invalid value: 0: the timeout value must be between 1 and 30 seconds"},
		{"selectors are valid", "namespaceSelector: {matchLabels: {a b: c}}\nobjectSelector: {matchLabels: {a b: c}}", "namespaceSelector.matchLabels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nobjectSelector.matchLabels: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		{"reinvocationPolicy is known", "reinvocationPolicy: Any", `reinvocationPolicy: Unsupported value: "Any": supported values: "IfNeeded", "Never"`},
		{"versions are required", "admissionReviewVersions: []", "admissionReviewVersions: Required value: must specify one of v1, v1beta1"},
		{"a version is known", "admissionReviewVersions: [v2]", `admissionReviewVersions: Invalid value: ["v2"]: must include at least one of v1, v1beta1`},
		{"versions are unique names", "admissionReviewVersions: [v1, v1, A]", "admissionReviewVersions[1]: Invalid value: \"v1\": duplicate version\nadmissionReviewVersions[2]: Invalid value: \"A\": a DNS-1035 label must consist of..."},
		{"a url or a service", "clientConfig: {}", "clientConfig: Required value: exactly one of url or service is required"},
		{"a url is one", "clientConfig: {url: '%'}", `clientConfig.url: Required value: url must be a valid URL: parse "%": invalid URL escape "%"; desired format: https://host[/path]`},
		{"a url is https and nothing else", "clientConfig: {url: 'http://a@/b?c#d'}", "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; desired format: https://host[/path]\nclientConfig.url: Invalid value: \"\": host must be specified; desired format: https://host[/path]\nclientConfig.url: Invalid value: \"a\": user information is not permitted in the URL\nclientConfig.url: Invalid value: \"d\": fragments are not permitted in the URL\nclientConfig.url: Invalid value: \"c\": query parameters are not permitted in the URL"},
		{"a service has names", "clientConfig: {service: {}}", "clientConfig.service.name: Required value\nclientConfig.service.namespace: Required value"},
		{"a service has a port", "clientConfig: {service: {namespace: a, name: b, port: 0}}", "clientConfig.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive"},
		{"a path begins with a slash", "clientConfig: {service: {namespace: a, name: b, path: c}}", "clientConfig.service.path: Invalid value: \"c\": must start with a '/'\nclientConfig.service.path: Invalid value: \"c\": segment[0] may not be empty"},
		{"a path has segments", "clientConfig: {service: {namespace: a, name: b, path: /c//d_e}}", "clientConfig.service.path: Invalid value: \"/c//d_e\": segment[1] may not be empty\nclientConfig.service.path: Invalid value: \"/c//d_e\": segment[2]: a lowercase RFC 1123 subdomain must consist of..."},
		{"conditions have names and expressions", "matchConditions: [{}, {name: a b, expression: 'true'}, {name: d, expression: 'true'}, {name: d, expression: 'true'}]", "matchConditions[0].expression: Required value\nmatchConditions[0].name: Required value\nmatchConditions[1].name: Invalid value: \"a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nmatchConditions[3].name: Duplicate value: \"d\""},
	}), func(c *admissionregistrationv1.MutatingWebhookConfiguration) []string {
		admission.DefaultMutatingWebhooks(c)
		return testkinds.Texts(admission.ValidateMutatingWebhooks(c))
	})
	const stored, undeclared = "webhooks[0].matchConditions: [{name: c, expression: x}]", "webhooks[0].matchConditions[0].expression: Invalid value: \"x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')..."
	testkinds.Updates(t, webhook, []testkinds.Update{
		{"update: stored conditions are not checked again", stored, "webhooks[0].timeoutSeconds: 3", ""},
		{"update: new conditions are checked", "", stored, undeclared},
		{"update: all conditions are checked when one changes", stored, "webhooks[0].matchConditions[1]: {name: d, expression: 'true'}", undeclared},
	}, func(c, old *admissionregistrationv1.MutatingWebhookConfiguration) []string {
		return testkinds.Texts(admission.ValidateMutatingWebhooksUpdate(c, old))
	})
	testkinds.Rules(t, webhook, testkinds.Below("webhooks[0].rules[0]", []testkinds.Rule{
		{"rule: required", ": {}", "operations: Required value\napiGroups: Required value\napiVersions: Required value\nresources: Required value"},
		{"rule: an operation is known", "operations: [GET]", `operations[0]: Unsupported value: "GET": supported values: "*", "CONNECT", "CREATE", "DELETE", "UPDATE"`},
		{"rule: a star is alone", "operations: ['*', CREATE]\napiGroups: ['*', a]\napiVersions: ['*', b]\nresources: ['*', c]", "operations: Invalid value: [\"*\",\"CREATE\"]: if '*' is present, must not specify other operations\napiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other API groups\napiVersions: Invalid value: [\"*\",\"b\"]: if '*' is present, must not specify other API versions\nresources: Invalid value: [\"*\",\"c\"]: if '*' is present, must not specify other resources without subresources"},
		{"rule: a version is not empty", "apiVersions: ['']", "apiVersions[0]: Required value"},
		{"rule: a resource is not empty", "resources: ['']", "resources[0]: Required value"},
		{"rule: all of both is alone", "resources: ['*/*', pods]", `resources: Invalid value: ["*/*","pods"]: if '*/*' is present, must not specify other resources`},
		{"rule: all subresources stand for each", "resources: ['pods/*', pods/status, '*/scale', apps/scale]", "resources[1]: Invalid value: \"pods/status\": if 'pods/*' is present, must not specify pods/status\nresources[3]: Invalid value: \"apps/scale\": if '*/scale' is present, must not specify apps/scale"},
		{"rule: a scope is known", "scope: Any", `scope: Unsupported value: "Any": supported values: "*", "Cluster", "Namespaced"`},
	}), func(c *admissionregistrationv1.ValidatingWebhookConfiguration) []string {
		admission.DefaultValidatingWebhooks(c)
		return testkinds.Texts(admission.ValidateValidatingWebhooks(c))
	})
	testkinds.Rules(t, webhook, []testkinds.Rule{
		{"default: mutating", "webhooks[0].clientConfig: {service: {namespace: a, name: b}}", "webhooks[0].clientConfig.service.port: 443\nwebhooks[0].failurePolicy: Fail\nwebhooks[0].matchPolicy: Equivalent\nwebhooks[0].namespaceSelector: {}\nwebhooks[0].objectSelector: {}\nwebhooks[0].reinvocationPolicy: Never\nwebhooks[0].rules[0].scope: *\nwebhooks[0].timeoutSeconds: 10"},
	}, func(c *admissionregistrationv1.MutatingWebhookConfiguration) []string {
		return testkinds.Changes(c, admission.DefaultMutatingWebhooks)
	})
}

func TestValidatingPolicy(t *testing.T) {
	testkinds.Rules(t, policyOf("validations"), testkinds.Below("spec", []testkinds.Rule{
		{"failurePolicy is known", "failurePolicy: Any", `failurePolicy: Unsupported value: "Any": supported values: "Fail", "Ignore"`},
		{"a match is required", "matchConstraints: null", "matchConstraints: Required value"},
		{"a rule is required", "matchConstraints: {}", "matchConstraints.resourceRules: Required value"},
		{"matchPolicy is known", "matchConstraints.matchPolicy: Any", `matchConstraints.matchPolicy: Unsupported value: "Any": supported values: "Equivalent", "Exact"`},
		{"names of a rule are segments, and unique", "matchConstraints.resourceRules[0].resourceNames: [a/b, c, c]", "matchConstraints.resourceRules[0].resourceNames[0]: Invalid value: \"a/b\": may not contain '/'\nmatchConstraints.resourceRules[0].resourceNames[2]: Duplicate value: \"c\""},
		{"excluded rules are checked", "matchConstraints.excludeResourceRules: [{}]", "matchConstraints.excludeResourceRules[0].operations: Required value\nmatchConstraints.excludeResourceRules[0].apiGroups: Required value\nmatchConstraints.excludeResourceRules[0].apiVersions: Required value\nmatchConstraints.excludeResourceRules[0].resources: Required value"},
		{"parameters have a kind", "paramKind: {}", "paramKind.apiVersion: Required value\nparamKind.kind: Required value"},
		{"parameters have a version", "paramKind: {apiVersion: A/1, kind: a b}", "paramKind.apiVersion: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of...\nparamKind.apiVersion: Invalid value: \"1\": a DNS-1035 label must consist of...\nparamKind.kind: Invalid value: \"a b\": may have mixed case, but should otherwise match: a DNS-1035 label must consist of..."},
		{"variables have names and expressions", "variables: [{}, {name: for, expression: '1'}]", "variables[0].name: Required value: name is not specified\nvariables[0].expression: Required value: expression is not specified\nvariables[1].name: Invalid value: \"for\": must be a valid CEL identifier"},
		{"a validation or an annotation", "validations: []", "validations: Required value: validations or auditAnnotations must contain at least one item\nauditAnnotations: Required value: validations or auditAnnotations must contain at least one item"},
		{"an expression is required", "validations: [{}]", "validations[0].expression: Required value: expression is not specified"},
		{"a message is one line", "validations: [{expression: 'true', message: \"b\\nc\"}]", `validations[0].message: Invalid value: "b\nc": must not contain line breaks`},
		{"a message is not blank", "validations: [{expression: 'true', message: ' ', messageExpression: ' '}]", "validations[0].messageExpression: Invalid value: \" \": must be non-empty if specified\nvalidations[0].message: Invalid value: \" \": must be non-empty if specified"},
		{"a reason is known", "validations: [{expression: 'true', reason: Any}]", `validations[0].reason: Unsupported value: "Any": supported values: "Forbidden", "Invalid", "RequestEntityTooLarge"`},
		{"annotations have keys and values", "auditAnnotations: [{key: a b}, {key: c, valueExpression: 'null'}, {key: c, valueExpression: 'null'}]", "auditAnnotations[0].key: Invalid value: \"p/a b\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')\nauditAnnotations[0].valueExpression: Required value: valueExpression is not specified\nauditAnnotations[2].key: Duplicate value: \"c\""},
	}), func(p *admissionregistrationv1.ValidatingAdmissionPolicy) []string {
		admission.DefaultValidatingPolicy(p)
		return testkinds.Texts(admission.ValidateValidatingPolicy(p))
	})
	const stored, undeclared = "spec.matchConditions: [{name: c, expression: x}]", "spec.matchConditions[0].expression: Invalid value: \"x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')..."
	testkinds.Updates(t, policyOf("validations"), []testkinds.Update{
		{"update: stored conditions are not checked again", stored, "metadata.labels: {a: b}", ""},
		{"update: new conditions are checked", "", stored, undeclared},
		{"update: other params count for all", stored, "spec.paramKind: {apiVersion: v1, kind: ConfigMap}", undeclared},
	}, func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) []string {
		admission.DefaultValidatingPolicy(p)
		return testkinds.Texts(admission.ValidateValidatingPolicyUpdate(p, old))
	})
	testkinds.Updates(t, policyOf("validations"), []testkinds.Update{
		{"status: warnings are whole", "", "status: {typeChecking: {expressionWarnings: [{}]}}", "status.typeChecking.expressionWarnings[0].warning: Required value\nstatus.typeChecking.expressionWarnings[0].fieldRef: Required value"},
	}, func(p, old *admissionregistrationv1.ValidatingAdmissionPolicy) []string {
		return testkinds.Texts(admission.ValidateValidatingPolicyStatus(p, old))
	})
}

func TestMutatingPolicy(t *testing.T) {
	testkinds.Rules(t, policyOf("mutations"), testkinds.Below("spec", []testkinds.Rule{
		{"nothing that is deleted", "matchConstraints.resourceRules[0].operations: [DELETE]", `matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`},
		{"a mutation is required", "mutations: []", "mutations: Required value: mutations must contain at least one item"},
		{"a type is required", "mutations: [{}]", "mutations[0].patchType: Required value"},
		{"a type is known", "mutations: [{patchType: Any}]", `mutations[0].patchType: Unsupported value: "Any": supported values: "ApplyConfiguration", "JSONPatch"`},
		{"a patch is required", "mutations: [{patchType: JSONPatch}]", "mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"},
		{"a configuration is required", "mutations: [{patchType: ApplyConfiguration, jsonPatch: {expression: a}}]", "mutations[0].applyConfiguration: Required value: must be specified when patchType is ApplyConfiguration\nmutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration"},
		{"an expression is required", "mutations: [{patchType: JSONPatch, jsonPatch: {}}]", "mutations[0].jsonPatch.expression: Required value"},
		{"reinvocationPolicy is required", "reinvocationPolicy: ''", "reinvocationPolicy: Required value"},
		{"reinvocationPolicy is known", "reinvocationPolicy: Any", `reinvocationPolicy: Unsupported value: "Any": supported values: "IfNeeded", "Never"`},
	}), func(p *admissionregistrationv1.MutatingAdmissionPolicy) []string {
		admission.DefaultMutatingPolicy(p)
		return testkinds.Texts(admission.ValidateMutatingPolicy(p))
	})
	const stored, undeclared = "spec.matchConditions: [{name: c, expression: x}]", "spec.matchConditions[0].expression: Invalid value: \"x\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'x' (in container '')..."
	testkinds.Updates(t, policyOf("mutations"), []testkinds.Update{
		{"update: stored conditions are not checked again", stored, "metadata.labels: {a: b}", ""},
		{"update: new conditions are checked", "", stored, undeclared},
		{"update: other params count for all", stored, "spec.paramKind: {apiVersion: v1, kind: ConfigMap}", undeclared},
	}, func(p, old *admissionregistrationv1.MutatingAdmissionPolicy) []string {
		admission.DefaultMutatingPolicy(p)
		return testkinds.Texts(admission.ValidateMutatingPolicyUpdate(p, old))
	})
}

// policyOf returns a valid policy: a validating one if what is "validations", else a mutating one.
func policyOf(what string) string {
	const start = "{metadata: {name: p}, spec: {matchConstraints: {resourceRules: [" + webhookRule + "]}, "
	if what == "validations" {
		return start + "validations: [{expression: 'true'}]}}"
	}
	return start + "mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: \"remove\", path: \"/a\"}]'}}], reinvocationPolicy: Never}}"
}

func TestPolicyBindings(t *testing.T) {
	testkinds.Rules(t, binding, testkinds.Below("spec", []testkinds.Rule{
		{"a policy is required", "policyName: ''", "policyName: Required value"},
		{"a policy is a name", "policyName: A", `policyName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"an action is required", "validationActions: []", "validationActions: Required value: at least one validation action is required"},
		{"an action is known", "validationActions: [Any]", `validationActions[0]: Unsupported value: "Any": supported values: "Audit", "Deny", "Warn"`},
		{"actions are unique", "validationActions: [Deny, Deny]", `validationActions[1]: Duplicate value: "Deny"`},
		{"not Deny and Warn", "validationActions: [Deny, Warn]", `validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)`},
		{"parameters: a name or a selector", "paramRef: {parameterNotFoundAction: Deny}", "paramRef: Required value: one of name or selector must be specified"},
		{"parameters: one of both", "paramRef: {name: a, selector: {}, parameterNotFoundAction: Deny}", "paramRef.name: Forbidden: name and selector are mutually exclusive\nparamRef.selector: Forbidden: name and selector are mutually exclusive"},
		{"parameters: an action is required", "paramRef: {name: a}", "paramRef.parameterNotFoundAction: Required value"},
		{"parameters: an action is known", "paramRef: {name: a/b, parameterNotFoundAction: Any}", "paramRef.name: Invalid value: \"a/b\": may not contain '/'\nparamRef.parameterNotFoundAction: Unsupported value: \"Any\": supported values: \"Deny\", \"Allow\""},
	}), func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) []string {
		admission.DefaultValidatingBinding(b)
		return testkinds.Texts(admission.ValidateValidatingBinding(b))
	})
	testkinds.Rules(t, "{metadata: {name: b}, spec: {policyName: p}}", []testkinds.Rule{
		{"mutating: nothing that is deleted", "spec.matchResources: {resourceRules: [{operations: [DELETE], apiGroups: [''], apiVersions: [v1], resources: [pods]}]}", `spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"`},
	}, func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) []string {
		admission.DefaultMutatingBinding(b)
		return testkinds.Texts(admission.ValidateMutatingBinding(b))
	})
}
