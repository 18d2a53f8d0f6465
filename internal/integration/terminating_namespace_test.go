package integration_test

import (
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestTerminatingNamespace checks that nothing can be created in a namespace that is
// being deleted, not even resources that are never stored. Messages are those of
// kube-apiserver v1.36.
func TestTerminatingNamespace(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const (
		core    = "/api/v1/namespaces/going"
		missing = "/api/v1/namespaces/missing"
		access  = "/apis/authorization.k8s.io/v1/namespaces/"
		held    = `"finalizers":["a.b/c"]`
		pod     = `"spec":{"containers":[{"name":"c","image":"i"}]}`
		review  = `{"spec":{"user":"u","resourceAttributes":{"verb":"get","resource":"pods","namespace":"`
		binding = `{"metadata":{"name":"p"},"target":{"name":"n"}}`
		evict   = `{"metadata":{"name":"p"}}`
		because = ` is forbidden: unable to create new content in namespace going because it is being terminated`
	)
	refused := func(what string) any {
		return values{
			"reason":                  `"Forbidden"`,
			"message":                 `"` + what + because + `"`,
			"details.causes.0.reason": `"NamespaceTerminating"`,
		}
	}
	run(t, c, []step{
		{"POST /api/v1/namespaces", `{"metadata":{"name":"going"}}`, 201, nil},
		{"POST " + core + "/serviceaccounts", `{"metadata":{"name":"build",` + held + `}}`, 201, nil},
		{"POST " + core + "/pods", `{"metadata":{"name":"p",` + held + `},` + pod + `}`, 201, nil},
		{"DELETE /api/v1/namespaces/going", "", 200, nil},

		{"POST " + core + "/configmaps", `{"metadata":{"name":"m"}}`, 403, refused(`configmaps \"m\"`)},
		{"APPLY " + core + "/configmaps/m?fieldManager=t", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"}}`, 403, refused(`configmaps \"m\"`)},
		{"POST " + core + "/serviceaccounts/build/token", `{}`, 403, refused(`serviceaccounts \"build\"`)},
		{"POST " + core + "/serviceaccounts/build/token?dryRun=All", `{}`, 403, refused(`serviceaccounts \"build\"`)},
		{"POST " + core + "/serviceaccounts/nobody/token", `{}`, 403, refused(`serviceaccounts \"nobody\"`)},
		{"POST " + core + "/pods/p/binding", binding, 403, refused(`pods \"p\"`)},
		{"POST " + core + "/bindings", binding, 403, refused(`bindings \"p\"`)},
		{"POST " + core + "/pods/p/eviction", evict, 403, refused(`pods \"p\"`)},

		// Access reviews are served in any namespace.
		{"POST " + access + "going/localsubjectaccessreviews", review + `going"}}}`, 201, nil},
		{"POST " + access + "missing/localsubjectaccessreviews", review + `missing"}}}`, 201, nil},

		// Changes of existing objects are allowed.
		{"MERGE " + core + "/serviceaccounts/build", `{"metadata":{"labels":{"a":"b"}}}`, 200, nil},

		{"POST " + missing + "/serviceaccounts/build/token", `{}`, 404, `namespaces "missing" not found`},
		{"POST " + missing + "/bindings", binding, 404, `namespaces "missing" not found`},
		{"POST " + missing + "/pods/p/eviction", evict, 404, `namespaces "missing" not found`},
	})
}
