package integration_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestClaimTemplates checks the errors of templates for claims: each cause is reported, and an
// update is validated like a create.
func TestClaimTemplates(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const templates = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates"
	const admin = "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	run(t, c, []step{
		{"POST " + templates, `{"metadata":{"name":"r"},"spec":{"metadata":{"name":"x","uid":"z","finalizers":["a/b"]},"spec":{}}}`, 422,
			`ResourceClaimTemplate.resource.k8s.io "r" is invalid: [spec.metadata.name: Forbidden: cannot be set, spec.metadata.uID: Forbidden: cannot be set, spec.metadata.finalizers: Forbidden: cannot be set]`},
		{"POST " + templates, `{"metadata":{"name":"r"},"spec":{"metadata":{"generateName":"g"},"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"x","adminAccess":true}}]}}}}`, 422,
			`ResourceClaimTemplate.resource.k8s.io "r" is invalid: [` + admin + `, spec.metadata.generateName: Forbidden: cannot be set]`},
		{"POST " + templates, `{"metadata":{"name":"r"},"spec":{"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"x"}}],"config":[{"opaque":{"driver":"d","parameters":{}}}]}}}}`, 201, nil},
		{"MERGE " + templates + "/r", `{"spec":{"spec":{"devices":{"config":[{"opaque":null}]}}}}`, 422, map[string]string{
			"details.causes.0.field": `"spec.spec.devices.config[0].opaque"`, "details.causes.1.field": `"spec"`, "details.causes.2": `null`,
		}},
		{"MERGE " + templates + "/r", `{"metadata":{"labels":{"a":"b"}}}`, 200, nil},
	})
}

// TestGenerations checks which changes increment the generation: an empty list instead of none does
// for the kinds that kube-apiserver compares value by value.
func TestGenerations(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const (
		policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies"
		hooks    = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	)
	of := func(n string) map[string]string { return map[string]string{"metadata.generation": n} }
	run(t, c, []step{
		{"POST " + policies, `{"metadata":{"name":"n"},"spec":{"podSelector":{},"policyTypes":["Ingress","Egress"]}}`, 201, of("1")},
		{"PUT " + policies + "/n", `{"metadata":{"name":"n"},"spec":{"podSelector":{},"policyTypes":null}}`, 200, of("2")},
		{"PUT " + policies + "/n", `{"metadata":{"name":"n"},"spec":{"podSelector":{},"policyTypes":["Ingress"]}}`, 200, of("2")},
		{"PUT " + policies + "/n", `{"metadata":{"name":"n"},"spec":{"podSelector":{},"ingress":[],"policyTypes":["Ingress"]}}`, 200, of("3")},
		{"POST " + hooks, `{"metadata":{"name":"h"},"webhooks":[]}`, 201, of("1")},
		{"MERGE " + hooks + "/h", `{"metadata":{"labels":{"a":"b"}}}`, 200, of("1")},
	})
}

// TestLongNames checks the unit in errors about long names, which depends on the kind.
func TestLongNames(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	name := strings.Repeat("a", 300)
	for path, unit := range map[string]string{ // the rules of a ReplicationController declare that of its name
		"/apis/resource.k8s.io/v1/deviceclasses":                     "bytes",
		"/api/v1/namespaces/default/replicationcontrollers":          "bytes",
		"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims": "characters",
		"/api/v1/namespaces/default/configmaps":                      "characters",
	} {
		run(t, c, []step{{"POST " + path, `{"metadata":{"name":"` + name + `"},"spec":{"replicas":1,"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`, 422, map[string]string{
			"details.causes.0.message": `"Invalid value: \"` + name + `\": must be no more than 253 ` + unit + `"`,
		}}})
	}
}

// TestRepeatedCauses checks that an update reports an error of its metadata once, although some kinds
// check it again as that of a new object, or compare it again with the stored one.
func TestRepeatedCauses(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}}).RESTConfig()
	const (
		domain    = `metadata.finalizers[0]`
		grace     = "metadata.deletionGracePeriodSeconds"
		finalizer = "metadata.finalizers"
	)
	for _, kind := range []struct{ path, body string }{
		{"/api/v1/namespaces/default/limitranges", `"spec":{"limits":[]}`},
		{"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `"addressType":"IPv4","endpoints":[]`},
		{"/api/v1/persistentvolumes", `"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}`},
		{"/apis/scheduling.k8s.io/v1/priorityclasses", `"value":1`},
		{"/api/v1/namespaces/default/configmaps", `"data":{}`},
	} {
		fields := func(of []string) map[string]string {
			want := map[string]string{fmt.Sprintf("details.causes.%d", len(of)): "null"}
			for i, f := range of {
				want[fmt.Sprintf("details.causes.%d.field", i)] = strconv.Quote(f)
			}
			return want
		}
		run(t, c, []step{
			{"POST " + kind.path, `{"metadata":{"name":"a"},` + kind.body + `}`, 201, nil},
			{"MERGE " + kind.path + "/a", `{"metadata":{"deletionGracePeriodSeconds":1}}`, 422, fields([]string{grace})},
			{"MERGE " + kind.path + "/a", `{"metadata":{"finalizers":["a "]}}`, 422, fields([]string{finalizer, domain})},
		})
	}
}
