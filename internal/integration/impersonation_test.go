package integration_test

import (
	"encoding/json"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// as returns the user of a request with the given headers, written as "Name: value".
func as(t *testing.T, c *rest.Config, headers ...string) (int, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.Host+selfReviews, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	response, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, b
}

// TestImpersonation compares users with responses of kube-apiserver v1.36.
func TestImpersonation(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	for _, row := range []struct {
		headers []string
		want    authenticationv1.UserInfo
	}{
		{[]string{"Impersonate-User: u"}, authenticationv1.UserInfo{Username: "u", Groups: []string{"system:authenticated"}}},
		{[]string{"impersonate-user: u", "Impersonate-Group: g", "impersonate-group: g"}, authenticationv1.UserInfo{Username: "u", Groups: []string{"g", "g", "system:authenticated"}}},
		{[]string{"Impersonate-User: u", "Impersonate-Group: system:masters", "Impersonate-Uid: 7"}, authenticationv1.UserInfo{Username: "u", UID: "7", Groups: []string{"system:masters", "system:authenticated"}}},
		{[]string{"Impersonate-User: u", "Impersonate-Group: system:authenticated"}, authenticationv1.UserInfo{Username: "u", Groups: []string{"system:authenticated"}}},
		{[]string{"Impersonate-User: system:serviceaccount:ns:bot"}, authenticationv1.UserInfo{Username: "system:serviceaccount:ns:bot", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"}}},
		{[]string{"Impersonate-User: system:serviceaccount:ns:bot", "Impersonate-Group: only"}, authenticationv1.UserInfo{Username: "system:serviceaccount:ns:bot", Groups: []string{"only", "system:authenticated"}}},
		{[]string{"Impersonate-User: system:serviceaccount:ns"}, authenticationv1.UserInfo{Username: "system:serviceaccount:ns", Groups: []string{"system:authenticated"}}},
		{[]string{"Impersonate-User: system:anonymous", "Impersonate-Group: system:authenticated"}, authenticationv1.UserInfo{Username: "system:anonymous", Groups: []string{"system:authenticated", "system:unauthenticated"}}},
		{[]string{"Impersonate-User: u", "Impersonate-Extra-Example.com%2Fscope: a", "Impersonate-Extra-Example.com%2Fscope: b", "Impersonate-Extra-A%2fb%25c: x"}, authenticationv1.UserInfo{
			Username: "u", Groups: []string{"system:authenticated"},
			Extra: map[string]authenticationv1.ExtraValue{"example.com/scope": {"a", "b"}, "a/b%c": {"x"}},
		}},
		{[]string{"Impersonate-User: "}, authenticationv1.UserInfo{Username: "admin", Groups: []string{"system:masters", "system:authenticated"}}},
	} {
		code, b := as(t, s.RESTConfig(), row.headers...)
		var review authenticationv1.SelfSubjectReview
		if err := json.Unmarshal(b, &review); err != nil || code != http.StatusCreated {
			t.Fatalf("%q: %d %s", row.headers, code, b)
		}
		if got := review.Status.UserInfo; !reflect.DeepEqual(got, row.want) {
			t.Errorf("%q: %+v, want %+v", row.headers, got, row.want)
		}
	}
}

// TestImpersonationRefused checks the error without the permission to impersonate,
// and that an impersonated user has only its own permissions.
func TestImpersonationRefused(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	bob, err := s.RESTConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	admin := s.RESTConfig()
	for _, row := range []struct {
		by      *rest.Config
		headers []string
		code    int32
		message string
	}{
		{bob, []string{"Impersonate-User: u"}, 403, `selfsubjectreviews.authentication.k8s.io is forbidden: User "bob" cannot impersonate-on:user-info:create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope`},
		{bob, []string{"Impersonate-User: system:serviceaccount:ns:bot"}, 403, `selfsubjectreviews.authentication.k8s.io is forbidden: User "bob" cannot impersonate-on:serviceaccount:create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope`},
		{servertest.Anonymous(s), []string{"Impersonate-User: u"}, 403, `selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot impersonate-on:user-info:create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope`},
		{admin, []string{"Impersonate-User: system:anonymous"}, 403, `selfsubjectreviews.authentication.k8s.io is forbidden: User "system:anonymous" cannot create resource "selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope`},
		{admin, []string{"Impersonate-Uid: 1"}, 400, `requested &user.DefaultInfo{Name:"", UID:"1", Groups:[]string(nil), Extra:map[string][]string(nil)} without impersonating a user name`},
		{admin, []string{"Impersonate-Extra-Scopes: x"}, 400, `requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string(nil), Extra:map[string][]string{"scopes":[]string{"x"}}} without impersonating a user name`},
	} {
		code, b := as(t, row.by, row.headers...)
		var status metav1.Status
		if err := json.Unmarshal(b, &status); err != nil || int32(code) != row.code || status.Message != row.message {
			t.Errorf("%q: %d %s, want %d %q", row.headers, code, status.Message, row.code, row.message)
		}
	}
	u := s.RESTConfig()
	u.Impersonate = rest.ImpersonationConfig{UserName: "u"}
	servertest.WantCode(t, u, "/api/v1/namespaces/default", http.StatusForbidden, `namespaces "default" is forbidden: User "u" cannot get resource "namespaces" in API group "" in the namespace "default"`)
	u.Impersonate.Groups = []string{"system:masters"}
	servertest.WantCode(t, u, "/api/v1/namespaces/default", http.StatusOK, "")
}

// TestImpersonationTargets checks that the right to impersonate counts for the target of a request,
// with the words of kube-apiserver v1.36.
func TestImpersonationTargets(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	bob, err := s.RESTConfigFor("bob")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ user, path, want string }{
		{"u", "/api/v1/nodes", `nodes is forbidden: User "bob" cannot impersonate-on:user-info:list resource "nodes" in API group "" at the cluster scope`},
		{"system:node:n1", "/api/v1/nodes", `nodes is forbidden: User "bob" cannot impersonate-on:arbitrary-node:list resource "nodes" in API group "" at the cluster scope`},
		{"u", "/api/v1/nodes?fieldSelector=metadata.name%3Dx", `nodes "x" is forbidden: User "bob" cannot impersonate-on:user-info:list resource "nodes" in API group "" at the cluster scope`},
		{"u", "/healthz", `forbidden: User "bob" cannot impersonate-on:user-info:get path "/healthz"`},
	} {
		bob.Impersonate.UserName = row.user
		servertest.WantCode(t, bob, row.path, http.StatusForbidden, row.want)
	}
	many := s.RESTConfig()
	many.Impersonate = rest.ImpersonationConfig{UserName: "u", Groups: make([]string, 1001)}
	servertest.WantCode(t, many, "/healthz", http.StatusBadRequest, "the impersonation headers have more than 1000 groups and extra values")

	_, metrics := servertest.Get(t, s.RESTConfig(), "/metrics")
	for _, line := range []string{
		`apiserver_impersonation_attempts_total{decision="denied",mode=""} 4`,
		`apiserver_impersonation_authorization_attempts_total{decision="denied",mode="legacy"} 4`,
		`apiserver_impersonation_authorization_attempts_total{decision="denied",mode="arbitrary-node"} 1`,
	} {
		if !strings.Contains(metrics, line+"\n") {
			t.Errorf("/metrics has no %s", line)
		}
	}
}
