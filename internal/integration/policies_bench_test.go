package integration_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// BenchmarkPolicies creates Pods over HTTP, in turns in a namespace without policies and in one with
// three policies of ten validations each.
func BenchmarkPolicies(b *testing.B) {
	config := servertest.Start(b, &tidemark.Server{}).RESTConfig()
	client := servertest.Client(b, config)
	post := func(path, body string) {
		if code, response := send(b, client, "POST", config.Host+path, body); code != http.StatusCreated {
			b.Fatalf("POST %s: %d %s", path, code, response)
		}
	}
	post("/api/v1/namespaces", `{"metadata":{"name":"without"}}`)
	post("/api/v1/namespaces", `{"metadata":{"name":"with"}}`)
	for _, name := range []string{"p0", "p1", "p2"} {
		post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", testkinds.PodPolicy(name, "pods", `{"kubernetes.io/metadata.name":"with"}`))
		post("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", testkinds.DenyBinding(name))
	}
	next := 0
	for round := range 3 {
		for _, namespace := range []string{"without", "with"} {
			b.Run(fmt.Sprintf("%s/%d", namespace, round), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					next++
					post("/api/v1/namespaces/"+namespace+"/pods", testkinds.PlainPod(fmt.Sprint("web-", next)))
				}
			})
		}
	}
}
