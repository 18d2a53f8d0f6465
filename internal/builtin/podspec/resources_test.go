package podspec_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

func TestResources(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0].resources", []testkinds.Rule{
		{"valid", ": {limits: {cpu: 1, memory: 1Gi, example.com/gpu: 1}, requests: {cpu: 500m}}", ""},
		{"not negative", ": {limits: {cpu: -1}}", "limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0\nrequests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0"},
		{"a standard name", ": {limits: {disk: 1}}", "limits[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified\nlimits[disk]: Invalid value: \"disk\": must be a standard resource for containers\nrequests[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified\nrequests[disk]: Invalid value: \"disk\": must be a standard resource for containers"},
		{"a name that containers have", ": {limits: {storage: 1}}", "limits[storage]: Invalid value: \"storage\": must be a standard resource for containers\nrequests[storage]: Invalid value: \"storage\": must be a standard resource for containers"},
		{"an extended name", ": {limits: {requests.example.com/gpu: 1}}", "limits[requests.example.com/gpu]: Invalid value: \"requests.example.com/gpu\": doesn't follow extended resource name standard\nrequests[requests.example.com/gpu]: Invalid value: \"requests.example.com/gpu\": doesn't follow extended resource name standard"},
		{"extended resources are whole", ": {limits: {example.com/gpu: 500m}}", "limits[example.com/gpu]: Invalid value: \"500m\": must be an integer\nrequests[example.com/gpu]: Invalid value: \"500m\": must be an integer"},
		{"requests are at most the limit", ": {limits: {cpu: 1}, requests: {cpu: 2}}", `requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		{"extended resources have a limit", ": {requests: {example.com/gpu: 1}}", "limits: Required value: Limit must be set for non overcommitable resources"},
		{"extended resources are requested in full", ": {limits: {example.com/gpu: 2}, requests: {example.com/gpu: 1}}", `requests: Invalid value: "1": must be equal to example.com/gpu limit of 2`},
		{"huge pages need cpu or memory", ": {limits: {hugepages-2Mi: 2Mi}}", ": Forbidden: HugePages require cpu or memory"},
		{"huge pages are whole", ": {limits: {hugepages-2Mi: 3Mi, cpu: 1}}", "limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi\nrequests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer multiple of hugepages-2Mi"},
	}), podErrors)
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0].resources", []testkinds.Rule{
		{"claims", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{name: a, request: r}]", ""},
		{"a claim has a name", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{}]", "claims[0]: Required value"},
		{"a claim exists", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{name: b}]", `claims[0]: Not found: "b": must be one of the names in pod.spec.resourceClaims: a`},
		{"no claim exists", ".claims: [{name: b}]", `claims[0]: Not found: "b": must be one of the names in pod.spec.resourceClaims which is empty`},
		{"claims are unique", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{name: a}, {name: a}]", `claims[1]: Duplicate value: "a"`},
		{"all of a claim or requests of it", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{name: a, request: r}, {name: a}]", `claims[1]: Duplicate value: "a"`},
		{"requests are unique", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{name: a, request: r}, {name: a, request: r}]", `claims[1]: Duplicate value: "a/r"`},
		{"a request is a label", "spec.resourceClaims: [{name: a, resourceClaimName: x}]\n.claims: [{name: a, request: R}]", `claims[0].request: Invalid value: "R": a lowercase RFC 1123 label must consist of...`},
	}), podErrors)
}

func TestResourceClaims(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.resourceClaims", []testkinds.Rule{
		{"a name is required", ": [{resourceClaimName: x}]", "[0].name: Required value"},
		{"a name is a label", ": [{name: A, resourceClaimName: x}]", `[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of...`},
		{"names are unique", ": [{name: a, resourceClaimName: x}, {name: a, resourceClaimName: z}]", `[1].name: Duplicate value: "a"`},
		{"a claim or a template", ": [{name: a}]", "[0]: Invalid value: {\"Name\":\"a\",\"ResourceClaimName\":null,\"ResourceClaimTemplateName\":null}: must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"},
		{"not a claim and a template", ": [{name: a, resourceClaimName: x, resourceClaimTemplateName: x}]", "[0]: Invalid value: {\"Name\":\"a\",\"ResourceClaimName\":\"x\",\"ResourceClaimTemplateName\":\"x\"}: at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"},
		{"a claim has a valid name", ": [{name: a, resourceClaimName: X}]", `[0].resourceClaimName: Invalid value: "X": a lowercase RFC 1123 subdomain must consist of...`},
		{"a template has a valid name", ": [{name: a, resourceClaimTemplateName: X}]", `[0].resourceClaimTemplateName: Invalid value: "X": a lowercase RFC 1123 subdomain must consist of...`},
		{"static Pods have none", "metadata.annotations: {kubernetes.io/config.mirror: x}\nspec.nodeName: node1\n: [{name: a, resourceClaimName: x}]", "[]: Forbidden: static pods do not support resource claims"},
	}), podErrors)
}

func TestPodResources(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.resources", []testkinds.Rule{
		{"valid", ": {limits: {cpu: 2}, requests: {cpu: 1}}", ""},
		{"not of a Windows Pod", "spec.os: {name: windows}\n: {limits: {cpu: 2}}", ": Forbidden: may not be set for a windows pod"},
		{"no claims", ": {claims: []}", "claims: Forbidden: claims may not be set for Resources at pod-level"},
		{"cpu, memory and huge pages", ": {limits: {ephemeral-storage: 1}}", `limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory"`},
		{"requests cover those of containers", ": {requests: {cpu: 1}, limits: {cpu: 5}}\nspec.containers[0].resources: {requests: {cpu: 2}}", `requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 2`},
		{"requests cover those of an init container", ": {requests: {cpu: 1}, limits: {cpu: 5}}\nspec.initContainers: [{name: i, image: i, resources: {requests: {cpu: 3}}}]", `requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 3`},
		{"a sidecar counts beside the containers", ": {requests: {cpu: 2}, limits: {cpu: 5}}\nspec.containers[0].resources: {requests: {cpu: 2}}\nspec.initContainers: [{name: i, image: i, restartPolicy: Always, resources: {requests: {cpu: 1}}}]", `requests[cpu]: Invalid value: "2": must be greater than or equal to aggregate container requests of 3`},
		{"limits cover huge pages", ": {limits: {hugepages-2Mi: 2Mi, cpu: 1}}\nspec.containers[0].resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}", "requests[hugepages-2Mi]: Invalid value: \"2Mi\": must be greater than or equal to aggregate container requests of 4Mi\nlimits[hugepages-2Mi]: Invalid value: \"2Mi\": must be greater than or equal to aggregate container limits of 4Mi\ncontainers[0][hugepages-2Mi].limits: Invalid value: \"4Mi\": must be less than or equal to pod limits of 2Mi"},
		{"limits of a container are within those of the Pod", ": {limits: {cpu: 1}}\nspec.containers[0].resources: {limits: {cpu: 2}, requests: {cpu: 1}}", `containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1`},
	}), podErrors)
}

func TestPodResourceDefaults(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.resources", []testkinds.Rule{
		{"none where nothing is said", ": {}", ""},
		{"requests are the limits", ": {limits: {cpu: 2}}", "requests.cpu: 2"},
		{"requests are those of the containers", ": {limits: {cpu: 2, memory: 1Gi}}\nspec.containers[0].resources: {requests: {cpu: 500m}}", "requests.cpu: 500m\nrequests.memory: 1Gi"},
		{"limits of huge pages are those of the containers", ": {limits: {cpu: 2}}\nspec.containers[0].resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}}", "limits.hugepages-2Mi: 4Mi\nrequests.cpu: 1\nrequests.hugepages-2Mi: 4Mi"},
		{"requests alone are completed", ": {requests: {cpu: 2}}\nspec.containers[0].resources: {requests: {memory: 1Gi}}", "requests.memory: 1Gi"},
		{"limits are those of the containers", ": {requests: {cpu: 2}}\nspec.containers[0].resources: {limits: {cpu: 3}, requests: {cpu: 1}}", "limits.cpu: 3"},
		{"limits are at least the requests", ": {requests: {cpu: 4}}\nspec.containers[0].resources: {limits: {cpu: 3}, requests: {cpu: 1}}", "limits.cpu: 4"},
		{"no limits where a container has none", ": {requests: {cpu: 4}}\nspec.containers: [{name: c, image: i, resources: {limits: {cpu: 3}}}, {name: d, image: i}]", ""},
		{"no limits where an ephemeral container has none", ": {requests: {cpu: 4}}\nspec.containers[0].resources: {limits: {cpu: 3}}\nspec.ephemeralContainers: [{name: e, image: i}]", ""},
	}), resourceDefaults(podspec.DefaultResources))
	testkinds.Rules(t, pod, testkinds.Below("spec.resources", []testkinds.Rule{
		{"early: requests alone are not completed", ": {requests: {cpu: 2}}\nspec.containers[0].resources: {limits: {cpu: 3}, requests: {memory: 1Gi}}", ""},
		{"early: limits are those of huge pages", ": {limits: {cpu: 2}}\nspec.containers[0].resources: {limits: {hugepages-2Mi: 4Mi, memory: 1Gi}}", "limits.hugepages-2Mi: 4Mi\nrequests.cpu: 2\nrequests.hugepages-2Mi: 4Mi\nrequests.memory: 1Gi"},
	}), resourceDefaults(podspec.DefaultEarlyResources))
}

// resourceDefaults returns the Pod-level resources that a function sets in a Pod with the other defaults.
func resourceDefaults(set func(*corev1.PodSpec)) func(*corev1.Pod) []string {
	return func(p *corev1.Pod) []string {
		podspec.DefaultPod(p)
		return testkinds.Changes(p, func(p *corev1.Pod) { set(&p.Spec) })
	}
}

func TestOverhead(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.overhead", []testkinds.Rule{
		{"valid", ": {cpu: 100m}", ""},
		{"a standard name", ": {disk: 1}", "limits[disk]: Invalid value: \"disk\": must be a standard resource type or fully qualified\nlimits[disk]: Invalid value: \"disk\": must be a standard resource for containers"},
	}), podErrors)
	testkinds.Rules(t, "{}", []testkinds.Rule{
		{"of a runtime class", "podFixed: {cpu: -1}", `overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0`},
	}, func(o *struct{ PodFixed corev1.ResourceList }) []string {
		return testkinds.Texts(podspec.ValidateOverhead(o.PodFixed, field.NewPath("overhead")))
	})
}

func TestQOSClass(t *testing.T) {
	testkinds.Rules(t, pod, testkinds.Below("spec.containers[0].resources", []testkinds.Rule{
		{"nothing said", ": {}", "status.qosClass: BestEffort"},
		{"all limited", ": {limits: {cpu: 1, memory: 1}}", "status.qosClass: Guaranteed"},
		{"less requested than limited", ": {limits: {cpu: 1, memory: 1}, requests: {cpu: 500m}}", "status.qosClass: Burstable"},
		{"only cpu limited", ": {limits: {cpu: 1}}", "status.qosClass: Burstable"},
		{"one container of two", ": {limits: {cpu: 1, memory: 1}}\nspec.containers[1]: {name: d, image: i}", "status.qosClass: Burstable"},
		{"an init container counts", ": {limits: {cpu: 1, memory: 1}}\nspec.initContainers: [{name: d, image: i}]", "status.qosClass: Burstable"},
		{"zero counts for nothing", ": {requests: {cpu: 0}}", "status.qosClass: BestEffort"},
		{"other resources do not count", ": {limits: {example.com/a: 1}}", "status.qosClass: BestEffort"},
		{"of the whole Pod", "spec.resources: {limits: {cpu: 1, memory: 1}}", "status.qosClass: Guaranteed"},
		{"not of the whole Pod without resources", ": {limits: {cpu: 1, memory: 1}}\nspec.resources: {}", "status.qosClass: Guaranteed"},
		{"requests of the whole Pod", "spec.resources: {requests: {cpu: 1}}", "status.qosClass: Burstable"},
	}), func(p *corev1.Pod) []string {
		podspec.DefaultPod(p)
		podspec.DefaultResources(&p.Spec)
		return []string{"status.qosClass: " + string(podspec.QOSClass(&p.Spec))}
	})
}
