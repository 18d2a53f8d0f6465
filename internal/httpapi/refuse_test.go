package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	noResource = "the server could not find the requested resource"
	noMethod   = "the server does not allow this method on the requested resource"
	noPage     = "404 page not found\n"
	noFormat   = "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
)

// TestRefusals sends requests that are refused before any verb is reached.
func TestRefusals(t *testing.T) {
	s := start(t, wiring{})
	const ns = "/api/v1/namespaces/default"
	tests := []struct {
		method, path string
		headers      []string
		code         int
		message      string // of the Status; the body where it is no Status
	}{
		{"GET", ns + "/nopes", nil, 404, noResource},
		{"GET", ns + "/nopes/x", nil, 404, noResource},
		{"POST", ns + "/nopes", nil, 404, noResource},
		{"DELETE", ns + "/nopes/x", nil, 404, noResource},
		{"GET", ns + "/ConfigMaps", nil, 404, noResource},
		{"GET", ns + "/configmap/x", nil, 404, noResource},
		{"GET", ns + "/configmaps/x/y/z", nil, 404, noResource},
		{"GET", ns + "/configmaps/x/status", nil, 404, noResource},
		{"GET", ns + "/configmaps//x", nil, 404, noResource},
		{"GET", ns + "/configmaps//", nil, 404, noResource},
		{"GET", ns + "/configmaps/a%2fb", nil, 404, noResource},
		{"GET", ns + "/persistentvolumes/x", nil, 404, noResource},
		{"GET", "/api/v1/pods/x", nil, 404, noResource},
		{"GET", "/api/v1//pods", nil, 404, noResource},
		{"GET", "/api/v1/watch", nil, 404, noResource},
		{"GET", "/api/v1/watch/nopes", nil, 404, noResource},
		{"GET", "/api/v1/watch/configmaps/a", nil, 404, noResource},
		{"GET", "/apis/authorization.k8s.io/v1/watch/selfsubjectaccessreviews", nil, 404, noResource},
		{"GET", "/api/v1/proxy/x", nil, 404, noResource},
		{"GET", "/api/v2", nil, 404, noResource},
		{"GET", "/api/v2/pods", nil, 404, noResource},
		{"GET", "/apis/apps/v9", nil, 404, noResource},
		{"GET", "/apis/apps/v1beta1/deployments", nil, 404, noResource},
		{"PUT", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews/x", nil, 404, noResource},

		{"GET", "/apis/nope.example.org", nil, 404, noPage},
		{"GET", "/apis/nope.example.org/v1", nil, 404, noPage},
		{"GET", "/apis/nope.example.org/v1/things", nil, 404, noPage},
		{"GET", "/apis//v1/things", nil, 404, noPage},
		{"GET", "//api", nil, 404, noPage},
		{"GET", "/nope", nil, 404, noPage},
		{"GET", "/metrics/nope", nil, 404, noPage},
		{"GET", "/healthz/", nil, 404, noPage},
		{"GET", "/version/x", nil, 404, noResource},
		{"GET", "/version", []string{"Impersonate-Group: system:masters"}, 400, `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"system:masters"}, Extra:map[string][]string(nil)} without impersonating a user name`},
		{"GET", "/healthz/nope", nil, 404, noPage},
		{"GET", "/openapi", nil, 404, noPage},

		{"PUT", ns + "/configmaps", nil, 405, noMethod},
		{"PATCH", ns + "/configmaps", []string{"Content-Type: text/plain"}, 405, noMethod},
		{"POST", ns + "/configmaps/a", nil, 405, noMethod},
		{"OPTIONS", ns + "/configmaps", nil, 405, noMethod},
		{"TRACE", ns + "/configmaps", nil, 405, noMethod},
		{"FROB", ns + "/configmaps", nil, 405, noMethod},
		{"POST", "/api/v1/configmaps", nil, 405, noMethod},
		{"POST", "/apis/apps/v1/namespaces/default/deployments/x/status", nil, 405, noMethod},
		{"DELETE", "/apis/apps/v1/namespaces/default/deployments/x/scale", nil, 405, noMethod},
		{"DELETE", "/api/v1/namespaces", nil, 405, noMethod},
		{"GET", ns + "/bindings", nil, 405, noMethod},
		{"GET", ns + "/finalize", nil, 405, noMethod},
		{"GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, 405, noMethod},
		{"GET", ns + "/pods/x/eviction", nil, 405, noMethod},
		{"DELETE", ns + "/pods/x/attach", nil, 405, noMethod},
		{"POST", "/api/v1/watch/namespaces/default/secrets", nil, 405, noMethod},
		{"POST", "/api", nil, 405, noMethod},
		{"POST", "/apis", nil, 405, noMethod},
		{"POST", "/version", nil, 405, noMethod},

		{"GET", ns + "/configmaps/%2e%2e", nil, 400, `Name parameter invalid: "..": may not be '..'`},
		{"GET", ns + "/configmaps/.", nil, 400, `Name parameter invalid: ".": may not be '.'`},
		{"GET", ns + "/configmaps/a%25b", nil, 400, `Name parameter invalid: "a%b": may not contain '%'`},
		{"GET", "/api/v1/nodes/..", nil, 400, `Name parameter invalid: "..": may not be '..'`},
		{"GET", "/api/v1/namespaces/%2e%2e/configmaps", nil, 400, `Namespace parameter invalid: "..": may not be '..'`},

		{"GET", ns + "/configmaps", []string{"Accept: text/html"}, 406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"},
		{"GET", ns + "/configmaps/a", []string{"Accept: text/html"}, 406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"GET", ns + "/configmaps/a", []string{"Accept: application/json;as=Foo;g=meta.k8s.io;v=v1"}, 406, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"GET", "/version", []string{"Accept: text/html"}, 406, "406: Not Acceptable\n\nAvailable representations: application/json"},
		{"GET", "/apis", []string{"Accept: text/html"}, 406, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{"GET", "/apis/apps/v1", []string{"Accept: text/html"}, 406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"},

		{"POST", ns + "/configmaps", []string{"Content-Type: text/plain"}, 415, noFormat},
		{"POST", ns + "/configmaps", []string{"Content-Type: garbage"}, 415, noFormat},
		{"PUT", ns + "/configmaps/a", []string{"Content-Type: application/merge-patch+json"}, 415, noFormat},
		{"DELETE", ns + "/configmaps/a", []string{"Content-Type: text/plain"}, 415, noFormat},
		{"PATCH", ns + "/configmaps/a", []string{"Content-Type: text/plain"}, 415, "415: Unsupported Media Type"},
		{"PATCH", ns + "/configmaps/a", []string{"Content-Type: application/json"}, 415, "415: Unsupported Media Type"},
		{"POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil, 501, "selfsubjectaccessreviews.authorization.k8s.io: not served by this version; nothing was changed"},

		{"GET", ns + "/configmaps?limit=abc", nil, 400, `strconv.ParseInt: parsing "abc": invalid syntax`},
		{"GET", ns + "/configmaps?timeoutSeconds=abc", nil, 400, `strconv.ParseInt: parsing "abc": invalid syntax`},
		{"GET", ns + "/configmaps?watch=1&timeoutSeconds=abc", nil, 400, `strconv.ParseInt: parsing "abc": invalid syntax`},
		{"GET", ns + "/configmaps?timeout=abc", nil, 400, `invalid timeout specified in the request URL - time: invalid duration "abc"`},
		{"GET", ns + "/configmaps?timeout=1ns", nil, 504, "Timeout: request did not complete within the allotted timeout"},
		{"GET", ns + "/configmaps/a?export=true", nil, 400, "the export parameter, deprecated since v1.14, is no longer supported"},
		{"GET", ns + "/configmaps?fieldSelector=a", nil, 400, "invalid selector: 'a'; can't understand 'a'"},
		{"DELETE", ns + "/configmaps/a?gracePeriodSeconds=x", nil, 400, `strconv.ParseInt: parsing "x": invalid syntax`},
	}
	for _, tt := range tests {
		body := ""
		if tt.method != "GET" && tt.method != "OPTIONS" && tt.method != "TRACE" && !strings.Contains(tt.path, "Period") {
			body = "{}"
		}
		a := s.do(t, tt.method, tt.path, body, tt.headers...)
		name := tt.method + " " + tt.path + " " + strings.Join(tt.headers, " ")
		if a.code != tt.code {
			t.Errorf("%s: %d, want %d: %s", name, a.code, tt.code, a.body)
			continue
		}
		if tt.message == noPage {
			if a.body != noPage || a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
				t.Errorf("%s: %q, %q", name, a.body, a.header.Get("Content-Type"))
			}
			continue
		}
		code, reason, message := a.status(t)
		if code != tt.code || message != tt.message || reason == "" {
			t.Errorf("%s: %d %s %q, want %q", name, code, reason, message, tt.message)
		}
		if got := a.header.Get("Content-Type"); got != "application/json" {
			t.Errorf("%s: content type %q", name, got)
		}
	}
}

func TestHeadOfAResource(t *testing.T) {
	s := start(t, wiring{})
	if a := s.do(t, "HEAD", "/api/v1/namespaces/default/configmaps", ""); a.code != 405 || a.body != "" {
		t.Errorf("%d %q", a.code, a.body)
	}
	if a := s.do(t, "HEAD", "/readyz", ""); a.code != 200 {
		t.Errorf("%d", a.code)
	}
}

// TestErrorText compares whole bodies: field order, indentation, the newline.
func TestErrorText(t *testing.T) {
	s := start(t, wiring{})
	tests := []struct {
		path, header, want string
	}{
		{"/api/v1/nopes", "Accept: application/json", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"the server could not find the requested resource","reason":"NotFound","details":{},"code":404}` + "\n"},
		{"/api/v1/nopes?pretty=1", "Accept: application/json", "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \"message\": \"the server could not find the requested resource\",\n  \"reason\": \"NotFound\",\n  \"details\": {},\n  \"code\": 404\n}"},
		{"/api/v1/nopes", "Accept: application/yaml", "apiVersion: v1\ncode: 404\ndetails: {}\nkind: Status\nmessage: the server could not find the requested resource\nmetadata: {}\nreason: NotFound\nstatus: Failure\n"},
		{"/version", "Accept: text/html", "{\n  \"kind\": \"Status\",\n  \"apiVersion\": \"v1\",\n  \"metadata\": {},\n  \"status\": \"Failure\",\n  \"message\": \"406: Not Acceptable\\n\\nAvailable representations: application/json\",\n  \"reason\": \"NotAcceptable\",\n  \"details\": {},\n  \"code\": 406\n}"},
	}
	for _, tt := range tests {
		if a := s.do(t, "GET", tt.path, "", tt.header); a.body != tt.want {
			t.Errorf("GET %s, %s:\n%s\nwant\n%s", tt.path, tt.header, a.body, tt.want)
		}
	}
}

func TestWhoMay(t *testing.T) {
	s := start(t, wiring{})
	tests := []struct {
		method, path, auth string
		code               int
		message            string
	}{
		{"GET", "/api/v1/namespaces/x/configmaps", "Bearer wrong", 401, "Unauthorized"},
		{"GET", "/healthz", "Bearer wrong", 401, "Unauthorized"},
		{"GET", "/healthz", "none", 200, ""},
		{"GET", "/readyz/ping", "none", 200, ""},
		{"GET", "/version", "none", 200, ""},
		{"GET", "/apis", "none", 403, `forbidden: User "system:anonymous" cannot get path "/apis"`},
		{"GET", "/nope", "none", 403, `forbidden: User "system:anonymous" cannot get path "/nope"`},
		{"POST", "/version", "none", 403, `forbidden: User "system:anonymous" cannot post path "/version"`},
		{"GET", "/api/v1/namespaces/x/configmaps", "none", 403, `configmaps is forbidden: User "system:anonymous" cannot list resource "configmaps" in API group "" in the namespace "x"`},
		{"GET", "/api/v1/namespaces/x/configmaps?watch=1", "Bearer bob", 403, `configmaps is forbidden: User "bob" cannot watch resource "configmaps" in API group "" in the namespace "x"`},
		{"POST", "/api/v1/namespaces/x/configmaps", "none", 403, `configmaps is forbidden: User "system:anonymous" cannot create resource "configmaps" in API group "" in the namespace "x"`},
		{"OPTIONS", "/api/v1/nodes/x", "Bearer bob", 403, `nodes "x" is forbidden: User "bob" cannot  resource "nodes" in API group "" at the cluster scope`},
		{"GET", "/api/v1/nodes/x", "Bearer bob", 403, `nodes "x" is forbidden: User "bob" cannot get resource "nodes" in API group "" at the cluster scope`},
		{"GET", "/api/v1/namespaces/x/pods/p/log", "Bearer bob", 403, `pods "p" is forbidden: User "bob" cannot get resource "pods/log" in API group "" in the namespace "x"`},
		{"GET", "/api/v1/namespaces/x", "Bearer bob", 403, `namespaces "x" is forbidden: User "bob" cannot get resource "namespaces" in API group "" in the namespace "x"`},
		{"GET", "/apis/apps/v1/deployments?fieldSelector=metadata.name%3Dd", "Bearer bob", 403, `deployments.apps "d" is forbidden: User "bob" cannot list resource "deployments" in API group "apps" at the cluster scope`},
		{"GET", "/apis/apps/v1/deployments?fieldSelecto%72=metadata.name%3Dd", "Bearer bob", 403, `deployments.apps "d" is forbidden: User "bob" cannot list resource "deployments" in API group "apps" at the cluster scope`},
		{"DELETE", "/apis/apps/v1/namespaces/x/deployments", "Bearer bob", 403, `deployments.apps is forbidden: User "bob" cannot deletecollection resource "deployments" in API group "apps" in the namespace "x"`},
		{"GET", "/apis/nope/v1/things/x", "Bearer bob", 403, `things.nope "x" is forbidden: User "bob" cannot get resource "things" in API group "nope" at the cluster scope`},
	}
	for _, tt := range tests {
		a := s.do(t, tt.method, tt.path, "", "Authorization: "+tt.auth)
		if a.code != tt.code {
			t.Errorf("%s %s as %s: %d %s", tt.method, tt.path, tt.auth, a.code, a.body)
			continue
		}
		if a.header.Get("Audit-Id") == "" || a.header.Get("Cache-Control") != "no-cache, private" {
			t.Errorf("%s %s: headers %v", tt.method, tt.path, a.header)
		}
		queued := tt.code != 401 && !strings.HasSuffix(tt.path, "/log")
		if got := len(a.header["X-Kubernetes-Pf-Flowschema-Uid"]) == 1; got != queued { // empty: the schema is not stored
			t.Errorf("%s %s: headers %v", tt.method, tt.path, a.header)
		}
		if tt.message == "" {
			continue
		}
		if _, _, message := a.status(t); message != tt.message {
			t.Errorf("%s %s:\n got %s\nwant %s", tt.method, tt.path, message, tt.message)
		}
		if tt.code == 403 && a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: headers %v", tt.method, tt.path, a.header)
		}
	}
}

// TestRefusedImpersonation: the response has no headers of priority and fairness, as in
// kube-apiserver, and no browser guesses its type.
func TestRefusedImpersonation(t *testing.T) {
	s := start(t, wiring{})
	for _, tt := range []struct {
		headers []string
		code    int
	}{
		{[]string{"Impersonate-Uid: 1"}, 400},
		{[]string{"Impersonate-User: ann", "Authorization: Bearer bob"}, 403},
	} {
		a := s.do(t, "GET", "/api/v1/namespaces/x/configmaps", "", tt.headers...)
		if a.code != tt.code || a.header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "" || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%q: %d, headers %v", tt.headers, a.code, a.header)
		}
	}
}

func TestAuditID(t *testing.T) {
	s := start(t, wiring{})
	a, b := s.do(t, "GET", "/healthz", ""), s.do(t, "GET", "/healthz", "")
	if x, y := a.header.Get("Audit-Id"), b.header.Get("Audit-Id"); len(x) != 36 || x == y {
		t.Errorf("audit IDs %q and %q", x, y)
	}
	if got := s.do(t, "GET", "/healthz", "", "Audit-Id: mine").header.Get("Audit-Id"); got != "mine" {
		t.Errorf("audit ID %q", got)
	}
	if got := s.do(t, "GET", "/healthz", "", "Audit-Id: "+strings.Repeat("x", 1000)).header.Get("Audit-Id"); len(got) != 64 {
		t.Errorf("audit ID of %d bytes", len(got))
	}
}

// busy is an authenticator and an authorizer that has no time for some requests.
type busy struct{}

func (busy) Authenticate(r *http.Request) (*authn.User, error) {
	if r.Header.Get("Authorization") == "Bearer unknown" {
		return nil, errors.Join(errors.New("no such token"), authn.ErrBusy)
	}
	return tokens{}.Authenticate(r)
}

func (busy) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.User.Name == "bob" {
		return authz.Deny, "", authz.ErrBusy
	}
	return authz.Allow, "", nil
}

// TestBusy: a request is refused with 429 while authenticators or authorizers are busy with others.
func TestBusy(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Authn, c.Authz = busy{}, busy{} }})
	for _, token := range []string{"unknown", "bob"} {
		got := s.do(t, "GET", "/api/v1/namespaces/default", "", "Authorization: Bearer "+token)
		if got.code != 429 || got.header.Get("Retry-After") != "1" || !strings.Contains(got.body, `"reason":"TooManyRequests"`) {
			t.Errorf("%s: %d %s", token, got.code, got.body)
		}
	}
}

// TestEveryMethodEverywhere: each method has a response at each kind of path, by both protocols.
func TestEveryMethodEverywhere(t *testing.T) {
	chance := testrand.New(t)
	for _, http1 := range []bool{false, true} {
		s := start(t, wiring{http1: http1})
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "patch", "APPLY"} {
			for _, path := range []string{
				"/", "/healthz", "/version", "/metrics", "/apis", "/apis/apps", "/apis/apps/v1", "/openapi/v3", "/nope", "/api/v1/nopes",
				"/apis/nope.example.com/v1/namespaces/x/nopes/x/scale", maps, maps + "/x", maps + "/x/status", "/api/v1/namespaces/x", "/api/v1/nodes/x",
			} {
				for _, media := range []string{"", "application/merge-patch+json", "application/apply-patch+yaml"} {
					for _, auth := range []string{"Bearer admin", "none"} {
						if !tier.IsFull(t) && chance.IntN(5) > 0 {
							continue // one in five, which differ from run to run
						}
						s.do(t, method, path, "{}", "Authorization: "+auth, "Content-Type: "+media)
						<-s.ended
					}
				}
			}
		}
	}
}
