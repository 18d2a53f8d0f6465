package builtin_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin/core"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

const corePod = `
metadata: {name: web, namespace: default, labels: {app: web}}
spec:
  containers:
  - {name: c, image: "app:1"}
`

func TestPod(t *testing.T) {
	testkinds.Rules(t, corePod, []testkinds.Rule{
		{"the spec is checked", "spec.containers: []", "spec.containers: Required value"},
		{"no ephemeral containers", "spec.ephemeralContainers: [{name: e, image: i}]", "spec.ephemeralContainers: Forbidden: cannot be set on create"},
		{"no node while it is gated", "spec.nodeName: a\nspec.schedulingGates: [{name: g}]", "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"},
		{"annotations and fields agree", "metadata.annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}\nspec.securityContext: {seccompProfile: {type: RuntimeDefault}}", "spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match"},
	}, func(p *corev1.Pod) []string {
		core.DefaultPod(p)
		return testkinds.Texts(core.ValidatePod(p))
	})
	testkinds.Rules(t, corePod, []testkinds.Rule{
		{"warn: the name is no label", "metadata.name: a.b", "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [must not contain dots]"},
		{"warn: the spec", "spec.terminationGracePeriodSeconds: -1", "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"},
	}, func(p *corev1.Pod) []string { return core.PodWarnings(p, nil) })
}

func TestPodPrepare(t *testing.T) {
	testkinds.Rules(t, corePod, []testkinds.Rule{
		{"the status is new", "status: {phase: Running, podIP: 10.0.0.1}", "status.phase: Pending\nstatus.podIP: removed\nstatus.qosClass: BestEffort"},
		{"a gated Pod is not scheduled", "spec.schedulingGates: [{name: g}]", "status.conditions[0].lastProbeTime: null\nstatus.conditions[0].lastTransitionTime: null\nstatus.conditions[0].message: Scheduling is blocked due to non-empty scheduling gates\nstatus.conditions[0].reason: SchedulingGated\nstatus.conditions[0].status: False\nstatus.conditions[0].type: PodScheduled\nstatus.phase: Pending\nstatus.qosClass: BestEffort\nstatus: removed"},
		{"labels of affinity", "spec.affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}, matchLabelKeys: [app], mismatchLabelKeys: [none]}]}}", "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].key: app\nspec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].operator: In\nspec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchExpressions[0].values[0]: web\nspec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: removed\nstatus.phase: Pending\nstatus.qosClass: BestEffort\nstatus: removed"},
		{"labels of anti-affinity", "spec.affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: a, labelSelector: {}, mismatchLabelKeys: [app]}}]}}", "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector.matchExpressions[0].key: app\nspec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector.matchExpressions[0].operator: NotIn\nspec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector.matchExpressions[0].values[0]: web\nspec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: removed\nstatus.phase: Pending\nstatus.qosClass: BestEffort\nstatus: removed"},
		{"labels of spreading", "spec.topologySpreadConstraints: [{topologyKey: a, labelSelector: {}, matchLabelKeys: [app]}]", "spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].key: app\nspec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].operator: In\nspec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].values[0]: web\nspec.topologySpreadConstraints[0].labelSelector: removed\nstatus.phase: Pending\nstatus.qosClass: BestEffort\nstatus: removed"},
	}, func(p *corev1.Pod) []string { return testkinds.Changes(p, core.PreparePod) })
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"what admission set stays", "spec.priority: 5\nspec.preemptionPolicy: Never", "spec.priority: null\nspec.preemptionPolicy: null", "spec.preemptionPolicy: Never\nspec.priority: 5\nspec.tolerations[0].effect: NoExecute\nspec.tolerations[0].key: node.kubernetes.io/not-ready\nspec.tolerations[0].operator: Exists\nspec.tolerations[0].tolerationSeconds: 300\nspec.tolerations[1].effect: NoExecute\nspec.tolerations[1].key: node.kubernetes.io/unreachable\nspec.tolerations[1].operator: Exists\nspec.tolerations[1].tolerationSeconds: 300"},
	}, func(p, old *corev1.Pod) []string {
		return testkinds.Changes(p, func(p *corev1.Pod) { core.PreparePodUpdate(p, old) })
	})
	testkinds.Rules(t, corePod, []testkinds.Rule{
		{"podIP is the first of podIPs", "status.podIPs: [{ip: 10.0.0.1}]\nspec: {}", "10.0.0.1 10.0.0.1"},
		{"podIP wins", "status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.2}]}", "10.0.0.1 10.0.0.1"},
	}, func(p *corev1.Pod) (all []string) {
		core.DefaultPod(p)
		for _, ip := range p.Status.PodIPs {
			all = append(all, p.Status.PodIP+" "+ip.IP)
		}
		return all
	})
}

func TestPodUpdate(t *testing.T) {
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"metadata", "", "metadata.labels: {a: b}", ""},
		{"an image", "", "spec.containers[0].image: app:2", ""},
		{"an image is required", "", "spec.containers[0].image: \"\"", "spec.containers[0].image: Required value\nspec.containers[0].image: Required value"},
		{"an image of an init container", "spec.initContainers: [{name: i, image: i}]", "spec.initContainers[0].image: j", ""},
		{"no containers come", "", "spec.containers[1]: {name: d, image: i}", "spec.containers: Forbidden: pod updates may not add or remove containers"},
		{"no init containers go", "spec.initContainers: [{name: i, image: i}]", "spec.initContainers: []", "spec.initContainers: Forbidden: pod updates may not add or remove containers"},
		{"a deadline comes", "", "spec.activeDeadlineSeconds: 5", ""},
		{"a deadline comes nearer", "spec.activeDeadlineSeconds: 5", "spec.activeDeadlineSeconds: 4", ""},
		{"a deadline does not move away", "spec.activeDeadlineSeconds: 5", "spec.activeDeadlineSeconds: 6", "spec.activeDeadlineSeconds: Invalid value: 6: must be less than or equal to previous value"},
		{"a deadline does not go", "spec.activeDeadlineSeconds: 5", "spec.activeDeadlineSeconds: null", "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"},
		{"a deadline is not negative", "", "spec.activeDeadlineSeconds: -1", "spec.activeDeadlineSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive\nspec.activeDeadlineSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"tolerations come", "", "spec.tolerations: [{operator: Exists}]", ""},
		{"new tolerations are checked", "", "spec.tolerations: [{key: a, operator: Is}]", "spec.tolerations[0].operator: Unsupported value: \"Is\": supported values: \"Equal\", \"Exists\"\nspec.tolerations[0].operator: Unsupported value: \"Is\": supported values: \"Equal\", \"Exists\""},
		{"tolerations do not change", "spec.tolerations: [{key: a, operator: Exists}]", "spec.tolerations: [{key: b, operator: Exists}]", "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
		{"tolerations: the seconds change", "spec.tolerations: [{key: a, operator: Exists, effect: NoExecute}]", "spec.tolerations[0].tolerationSeconds: 5", ""},
		{"gates go", "spec.schedulingGates: [{name: a}, {name: b}]", "spec.schedulingGates: [{name: b}]", ""},
		{"gates do not come", "spec.schedulingGates: [{name: a}]", "spec.schedulingGates: [{name: a}, {name: b}]", "spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'"},
		{"nothing else changes", "", "spec.hostname: a", "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)..."},
		{"gated: a node selector grows", "spec.schedulingGates: [{name: a}]", "spec.nodeSelector: {a: b}", ""},
		{"gated: a node selector does not change", "spec.schedulingGates: [{name: a}]\nspec.nodeSelector: {a: b}", "spec.nodeSelector: {a: c}", `spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)`},
		{"gated: affinity comes", "spec.schedulingGates: [{name: a}]", "spec.affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}", ""},
		{"gated: terms do not come", "spec.schedulingGates: [{name: a}]\nspec.affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[1]: {}", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: ...]: no additions/deletions to non-empty NodeSelectorTerms list are allowed"},
		{"gated: terms do not change", "spec.schedulingGates: [{name: a}]\nspec.affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: b", `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"MatchExpressions":[{"Key":"b","Operator":"Exists","Values":null}],"MatchFields":null}: only additions are allowed (no mutations or deletions)`},
		{"gated: terms grow", "spec.schedulingGates: [{name: a}]\nspec.affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}}", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1]: {key: b, operator: Exists}", ""},
		{"AppArmor annotations do not come", "", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may not add AppArmor annotations"},
		{"AppArmor annotations do not change", "metadata.annotations: {container.apparmor.security.beta.kubernetes.io/c: unconfined}", "metadata.annotations: {}", "metadata.annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may not remove or update AppArmor annotations"},
		{"the mirror annotation does not come", "spec.nodeName: a", "metadata.annotations: {kubernetes.io/config.mirror: a}", "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"},
		{"the mirror annotation does not go", "spec.nodeName: a\nmetadata.annotations: {kubernetes.io/config.mirror: a}", "metadata.annotations: null", "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation"},
	}, func(p, old *corev1.Pod) []string {
		core.DefaultPod(p)
		core.DefaultPod(old)
		return testkinds.Texts(core.ValidatePodUpdate(p, old))
	})
}

func TestEphemeralContainers(t *testing.T) {
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"one comes", "", "spec.ephemeralContainers: [{name: e, image: i}]", ""},
		{"a wrong one does not", "", "spec.ephemeralContainers: [{name: e}]", "spec.ephemeralContainers[0].image: Required value"},
		{"none goes", "spec.ephemeralContainers: [{name: e, image: i}]", "spec.ephemeralContainers: []", `spec.ephemeralContainers: Forbidden: existing ephemeral containers "e" may not be removed...`},
		{"none changes", "spec.ephemeralContainers: [{name: e, image: i}]", "spec.ephemeralContainers[0].image: j", `spec.ephemeralContainers: Forbidden: existing ephemeral containers "e" may not be changed...`},
		{"static Pods have none", "spec.nodeName: a\nmetadata.annotations: {kubernetes.io/config.mirror: a}", "spec.ephemeralContainers: [{name: e, image: i}]", "[]: Forbidden: static pods do not support ephemeral containers"},
	}, func(p, old *corev1.Pod) []string {
		core.DefaultPod(p)
		core.DefaultPod(old)
		return testkinds.Texts(core.ValidateEphemeral(p, old))
	})
}

func TestResize(t *testing.T) {
	const gpu = "spec.containers[0].resources: {requests: {cpu: 1}, limits: {cpu: 2, a.b/c: 1}}"
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"cpu grows", "spec.containers[0].resources: {requests: {cpu: 1}}", "spec.containers[0].resources: {requests: {cpu: 2}}", ""},
		{"the class stays", "spec.containers[0].resources: {requests: {cpu: 1}}", "spec.containers[0].resources: {}", "spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing\nspec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"},
		{"requests stay set", "spec.containers[0].resources: {requests: {cpu: 1, memory: 1}}", "spec.containers[0].resources: {requests: {cpu: 1}}", "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"},
		{"limits stay set", gpu, "spec.containers[0].resources.limits: {a.b/c: 1}", "spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed"},
		{"only cpu and memory", gpu, "spec.containers[0].resources.limits: {cpu: 2, a.b/c: 2}", "spec: Forbidden: only cpu and memory resources are mutable"},
		{"nothing else", gpu, "spec.hostname: a", "spec: Forbidden: only cpu and memory resources are mutable"},
		{"not on a node without it", "status: {containerStatuses: [{name: c, state: {running: {}}}]}", "metadata.labels: {a: b}", "spec: Forbidden: Pod running on node without support for resize"},
		{"static Pods", "spec.nodeName: a\nmetadata.annotations: {kubernetes.io/config.mirror: a}", "metadata.labels: {a: b}", "[]: Forbidden: static pods cannot be resized"},
		{"Windows Pods", "spec.os: {name: windows}", "metadata.labels: {a: b}", "[]: Forbidden: windows pods cannot be resized"},
		{"containers do not come", "", "spec.containers[1]: {name: d, image: i}", "spec.containers: Forbidden: containers may not be added or removed on resize"},
		{"containers keep their order", "spec.containers[1]: {name: d, image: i}", "spec.containers: [{name: d, image: i}, {name: c, image: app:1}]", "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize\nspec.containers[1].name: Forbidden: containers may not be renamed or reordered on resize"},
		{"init containers do not come", "", "spec.initContainers: [{name: d, image: i}]", "spec.initContainers: Forbidden: initContainers may not be added or removed on resize"},
		{"init containers: only cpu and memory", "spec.initContainers: [{name: d, image: i, resources: {requests: {cpu: 1}}}]", "spec.initContainers[0].image: j", "spec.initContainers[0]: Forbidden: only cpu and memory resources for init or sidecar containers are mutable"},
		{"the Pod: resources stay set", "spec.resources: {requests: {cpu: 1}}", "spec.resources: null", "spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing\nspec.resources: Forbidden: pod-level resources cannot be removed"},
		{"the Pod: requests stay set", "spec.resources: {requests: {cpu: 1, memory: 1}, limits: {cpu: 1, memory: 2}}", "spec.resources: {limits: {cpu: 1}}", "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed\nspec.resources.limits: Forbidden: pod-level resource limits cannot be removed"},
		{"the Pod: cpu grows", "spec.resources: {requests: {cpu: 1}, limits: {cpu: 3}}", "spec.resources.requests: {cpu: 2}", ""},
	}, func(p, old *corev1.Pod) []string {
		core.DefaultPod(p)
		core.DefaultPod(old)
		return testkinds.Texts(core.ValidateResize(p, old))
	})
}

// TestPodResources: a client does not own the defaults of Pod-level resources, which it can leave out of an update.
func TestPodResources(t *testing.T) {
	const resources = "spec.resources: {limits: {cpu: 2}}\nspec.containers[0].resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}"
	const set = "spec.resources.limits.hugepages-2Mi: 4Mi\nspec.resources.requests.cpu: 1\nspec.resources.requests.hugepages-2Mi: 4Mi"
	of := func(all []string) []string {
		return slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, "spec.resources") })
	}
	for _, c := range []struct {
		rules              core.Pods
		byDefault, prepare string
	}{{core.Pods{}, "", set}, {core.Pods{EarlyResources: true}, set, ""}} {
		testkinds.Rules(t, corePod, []testkinds.Rule{{"default", resources, c.byDefault}}, func(p *corev1.Pod) []string {
			return of(testkinds.Changes(p, c.rules.Default))
		})
		testkinds.Rules(t, corePod, []testkinds.Rule{{"prepare", resources, c.prepare}}, func(p *corev1.Pod) []string {
			c.rules.Default(p)
			return of(testkinds.Changes(p, c.rules.Prepare))
		})
	}
	const limits = "spec.resources: {limits: {cpu: 2}, requests: {cpu: 2}}"
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"an update leaves them out", limits, "spec.resources: null", "spec.resources.limits.cpu: 2\nspec.resources.requests.cpu: 2"},
		{"an update changes them", limits, "spec.resources: {limits: {cpu: 3}}", ""},
	}, func(p, old *corev1.Pod) []string {
		return of(testkinds.Changes(p, func(p *corev1.Pod) { core.Pods{}.PrepareUpdate(p, old) }))
	})
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"a resize leaves them out", limits, "spec.resources: null", ""},
		{"a resize completes them", limits, "spec.resources: {limits: {cpu: 3}}", "spec.resources.limits.cpu: 3\nspec.resources.requests.cpu: 3"},
	}, func(p, old *corev1.Pod) []string {
		return testkinds.Changes(old, func(stored *corev1.Pod) { core.Pods{}.Resize(stored, p) })
	})
}

func TestPodStatus(t *testing.T) {
	testkinds.Updates(t, corePod, testkinds.UpdatesBelow("status", []testkinds.Update{
		{"a condition has a name", "", "conditions: [{type: a b, status: \"True\"}]", `conditions[0].Type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{"generations are not negative", "", "observedGeneration: -1\nconditions: [{type: Ready, status: \"True\", observedGeneration: -1}]", "conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer\nobservedGeneration: Invalid value: -1: must be a non-negative integer"},
		{"a nominated node is a name", "", "nominatedNodeName: A", `nominatedNodeName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of...`},
		{"no nominated node of a bound Pod", "spec.nodeName: a", "nominatedNodeName: b", "nominatedNodeName: Forbidden: may not be set on pods that are already bound to a node"},
		{"the class stays", "qosClass: BestEffort", "qosClass: Burstable", `qosClass: Invalid value: "Burstable": field is immutable`},
		{"a container that may restart runs again", "containerStatuses: [{name: c, state: {terminated: {exitCode: 1}}}]", "containerStatuses[0].state: {running: {}}", ""},
		{"a container that may not stays ended", "spec.restartPolicy: Never\ncontainerStatuses: [{name: c, state: {terminated: {exitCode: 1}}}]", "containerStatuses[0].state: {running: {}}", "containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"},
		{"on failure: success stays ended", "spec.restartPolicy: OnFailure\ncontainerStatuses: [{name: c, state: {terminated: {exitCode: 0}}}]", "containerStatuses[0].state: {running: {}}", "containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"},
		{"a rule restarts", "spec.restartPolicy: Never\nspec.containers[0]: {name: c, image: i, restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}]}\ncontainerStatuses: [{name: c, state: {terminated: {exitCode: 1}}}]", "containerStatuses[0].state: {running: {}}", ""},
		{"ephemeral containers stay ended", "ephemeralContainerStatuses: [{name: e, state: {terminated: {exitCode: 1}}}]", "ephemeralContainerStatuses[0].state: {running: {}}", "ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state"},
		{"claims: of the spec", "", "resourceClaimStatuses: [{name: a, resourceClaimName: A}]", "resourceClaimStatuses[0].name: Invalid value: \"a\": must match the name of an entry in `spec.resourceClaims`\nresourceClaimStatuses[0].resourceClaimName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of..."},
		{"claims: unique", "spec.resourceClaims: [{name: a, resourceClaimName: b}]", "resourceClaimStatuses: [{name: a}, {name: a}]", `resourceClaimStatuses[1].name: Duplicate value: "a"`},
		{"extended claims: required", "", "extendedResourceClaimStatus: {}", "extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is required\nextendedResourceClaimStatus.resourceClaimName: Required value"},
		{"extended claims: of a container", "", "extendedResourceClaimStatus: {resourceClaimName: A, requestMappings: [{containerName: x, resourceName: a.b/c, requestName: R}, {containerName: c, resourceName: a.b/c, requestName: r}, {containerName: c, resourceName: a.b/c, requestName: r}]}", "extendedResourceClaimStatus.requestMappings[0].containerName: Invalid value: \"x\": must match the name of an entry in spec.initContainers.name or spec.containers.name\nextendedResourceClaimStatus.requestName: Invalid value: \"R\": a lowercase RFC 1123 label must consist of...\nextendedResourceClaimStatus.requestMappings[1].resourceName: Invalid value: \"a.b/c\": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests\nextendedResourceClaimStatus.requestMappings[2].resourceName: Invalid value: \"a.b/c\": must match the extended resource name of an entry in spec.initContainers.resources.requests or spec.containers.resources.requests\nextendedResourceClaimStatus.requestMappings[2].containerName: Duplicate value: \"c\"\nextendedResourceClaimStatus.requestMappings[2].resourceName: Duplicate value: \"a.b/c\"\nextendedResourceClaimStatus.requestMappings[2].requestName: Duplicate value: \"r\"\nextendedResourceClaimStatus.resourceClaimName: Invalid value: \"A\": a lowercase RFC 1123 subdomain must consist of..."},
		{"hostIP is the first of hostIPs", "", "hostIP: 10.0.0.1\nhostIPs: [{ip: 10.0.0.2}]", "hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`"},
		{"an address is one", "", "podIP: a\npodIPs: [{ip: a}]", `podIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{"one address of a family", "", "podIP: 10.0.0.1\npodIPs: [{ip: 10.0.0.1}, {ip: 10.0.0.2}]", `podIPs: Invalid value: [{"IP":"10.0.0.1"},{"IP":"10.0.0.2"}]: may specify no more than one IP for each IP family`},
		{"users are not negative", "", "containerStatuses: [{name: c, user: {linux: {uid: -1, gid: -1, supplementalGroups: [-1]}}}]", "containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 4294967295, inclusive\ncontainerStatuses[0].user.linux.gid: Invalid value: -1: must be between 0 and 2147483647, inclusive\ncontainerStatuses[0].user.linux.supplementalGroups[0]: Invalid value: -1: must be between 0 and 2147483647, inclusive"},
		{"no users of Linux on Windows", "spec.os: {name: windows}", "containerStatuses: [{name: c, user: {linux: {uid: 1, gid: 1}}}]", "containerStatuses[0].user.linux: Forbidden: cannot be set for a windows pod"},
		{"health: a state is known", "spec.containers[0].resources: {requests: {a.b/c: 1}, limits: {a.b/c: 1}}", "containerStatuses: [{name: c, allocatedResourcesStatus: [{name: a.b/c, resources: [{resourceID: x, health: Bad}, {resourceID: x, health: Healthy}]}]}]", "containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: \"Bad\": supported values: \"Healthy\", \"Unhealthy\", \"Unknown\"\ncontainerStatuses[0].allocatedResourcesStatus[0].resources[1].resourceID: Duplicate value: \"x\""},
		{"health: of a request", "", "containerStatuses: [{name: c, allocatedResourcesStatus: [{name: a.b/c}, {name: \"claim:a\"}]}]", "containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: \"a.b/c\": must match one of the container's resource requests\ncontainerStatuses[0].allocatedResourcesStatus[1].name: Invalid value: \"claim:a\": must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"},
		{"health: not of ephemeral containers", "", "ephemeralContainerStatuses: [{name: e, allocatedResourcesStatus: [{name: a}]}]", "ephemeralContainerStatuses[0].allocatedResourcesStatus: Forbidden: must not be specified in container status"},
	}), func(p, old *corev1.Pod) []string { return testkinds.Texts(core.ValidatePodStatus(p, old)) })
	testkinds.Updates(t, corePod, []testkinds.Update{
		{"what the server set stays", "status: {qosClass: Burstable, observedGeneration: 3, conditions: [{type: Ready, status: \"True\", observedGeneration: 2}]}\nmetadata.ownerReferences: [{name: a}]", "status: {phase: Running, conditions: [{type: Ready, status: \"False\"}]}\nmetadata.ownerReferences: null\nspec.hostname: a\nmetadata.labels: {b: c}", "metadata.labels.app: removed\nmetadata.labels.b: c\nstatus.conditions[0].status: False\nstatus.phase: Running"},
	}, func(sent, p *corev1.Pod) []string {
		return testkinds.Changes(p, func(p *corev1.Pod) { core.SetPodStatus(p, sent) })
	})
	testkinds.Rules(t, corePod, []testkinds.Rule{
		{"warn: unusual addresses", "status: {podIPs: [{ip: 010.0.0.1}], hostIPs: [{ip: \"2001:DB8::1\"}]}", "status.podIPs[0].ip: non-standard IP address \"010.0.0.1\" is invalid: use \"10.0.0.1\"\nstatus.hostIPs[0].ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")"},
	}, func(p *corev1.Pod) []string { return core.PodStatusWarnings(p, nil) })
}

// TestPodStatusClaims: an update of the status that omits the fields about claims keeps them; an empty list removes one.
func TestPodStatusClaims(t *testing.T) {
	old := &corev1.Pod{Status: corev1.PodStatus{
		ResourceClaimStatuses:       []corev1.PodResourceClaimStatus{{Name: "a"}},
		ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: "b"},
	}}
	p, sent := old.DeepCopy(), &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	core.SetPodStatus(p, sent)
	if s := p.Status; s.Phase != corev1.PodRunning || len(s.ResourceClaimStatuses) != 1 || s.ExtendedResourceClaimStatus == nil {
		t.Errorf("without the fields: %+v", s)
	}
	sent.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{}
	core.SetPodStatus(p, sent)
	if s := p.Status; len(s.ResourceClaimStatuses) != 0 {
		t.Errorf("with an empty list: %+v", s)
	}
}
