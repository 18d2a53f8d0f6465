package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestPoliciesAtOnce changes a policy, its binding, its params and the definition of its params. Each
// change is in effect with the next request.
func TestPoliciesAtOnce(t *testing.T) {
	c := servertest.Start(t, &tidemark.Server{}).RESTConfig()
	const policies, bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	must := func(method, path, body string, code int) {
		t.Helper()
		if got, _, response := exchange(t, c, method, path, body); got != code {
			t.Fatalf("%s %s: %d, want %d: %s", method, path, got, code, response)
		}
	}
	// writes reports whether a Secret with n keys is created; want is a part of the denial.
	writes := func(n int, want string) {
		t.Helper()
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf(`"k%d":"v"`, i))
		}
		code, _, response := exchange(t, c, "POST", "/api/v1/namespaces/default/secrets?dryRun=All", `{"metadata":{"name":"s"},"stringData":{`+strings.Join(keys, ",")+`}}`)
		if want == "" && code != http.StatusCreated || want != "" && (code != http.StatusUnprocessableEntity || !strings.Contains(string(response), want)) {
			t.Fatalf("a Secret with %d keys: %d %s, want %q", n, code, response, want)
		}
	}
	policy := func(name, kind, expression string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"paramKind":%s,"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}]},
			"validations":[{"expression":%q,"messageExpression":"'at most ' + string(params.max)"}]}}`, name, kind, expression)
	}
	binding := func(name string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q,"validationActions":["Deny"],"paramRef":{"name":"p","parameterNotFoundAction":"Deny"}}}`, name, name)
	}
	// A built-in kind of params works for each policy, not only for the first of a process.
	for range 2 {
		must("POST", policies, policy("built-in", `{"apiVersion":"v1","kind":"ConfigMap"}`, "object.data.size() <= int(params.data.max)"), http.StatusCreated)
		writes(9, "")
		must("POST", bindings, binding("built-in"), http.StatusCreated)
		writes(1, "no params found for policy binding with `Deny` parameterNotFoundAction")
		must("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"p"},"data":{"max":"2"}}`, http.StatusCreated)
		writes(2, "")
		writes(3, "failed expression: object.data.size() ")
		must("MERGE", "/api/v1/namespaces/default/configmaps/p", `{"data":{"max":"3"}}`, http.StatusOK)
		writes(3, "")
		must("MERGE", policies+"/built-in", `{"spec":{"failurePolicy":"Ignore","validations":[{"expression":"object.nope == 1"}]}}`, http.StatusOK)
		writes(9, "")
		must("DELETE", bindings+"/built-in", "", http.StatusOK)
		must("DELETE", policies+"/built-in", "", http.StatusOK)
		must("DELETE", "/api/v1/namespaces/default/configmaps/p", "", http.StatusOK)
	}
	// A kind of params may be defined after the policy.
	must("POST", policies, policy("custom", `{"apiVersion":"example.com/v1","kind":"Limit"}`, "object.data.size() <= params.max"), http.StatusCreated)
	must("POST", bindings, binding("custom"), http.StatusCreated)
	writes(1, "failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'")
	must("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"limits.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"kind":"Limit","plural":"limits"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"max":{"type":"integer"}}}}}]}}`, http.StatusCreated)
	writes(1, "no params found")
	must("POST", "/apis/example.com/v1/namespaces/default/limits", `{"apiVersion":"example.com/v1","kind":"Limit","metadata":{"name":"p"},"max":1}`, http.StatusCreated)
	writes(1, "")
	writes(2, "at most 1")
}
