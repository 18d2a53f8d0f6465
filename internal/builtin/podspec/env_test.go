package podspec_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestEnv(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0].env[0]", []testkinds.Rule{
		{"a value", ": {name: A, value: b}", ""},
		{"a name is required", ": {value: b}", "name: Required value"},
		{"a name has no =", ": {name: A=, value: b}", `name: Invalid value: "A=": a valid environment variable name must consist only of printable ASCII characters other than '='`},
		{"one source", ": {name: A, valueFrom: {}}", "valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"},
		{"no value beside a source", ": {name: A, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}", "valueFrom: Invalid value: \"\": may not be specified when `value` is not empty"},
		{"no two sources", ": {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}", `valueFrom: Invalid value: "": may not have more than one field specified at a time`},
		{"a field is required", ": {name: A, valueFrom: {fieldRef: {}}}", "valueFrom.fieldRef.fieldPath: Required value"},
		{"a field of version 1", ": {name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}", `valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2`},
		{"a field exists", ": {name: A, valueFrom: {fieldRef: {fieldPath: spec.x}}}", `valueFrom.fieldRef.fieldPath: Invalid value: "spec.x": error converting fieldPath: field label not supported: spec.x`},
		{"a field is one for environments", ": {name: A, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}", `valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`},
		{"the old name of the node", ": {name: A, valueFrom: {fieldRef: {fieldPath: spec.host}}}", ""},
		{"one label", ": {name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a/b']\"}}}", ""},
		{"a label has a valid key", ": {name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['']\"}}}", "valueFrom.fieldRef: Invalid value: \"\": name part must be non-empty\nvalueFrom.fieldRef: Invalid value: \"\": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		{"an annotation has a valid key", ": {name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['a b']\"}}}", `valueFrom.fieldRef: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"an annotation in capitals", ": {name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.annotations['Example.COM/a']\"}}}", ""},
		{"only labels and annotations have keys", ": {name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.name['a']\"}}}", `valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name['a']": error converting fieldPath: field label does not support subscript: metadata.name['a']`},
		{"a resource", ": {name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 1m}}}", ""},
		{"a resource is required", ": {name: A, valueFrom: {resourceFieldRef: {}}}", "valueFrom.resourceFieldRef.resource: Required value"},
		{"a resource is known", ": {name: A, valueFrom: {resourceFieldRef: {resource: limits.disk}}}", `valueFrom.resourceFieldRef.resource: Unsupported value: "limits.disk": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory"`},
		{"a divisor of cpu", ": {name: A, valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: 10m}}}", `valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource`},
		{"a divisor of memory", ": {name: A, valueFrom: {resourceFieldRef: {resource: requests.memory, divisor: 1m}}}", `valueFrom.resourceFieldRef.divisor: Invalid value: "requests.memory": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource`},
		{"a divisor of storage", ": {name: A, valueFrom: {resourceFieldRef: {resource: limits.ephemeral-storage, divisor: 2}}}", `valueFrom.resourceFieldRef.divisor: Invalid value: "limits.ephemeral-storage": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource`},
		{"a divisor of huge pages", ": {name: A, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 2}}}", `valueFrom.resourceFieldRef.divisor: Invalid value: "limits.hugepages-2Mi": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource`},
		{"a ConfigMap has a name", ": {name: A, valueFrom: {configMapKeyRef: {key: k}}}", `valueFrom.configMapKeyRef.name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of...`},
		{"a key of a ConfigMap is required", ": {name: A, valueFrom: {configMapKeyRef: {name: m}}}", "valueFrom.configMapKeyRef.key: Required value"},
		{"a key of a Secret is valid", ": {name: A, valueFrom: {secretKeyRef: {name: s, key: a/b}}}", `valueFrom.secretKeyRef.key: Invalid value: "a/b": a valid config key must consist of...`},
		{"a file", "spec.volumes: [{name: v}]\n: {name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: K}}}", ""},
		{"a file needs its parts", ": {name: A, valueFrom: {fileKeyRef: {}}}", "valueFrom.fileKeyRef.key: Required value\nvalueFrom.fileKeyRef.volumeName: Required value\nvalueFrom.fileKeyRef.path: Required value\nvalueFrom.fileKeyRef.volumeName: Not found: \"\""},
		{"a file has a valid key", "spec.volumes: [{name: v}]\n: {name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: a=}}}", `valueFrom.fileKeyRef.key: Invalid value: "a=": a valid environment variable name must consist only of printable ASCII characters other than '='`},
		{"a file stays in the volume", "spec.volumes: [{name: v}]\n: {name: A, valueFrom: {fileKeyRef: {volumeName: v, path: ../p, key: K}}}", `valueFrom.fileKeyRef.path: Invalid value: "../p": must not contain '..'`},
		{"a file is in a volume that exists", ": {name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: K}}}", `valueFrom.fileKeyRef.volumeName: Not found: "v"`},
		{"a file is in an emptyDir", "spec.volumes: [{name: v, hostPath: {path: /}}]\n: {name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: K}}}", `valueFrom.fileKeyRef.volumeName: Invalid value: "v": referenced volume must be of type emptyDir`},
	}), podErrors)
}

func TestEnvFrom(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0].envFrom[0]", []testkinds.Rule{
		{"a ConfigMap", ": {prefix: A_, configMapRef: {name: m}}", ""},
		{"a prefix is the start of a name", ": {prefix: A=, configMapRef: {name: m}}", `prefix: Invalid value: "A=": a valid environment variable name must consist only of printable ASCII characters other than '='`},
		{"a ConfigMap has a name", ": {configMapRef: {}}", "configMapRef.name: Required value"},
		{"a Secret has a name", ": {secretRef: {}}", "secretRef.name: Required value"},
		{"a name is valid", ": {secretRef: {name: A}}", `secretRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"one source", ": {}", "spec.containers[0].envFrom: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`"},
		{"no two sources", ": {configMapRef: {name: m}, secretRef: {name: s}}", `spec.containers[0].envFrom: Invalid value: "": may not have more than one field specified at a time`},
	}), podErrors)
}
