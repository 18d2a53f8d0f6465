package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// podValidations are ten validations of Pods as clusters have them. They hold for plainPod.
var podValidations = []string{
	"object.spec.containers.all(c, has(c.image) && !c.image.endsWith(':latest'))",
	"object.spec.containers.all(c, !has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged)",
	"!has(object.spec.hostNetwork) || !object.spec.hostNetwork",
	"!has(object.spec.volumes) || object.spec.volumes.all(v, !has(v.hostPath))",
	"has(object.metadata.labels) && 'app' in object.metadata.labels",
	"object.metadata.name.size() < 64",
	"request.operation == 'CREATE'",
	"object.spec.containers.all(c, has(c.resources) && has(c.resources.requests) && 'cpu' in c.resources.requests)",
	"object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
	"!has(object.spec.priorityClassName) || object.spec.priorityClassName in ['low', 'high']",
}

const plainPod = `{"metadata":{"name":"web-%d","labels":{"app":"web","tier":"front"},"annotations":{"a":"b"}},"spec":{"containers":[
{"name":"app","image":"registry.example.com/web:1.2","resources":{"requests":{"cpu":"100m","memory":"64Mi"}},"ports":[{"containerPort":80}],"env":[{"name":"A","value":"b"}],"securityContext":{"runAsNonRoot":true}},
{"name":"side","image":"registry.example.com/side:1.2","resources":{"requests":{"cpu":"100m"}}}],"volumes":[{"name":"v","emptyDir":{}}]}}`

// BenchmarkPolicies creates Pods over HTTP, in turns in a namespace without policies and in one with
// three policies of ten validations each.
func BenchmarkPolicies(b *testing.B) {
	config := servertest.Start(b, &tidemark.Server{}).RESTConfig()
	client := servertest.Client(b, config)
	post := func(path, body string) {
		if code, answer := send(b, client, "POST", config.Host+path, body); code != http.StatusCreated {
			b.Fatalf("POST %s: %d %s", path, code, answer)
		}
	}
	var validations []string
	for _, text := range podValidations {
		quoted, _ := json.Marshal(text)
		validations = append(validations, fmt.Sprintf(`{"expression":%s}`, quoted))
	}
	post("/api/v1/namespaces", `{"metadata":{"name":"without"}}`)
	post("/api/v1/namespaces", `{"metadata":{"name":"with"}}`)
	for i := range 3 {
		post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"matchConstraints":{
			"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"with"}},
			"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},"validations":[%s]}}`, i, strings.Join(validations, ",")))
		post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"policyName":"p%d","validationActions":["Deny"]}}`, i, i))
	}
	next := 0
	for round := range 3 {
		for _, namespace := range []string{"without", "with"} {
			b.Run(fmt.Sprintf("%s/%d", namespace, round), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					next++
					post("/api/v1/namespaces/"+namespace+"/pods", fmt.Sprintf(plainPod, next))
				}
			})
		}
	}
}
