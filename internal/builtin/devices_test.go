package builtin_test

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/devices"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const (
	devicesClaim = `
metadata: {name: c}
spec:
  devices:
    requests:
    - {name: r, exactly: {deviceClassName: gpu}}
    - {name: s, firstAvailable: [{name: large, deviceClassName: gpu}, {name: small, deviceClassName: gpu}]}
`
	resourceSlice = `
metadata: {name: s}
spec:
  driver: d.example.com
  pool: {name: p, resourceSliceCount: 1}
  nodeName: a
  devices: [{name: d}]
`
	consumerUID = "01234567-89ab-cdef-0123-456789abcdef"
)

func TestDeviceClass(t *testing.T) {
	testkinds.Rules(t, "{metadata: {name: c}}", testkinds.Below("spec", []testkinds.Rule{
		{"valid", "selectors: [{cel: {expression: 'true'}}]\nconfig: [{opaque: {driver: a, parameters: {b: c}}}]\nextendedResourceName: a.b/c", ""},
		{"a selector has an expression", "selectors: [{}]", "selectors[0].cel: Required value"},
		{"an expression has 10 KiB", "selectors: [{cel: {expression: \"{a*10241}\"}}]", "selectors[0].cel.expression: Too long: may not be more than 10240 bytes"},
		{"32 selectors", "selectors: [" + devices33 + "]", "selectors: Too many: 33: must have at most 32 items"},
		{"32 configurations", "config: [" + devices33 + "]", "config: Too many: 33: must have at most 32 items"},
		{"a configuration is of a driver", "config: [{}]", "config[0].opaque: Required value"},
		{"a configuration names its driver", "config: [{opaque: {parameters: {}}}]", "config[0].opaque.driver: Required value"},
		{"a driver is a name", "config: [{opaque: {driver: a_b, parameters: {}}}]", `config[0].opaque.driver: Invalid value: "a_b": a lowercase RFC 1123 subdomain must consist of...`},
		{"a driver has 63 characters", "config: [{opaque: {driver: \"{a*64}\", parameters: {}}}]", "config[0].opaque.driver: Too long: may not be more than 63 bytes"},
		{"parameters are required", "config: [{opaque: {driver: a}}]", "config[0].opaque.parameters: Required value"},
		{"parameters are an object", "config: [{opaque: {driver: a, parameters: [1]}}]", `config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`},
		{"parameters have 10 KiB", "config: [{opaque: {driver: a, parameters: {b: \"{c*10240}\"}}}]", "config[0].opaque.parameters: Too long: may not be more than 10240 bytes"},
		{"an extended resource has a domain", "extendedResourceName: a", `extendedResourceName: Invalid value: "a": must be a valid extended resource name`},
		{"an extended resource is not of Kubernetes", "extendedResourceName: kubernetes.io/a", `extendedResourceName: Invalid value: "kubernetes.io/a": must be a valid extended resource name`},
		{"an extended resource is not a request", "extendedResourceName: requests.a.b/c", `extendedResourceName: Invalid value: "requests.a.b/c": must be a valid extended resource name`},
	}), func(c *resourcev1.DeviceClass) []string { return testkinds.Texts(devices.ValidateClass(c)) })
	testkinds.Updates(t, "{metadata: {name: c}}", []testkinds.Update{
		{"update: the new class is checked", "", "spec.selectors: [{}]", "spec.selectors[0].cel: Required value"},
	}, func(c, old *resourcev1.DeviceClass) []string {
		return testkinds.Texts(devices.ValidateClassUpdate(c, old))
	})
}

// items33 is more items than a list of requests, selectors or configurations may have.
var devices33 = strings.Repeat("{}, ", 33)

func TestDeviceClaim(t *testing.T) {
	validate := func(c *resourcev1.ResourceClaim) []string {
		devices.DefaultClaim(c)
		return testkinds.Texts(devices.ValidateClaim(c))
	}
	testkinds.Rules(t, devicesClaim, testkinds.Below("spec.devices", []testkinds.Rule{
		{"valid", "constraints: [{requests: [r, s/small], matchAttribute: a.b/c}]\nconfig: [{requests: [s], opaque: {driver: a, parameters: {}}}]", ""},
		{"32 requests", "requests: [" + devices33 + "]", "requests: Too many: 33: must have at most 32 items"},
		{"names of requests are unique", "requests[1].name: r", `requests[1]: Duplicate value: "r"`},
		{"a constraint has a request", "constraints: [{requests: [x], matchAttribute: a.b/c}]", `constraints[0].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`},
		{"a constraint has an alternative", "constraints: [{requests: [s/x], matchAttribute: a.b/c}]", `constraints[0].requests[0]: Invalid value: "s/x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`},
		{"a reference has two parts", "constraints: [{requests: [s/small/x], matchAttribute: a.b/c}]", `constraints[0].requests[0]: Invalid value: "s/small/x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`},
		{"references are unique", "constraints: [{requests: [r, r], matchAttribute: a.b/c}]", `constraints[0].requests[1]: Duplicate value: "r"`},
		{"a constraint is about an attribute", "constraints: [{}]", `constraints[0]: Required value: exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set`},
		{"an attribute has a domain", "constraints: [{matchAttribute: a}]", `constraints[0].matchAttribute: Invalid value: "a": a fully qualified name must be a domain and a name separated by a slash`},
		{"an attribute has a name", "constraints: [{matchAttribute: a/}]", `constraints[0].matchAttribute: Invalid value: "": the name must not be empty`},
		{"an attribute has no empty domain", "constraints: [{matchAttribute: /a}]", `constraints[0].matchAttribute: Invalid value: "": the domain must not be empty`},
		{"an attribute is an identifier", "constraints: [{distinctAttribute: a.b/c-d}]", `constraints[0].distinctAttribute: Invalid value: "c-d": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')`},
		{"an attribute has 32 characters", "constraints: [{distinctAttribute: \"a.b/{c*33}\"}]", "constraints[0].distinctAttribute: Too long: may not be more than 32 bytes"},
		{"a configuration has a request", "config: [{requests: [x], opaque: {driver: a, parameters: {}}}]", `config[0].requests[0]: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`},
		{"a configuration is of a driver", "config: [{}]", "config[0].opaque: Required value"},
	}), validate)
	testkinds.Rules(t, devicesClaim, testkinds.Below("spec.devices.requests[0]", []testkinds.Rule{
		{"a name is a label", "name: A", `name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"devices are asked for", "exactly: null", ": Required value: exactly one of `exactly` or `firstAvailable` is required"},
		{"devices are asked for in one way", "firstAvailable: [{name: a, deviceClassName: gpu}]", ": Invalid value: null: exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set"},
		{"a class is required", "exactly.deviceClassName: ''", "exactly.deviceClassName: Required value"},
		{"a class is a name", "exactly.deviceClassName: A", `exactly.deviceClassName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a selector has an expression", "exactly.selectors: [{}]", "exactly.selectors[0].cel: Required value"},
		{"a mode is known", "exactly.allocationMode: Some", `exactly.allocationMode: Unsupported value: "Some": supported values: "All", "ExactCount"`},
		{"all is no count", "exactly.allocationMode: All\nexactly.count: 2", "exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"},
		{"a count is positive", "exactly.count: -1", "exactly.count: Invalid value: -1: must be greater than zero"},
		{"tolerations: valid", "exactly.tolerations: [{key: a, value: b, effect: NoExecute}, {operator: Exists}]", ""},
		{"tolerations: a key is a label", "exactly.tolerations: [{key: a b}]", `exactly.tolerations[0].key: Invalid value: "a b": name part must consist of...`},
		{"tolerations: a value is a label", "exactly.tolerations: [{key: a, value: b c}]", `exactly.tolerations[0].value: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		{"tolerations: Exists has no value", "exactly.tolerations: [{operator: Exists, value: b}]", "exactly.tolerations[0].value: Invalid value: \"b\": must be empty for operator `Exists`"},
		{"tolerations: an operator is known", "exactly.tolerations: [{operator: Any}]", `exactly.tolerations[0].operator: Unsupported value: "Any": supported values: "Equal", "Exists"`},
		{"tolerations: an effect is known", "exactly.tolerations: [{key: a, effect: Any}]", `exactly.tolerations[0].effect: Unsupported value: "Any": supported values: "NoExecute", "NoSchedule", "None"`},
	}), validate)
	testkinds.Rules(t, devicesClaim, testkinds.Below("spec.devices.requests[1]", []testkinds.Rule{
		{"alternatives: names are unique", "firstAvailable[1].name: large", `firstAvailable[1]: Duplicate value: "large"`},
		{"alternatives: a name is a label", "firstAvailable[0].name: A", `firstAvailable[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"alternatives: a class is required", "firstAvailable[0].deviceClassName: ''", "firstAvailable[0].deviceClassName: Required value"},
	}), validate)
	testkinds.Rules(t, devicesClaim, testkinds.Below("spec.devices", []testkinds.Rule{
		{"default: one device", "requests[0].exactly.tolerations: [{key: a}]", "requests[0].exactly.allocationMode: ExactCount\nrequests[0].exactly.count: 1\nrequests[0].exactly.tolerations[0].operator: Equal\nrequests[1].firstAvailable[0].allocationMode: ExactCount\nrequests[1].firstAvailable[0].count: 1\nrequests[1].firstAvailable[1].allocationMode: ExactCount\nrequests[1].firstAvailable[1].count: 1"},
		{"default: fields of disabled features stay, since their managers own them", "requests[0].exactly: {allocationMode: All, derivedAttributes: [{name: a}]}\nrequests[1].firstAvailable: [{name: a, allocationMode: All, derivedAttributes: [{name: a}]}]", ""},
		{"default: no count of all", "requests[0].exactly.allocationMode: All", "requests[1].firstAvailable[0].allocationMode: ExactCount\nrequests[1].firstAvailable[0].count: 1\nrequests[1].firstAvailable[1].allocationMode: ExactCount\nrequests[1].firstAvailable[1].count: 1"},
	}), func(c *resourcev1.ResourceClaim) []string { return testkinds.Changes(c, devices.DefaultClaim) })
	testkinds.Updates(t, devicesClaim, []testkinds.Update{
		{"update: labels change", "", "metadata.labels: {a: b}", ""},
		{"update: the spec stays", "", "spec.devices.requests[0].exactly.count: 2", `spec: Invalid value: {"Devices":{"Requests":[{"Name":"r","Exactly":{"DeviceClassName":"gpu","Selectors":null,"AllocationMode":"","Count":2,"AdminAccess":null,"Tolerations":null,"Capacity":null,"DerivedAttributes":null},"FirstAvailable":null},{"Name":"s","Exactly":null,"FirstAvailable":[{"Name":"large","DeviceClassName":"gpu","Selectors":null,"AllocationMode":"","Count":0,"Tolerations":null,"Capacity":null,"DerivedAttributes":null},{"Name":"small","DeviceClassName":"gpu","Selectors":null,"AllocationMode":"","Count":0,"Tolerations":null,"Capacity":null,"DerivedAttributes":null}]}],"Constraints":null,"Config":null}}: field is immutable`},
	}, func(c, old *resourcev1.ResourceClaim) []string {
		return testkinds.Texts(devices.ValidateClaimUpdate(c, old))
	})
}

func TestDeviceClaimTemplate(t *testing.T) {
	const template = "{metadata: {name: t}, spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}}"
	testkinds.Rules(t, template, []testkinds.Rule{
		{"labels are checked", "spec.metadata.labels: {a b: c}", `spec.metadata.labels: Invalid value: "a b": name part must consist of...`},
		{"annotations are checked", "spec.metadata.annotations: {a b: c}", `spec.metadata.annotations: Invalid value: "a b": name part must consist of...`},
		{"the claim is checked", "spec.spec.devices.requests[0].name: A", `spec.spec.devices.requests[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
	}, func(c *resourcev1.ResourceClaimTemplate) []string {
		devices.DefaultTemplate(c)
		return testkinds.Texts(devices.ValidateTemplate(c))
	})
	testkinds.Updates(t, template, []testkinds.Update{
		{"update: the spec stays", "", "spec.spec.devices.requests[0].name: x", `spec: Invalid value: {"Spec":{"Devices":{"Requests":[{"Name":"x","Exactly":{"DeviceClassName":"gpu","Selectors":null,"AllocationMode":"ExactCount","Count":1,"AdminAccess":null,"Tolerations":null,"Capacity":null,"DerivedAttributes":null},"FirstAvailable":null}],"Constraints":null,"Config":null}}}: field is immutable`},
	}, func(c, old *resourcev1.ResourceClaimTemplate) []string {
		devices.DefaultTemplate(c)
		devices.DefaultTemplate(old)
		return testkinds.Texts(devices.ValidateTemplateUpdate(c, old))
	})
}

func validateSlice(s *resourcev1.ResourceSlice) []string {
	devices.DefaultSlice(s)
	return testkinds.Texts(devices.ValidateSlice(s))
}

func TestResourceSlice(t *testing.T) {
	testkinds.Rules(t, resourceSlice, testkinds.Below("spec", []testkinds.Rule{
		{"valid", "", ""},
		{"a driver is required", "driver: ''", "driver: Required value"},
		{"a pool is required", "pool.name: ''", "pool.name: Required value"},
		{"a pool has parts", "pool.name: a/B", `pool.name: Invalid value: "B": a lowercase RFC 1123 subdomain must consist of...`},
		{"a pool has 253 characters", "pool.name: \"{a*254}\"", "pool.name: Too long: may not be more than 253 bytes\npool.name: Invalid value: \"{a*254}\": must be no more than 253 characters"},
		{"a pool has slices", "pool.resourceSliceCount: 0", "pool.resourceSliceCount: Invalid value: 0: must be greater than zero"},
		{"a generation is not negative", "pool.generation: -1", "pool.generation: Invalid value: -1: must be greater than or equal to zero"},
		{"nodes are required", "nodeName: null", ": Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"},
		{"nodes are said in one way", "allNodes: true", ": Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"},
		{"a node is not empty", "nodeName: ''", "nodeName: Invalid value: \"\": must be either unset or set to a non-empty string\n: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"},
		{"a node is a name", "nodeName: A", `nodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a flag is true", "nodeName: null\nallNodes: false", "allNodes: Invalid value: false: must be either unset or set to true\n: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"},
		{"a selector has one term", "nodeName: null\nnodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}, {matchExpressions: [{key: b, operator: Exists}]}]}", `nodeSelector.nodeSelectorTerms: Invalid value: [{"MatchExpressions":[{"Key":"a","Operator":"Exists","Values":null}],"MatchFields":null},{"MatchExpressions":[{"Key":"b","Operator":"Exists","Values":null}],"MatchFields":null}]: must have exactly one node selector term`},
		{"a selector is checked", "nodeName: null\nnodeSelector: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Any}]}]}", `nodeSelector.nodeSelectorTerms[0].matchExpressions[0].operator: Invalid value: "Any": not a valid selector operator`},
		{"counters are in slices of their own", "sharedCounters: [{name: a, counters: {b: {value: 1}}}]", ": Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed"},
		{"sets of counters are unique", "devices: null\nsharedCounters: [{name: a, counters: {b: {value: 1}}}, {name: a, counters: {b: {value: 1}}}]", `sharedCounters[1]: Duplicate value: "a"`},
		{"a set of counters has a name", "devices: null\nsharedCounters: [{counters: {b: {value: 1}}}]", "sharedCounters[0].name: Required value"},
		{"a set of counters has counters", "devices: null\nsharedCounters: [{name: a}]", "sharedCounters[0].counters: Required value"},
		{"a counter is a label", "devices: null\nsharedCounters: [{name: a, counters: {B: {value: 1}}}]", `sharedCounters[0].counters: Invalid value: "B": a lowercase RFC 1123 label must consist of...`},
		{"devices are unique", "devices[1]: {name: d}", `devices[1]: Duplicate value: "d"`},
	}), validateSlice)
	testkinds.Updates(t, resourceSlice, testkinds.UpdatesBelow("spec", []testkinds.Update{
		{"update: devices change", "", "devices: [{name: e}]\npool.generation: 2", ""},
		{"update: an unchanged capacity is not checked", "devices[0]: {name: d, allowMultipleAllocations: true, capacity: {a: {value: 8, requestPolicy: {default: 1}}}}", "devices[0].allowMultipleAllocations: false", ""},
		{"update: an unchanged taint is not checked", "devices[0].taints: [{key: a b, effect: NoSchedule}]", "devices[0].allowMultipleAllocations: false", ""},
		{"update: a changed capacity is checked", "devices[0]: {name: d, capacity: {a: {value: 8}}}", "devices[0].capacity: {a: {value: 8, requestPolicy: {default: 1}}}", "devices[0].capacity[a].requestPolicy: Forbidden: allowMultipleAllocations must be true"},
		{"update: pool, driver and node stay", "", "pool.name: x\ndriver: x\nnodeName: x", "pool.name: Invalid value: \"x\": field is immutable\ndriver: Invalid value: \"x\": field is immutable\nnodeName: Invalid value: \"x\": field is immutable"},
	}), func(s, old *resourcev1.ResourceSlice) []string {
		return testkinds.Texts(devices.ValidateSliceUpdate(s, old))
	})
	testkinds.Rules(t, resourceSlice, []testkinds.Rule{
		{"default: a taint has a time", "spec.devices[0].taints: [{key: a, effect: NoSchedule}]", "spec.devices[0].taints[0].timeAdded: ..."},
		{"default: a time stays", "spec.devices[0].taints: [{key: a, effect: NoSchedule, timeAdded: 2020-01-01T00:00:00Z}]", ""},
	}, func(s *resourcev1.ResourceSlice) []string { return testkinds.Changes(s, devices.DefaultSlice) })
	testkinds.Rules(t, resourceSlice, []testkinds.Rule{
		{"warn: a driver is in lower case", "spec.driver: D.example.com", `spec.driver: driver names should be lowercase; "D.example.com" contains uppercase characters`},
	}, func(s *resourcev1.ResourceSlice) []string { return devices.SliceWarnings(s, nil) })
}

func TestSliceDevice(t *testing.T) {
	var attributes49 string
	for i := range 49 {
		attributes49 += fmt.Sprintf("a%d: {int: 1}, ", i)
	}
	testkinds.Rules(t, resourceSlice, testkinds.Below("spec.devices[0]", []testkinds.Rule{
		{"valid", "attributes: {a: {string: b}, c.d/e: {version: 1.2.3-rc.1+b}, f: {int: 1}, g: {bool: true}}\ncapacity: {a: {value: 1}}", ""},
		{"a name is a label", "name: A", `name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"an attribute is an identifier", "attributes: {a-b: {int: 1}}", `attributes: Invalid value: "a-b": a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')`},
		{"an attribute has a value", "attributes: {a: {}}", `attributes[a]: Invalid value: "": exactly one value must be specified`},
		{"an attribute has one value", "attributes: {a: {int: 1, bool: true}}", `attributes[a]: Invalid value: {"IntValue":1,"BoolValue":true,"StringValue":null,"VersionValue":null,"IntValues":null,"BoolValues":null,"StringValues":null,"VersionValues":null}: exactly one value must be specified`},
		{"an attribute has 64 characters", "attributes: {a: {string: \"{b*65}\"}}", "attributes[a].string: Too long: may not be more than 64 bytes"},
		{"a version has three numbers", "attributes: {a: {version: \"1.2\"}}", `attributes[a].version: Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0`},
		{"a version has no leading zeros", "attributes: {a: {version: 1.02.3}}", `attributes[a].version: Invalid value: "1.02.3": must be a string compatible with semver.org spec 2.0.0`},
		{"a version has no empty parts", "attributes: {a: {version: 1.2.3-a..b}}", `attributes[a].version: Invalid value: "1.2.3-a..b": must be a string compatible with semver.org spec 2.0.0`},
		{"a version has 64 characters", "attributes: {a: {version: \"1.2.3-{a*60}\"}}", "attributes[a].version: Too long: may not be more than 64 bytes"},
		{"48 values", "attributes: {" + attributes49 + "}", ": Invalid value: 49: the total number of attributes and capacities must not exceed 32\n: Invalid value: 49: the total number of attribute values must not exceed 48"},
		{"a taint has a key", "taints: [{effect: NoSchedule}]", "taints[0].key: Invalid value: \"\": name part must be non-empty\ntaints[0].key: Invalid value: \"\": name part must consist of..."},
		{"a taint has a label as its value", "taints: [{key: a, value: b c, effect: NoSchedule}]", `taints[0].value: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		{"a taint has an effect", "taints: [{key: a}]", "taints[0].effect: Required value"},
		{"a taint has a known effect", "taints: [{key: a, effect: Any}]", `taints[0].effect: Unsupported value: "Any": supported values: "NoExecute", "NoSchedule", "None"`},
		{"sets of counters are unique", "consumesCounters: [{counterSet: a, counters: {b: {value: 1}}}, {counterSet: a, counters: {b: {value: 1}}}]", `consumesCounters[1]: Duplicate value: "a"`},
		{"a set of counters is named", "consumesCounters: [{counters: {b: {value: 1}}}]", "consumesCounters[0].counterSet: Required value"},
		{"nodes are those of the slice", "allNodes: true", ": Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"},
		{"nodes are those of each device", "spec.nodeName: null\nspec.perDeviceNodeSelection: true", ": Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"},
		{"nodes are said in one way", "spec.nodeName: null\nspec.perDeviceNodeSelection: true\nallNodes: true\nnodeName: a", ": Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"},
		{"conditions: valid", "bindingConditions: [a]\nbindingFailureConditions: [b]", ""},
		{"conditions: labels", "bindingConditions: [a b]\nbindingFailureConditions: [c d]", "bindingConditions[0]: Invalid value: \"a b\": name part must consist of...\nbindingFailureConditions[0]: Invalid value: \"c d\": name part must consist of..."},
		{"conditions: both or none", "bindingConditions: [a]", "bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions"},
		{"conditions: none or both", "bindingFailureConditions: [a]", "bindingConditions: Invalid value: null: bindingConditions are required to use bindingFailureConditions"},
		{"conditions: unique", "bindingConditions: [a, a]\nbindingFailureConditions: [b, b]", "bindingConditions[1]: Duplicate value: \"a\"\nbindingFailureConditions[1]: Duplicate value: \"b\""},
		{"conditions: apart", "bindingConditions: [a]\nbindingFailureConditions: [a]", `bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`},
		{"conditions: four", "bindingConditions: [a, b, c, d, e]\nbindingFailureConditions: [f, g, h, i, j]", "bindingConditions: Too many: 5: must have at most 4 items\nbindingFailureConditions: Too many: 5: must have at most 4 items"},
	}), validateSlice)
	testkinds.Rules(t, resourceSlice, testkinds.Below("spec.devices[0]", []testkinds.Rule{
		{"shares: a policy is of shared devices", "allowMultipleAllocations: false\ncapacity: {a: {value: 8, requestPolicy: {default: 1}}}", "capacity[a].requestPolicy: Forbidden: allowMultipleAllocations must be true"},
		{"shares: one policy", "capacity: {a: {value: 8, requestPolicy: {default: 1, validValues: [1], validRange: {min: 1}}}}", `capacity[a].requestPolicy: Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`},
		{"values: a default is required", "capacity: {a: {value: 8, requestPolicy: {validValues: [1]}}}", "capacity[a].requestPolicy.default: Required value: required when validValues is defined"},
		{"values: sorted", "capacity: {a: {value: 8, requestPolicy: {default: 1, validValues: [2, 1]}}}", `capacity[a].requestPolicy.validValues[1]: Invalid value: "1": values must be sorted in ascending order`},
		{"values: unique", "capacity: {a: {value: 8, requestPolicy: {default: 1, validValues: [1, 1]}}}", `capacity[a].requestPolicy.validValues[1]: Duplicate value: "1"`},
		{"values: not more than there is", "capacity: {a: {value: 8, requestPolicy: {default: 1, validValues: [1, 9]}}}", `capacity[a].requestPolicy.validValues[1]: Invalid value: "9": option is larger than capacity value: 8`},
		{"values: the default is one", "capacity: {a: {value: 8, requestPolicy: {default: 2, validValues: [1]}}}", `capacity[a].requestPolicy.validValues: Invalid value: "2": default value is not valid according to the requestPolicy`},
		{"values: ten", "capacity: {a: {value: 99, requestPolicy: {default: 1, validValues: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]}}}", "capacity[a].requestPolicy.validValues: Too many: 11: must have at most 10 items"},
		{"range: valid", "capacity: {a: {value: 8, requestPolicy: {default: 3, validRange: {min: 1, max: 5, step: 2}}}}", ""},
		{"range: a default is required", "capacity: {a: {value: 8, requestPolicy: {validRange: {min: 1}}}}", "capacity[a].requestPolicy.default: Required value: required when validRange is defined"},
		{"range: a least is required", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {}}}}", "capacity[a].requestPolicy.validRange.min: Required value: required when validRange is defined"},
		{"range: the least is there", "capacity: {a: {value: 8, requestPolicy: {default: 9, validRange: {min: 9}}}}", `capacity[a].requestPolicy.validRange.min: Invalid value: "9": min is larger than capacity value: 8`},
		{"range: the default is not below", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: 2}}}}", `capacity[a].requestPolicy.validRange.default: Invalid value: "1": default is less than min: 2`},
		{"range: the most is there", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: 1, max: 9}}}}", `capacity[a].requestPolicy.validRange.max: Invalid value: "9": max is larger than capacity value: 8`},
		{"range: the most is not below the least", "capacity: {a: {value: 8, requestPolicy: {default: 3, validRange: {min: 3, max: 2}}}}", "capacity[a].requestPolicy.validRange.max: Invalid value: \"3\": min is larger than max: 2\ncapacity[a].requestPolicy.validRange.default: Invalid value: \"3\": default is more than max: 2"},
		{"range: the default is not above", "capacity: {a: {value: 8, requestPolicy: {default: 5, validRange: {min: 1, max: 4}}}}", `capacity[a].requestPolicy.validRange.default: Invalid value: "5": default is more than max: 4`},
		{"range: a step is there", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: 1, step: 8}}}}", `capacity[a].requestPolicy.validRange.step: Invalid value: "8": one step 9 is larger than capacity value: 8`},
		{"range: the default is whole steps", "capacity: {a: {value: 8, requestPolicy: {default: 2, validRange: {min: 1, step: 2}}}}", `capacity[a].requestPolicy.validRange.step: Invalid value: "2": value is not a multiple of a given step (2) from (1)`},
		{"range: steps of a half", "capacity: {a: {value: 8, requestPolicy: {default: 2500m, validRange: {min: 1, max: 4, step: 500m}}}}", ""},
		{"range: the default is whole steps of a half", "capacity: {a: {value: 8, requestPolicy: {default: 1200m, validRange: {min: 1, step: 500m}}}}", `capacity[a].requestPolicy.validRange.step: Invalid value: "1200m": value is not a multiple of a given step (500m) from (1)`},
		{"range: fractions have three digits", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: 100u, step: 1}}}}", `capacity[a].requestPolicy.validRange.min: Invalid value: "100u": value cannot be represented as a milli value`},
		{"range: a step is positive", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: 1, step: 0}}}}", `capacity[a].requestPolicy.validRange.step: Invalid value: "0": must be greater than zero`},
		{"range: a bound is not negative", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: -1, step: 1}}}}", `capacity[a].requestPolicy.validRange.min: Invalid value: "-1": must be greater than or equal to 0`},
		{"values: unique with their fractions", "capacity: {a: {value: 8, requestPolicy: {default: 1, validValues: [500m, 1]}}}", ""},
		{"range: the most is whole steps", "capacity: {a: {value: 8, requestPolicy: {default: 1, validRange: {min: 1, max: 4, step: 2}}}}", `capacity[a].requestPolicy.validRange.step: Invalid value: "4": value is not a multiple of a given step (2) from (1)`},
	}), func(s *resourcev1.ResourceSlice) []string {
		if d := &s.Spec.Devices[0]; d.AllowMultipleAllocations == nil {
			d.AllowMultipleAllocations = new(bool)
			*d.AllowMultipleAllocations = true
		}
		return validateSlice(s)
	})
}

func TestDeviceClaimStatus(t *testing.T) {
	const (
		device    = "{request: r, driver: a.b, pool: p, device: d}"
		allocated = "allocation: {devices: {results: [" + device + "]}}\n"
		status    = "{driver: a.b, pool: p, device: d}"
	)
	testkinds.Updates(t, devicesClaim, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"it is allocated", "", allocated, ""},
		{"it is reserved", allocated, "reservedFor: [{resource: pods, name: a, uid: u}]", ""},
		{"an allocation stays", allocated, "allocation.devices.results[0].device: x", `allocation: Invalid value: {"Devices":{"Results":[{"Request":"r","Driver":"a.b","Pool":"p","Device":"x","AdminAccess":null,"Tolerations":null,"BindingConditions":null,"BindingFailureConditions":null,"ShareID":null,"ConsumedCapacity":null,"SkipNodeOperations":null}],"Config":null},"NodeSelector":null,"AllocationTimestamp":null}: field is immutable`},
		{"an allocation goes", allocated, "allocation: null", ""},
		{"a result is of a request", "", allocated + "allocation.devices.results[0].request: x", `allocation.devices.results[0].request: Invalid value: "x": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`},
		{"a result has a driver", "", allocated + "allocation.devices.results[0].driver: ''", "allocation.devices.results[0].driver: Required value"},
		{"a result has a pool", "", allocated + "allocation.devices.results[0].pool: A", `allocation.devices.results[0].pool: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"a result has a device", "", allocated + "allocation.devices.results[0].device: A", `allocation.devices.results[0].device: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"a result has conditions for both ends", "", allocated + "allocation.devices.results[0].bindingConditions: [a]", "allocation.devices.results[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions"},
		{"a share is a UUID", "", allocated + "allocation.devices.results[0].shareID: a", `allocation.devices.results[0].shareID: Invalid value: "a": error validating uid: invalid UUID length: 1`},
		{"a share is in lower case", "", allocated + "allocation.devices.results[0].shareID: 01234567-89AB-CDEF-0123-456789ABCDEF", "allocation.devices.results[0].shareID: Invalid value: \"01234567-89AB-CDEF-0123-456789ABCDEF\": uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters"},
		{"a share has hyphens", "", allocated + "allocation.devices.results[0].shareID: 01234567a89ab-cdef-0123-456789abcdef", `allocation.devices.results[0].shareID: Invalid value: "01234567a89ab-cdef-0123-456789abcdef": error validating uid: invalid UUID format`},
		{"a configuration has a source", "", allocated + "allocation.devices.config: [{opaque: {driver: a, parameters: {}}}]", "allocation.devices.config[0].source: Required value"},
		{"a configuration has a known source", "", allocated + "allocation.devices.config: [{source: Any, opaque: {driver: a, parameters: {}}}]", `allocation.devices.config[0].source: Unsupported value: "Any": supported values: "FromClaim", "FromClass"`},
		{"nodes are checked", "", allocated + "allocation.nodeSelector: {nodeSelectorTerms: []}", "allocation.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term"},
		{"reserved: only what is allocated", "", "reservedFor: [{resource: pods, name: a, uid: u}]", "reservedFor: Forbidden: may not be specified when `allocated` is not set"},
		{"reserved: required", allocated, "reservedFor: [{}]", "reservedFor[0].resource: Required value\nreservedFor[0].name: Required value\nreservedFor[0].uid: Required value"},
		{"reserved: unique", allocated, "reservedFor: [{resource: pods, name: a, uid: u}, {resource: pods, name: b, uid: u}]", `reservedFor[1]: Duplicate value: "u"`},
		{"reserved: not while it is deleted", "metadata.deletionTimestamp: 2020-01-01T00:00:00Z\n" + allocated, "reservedFor: [{resource: pods, name: a, uid: u}]", "reservedFor: Forbidden: new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"},
		{"devices: valid", allocated, "devices: [" + status + "]", ""},
		{"devices: allocated ones", allocated, "devices: [{driver: a.b, pool: p, device: x}]", `devices[0]: Invalid value: {"Driver":"a.b","Pool":"p","Device":"x","ShareID":""}: must be an allocated device in the claim`},
		{"devices: unique", allocated, "devices: [" + status + ", " + status + "]", `devices[1]: Duplicate value: {"Driver":"a.b","Pool":"p","Device":"d","ShareID":""}`},
		{"devices: a share is another device", allocated, "devices: [{driver: a.b, pool: p, device: d, shareID: " + consumerUID + "}]", `devices[0]: Invalid value: {"Driver":"a.b","Pool":"p","Device":"d","ShareID":"01234567-89ab-cdef-0123-456789abcdef"}: must be an allocated device in the claim`},
		{"devices: names", allocated, "devices: [{driver: '', pool: '', device: A}]", "devices[0].driver: Required value\ndevices[0].pool: Required value\ndevices[0].device: Invalid value: \"A\": a lowercase RFC 1123 label must consist of...\ndevices[0]: Invalid value: {\"Driver\":\"\",\"Pool\":\"\",\"Device\":\"A\",\"ShareID\":\"\"}: must be an allocated device in the claim"},
		{"devices: conditions are checked", allocated, "devices: [" + status + "]\ndevices[0].conditions: [{type: a}]", "devices[0].conditions[0].status: Required value\ndevices[0].conditions[0].lastTransitionTime: Required value\ndevices[0].conditions[0].reason: Required value"},
		{"devices: data are an object", allocated, "devices: [" + status + "]\ndevices[0].data: [1]", `devices[0].data: Invalid value: "<value omitted>": must be a valid JSON object`},
		{"devices: addresses", allocated, "devices: [" + status + "]\ndevices[0].networkData: {ips: [a, 10.0.0.1/24, 10.0.0.1/24]}", "devices[0].networkData.ips[0]: Invalid value: \"a\": must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)\ndevices[0].networkData.ips[2]: Duplicate value: \"10.0.0.1/24\""},
		{"devices: an interface has 256 characters", allocated, "devices: [" + status + "]\ndevices[0].networkData: {interfaceName: \"{a*257}\", hardwareAddress: \"{a*129}\"}", "devices[0].networkData.interfaceName: Too long: may not be more than 256 bytes\ndevices[0].networkData.hardwareAddress: Too long: may not be more than 128 bytes"},
	}), func(c, old *resourcev1.ResourceClaim) []string {
		return testkinds.Texts(devices.ValidateClaimStatus(c, old))
	})
	testkinds.Updates(t, devicesClaim, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"set: devices go with the allocation", allocated + "devices: [" + status + "]", "allocation: null", "allocation.devices.results[0].device: removed\nallocation.devices.results[0].driver: removed\nallocation.devices.results[0].pool: removed\nallocation.devices.results[0].request: removed\ndevices[0].conditions: removed\ndevices[0].device: removed\ndevices[0].driver: removed\ndevices[0].pool: removed\n: {}"},
		{"set: devices stay with the allocation", allocated + "devices: [" + status + "]", "metadata.labels: {a: b}", ""},
	}), func(sent, old *resourcev1.ResourceClaim) []string {
		return testkinds.Changes(old, func(c *resourcev1.ResourceClaim) { devices.SetClaimStatus(c, sent) })
	})
}
