package integration_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

type values = map[string]string

const pods = "/api/v1/namespaces/default/pods"

// TestScale checks scale. Messages are those of kube-apiserver v1.36.
func TestScale(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const spec = `"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"z","operator":"In","values":["2","1"]}]},"template":{"metadata":{"labels":{"a":"b","z":"1"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}`
	for _, kind := range []string{"deployments", "replicasets", "statefulsets"} {
		all := "/apis/apps/v1/namespaces/default/" + kind
		scale := all + "/d/scale"
		run(t, c, []step{
			{"POST " + all, `{"metadata":{"name":"d","labels":{"x":"y"}},` + spec + `}`, 201, nil},
			{"GET " + scale, "", 200, values{"kind": `"Scale"`, "apiVersion": `"autoscaling/v1"`, "spec": `{"replicas":2}`, "status": `{"replicas":0,"selector":"a=b,z in (1,2)"}`, "metadata.labels": "null"}},
			{"PUT " + scale + "?dryRun=All", `{"metadata":{"name":"d"},"spec":{"replicas":7}}`, 200, values{"spec.replicas": "7"}},
			{"PUT " + scale, `{"metadata":{"name":"d","labels":{"q":"r"}},"spec":{"replicas":3}}`, 200, values{"spec.replicas": "3"}},
			{"GET " + all + "/d", "", 200, values{"spec.replicas": "3", "metadata.generation": "2", "metadata.labels": `{"x":"y"}`}},
			{"PATCH " + scale, `{"spec":{"replicas":4},"status":{"replicas":9}}`, 200, values{"spec.replicas": "4", "status.replicas": "0"}},
			{"PATCH " + all + "/d/status", `{"status":{"replicas":4}}`, 200, nil},
			{"GET " + scale, "", 200, values{"status.replicas": "4"}},
			{"PUT " + scale, `{"metadata":{"name":"d"},"spec":{"replicas":-1}}`, 422, `Scale.autoscaling "d" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0`},
			{"PUT " + scale, `{"metadata":{"name":"d","resourceVersion":"1"},"spec":{"replicas":1}}`, 409, `Operation cannot be fulfilled on ` + kind + `.apps "d": the object has been modified; please apply your changes to the latest version and try again`},
			{"PUT " + scale, `{"metadata":{"name":"e"},"spec":{"replicas":3}}`, 400, "the name of the object (e) does not match the name on the URL (d)"},
			{"PUT " + scale, `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"d"}}`, 400, nil},
			{"PUT " + scale + "?fieldValidation=Strict", `{"metadata":{"name":"d"},"spec":{"replicas":3,"foo":1}}`, 400, `Scale in version "v1" cannot be handled as a Scale: strict decoding error: unknown field "spec.foo"`},
			{"DELETE " + scale, "", 405, nil},
			{"GET " + all + "/zz/scale", "", 404, kind + `.apps "zz" not found`},
			{"PUT " + all + "/zz/scale", `{"metadata":{"name":"zz"},"spec":{"replicas":1}}`, 404, kind + `.apps "zz" not found`},
		})
	}
	const rc = "/api/v1/namespaces/default/replicationcontrollers"
	run(t, c, []step{
		{"POST " + rc, `{"metadata":{"name":"r"},"spec":{"selector":{"b":"c","a":"b"},"template":{"metadata":{"labels":{"a":"b","b":"c"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 201, nil},
		{"GET " + rc + "/r/scale", "", 200, values{"spec": `{"replicas":1}`, "status": `{"replicas":0,"selector":"a=b,b=c"}`}},
		{"PATCH " + rc + "/r/scale", `{"spec":{"replicas":0}}`, 200, values{"spec": `{}`}},
	})
}

// TestStatusKeeps checks fields that a status update cannot change: the count of a DaemonSet's
// templates, and alpha fields of Pods.
func TestStatusKeeps(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const sets = "/apis/apps/v1/namespaces/default/daemonsets"
	const mounts = `[{"name":"c","image":"i","imageID":"","ready":true,"restartCount":0,"volumeMounts":[{"name":"v","mountPath":"/v","volumeStatus":{"image":{"imageRef":"r"}}}]}]`
	run(t, c, []step{
		{"POST " + sets, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 201, nil},
		{"MERGE " + sets + "/d/status", `{"metadata":{"annotations":null},"status":{"numberReady":1}}`, 200, values{
			"metadata.annotations": `{"deprecated.daemonset.template.generation":"1"}`, "status.numberReady": "1",
		}},
		{"MERGE " + sets + "/d/status", `{"metadata":{"annotations":{"deprecated.daemonset.template.generation":"5","a":"b"}}}`, 200, values{
			"metadata.annotations": `{"a":"b","deprecated.daemonset.template.generation":"1"}`, "status.numberReady": "1",
		}},
		{"POST " + pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"MERGE " + pods + "/p/status", `{"status":{"containerStatuses":` + mounts + `,"ephemeralContainerStatuses":` + mounts + `}}`, 200, values{
			"status.containerStatuses.0.volumeMounts.0":          `{"mountPath":"/v","name":"v"}`,
			"status.ephemeralContainerStatuses.0.volumeMounts.0": `{"mountPath":"/v","name":"v"}`,
		}},
	})
}

// TestScaleOwners checks that owning the replicas of a Scale is owning the replicas
// of the object, and that other managers keep their fields.
func TestScaleOwners(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const all, scale = "/apis/apps/v1/namespaces/default/deployments", "/apis/apps/v1/namespaces/default/deployments/d/scale"
	const replicas = `{"f:spec":{"f:replicas":{}}}`
	apply := func(n int) string {
		return fmt.Sprintf(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"d"},"spec":{"replicas":%d}}`, n)
	}
	run(t, c, []step{
		{"POST " + all + "?fieldManager=maker", `{"metadata":{"name":"d"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 201, nil},
		{"PATCH " + scale + "?fieldManager=scaler", `{"spec":{"replicas":3}}`, 200, values{"metadata.managedFields": "null"}},
		{"GET " + all + "/d", "", 200, values{"metadata.managedFields.0.manager": `"scaler"`, "metadata.managedFields.0.subresource": `"scale"`, "metadata.managedFields.0.apiVersion": `"apps/v1"`, "metadata.managedFields.0.time": "null",
			"metadata.managedFields.0.fieldsV1": replicas, "metadata.managedFields.1.fieldsV1.f:spec.f:replicas": "null", "metadata.managedFields.1.fieldsV1.f:spec.f:selector": "{}"}},
		{"APPLY " + scale + "?fieldManager=hpa", apply(8), 409, `Apply failed with 1 conflict: conflict with "scaler" with subresource "scale" using autoscaling/v1: .spec.replicas`},
		{"APPLY " + scale + "?fieldManager=hpa&force=true", apply(8), 200, values{"spec.replicas": "8"}},
		{"GET " + all + "/d", "", 200, values{"spec.replicas": "8", "metadata.managedFields.0.manager": `"hpa"`, "metadata.managedFields.0.operation": `"Apply"`, "metadata.managedFields.0.apiVersion": `"apps/v1"`,
			"metadata.managedFields.0.fieldsV1": replicas, "metadata.managedFields.1.manager": `"maker"`, "metadata.managedFields.2": "null"}},
		{"APPLY " + scale + "?fieldManager=hpa", apply(8), 200, nil},
		{"GET " + all + "/d", "", 200, values{"metadata.generation": "3"}},
		{"APPLY " + all + "/zz/scale?fieldManager=hpa", apply(8), 404, `deployments.apps "zz" not found`},
	})
}

// TestBinding checks that a Pod can be bound once.
func TestBinding(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const k1, bindings = pods + "/k1/binding", "/api/v1/namespaces/default/bindings"
	pod := func(name, meta, spec string) step {
		return step{"POST " + pods, `{"metadata":{"name":"` + name + `"` + meta + `},"spec":{` + spec + `"containers":[{"name":"c","image":"i"}]}}`, 201, nil}
	}
	run(t, c, []step{
		pod("k1", `,"annotations":{"a":"1","b":"2"},"labels":{"l":"1"}`, ""),
		{"PATCH " + pods + "/k1/status", `{"status":{"nominatedNodeName":"nom","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`, 200, nil},
		{"POST " + k1, `{"metadata":{"name":"k1"},"target":{}}`, 422, `Binding "k1" is invalid: target.name: Required value`},
		{"POST " + k1, `{"metadata":{"name":"k1"},"target":{"kind":"Pod","name":"n"}}`, 422, `Binding "k1" is invalid: target.kind: Unsupported value: "Pod": supported values: "Node", "<empty>"`},
		{"POST " + k1, `{"metadata":{"name":"zz"},"target":{"name":"n"}}`, 400, "name in URL does not match name in Binding object"},
		{"POST " + k1, `{"metadata":{},"target":{"name":"n"}}`, 400, "name in URL does not match name in Binding object"},
		{"POST " + k1 + "?dryRun=All", `{"metadata":{"name":"k1"},"target":{"name":"n"}}`, 201, values{"kind": `"Status"`, "metadata": "{}", "status": `"Success"`, "code": "201"}},
		{"GET " + pods + "/k1", "", 200, values{"spec.nodeName": "null"}},
		{"POST " + k1, `{"metadata":{"name":"k1","resourceVersion":"3"},"target":{"name":"n"}}`, 409, nil},
		{"POST " + k1, `{"metadata":{"name":"k1","uid":"zz"},"target":{"name":"n"}}`, 409, nil},
		{"POST " + k1, `{"metadata":{"name":"k1","annotations":{"b":"3","c":"4"},"labels":{"m":"3"}},"target":{"kind":"Node","name":"n"}}`, 201, nil},
		{"GET " + pods + "/k1", "", 200, values{"spec.nodeName": `"n"`, "metadata.annotations": `{"a":"1","b":"3","c":"4"}`, "metadata.labels": `{"l":"1","m":"3"}`, "metadata.generation": "1", "metadata.managedFields.2": "null",
			"status.conditions.0.type": `"PodScheduled"`, "status.conditions.0.status": `"True"`, "status.conditions.0.reason": "null", "status.nominatedNodeName": "null"}},
		{"POST " + k1, `{"metadata":{"name":"k1"},"target":{"name":"n2"}}`, 409, `Operation cannot be fulfilled on pods/binding "k1": pod k1 is already assigned to node "n"`},
		{"POST " + bindings, `{"metadata":{"name":"k1"},"target":{"name":"n2"}}`, 409, `Operation cannot be fulfilled on pods/binding "k1": pod k1 is already assigned to node "n"`},
		pod("k2", "", `"schedulingGates":[{"name":"x.y/z"}],`),
		{"POST " + bindings, `{"metadata":{"name":"k2"},"target":{"name":"n"}}`, 409, `Operation cannot be fulfilled on pods/binding "k2": pod k2 has non-empty .spec.schedulingGates`},
		pod("k3", `,"finalizers":["a.b/c"]`, ""),
		{"DELETE " + pods + "/k3", "", 200, nil},
		{"POST " + bindings, `{"metadata":{"name":"k3"},"target":{"name":"n"}}`, 409, `Operation cannot be fulfilled on pods/binding "k3": pod k3 is being deleted, cannot be assigned to a host`},
		{"POST " + bindings, `{"metadata":{"generateName":"k"},"target":{"name":"n"}}`, 400, "Name parameter required."},
		{"POST " + bindings, `{"metadata":{"name":"zz"},"target":{"name":"n"}}`, 404, `pods "zz" not found`},
		{"POST /api/v1/namespaces/nons/bindings", `{"metadata":{"name":"zz"},"target":{"name":"n"}}`, 404, `namespaces "nons" not found`},
		{"GET " + k1, "", 405, nil},
	})
}

// TestBindingOnce checks that one of many concurrent bindings succeeds.
func TestBindingOnce(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{{"POST " + pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201, nil}})
	codes := make([]int, 8)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			codes[i], _, _ = exchange(t, c, "POST", pods+"/p/binding", fmt.Sprintf(`{"metadata":{"name":"p"},"target":{"name":"n%d"}}`, i))
		})
	}
	wg.Wait()
	slices.Sort(codes)
	if codes[0] != 201 || codes[1] != 409 {
		t.Errorf("the responses are %v: want 201 once, and 409", codes)
	}
}

const budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

// running returns the steps that create a running Pod, with its name as a label.
func running(name string, ready bool) []step {
	status := `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`
	if !ready {
		status = `{"status":{"phase":"Running"}}`
	}
	return []step{
		{"POST " + pods, `{"metadata":{"name":"` + name + `","labels":{"v":"` + name + `"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"PATCH " + pods + "/" + name + "/status", status, 200, nil},
	}
}

func budget(name, pod string) step {
	return step{"POST " + budgets, `{"metadata":{"name":"` + name + `"},"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"v":"` + pod + `"}}}}`, 201, nil}
}

// allows sets the status that a budget's controller would set.
func allows(name string, observed, allowed, healthy, desired int) step {
	return step{"PATCH " + budgets + "/" + name + "/status", fmt.Sprintf(`{"status":{"observedGeneration":%d,"disruptionsAllowed":%d,"currentHealthy":%d,"desiredHealthy":%d,"expectedPods":2}}`, observed, allowed, healthy, desired), 200, nil}
}

func evict(name, query string, code int, why string) step {
	s := step{"POST " + pods + "/" + name + "/eviction" + query, `{"metadata":{"name":"` + name + `"}}`, code, nil}
	if code == 429 {
		text, _ := json.Marshal(why)
		s.want = values{"message": `"Cannot evict pod as it would violate the pod's disruption budget."`, "details.causes.0.message": string(text), "details.causes.0.reason": `"DisruptionBudget"`}
	} else if why != "" {
		s.want = why
	}
	return s
}

// disrupted returns n members of disruptedPods.
func disrupted(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"p%d":"2020-01-01T00:00:00Z"`, i)
	}
	return strings.Join(all, ",")
}

// TestEviction checks evictions. Messages are those of kube-apiserver v1.37, except
// for a Pod with two budgets, for which it returns 500.
func TestEviction(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, slices.Concat(running("a", true), []step{
		evict("zz", "", 404, `pods "zz" not found`),
		{"POST " + pods + "/a/eviction", `{"metadata":{"name":"b"}}`, 400, "name in URL does not match name in Eviction object"},
		{"POST " + pods + "/a/eviction", `{"metadata":{"name":"a"},"deleteOptions":{"dryRun":["bad"]}}`, 422, `DeleteOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["bad"]: supported values: "All"`},
		{"POST " + pods + "/a/eviction", `{"metadata":{"name":"a"},"deleteOptions":{"dryRun":["All"]}}`, 201, nil},
		evict("a", "?dryRun=All", 201, ""),
		{"GET " + pods + "/a", "", 200, values{"metadata.deletionTimestamp": "null", "status.conditions.1": "null"}},
		evict("a", "", 201, ""),
		{"GET " + pods + "/a", "", 200, values{"metadata.deletionGracePeriodSeconds": "30", "status.conditions.1.type": `"DisruptionTarget"`, "status.conditions.1.reason": `"EvictionByEvictionAPI"`}},
		evict("a", "", 201, ""), // it is on its way out

		budget("b", "b"),
	}, running("b", true), []step{
		evict("b", "", 429, "The disruption budget b is still being processed by the server."),
		allows("b", 1, 0, 1, 1),
		evict("b", "", 429, "The disruption budget b needs 1 healthy pods and has 1 currently"),
		allows("b", 1, 0, 2, 1),
		evict("b", "", 429, "The disruption budget b does not allow evicting pods currently"),
		{"PATCH " + budgets + "/b/status", `{"status":{"disruptionsAllowed":1,"disruptedPods":{` + disrupted(2001) + `}}}`, 200, nil},
		{"POST " + pods + "/b/eviction", `{"metadata":{"name":"b"}}`, 403, values{
			"message":          `"poddisruptionbudget.policy \"b\" is forbidden: DisruptedPods map too big - too many evictions not confirmed by PDB controller"`,
			"details.causes.0": `{"reason":"DisruptionBudget","message":"The disruption budget b does not allow evicting pods currently: too many pending evictions not confirmed by PDB controller"}`,
		}},
		{"PATCH " + budgets + "/b/status", `{"status":{"disruptedPods":null}}`, 200, nil},
		{"POST " + pods + "/b/eviction", `{"metadata":{"name":"b"},"deleteOptions":{"ignoreStoreReadErrorWithClusterBreakingPotential":true}}`, 422,
			`Eviction.policy "b" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can not be set for pod eviction, try after removing the option`},
		allows("b", 1, 1, 2, 1),
		evict("b", "?dryRun=All", 201, ""),
		{"GET " + budgets + "/b", "", 200, values{"status.disruptionsAllowed": "1", "status.disruptedPods": "null"}},
		{"POST " + pods + "/b/eviction", `{"metadata":{"name":"b"},"deleteOptions":{"preconditions":{"uid":"zz"}}}`, 409, nil},
		{"GET " + budgets + "/b", "", 200, values{"status.disruptionsAllowed": "1"}},
		evict("b", "", 201, ""),
		{"GET " + budgets + "/b", "", 200, values{"status.disruptionsAllowed": "0", "status.conditions.0.type": `"DisruptionAllowed"`, "status.conditions.0.status": `"False"`, "metadata.generation": "1"}},
	}))
	if _, _, b := exchange(t, c, "GET", budgets+"/b", ""); pick(t, b, "status.disruptedPods.b") == "null" {
		t.Errorf("who was disrupted is not written down: %s", b)
	}
	if _, header, _ := exchange(t, c, "POST", pods+"/b/eviction", `{"metadata":{"name":"x"}}`); header.Get("Retry-After") != "" {
		t.Error("a mistake says when to retry")
	}
}

// TestEvictionUnready checks that evicting an unready Pod needs no budget, as far as
// the policy allows it.
func TestEvictionUnready(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, slices.Concat(running("u", false), []step{
		budget("u", "u"),
		allows("u", 1, 0, 0, 1),
		evict("u", "?dryRun=All", 429, "The disruption budget u needs 1 healthy pods and has 0 currently"),
		allows("u", 1, 0, 1, 1),
		evict("u", "?dryRun=All", 201, ""),
		allows("u", 1, 0, 0, 0),
		evict("u", "?dryRun=All", 429, "The disruption budget u needs 0 healthy pods and has 0 currently"),
		{"PATCH " + budgets + "/u", `{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`, 200, nil},
		evict("u", "", 201, ""),
		{"GET " + budgets + "/u", "", 200, values{"status.disruptionsAllowed": "0", "status.disruptedPods": "null"}},
		budget("two", "two"), budget("more", "two"),
	}, running("two", true), []step{
		evict("two", "", 400, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."),
	}))
	for _, phase := range []string{"Pending", "Succeeded", "Failed"} {
		name := strings.ToLower(phase)
		run(t, c, slices.Concat(running(name, true), []step{
			{"PATCH " + pods + "/" + name + "/status", `{"status":{"phase":"` + phase + `"}}`, 200, nil},
			budget(name, name),
			evict(name, "", 201, ""),
		}))
	}
	code, header, _ := exchange(t, c, "POST", pods+"/two/eviction", `{"metadata":{"name":"two"}}`)
	if code != 400 || header.Get("Retry-After") != "" {
		t.Errorf("%d, %v", code, header)
	}
}

// TestEvictionCounts checks that concurrent evictions use the budget and no more.
func TestEvictionCounts(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const n, allowed = 10, 3
	run(t, c, []step{budget("b", "x"), allows("b", 1, allowed, n, n-allowed)})
	for i := range n {
		run(t, c, []step{
			{"POST " + pods, fmt.Sprintf(`{"metadata":{"name":"p%d","labels":{"v":"x"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, i), 201, nil},
			{"PATCH " + fmt.Sprintf("%s/p%d/status", pods, i), `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, 200, nil},
		})
	}
	codes := make([]int, n)
	var wg sync.WaitGroup
	for i := range codes {
		wg.Go(func() {
			codes[i], _, _ = exchange(t, c, "POST", fmt.Sprintf("%s/p%d/eviction", pods, i), fmt.Sprintf(`{"metadata":{"name":"p%d"}}`, i))
		})
	}
	wg.Wait()
	slices.Sort(codes)
	if codes[allowed-1] != 201 || codes[allowed] != 429 {
		t.Errorf("the responses are %v: want 201 %d times, and 429", codes, allowed)
	}
	run(t, c, []step{{"GET " + budgets + "/b", "", 200, values{"status.disruptionsAllowed": "0"}}})
}

// TestEphemeralContainers checks that ephemeral containers can be added, and nothing
// else changes.
func TestEphemeralContainers(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const path = "PATCH " + pods + "/e/ephemeralcontainers"
	const at, invalid = "spec.ephemeralContainers[0].", `Pod "e" is invalid: `
	add := func(container string) string { return `{"spec":{"ephemeralContainers":[` + container + `]}}` }
	run(t, c, []step{
		{"POST " + pods, `{"metadata":{"name":"e"},"spec":{"initContainers":[{"name":"ini","image":"i"}],"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"v","emptyDir":{}}]}}`, 201, nil},
		{path, `{"metadata":{"labels":{"l":"m"}},"spec":{"hostNetwork":true,"ephemeralContainers":[{"name":"e","image":"debug:1"}]}}`, 200, values{
			"metadata.labels": "null", "spec.hostNetwork": "null", "metadata.generation": "2",
			"spec.ephemeralContainers.0": `{"name":"e","image":"debug:1","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}`,
		}},
		{"GET " + pods + "/e/ephemeralcontainers", "", 200, values{"kind": `"Pod"`, "spec.ephemeralContainers.0.name": `"e"`}},
		{path, add(`{"name":"e","image":"debug:2"}`), 422, invalid + "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be changed\n@@ -1,6 +1,6 @@\n {\n  \"Name\": \"e\",\n- \"Image\": \"debug:1\",\n+ \"Image\": \"debug:2\",\n  \"Command\": null,\n  \"Args\": null,\n  \"WorkingDir\": \"\",\n"},
		{path, `{"spec":{"ephemeralContainers":null}}`, 422, invalid + "spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n"},
		{path, add(`{"name":"f"}`), 422, invalid + at + "image: Required value"},
		{path, add(`{"name":"f","image":" x"}`), 422, invalid + at + `image: Invalid value: " x": must not have leading or trailing whitespace`},
		{path, add(`{"name":"f","image":"x","imagePullPolicy":"Foo","terminationMessagePolicy":"Bar"}`), 422, invalid + "[" + at + `terminationMessagePolicy: Unsupported value: "Bar": supported values: "File", "FallbackToLogsOnError", ` + at + `imagePullPolicy: Unsupported value: "Foo": supported values: "Always", "IfNotPresent", "Never"]`},
		{path, add(`{"name":"f","image":"x","targetContainerName":"zz"}`), 422, invalid + at + `targetContainerName: Not found: "zz"`},
		{path, add(`{"name":"ini","image":"x"}`), 422, invalid + at + `name: Duplicate value: "ini"`},
		{path, add(`{"name":"f","image":"x","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}},"livenessProbe":{"exec":{"command":["a"]}}}`), 422,
			invalid + "[" + at + "ports: Forbidden: cannot be set for an Ephemeral Container, " + at + "resources: Forbidden: cannot be set for an Ephemeral Container, " + at + "livenessProbe: Forbidden: cannot be set for an Ephemeral Container]"},
		{path, add(`{"name":"f","image":"x","volumeMounts":[{"name":"nope","mountPath":"/b"},{"name":"v","mountPath":"/a","subPath":"q"}]}`), 422, nil},
		{path, add(`{"name":"f","image":"r:5000/x","targetContainerName":"c","volumeMounts":[{"name":"v","mountPath":"/a"}]}`), 200, values{"spec.ephemeralContainers.0.imagePullPolicy": `"Always"`, "metadata.generation": "3"}},
		{"POST " + pods, `{"metadata":{"name":"st","annotations":{"kubernetes.io/config.mirror":"x"}},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"PATCH " + pods + "/st/ephemeralcontainers", add(`{"name":"e","image":"i"}`), 422, `Pod "st" is invalid: []: Forbidden: static pods do not support ephemeral containers`},
		{"PATCH " + pods + "/st/resize", `{}`, 422, `Pod "st" is invalid: []: Forbidden: static pods cannot be resized`},
		{"PATCH " + pods + "/zz/resize", `{}`, 404, `pods "zz" not found`},
		{"POST " + pods + "/e/ephemeralcontainers", `{}`, 405, nil},
	})
}

// TestResize checks that resize changes CPU and memory of containers, and nothing
// else.
func TestResize(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const path, invalid = "PATCH " + pods + "/z/resize", `Pod "z" is invalid: `
	set := func(resources string) string {
		return `{"spec":{"containers":[{"name":"c","resources":` + resources + `}]}}`
	}
	run(t, c, []step{
		{"POST " + pods, `{"metadata":{"name":"z"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"},"limits":{"cpu":"2"}}}]}}`, 201, nil},
		{path, `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"j","resources":{"requests":{"cpu":"1500m"}}}]}}`, 200, values{"spec.containers.0.resources.requests.cpu": `"1500m"`, "spec.containers.0.image": `"i"`, "metadata.generation": "2", "metadata.labels": "null"}},
		{path, set(`{"requests":{"cpu":"3"}}`), 422, invalid + `spec.containers[0].resources.requests: Invalid value: "3": must be less than or equal to cpu limit of 2`},
		{path, set(`{"limits":{"cpu":"-3"}}`), 422, invalid + `[spec.containers[0].resources.limits[cpu]: Invalid value: "-3": must be greater than or equal to 0, spec.containers[0].resources.requests: Invalid value: "1500m": must be less than or equal to cpu limit of -3]`},
		{path, set(`{"limits":{"example.com/x":"1"}}`), 422, invalid + "spec: Forbidden: only cpu and memory resources are mutable"},
		{path, `{"spec":{"containers":[{"name":"c","resizePolicy":[{"resourceName":"cpu","restartPolicy":"RestartContainer"}]}]}}`, 422, invalid + "spec: Forbidden: only cpu and memory resources are mutable"},
		{path, `{"spec":{"containers":[{"name":"new","image":"q"}]}}`, 422, invalid + "spec.containers: Forbidden: containers may not be added or removed on resize"},
		{path, set(`{"requests":null,"limits":null}`), 422, invalid + `[spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing, spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed, spec.containers[0].resources.limits: Forbidden: resource limits cannot be removed]`},
		{path, set(`{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"2","memory":"1Gi"}}`), 422, invalid + `spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing`},
		{path, `{}`, 200, values{"metadata.generation": "2"}},
	})
}

// TestConnections checks the errors of invalid requests to connect to a Pod.
func TestConnections(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const p, two, placed = pods + "/p/", pods + "/two/", pods + "/placed/"
	const homeless = "pod p does not have a host assigned"
	run(t, c, []step{
		{"POST " + pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"POST " + pods, `{"metadata":{"name":"two"},"spec":{"initContainers":[{"name":"ini","image":"i"}],"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}}`, 201, nil},
		{"POST " + pods, `{"metadata":{"name":"placed"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"GET " + p + "exec?command=x", "", 400, homeless},
		{"POST " + p + "exec?command=x", "", 400, homeless},
		{"POST " + p + "attach", "", 400, homeless},
		{"GET " + p + "portforward", "", 400, homeless},
		{"GET " + p + "exec?container=zz", "", 400, "container zz is not valid for pod p"},
		{"GET " + p + "exec?dryRun=All", "", 400, "dryRun is not supported"},
		{"GET " + pods + "/none/exec?dryRun=All", "", 400, "dryRun is not supported"},
		{"GET " + two + "exec", "", 400, "a container name must be specified for pod two, choose one of: [ini c d]"},
		{"GET " + two + "log?container=ini", "", 204, nil},
		{"GET " + p + "log", "", 204, nil},
		{"GET " + p + "log?follow=true&dryRun=All", "", 204, nil},
		{"GET " + p + "log?tailLines=x", "", 400, `strconv.ParseInt: parsing "x": invalid syntax`},
		{"GET " + p + "log?tailLines=-5", "", 422, `PodLogOptions "p" is invalid: tailLines: Invalid value: -5: must be greater than or equal to 0`},
		{"GET " + p + "log?limitBytes=0", "", 422, `PodLogOptions "p" is invalid: limitBytes: Invalid value: 0: must be greater than 0`},
		{"GET " + p + "log?sinceSeconds=1&sinceTime=2020-01-01T00:00:00Z", "", 422, "PodLogOptions \"p\" is invalid: []: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified"},
		{"GET " + p + "proxy", "", 400, "address not allowed"},
		{"DELETE " + p + "proxy/a/b", "", 400, "address not allowed"},
		{"GET " + pods + "/https:p:80/proxy/a", "", 400, "address not allowed"},
		{"GET " + pods + "/a:b:c:d/proxy/a", "", 400, `invalid pod request "a:b:c:d"`},
		{"GET " + pods + "/none/proxy/a", "", 404, `pods "none" not found`},
		{"PUT " + p + "log", "{}", 405, nil},
		{"GET " + placed + "exec", "", 404, `pods "n" not found`},
		{"GET " + placed + "log", "", 404, `pods "n" not found`},
		{"GET /api/v1/nodes/n/proxy/", "", 404, `nodes "n" not found`},
		{"POST /api/v1/nodes", `{"metadata":{"name":"n"}}`, 201, nil},
		{"GET " + placed + "exec", "", 500, "no preferred addresses found; known addresses: []"},
		{"GET /api/v1/nodes/n/proxy/", "", 500, "no preferred addresses found; known addresses: []"},
	})
}

// TestServiceProxy checks which endpoints a request to a Service is forwarded to: those of EndpointSlices that are
// ready Pods. The Pod has the address of a metadata service, to which the server does not connect.
func TestServiceProxy(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const (
		services, slices = "/api/v1/namespaces/default/services", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
		none             = `no endpoints available for service "s"`
		slice            = `{"metadata":{"name":"s-%[1]s","labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","ports":[{"name":"http","port":81}],
			"endpoints":[{"addresses":["100.100.100.200"],"conditions":{"ready":%[2]s},"targetRef":{"kind":"Pod","namespace":"default","name":%[3]q}}]}`
	)
	run(t, c, []step{
		{"POST " + services, `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"http","port":80}]}}`, 201, nil},
		{"POST " + pods, `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"PATCH " + pods + "/p/status", `{"status":{"podIP":"100.100.100.200","podIPs":[{"ip":"100.100.100.200"}]}}`, 200, nil},
		{"POST /api/v1/namespaces/default/endpoints", `{"metadata":{"name":"s"},"subsets":[{"addresses":[{"ip":"10.0.0.9","targetRef":{"kind":"Pod","namespace":"default","name":"p"}}],"ports":[{"name":"http","port":81}]}]}`, 201, nil},
		{"GET " + services + "/s:http/proxy/", "", 503, none},
		{"GET " + services + "/none/proxy/", "", 503, `no endpoints available for service "none"`},
		{"GET " + services + "/none:80/proxy/", "", 404, `services "none" not found`},
		{"GET " + services + "/s:81/proxy/", "", 503, `no service port 81 found for service "s"`},
		{"POST " + slices, fmt.Sprintf(slice, "a", "false", "p"), 201, nil},
		{"POST " + slices, fmt.Sprintf(slice, "b", "true", "other"), 201, nil},
		{"GET " + services + "/s:http/proxy/", "", 503, none},
		{"POST " + slices, fmt.Sprintf(slice, "c", "true", "p"), 201, nil},
		{"GET " + services + "/s/proxy/", "", 503, none},
		{"GET " + services + "/s:http/proxy/", "", 400, "address not allowed"},
		{"GET " + services + "/https:s:80/proxy/", "", 400, "address not allowed"},
	})
}

const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

// TestApproval checks that a certificate request is approved once, and signed once.
func TestApproval(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c := s.RESTConfig()
	const r = requests + "/r"
	const invalid, conditions = `CertificateSigningRequest.certificates.k8s.io "r" is invalid: `, "status.conditions: "
	put := func(of string) string { return `{"status":{"conditions":[` + of + `]}}` }
	merge := func(path, body string, code int, want any) step { return step{"PATCH " + r + path, body, code, want} }
	run(t, c, []step{
		{"POST " + requests, `{"metadata":{"name":"r"},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QmNqQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCTk5WY3RkMWczZzRBdmpvYVk3bEVnTEpUdTJyalRSK0w5dUdKZmtObHF5aUEwQ3BjTzRhREcrV0dGN1l1YVpDClRLQVpwNUhVMTFnUTRTRTJLcDhpOGkyZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpRUFsUnJ0bFd5MVM3OUMKMUFUOTdYa2UrYUljVDFFSFY2VEJja05zR3F5a0lXUUNJRnFwY0Y3cGplV05IeUdFZkh4Q2xhQ0tJWEVyVytXWgpZaC8rVStxczRTUUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==","signerName":"example.com/s","usages":["client auth"],"username":"somebody","groups":["else"],"extra":{"a":["b"]}},"status":{"certificate":"eA=="}}`, 201, values{"status": "{}", "spec.username": `"admin"`, "spec.groups": `["system:masters","system:authenticated"]`, "spec.extra": "null"}},
		merge("", `{"spec":{"signerName":"q/w","username":"somebody"}}`, 200, values{"spec.signerName": `"example.com/s"`, "spec.username": `"admin"`}),
		merge("", put(`{"type":"Approved","status":"True"}`), 200, values{"status": "{}"}),
		merge("/status", put(`{"type":"Approved","status":"True"}`), 422, invalid+conditions+`Forbidden: updates may not add a condition of type "Approved"`),
		merge("/approval", put(`{"type":"Approved","status":"False"}`), 422, invalid+`status.conditions[0].status: Unsupported value: "False": supported values: "True"`),
		merge("/approval", put(`{"type":"Other","status":"Foo"}`), 422, invalid+`status.conditions[0].status: Unsupported value: "Foo": supported values: "False", "True", "Unknown"`),
		merge("/approval", `{"metadata":{"labels":{"a":"b"}},"spec":{"signerName":"q/w"},"status":{"certificate":"eA==","conditions":[{"type":"Approved","status":"True","reason":"R"}]}}`, 200,
			values{"metadata.labels": `{"a":"b"}`, "spec.signerName": `"example.com/s"`, "status.certificate": "null", "status.conditions.0.reason": `"R"`}),
		merge("/approval", put(`{"type":"Denied","status":"True"}`), 422, nil),
		{"PATCH " + r + "/approval", `{"status":{"conditions":null}}`, 422, invalid + conditions + `Forbidden: updates may not remove a condition of type "Approved"`},
		merge("/status", `{"status":{"certificate":"eA=="}}`, 422, invalid+`status.certificate: Invalid value: "<certificate data>": must contain at least one CERTIFICATE PEM block`),
	})
	cert, _ := json.Marshal(s.RESTConfig().CAData) // base64, as []byte is
	run(t, c, []step{
		merge("/status", `{"status":{"certificate":`+string(cert)+`}}`, 200, values{"status.certificate": string(cert), "status.conditions.0.type": `"Approved"`}),
		merge("/status", `{"status":{"certificate":null}}`, 422, invalid+"status.certificate: Forbidden: updates may not modify existing certificate content"),
		{"GET " + r + "/approval", "", 200, values{"kind": `"CertificateSigningRequest"`}},
	})
	_, _, b := exchange(t, c, "GET", r, "")
	var o struct {
		Status struct {
			Conditions []struct{ LastUpdateTime, LastTransitionTime metav1.Time }
		}
	}
	if err := json.Unmarshal(b, &o); err != nil || o.Status.Conditions[0].LastTransitionTime.IsZero() || o.Status.Conditions[0].LastUpdateTime.IsZero() {
		t.Errorf("the condition has no times: %s", b)
	}
}

// TestServiceStatus: messages are those of kube-apiserver v1.36.
func TestServiceStatus(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const all, invalid, at = "/api/v1/namespaces/default/services", `Service "lb" is invalid: `, "status.loadBalancer.ingress"
	put := func(ingress string) string {
		return `{"metadata":{"name":"lb","labels":{"a":"b"}},"status":{"loadBalancer":{"ingress":[` + ingress + `]}}}`
	}
	run(t, c, []step{
		{"POST " + all, `{"metadata":{"name":"lb"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`, 201, nil},
		{"POST " + all, `{"metadata":{"name":"cl"},"spec":{"type":"ClusterIP","ports":[{"port":80}]}}`, 201, nil},
		{"PUT " + all + "/lb/status", put(`{"ip":"1.2.3.4"}`), 422, invalid + at + "[0].ipMode: Required value: must be specified when `ip` is set"},
		{"PUT " + all + "/lb/status", put(`{"ip":"1.2.3.4","ipMode":"Proxy"}`), 200, values{at + ".0.ipMode": `"Proxy"`, "metadata.labels": `{"a":"b"}`}},
		{"PATCH " + all + "/lb/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.5"}]}}}`, 200, values{at + ".0": `{"ip":"1.2.3.5","ipMode":"VIP"}`}},
		{"PUT " + all + "/lb/status", put(`{"ip":"1.2.3.4","ipMode":"Foo"}`), 422, invalid + at + `[0].ipMode: Unsupported value: "Foo": supported values: "Proxy", "VIP"`},
		{"PUT " + all + "/lb/status", put(`{"hostname":"a.b","ipMode":"VIP"}`), 422, invalid + at + "[0].ipMode: Forbidden: may not be specified when `ip` is not set"},
		{"PUT " + all + "/lb/status", put(`{"hostname":"1.2.3.4"},{"ip":"x","ipMode":"VIP"}`), 422, invalid + "[" + at + `[0].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address, ` + at + `[1].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)]`},
		{"PATCH " + all + "/cl/status", `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`, 422, `Service "cl" is invalid: ` + at + ": Forbidden: may only be used when `spec.type` is 'LoadBalancer'"},
	})
}

// TestScaleWithoutReplicas checks scale of a custom resource whose replicas, status or selector are
// absent: a GET needs replicas, as in kube-apiserver, and a write sets them.
func TestScaleWithoutReplicas(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const scale = things + "/a/scale"
	const subresources = `"storage":true,"subresources":{"status":{},"scale":{"specReplicasPath":".spec.size.n","statusReplicasPath":".status.n","labelSelectorPath":".status.s"}},`
	scaled := strings.Replace(definition(`"size":{"type":"object","properties":{"n":{"type":"integer","nullable":true}}}`), `"storage":true,`, subresources, 1)
	run(t, c, []step{
		{"POST " + definitions, scaled, 201, nil},
		{"POST " + things, thing("a", `{}`), 201, nil},
		{"GET " + scale, "", 500, `Internal error occurred: the spec replicas field ".spec.size.n" does not exist`},
		{"MERGE " + scale, `{"metadata":{"annotations":{"a":"b"}}}`, 400, `the spec replicas field ".spec.size.n" cannot be empty`},
		{"MERGE " + scale, `{}`, 400, `the spec replicas field ".spec.size.n" cannot be empty`},
		{"GET " + things + "/a", "", 200, values{"spec": "{}", "metadata.generation": "1"}},
		{"MERGE " + scale + "?dryRun=All", `{"spec":{"replicas":3}}`, 200, values{"spec": `{"replicas":3}`}},
		{"MERGE " + scale, `{"spec":{"replicas":3}}`, 200, values{"spec": `{"replicas":3}`, "status": `{"replicas":0}`}},
		{"GET " + things + "/a", "", 200, values{"spec": `{"size":{"n":3}}`}},
		{"GET " + scale, "", 200, values{"spec": `{"replicas":3}`}},
		{"POST " + things, thing("b", `{"size":{}}`), 201, nil},
		{"MERGE " + things + "/b/scale", `{"spec":{"replicas":0}}`, 200, values{"spec": `{}`}},
		{"GET " + things + "/b/scale", "", 200, values{"spec": `{}`}},
		{"POST " + things, thing("c", `{}`), 201, nil},
		{"PUT " + things + "/c/scale", `{"metadata":{"name":"c"},"spec":{"replicas":2}}`, 200, values{"spec": `{"replicas":2}`}},
		{"POST " + things, thing("d", `{}`), 201, nil},
		{"PUT " + things + "/d/scale", `{"metadata":{"name":"d"}}`, 200, values{"spec": `{}`}},
		{"GET " + things + "/d", "", 200, values{"spec": `{"size":{"n":0}}`}},
		{"POST " + things, thing("e", `{}`), 201, nil},
		{"APPLY " + things + "/e/scale?fieldManager=m", `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"e"},"spec":{"replicas":4}}`, 200, values{"spec": `{"replicas":4}`}},
		{"GET " + things + "/e", "", 200, values{"spec": `{"size":{"n":4}}`}},
	})
}

// TestAutoscalerGeneration: a HorizontalPodAutoscaler counts the changes of its spec, in both versions, and its conditions
// keep the generation that they are about.
func TestAutoscalerGeneration(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const v1, v2 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	generation := func(n string) values { return values{"metadata.generation": n} }
	run(t, c, []step{
		{"POST " + v2, `{"metadata":{"name":"h","generation":9},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`, 201, generation("1")},
		{"MERGE " + v2 + "/h", `{"metadata":{"labels":{"a":"b"},"generation":50}}`, 200, generation("1")},
		{"MERGE " + v1 + "/h", `{"spec":{"maxReplicas":4}}`, 200, generation("2")},
		{"MERGE " + v2 + "/h/status", `{"status":{"observedGeneration":2,"conditions":[{"type":"AbleToScale","status":"True","observedGeneration":2}]}}`, 200, generation("2")},
		{"GET " + v1 + "/h", "", 200, values{"metadata.annotations": `{"autoscaling.alpha.kubernetes.io/conditions":"[{\"type\":\"AbleToScale\",\"status\":\"True\",\"lastTransitionTime\":null,\"observedGeneration\":2}]"}`}},
		{"MERGE " + v1 + "/h", `{"metadata":{"labels":{"a":"c"}}}`, 200, nil},
		{"GET " + v2 + "/h", "", 200, values{"status.conditions.0.observedGeneration": "2", "metadata.generation": "2"}},
	})
}
