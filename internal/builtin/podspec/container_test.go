package podspec_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestContainers(t *testing.T) {
	testkinds.Rules(t, pod, []testkinds.Rule{
		{"valid", "spec.containers[0].ports: [{containerPort: 80, name: http}]", ""},
		{"there is one at least", "spec.containers: []", "spec.containers: Required value"},
		{"a name is required", "spec.containers[0].name: \"\"", "spec.containers[0].name: Required value"},
		{"a name is a label", "spec.containers[0].name: A", `spec.containers[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"names are unique", "spec.containers[1]: {name: c, image: i}", `spec.containers[1].name: Duplicate value: "c"`},
		{"an image is required", "spec.containers[0].image: \"\"", "spec.containers[0].image: Required value"},
		{"an image has no space around it", "spec.containers[0].image: \" app\"", `spec.containers[0].image: Invalid value: " app": must not have leading or trailing whitespace`},
		{"terminationMessagePolicy is known", "spec.containers[0].terminationMessagePolicy: Console", `spec.containers[0].terminationMessagePolicy: Unsupported value: "Console": supported values: "File", "FallbackToLogsOnError"`},
		{"imagePullPolicy is known", "spec.containers[0].imagePullPolicy: Sometimes", `spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"`},
	}, podErrors)
}

func TestPorts(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"a port is required", "ports: [{}]", "ports[0].containerPort: Required value"},
		{"a port is at most 65535", "ports: [{containerPort: 65536}]", "ports[0].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"a port is not negative", "ports: [{containerPort: -1}]", "ports[0].containerPort: Invalid value: -1: must be between 1 and 65535, inclusive"},
		{"a name has a letter", "ports: [{containerPort: 80, name: \"1\"}]", `ports[0].name: Invalid value: "1": must contain at least one letter (a-z)`},
		{"a name has 15 characters", "ports: [{containerPort: 80, name: \"{a*16}\"}]", `ports[0].name: Invalid value: "aaaaaaaaaaaaaaaa": must be no more than 15 characters`},
		{"names are unique", "ports: [{containerPort: 80, name: a}, {containerPort: 81, name: a}]", `ports[1].name: Duplicate value: "a"`},
		{"a host port is at most 65535", "ports: [{containerPort: 80, hostPort: 65536}]", "ports[0].hostPort: Invalid value: 65536: must be between 1 and 65535, inclusive"},
		{"a protocol is known", "ports: [{containerPort: 80, protocol: tcp}]", `ports[0].protocol: Unsupported value: "tcp": supported values: "SCTP", "TCP", "UDP"`},
		{"host ports are unique", "ports: [{containerPort: 80, hostPort: 90}, {containerPort: 81, hostPort: 90}]", `ports[1].hostPort: Duplicate value: "TCP//90"`},
		{"host ports of two protocols", "ports: [{containerPort: 80, hostPort: 90}, {containerPort: 81, hostPort: 90, protocol: UDP}]", ""},
		{"host ports of two addresses", "ports: [{containerPort: 80, hostPort: 90}, {containerPort: 81, hostPort: 90, hostIP: 10.0.0.1}]", ""},
		{"in the host's network they are the host's", "spec.hostNetwork: true\nports: [{containerPort: 80, hostPort: 81}]", "ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"},
	}), podErrors)
}

func TestResizePolicies(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"valid", "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: memory, restartPolicy: RestartContainer}]", ""},
		{"resources are unique", "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]", `resizePolicy[1]: Duplicate value: "cpu"`},
		{"a resource is required", "resizePolicy: [{restartPolicy: NotRequired}]", "resizePolicy: Required value"},
		{"a resource is cpu or memory", "resizePolicy: [{resourceName: disk, restartPolicy: NotRequired}]", `resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory"`},
		{"a policy is known", "resizePolicy: [{resourceName: cpu, restartPolicy: Never}]", `resizePolicy: Unsupported value: "Never": supported values: "NotRequired", "RestartContainer"`},
		{"Pods that never restart do not for this", "spec.restartPolicy: Never\nresizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]", "resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' when pod `restartPolicy` is 'Never'"},
	}), podErrors)
}

func TestRestartRules(t *testing.T) {
	rule := "{action: Restart, exitCodes: {operator: In, values: [1]}}"
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"valid", "restartPolicy: Never\nrestartPolicyRules: [" + rule + "]", ""},
		{"a policy is known", "restartPolicy: Sometimes", `restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"`},
		{"rules need a policy", "restartPolicyRules: [" + rule + "]", "restartPolicy: Required value: must specify restartPolicy when restart rules are used"},
		{"an action is known", "restartPolicy: Never\nrestartPolicyRules: [{action: Stop, exitCodes: {operator: In}}]", `restartPolicyRules[0].action: Unsupported value: "Stop": supported values: "Restart", "RestartAllContainers"`},
		{"exit codes are required", "restartPolicy: Never\nrestartPolicyRules: [{action: Restart}]", "restartPolicyRules[0].exitCodes: Required value: must be specified"},
		{"an operator is known", "restartPolicy: Never\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: Is}}]", `restartPolicyRules[0].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn"`},
		{"20 rules", "restartPolicy: Never\nrestartPolicyRules: [" + strings.Repeat(rule+",", 21) + "]", "restartPolicyRules: Too many: 21: must have at most 20 items"},
		{"255 exit codes", "restartPolicy: Never\nrestartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [" + strings.Repeat("1,", 256) + "]}}]", "restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items"},
		{"rules of an init container need a policy", "spec.initContainers: [{name: i, image: i, restartPolicyRules: [" + rule + "]}]", "spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used"},
	}), podErrors)
}

func TestInitContainers(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.initContainers[0]", []testkinds.Rule{
		{"valid", ": {name: i, image: i}", ""},
		{"a sidecar has probes and hooks", ": {name: i, image: i, restartPolicy: Always, livenessProbe: {tcpSocket: {port: 80}}, lifecycle: {preStop: {exec: {command: [a]}}}}", ""},
		{"probes of a sidecar are checked", ": {name: i, image: i, restartPolicy: Always, livenessProbe: {}}", "livenessProbe: Required value: must specify a handler type"},
		{"a name is required", ": {image: i}", "name: Required value"},
		{"a name is not that of a container", ": {name: c, image: i}", `name: Duplicate value: "c"`},
		{"no space around the image", ": {name: i, image: \"i \"}", `image: Invalid value: "i ": must not have leading or trailing whitespace`},
		{"a policy is known", ": {name: i, image: i, restartPolicy: Often}", `restartPolicy: Unsupported value: "Often": supported values: "Always", "Never", "OnFailure"`},
		{"no lifecycle", ": {name: i, image: i, lifecycle: {}}", "lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always"},
		{"no livenessProbe", ": {name: i, image: i, livenessProbe: {}}", "livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
		{"no readinessProbe", ": {name: i, image: i, readinessProbe: {}}", "readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
		{"no startupProbe", ": {name: i, image: i, startupProbe: {}}", "startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always"},
		{"no restart for a resize", ": {name: i, image: i, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}", `resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers`},
		{"host ports are unique", ": {name: i, image: i, ports: [{containerPort: 80, hostPort: 80}, {containerPort: 81, hostPort: 80}]}", `ports[1].hostPort: Duplicate value: "TCP//80"`},
		{"two may have the same host port", ": {name: i, image: i, ports: [{containerPort: 80, hostPort: 80}]}\nspec.initContainers[1]: {name: j, image: i, ports: [{containerPort: 80, hostPort: 80}]}", ""},
	}), podErrors)
}

func TestEphemeralContainers(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.ephemeralContainers[0]", []testkinds.Rule{
		{"valid", ": {name: e, image: i, targetContainerName: c}", ""},
		{"an image is required", ": {name: e}", "image: Required value"},
		{"no space around the image", ": {name: e, image: \"i \"}", `image: Invalid value: "i ": must not have leading or trailing whitespace`},
		{"a name is not that of a container", ": {name: c, image: i}", `name: Duplicate value: "c"`},
		{"names are unique", ": {name: e, image: i}\nspec.ephemeralContainers[1]: {name: e, image: i}", `spec.ephemeralContainers[1].name: Duplicate value: "e"`},
		{"an unnamed one is as an unnamed init container", "spec.initContainers: [{image: i}]\n: {image: i}", "spec.initContainers[0].name: Required value\nname: Required value\nname: Duplicate value: \"\""},
		{"a target exists", ": {name: e, image: i, targetContainerName: x}", `targetContainerName: Not found: "x"`},
		{"no ports", ": {name: e, image: i, ports: [{containerPort: 80}]}", "ports: Forbidden: cannot be set for an Ephemeral Container"},
		{"no resources", ": {name: e, image: i, resources: {limits: {cpu: 1}}}", "resources: Forbidden: cannot be set for an Ephemeral Container"},
		{"no resizePolicy", ": {name: e, image: i, resizePolicy: []}", "resizePolicy: Forbidden: cannot be set for an Ephemeral Container"},
		{"no restartPolicy", ": {name: e, image: i, restartPolicy: Always}", "restartPolicy: Forbidden: cannot be set for an Ephemeral Container"},
		{"no restartPolicyRules", ": {name: e, image: i, restartPolicyRules: []}", "restartPolicyRules: Forbidden: cannot be set for an Ephemeral Container"},
		{"no livenessProbe", ": {name: e, image: i, livenessProbe: {}}", "livenessProbe: Forbidden: cannot be set for an Ephemeral Container"},
		{"no readinessProbe", ": {name: e, image: i, readinessProbe: {}}", "readinessProbe: Forbidden: cannot be set for an Ephemeral Container"},
		{"no startupProbe", ": {name: e, image: i, startupProbe: {}}", "startupProbe: Forbidden: cannot be set for an Ephemeral Container"},
		{"no lifecycle", ": {name: e, image: i, lifecycle: {}}", "lifecycle: Forbidden: cannot be set for an Ephemeral Container"},
		{"no subPath", "spec.volumes: [{name: v}]\n: {name: e, image: i, volumeMounts: [{name: v, mountPath: /a, subPath: b}]}", "volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container"},
		{"no subPathExpr", "spec.volumes: [{name: v}]\n: {name: e, image: i, volumeMounts: [{name: v, mountPath: /a, subPathExpr: b}]}", "volumeMounts[0].subPathExpr: Forbidden: cannot be set for an Ephemeral Container"},
	}), podErrors)
}

func TestContainerDefaults(t *testing.T) {
	pull := func(p *corev1.Pod) []string {
		podspec.DefaultPod(p)
		return []string{"spec.containers[0].imagePullPolicy: " + string(p.Spec.Containers[0].ImagePullPolicy)}
	}
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"a tag", "image: a:1", "imagePullPolicy: IfNotPresent"},
		{"no tag", "image: a", "imagePullPolicy: Always"},
		{"latest", "image: example.com:5000/a/b:latest", "imagePullPolicy: Always"},
		{"a port of a host is no tag", "image: localhost:5000/a", "imagePullPolicy: Always"},
		{"a digest", "image: a@sha256:{0*64}", "imagePullPolicy: IfNotPresent"},
		{"a tag and a digest", "image: a:latest@sha256:{0*64}", "imagePullPolicy: Always"},
		{"a wrong digest", "image: a@sha256:00", "imagePullPolicy: IfNotPresent"},
		{"no name of an image", "image: A", "imagePullPolicy: IfNotPresent"},
		{"an identifier", "image: \"{a*64}\"", "imagePullPolicy: IfNotPresent"},
		{"an IPv6 host", "image: \"[::1]:80/a\"", "imagePullPolicy: Always"},
		{"a long path", "image: \"{a*256}\"", "imagePullPolicy: IfNotPresent"},
		{"what is set stays", "image: a\nimagePullPolicy: Never", "imagePullPolicy: Never"},
	}), pull)
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0]", []testkinds.Rule{
		{"protocol", "ports: [{containerPort: 80}, {containerPort: 81, protocol: UDP}]", "ports[0].protocol: TCP"},
		{"apiVersion of fieldRef", "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]", "env[0].valueFrom.fieldRef.apiVersion: v1"},
		{"optional of fileKeyRef", "env: [{name: A, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: K}}}]", "env[0].valueFrom.fileKeyRef.optional: false"},
		{"requests are the limits", "resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 500m}}", "resources.requests.memory: 1Gi"},
		{"amounts are whole thousandths", "resources: {requests: {cpu: 100u}}", "resources.requests.cpu: 1m"},
		{"ports in the host's network", "spec.hostNetwork: true\nports: [{containerPort: 80}]", "ports[0].hostPort: 80\nports[0].protocol: TCP"},
	}), defaultsBelow("spec.containers[0]."))
}
