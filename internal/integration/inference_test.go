package integration_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestRefusalsAreEqual checks that the response to a request without the right does not depend on
// the existence of the object and the namespace, nor on the body.
func TestRefusalsAreEqual(t *testing.T) {
	b := besiege(t)
	for _, row := range []string{"GET %s", "DELETE %s", "DELETE %s?dryRun=All", "PUT %s", "PATCH %s", "GET %s/status", "GET %s?resourceVersion=1", "GET %s?export=1"} {
		response := func(namespace, name string) string {
			path := "/api/v1/namespaces/" + namespace + "/secrets/" + name
			code, text := b.raw(fmt.Sprintf(row, path), asBob)
			if code != http.StatusForbidden {
				t.Errorf(row+": %d %s", path, code, text)
			}
			return strings.NewReplacer(namespace, "NS", name, "NAME").Replace(text)
		}
		want := response("bank", "absent")
		for _, other := range [][2]string{{"bank", "vault"}, {"void", "vault"}} {
			if got := response(other[0], other[1]); got != want {
				t.Errorf(row+" differs:\n%s\n%s", other, got, want)
			}
		}
	}
	var first string
	for _, body := range []string{`{"metadata":{"name":"vault"}}`, `{"metadata":{"name":"absent"}}`, `{"metadata":{"name":"NOT VALID"}}`, "junk", ""} {
		code, text := b.raw("POST /api/v1/namespaces/bank/secrets", asBob, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)), "", body)
		if code != http.StatusForbidden || first != "" && text != first {
			t.Errorf("a create with %q: %d %s", body, code, text)
		}
		first = text
	}
}

// TestListsOfOneNamespace checks that neither counts nor continue tokens of a list reveal objects
// outside of the lists that the user may read.
func TestListsOfOneNamespace(t *testing.T) {
	b := besiege(t)
	admin := b.RESTConfig()
	for i := range 5 {
		for _, namespace := range []string{"bank", "shop"} {
			if namespace == "shop" && i > 2 {
				continue
			}
			run(t, admin, []step{{"POST /api/v1/namespaces/" + namespace + "/secrets", fmt.Sprintf(`{"metadata":{"name":"s%d"},"stringData":{"k":"of-%s"}}`, i, namespace), 201, nil}})
		}
	}
	code, text := b.raw("GET /api/v1/namespaces/shop/secrets?limit=1", asBob)
	if code != http.StatusOK || pick(t, []byte(text), "metadata.remainingItemCount") != "2" {
		t.Errorf("%d %s", code, text)
	}
	_, all := servertest.Get(t, admin, "/api/v1/secrets?limit=1")
	_, bank := servertest.Get(t, admin, "/api/v1/namespaces/bank/secrets?limit=1")
	encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	revision := strings.Trim(pick(t, []byte(bank), "metadata.resourceVersion"), `"`)
	for _, token := range []string{
		strings.Trim(pick(t, []byte(all), "metadata.continue"), `"`),
		strings.Trim(pick(t, []byte(bank), "metadata.continue"), `"`),
		encode(`{"v":"meta.k8s.io/v1","rv":` + revision + `,"start":"../bank/s0\u0000"}`),
		encode(`{"v":"meta.k8s.io/v1","rv":` + revision + `,"start":"/registry/secrets/bank/s0\u0000"}`),
		encode(`{"v":"meta.k8s.io/v1","rv":-1,"start":"..\u0000"}`),
		encode(`{"v":"meta.k8s.io/v1","rv":` + revision + `,"start":"\u0000"}`),
	} {
		_, text := b.raw("GET /api/v1/namespaces/shop/secrets?continue="+token, asBob)
		if strings.Contains(text, `"namespace":"bank"`) || strings.Contains(text, hidden) {
			t.Errorf("the token %s leads to %.300s", token, text)
		}
	}
}

// TestNamedRights: a right to one name is a right to list and to watch that name alone, and no
// right to delete a collection.
func TestNamedRights(t *testing.T) {
	b := besiege(t)
	run(t, b.RESTConfig(), []step{
		{"POST /api/v1/namespaces/bank/secrets", `{"metadata":{"name":"teller"}}`, 201, nil},
		{"POST " + rbacPath + "/namespaces/bank/roles", roleBody("one", `{"apiGroups":[""],"resources":["secrets"],"resourceNames":["teller"],"verbs":["*"]}`), 201, nil},
		{"POST " + rbacPath + "/namespaces/bank/rolebindings", bindingBody("one", "Role", "one", rbacBob), 201, nil},
	})
	const list = "GET /api/v1/namespaces/bank/secrets"
	for request, want := range map[string]int{
		"GET /api/v1/namespaces/bank/secrets/teller": 200,
		"GET /api/v1/namespaces/bank/secrets/vault":  403,
		list: 403,
		list + "?fieldSelector=metadata.name%3Dteller":                                                200,
		list + "?fieldSelector=metadata.name%3Dvault":                                                 403,
		list + "?fieldSelector=metadata.name!%3Dteller":                                               403,
		list + "?fieldSelector=metadata.name%3Dteller&fieldSelector=metadata.name%3Dvault":            200, // the first one counts
		list + "?labelSelector=a&fieldSelector=metadata.namespace%3Dbank":                             403,
		list + "?fieldSelector=type%3DOpaque":                                                         403,
		list + "?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dvault":                        403,
		"GET /api/v1/secrets?fieldSelector=metadata.name%3Dteller":                                    403,
		"DELETE /api/v1/namespaces/bank/secrets":                                                      403,
		"DELETE /api/v1/namespaces/bank/secrets?fieldSelector=metadata.name%3Dvault":                  403,
		"DELETE /api/v1/namespaces/bank/secrets?fieldSelector=metadata.name%3Dteller&dryRun=All":      403,
		"DELETE /api/v1/namespaces/bank/secrets?fieldSelector=metadata.name%3Dteller%2Ctype!%3Dvault": 403,
	} {
		if code, text := b.raw(request, asBob); code != want || strings.Contains(text, hidden) || strings.Contains(text, `"vault"`) && code == 200 {
			t.Errorf("%s: %d %.400s, want %d", request, code, text, want)
		}
	}
	servertest.WantCode(t, b.RESTConfig(), "/api/v1/namespaces/bank/secrets/vault", http.StatusOK, "")
}

// TestDocumentsNeedRights: without credentials nothing but health and the version can be read,
// and those contain no data; a user without roles reads the documents about the API in
// addition.
func TestDocumentsNeedRights(t *testing.T) {
	b := besiege(t)
	const anonymous, ann = "Accept: */*", "Authorization: Bearer t-ann"
	for path, open := range map[string]bool{"/livez": true, "/readyz": true, "/healthz": true, "/version": true, "/livez?verbose": true, "/readyz?verbose": true,
		"/": false, "/api": false, "/apis": false, "/apis/example.com": false, "/apis/example.com/v1": false, "/openapi/v2": false, "/openapi/v3": false,
		"/openapi/v3/apis/example.com/v1": false, "/metrics": false, "/.well-known/openid-configuration": false, "/openid/v1/jwks": false} {
		code, text := b.raw("GET "+path, anonymous)
		if want := map[bool]int{true: 200, false: 403}[open]; code != want {
			t.Errorf("%s without credentials: %d, want %d", path, code, want)
		}
		for _, word := range []string{"gadgets", "bank", "vault", hidden, "127.0.0.1", "/pki", "panic"} {
			if strings.Contains(text, word) {
				t.Errorf("%s without credentials has %q", path, word)
			}
		}
	}
	for path, want := range map[string]int{"/api": 200, "/apis": 200, "/apis/example.com/v1": 200, "/openapi/v2": 200, "/openapi/v3": 200, "/version": 200, "/metrics": 403, "/": 403, "/debug/pprof/": 403} {
		if code, text := b.raw("GET "+path, ann); code != want || strings.Contains(text, hidden) {
			t.Errorf("%s as a user without roles: %d, want %d", path, code, want)
		}
	}
	for request, body := range map[string]string{
		"POST " + accessReviews: `{"spec":{"user":"root","groups":["system:masters"],"resourceAttributes":{"verb":"get","resource":"secrets"}}}`,
		"POST " + localAccess:   `{"spec":{"user":"root","resourceAttributes":{"namespace":"default","verb":"get","resource":"secrets"}}}`,
		"POST " + tokenReviews:  `{"spec":{"token":"t-admin"}}`,
	} {
		if code, text := b.raw(request, ann, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)), "", body); code != http.StatusForbidden {
			t.Errorf("%s as a user without roles: %d %s", request, code, text)
		}
	}
}
