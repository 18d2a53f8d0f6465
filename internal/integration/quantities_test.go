package integration_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestLargeQuantities sends quantities that take hours to parse, to compare or to print, wherever a
// quantity can be. All are refused.
func TestLargeQuantities(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	const pods = "/api/v1/namespaces/default/pods"
	pod := func(more, requests string) string {
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"%s},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{%s}}}]}}`, more, requests)
	}
	post := func(path, body string) call { return call{"POST", path, asJSON, body} }
	quota := func(q string) string { return `{"metadata":{"name":"q"},"spec":{"hard":{"cpu":` + q + `}}}` }
	claim := func(q string) string {
		return `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":` + q + `}}}}`
	}
	// Text that only looks like a quantity is accepted.
	for _, ok := range []call{
		post(pods, pod(`,"labels":{"commit":"1e900000000","digits":"123456789012345678901234567890123456789012345678901234567890123"}`, `"cpu":"1e-3","memory":"1.5Gi"`)),
		post(configMaps, `{"metadata":{"name":"c"},"data":{"a":"1e-900000000","b":"`+strings.Repeat("9", 1000)+`"}}`),
		post("/api/v1/namespaces/default/resourcequotas", quota(`"9223372036854775807"`)),
	} {
		ok.url = c.Host + ok.url
		resp := ok.send(t, h)
		resp.Body.Close()
		if resp.StatusCode != 201 {
			t.Errorf("%s: %d", ok.url, resp.StatusCode)
		}
	}
	message, err := protobufPod(map[corev1.ResourceName]apiresource.Quantity{"cpu": {}, "example.com/a": *apiresource.NewScaledQuantity(1, math.MaxInt32)})
	if err != nil {
		t.Fatal(err)
	}
	calls := []call{{"POST", pods + "?dryRun=All", "application/vnd.kubernetes.protobuf", string(message)}}
	for _, q := range []string{`"1e-900000000"`, `"1e900000000"`, `1e-900000000`, `1E+900000000`, `"1.5e-2147483648"`, `"12345678901234567890e900000000"`, `" 1e-900000000 "`, `"1` + strings.Repeat("0", 1<<20) + `"`} {
		resources := `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":` + q + `}}}]}}`
		calls = append(
			calls,
			post(pods+"?dryRun=All", pod("", `"cpu":`+q)),
			post(pods+"?dryRun=All", pod(`,"unknown":1`, `"cpu":`+q)),
			post(pods, strings.Replace(pod("", `"cpu":`+q), `"requests"`, `"REQUESTS":{},"requests"`, 1)),
			post("/api/v1/namespaces/default/resourcequotas", quota(q)),
			post("/api/v1/namespaces/default/limitranges", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","max":{"cpu":`+q+`},"min":{"cpu":"1"}}]}}`),
			post("/api/v1/namespaces/default/persistentvolumeclaims", claim(q)),
			post("/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"capacity":{"cpu":`+q+`}}}`),
			post("/apis/apps/v1/namespaces/default/statefulsets", `{"metadata":{"name":"s"},"spec":{"volumeClaimTemplates":[`+claim(q)+`]}}`),
			post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"h"},"spec":{"metrics":[{"type":"External","external":{"target":{"type":"Value","value":`+q+`}}}]}}`),
			post("/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities", `{"metadata":{"name":"s"},"storageClassName":"c","capacity":`+q+`}`),
			post("/apis/resource.k8s.io/v1/resourceslices", `{"metadata":{"name":"s"},"spec":{"devices":[{"name":"d","capacity":{"a.b/c":{"value":`+q+`}}}]}}`),
			call{"PATCH", pods + "/a", asMerge, resources},
			call{"PATCH", pods + "/a", asStrategic, resources},
			call{"PATCH", pods + "/a", asJSONPatch, `[{"op":"add","path":"/spec/containers/0/resources/requests/cpu","value":` + q + `}]`},
			call{"PATCH", pods + "/a?fieldManager=m&force=true", asApply, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},` + resources[1:]},
		)
		if q[0] == '"' {
			calls = append(calls, call{"POST", pods, "application/yaml", pod("", `"cpu":`+q)})
		}
	}
	for _, one := range calls {
		path := one.url
		one.url = c.Host + one.url
		resp := one.send(t, h)
		var status metav1.Status
		err := json.NewDecoder(resp.Body).Decode(&status)
		resp.Body.Close()
		// Some patches fail for another reason: they are numbers, or quoted in full.
		if err != nil || status.Code != 400 && status.Code != 422 || one.method == "POST" && !strings.Contains(status.Message, "a quantity must have at most 128 bytes") {
			t.Errorf("%s %s %.200s: %d %.300s %v", one.method, path, one.body, status.Code, status.Message, err)
		}
	}
	// An annotation of an autoscaler has metrics. Unreadable metrics are ignored.
	for _, name := range []string{"resource", "Resource", "re\u017fource"} {
		metrics := `[{"type":"Resource","` + name + `":{"name":"cpu","targetAverageValue":"1e-900000000"}}]`
		annotations, err := json.Marshal(map[string]string{"autoscaling.alpha.kubernetes.io/metrics": metrics})
		if err != nil {
			t.Fatal(err)
		}
		body := `{"metadata":{"name":"h","annotations":` + string(annotations) + `},"spec":{"maxReplicas":2,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`
		if code, text := send(t, h, "POST", c.Host+"/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers?dryRun=All", body); code != 201 || strings.Contains(text, "900000000") {
			t.Errorf("%s: %d %.300s", name, code, text)
		}
	}
	// Names of resources have sizes, too.
	if code, text := send(t, h, "POST", c.Host+pods+"?dryRun=All", pod("", `"cpu":"1","hugepages-1e-900000000":"1Mi"`)); code != 422 {
		t.Errorf("%d %.300s", code, text)
	}
	if code, text := send(t, h, "POST", c.Host+pods+"?dryRun=All", pod("", `"cpu":"1","hugepages-1e99":"1Mi"`)); code != 422 {
		t.Errorf("%d %.300s", code, text)
	}
}

// protobufPod returns a Pod with a container that requests resources.
func protobufPod(requests corev1.ResourceList) ([]byte, error) {
	for name, q := range requests {
		q.Format = apiresource.DecimalExponent
		requests[name] = q
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return runtime.Encode(protobuf.NewSerializer(scheme, scheme), &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "b"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: requests}}}},
	})
}

// TestLargeQuantitiesInRules checks that rules and policies cannot parse large quantities.
func TestLargeQuantitiesInRules(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	run(t, c, []step{
		{"POST " + definitions, definition(`"q":{"type":"string","x-kubernetes-validations":[{"rule":"quantity(self).compareTo(quantity('1')) >= 0"}]}`), 201, nil},
		{"POST " + things, thing("a", `{"q":"1500m"}`), 201, nil},
		{"POST " + things, thing("b", `{"q":"1e-900000000"}`), 422, nil},
		{"POST " + things, thing("b", `{"q":"1e900000000"}`), 422, nil},
	})
}
