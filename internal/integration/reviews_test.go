package integration_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const (
	selfReviews   = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
	tokenReviews  = "/apis/authentication.k8s.io/v1/tokenreviews"
	accessReviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
	selfAccess    = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	localAccess   = "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews"
	selfRules     = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
	accounts      = "/api/v1/namespaces/default/serviceaccounts"
	botToken      = accounts + "/bot/token"
)

func withBot(t *testing.T, s *tidemark.Server) *tidemark.Server {
	t.Helper()
	servertest.Start(t, s)
	create[metav1.PartialObjectMetadata](t, s.RESTConfig(), accounts, `{"metadata":{"name":"bot"}}`)
	return s
}

// TestTokenRequest checks that a token of a service account is valid until the
// account is deleted.
func TestTokenRequest(t *testing.T) {
	s := withBot(t, &tidemark.Server{})
	admin := s.RESTConfig()
	r := create[authenticationv1.TokenRequest](t, admin, botToken, `{"metadata":{"labels":{"a":"b"}}}`)
	if r.Kind != "TokenRequest" || r.Name != "bot" || r.Namespace != "default" || r.UID == "" || r.Labels["a"] != "b" || r.CreationTimestamp.IsZero() {
		t.Errorf("metadata is %+v", r.ObjectMeta)
	}
	if *r.Spec.ExpirationSeconds != 3600 || len(r.Spec.Audiences) != 1 || r.Status.ExpirationTimestamp.Sub(r.CreationTimestamp.Time) != time.Hour {
		t.Errorf("%+v, %v", r.Spec, r.Status.ExpirationTimestamp)
	}
	bot := servertest.WithToken(s, r.Status.Token)
	who := create[authenticationv1.SelfSubjectReview](t, bot, selfReviews, `{"metadata":{"name":"ignored"}}`)
	if u := who.Status.UserInfo; u.Username != "system:serviceaccount:default:bot" || u.UID != string(r.UID) || who.Name != "" || who.CreationTimestamp.IsZero() {
		t.Errorf("it is %+v", who)
	}
	servertest.WantCode(t, bot, "/openid/v1/jwks", http.StatusOK, "")
	servertest.WantCode(t, bot, "/api/v1/namespaces/default/secrets", http.StatusForbidden,
		`secrets is forbidden: User "system:serviceaccount:default:bot" cannot list resource "secrets" in API group "" in the namespace "default"`)

	other := create[authenticationv1.TokenRequest](t, admin, botToken, `{"spec":{"audiences":["vault"],"expirationSeconds":600}}`)
	servertest.WantCode(t, servertest.WithToken(s, other.Status.Token), "/version", http.StatusUnauthorized, "Unauthorized")
	review := create[authenticationv1.TokenReview](t, admin, tokenReviews, `{"spec":{"token":"`+other.Status.Token+`","audiences":["x","vault"]}}`)
	if !review.Status.Authenticated || len(review.Status.Audiences) != 1 || review.Status.Audiences[0] != "vault" {
		t.Errorf("%+v", review.Status)
	}
	remove(t, admin, accounts+"/bot")
	servertest.WantCode(t, bot, "/version", http.StatusUnauthorized, "Unauthorized")
	review = create[authenticationv1.TokenReview](t, admin, tokenReviews, `{"spec":{"token":"`+r.Status.Token+`"}}`)
	if review.Status.Authenticated || review.Status.User.Username != "" || !strings.Contains(review.Status.Error, "invalid bearer token") {
		t.Errorf("%+v", review.Status)
	}
}

// TestTokenRequestFields checks that the managed fields of a response are the fields that the
// client sent, as in kube-apiserver v1.36.
func TestTokenRequestFields(t *testing.T) {
	c := withBot(t, &tidemark.Server{}).RESTConfig()
	create[metav1.PartialObjectMetadata](t, c, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`)
	for body, fields := range map[string]string{
		`{}`: `{"f:spec":{"f:expirationSeconds":{}}}`,
		`{"metadata":{"labels":{"a":"b"}},"spec":{"audiences":["a"],"expirationSeconds":600,"boundObjectRef":{"kind":"Secret","apiVersion":"v1","name":"s"}},"status":{"token":"t"}}`: `{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:audiences":{},"f:boundObjectRef":{"f:apiVersion":{},"f:kind":{},"f:name":{}},"f:expirationSeconds":{}},"f:status":{"f:token":{}}}`,
	} {
		m := create[authenticationv1.TokenRequest](t, c, botToken+"?fieldManager=m", body).ManagedFields
		if len(m) != 1 || m[0].Manager != "m" || m[0].Operation != metav1.ManagedFieldsOperationUpdate || m[0].APIVersion != "authentication.k8s.io/v1" ||
			m[0].Subresource != "token" || m[0].Time.IsZero() || m[0].FieldsV1.GetRawString() != fields {
			t.Errorf("%s: %+v, want %s", body, m, fields)
		}
	}
}

// TestTokenRequestRefused checks errors. Messages are those of kube-apiserver v1.36.
func TestTokenRequestRefused(t *testing.T) {
	admin := withBot(t, &tidemark.Server{}).RESTConfig()
	create[metav1.PartialObjectMetadata](t, admin, "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	secret := create[metav1.PartialObjectMetadata](t, admin, "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`)
	uid := string(secret.UID)
	bound := func(ref string) string { return `{"spec":{"boundObjectRef":` + ref + `}}` }
	for _, row := range []struct {
		path, body string
		code       int32
		message    string
	}{
		{botToken, `{"spec":{"expirationSeconds":599}}`, 422, `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes`},
		{botToken, `{"spec":{"expirationSeconds":4294967297}}`, 422, `TokenRequest.authentication.k8s.io "" is invalid: spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds`},
		{botToken, `{"metadata":{"name":"other"}}`, 422, `TokenRequest.authentication.k8s.io "bot" is invalid: metadata.name: Invalid value: "other": must match the service account name if specified`},
		{botToken, `{"metadata":{"namespace":"other"}}`, 400, `the namespace of the provided object does not match the namespace sent on the request`},
		{botToken, bound(`{"kind":"Foo","apiVersion":"v1","name":"x"}`), 400, `cannot bind token to object of type /v1, Kind=Foo`},
		{botToken, bound(`{}`), 400, `cannot bind token to object of type /, Kind=`},
		{botToken, bound(`{"kind":"Pod"}`), 400, `Name parameter required.`},
		{botToken, bound(`{"kind":"Pod","apiVersion":"v1","name":"x"}`), 404, `pods "x" not found`},
		{botToken, bound(`{"kind":"Pod","apiVersion":"v1","name":"p"}`), 400, `cannot bind token for serviceaccount "bot" to pod running with different serviceaccount name.`},
		{botToken, bound(`{"kind":"Node","apiVersion":"v1","name":"x"}`), 404, `nodes "x" not found`},
		{botToken, bound(`{"kind":"Secret","apiVersion":"v1","name":"s","uid":"x"}`), 409, `Operation cannot be fulfilled on Secret "s": the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated`},
		{botToken + "?dryRun=x", `{}`, 422, `CreateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["x"]: supported values: "All"`},
		{botToken + "?fieldValidation=Strict", `{"spec":{"foo":1}}`, 400, `TokenRequest in version "v1" cannot be handled as a TokenRequest: strict decoding error: unknown field "spec.foo"`},
		{botToken, `{"kind":"Pod","apiVersion":"v1"}`, 400, `Pod in version "v1" cannot be handled as a TokenRequest: converting (v1.Pod) to (authentication.TokenRequest): unknown conversion`},
		{botToken, `{"kind":"TokenRequest","apiVersion":"v1"}`, 400, `TokenRequest in version "v1" cannot be handled as a TokenRequest: no kind "TokenRequest" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`},
		{accounts + "/zz/token", `{"spec":{"expirationSeconds":1}}`, 404, `serviceaccounts "zz" not found`},
	} {
		wantRefused(t, admin, row.path, row.body, row.code, row.message)
	}
	many := `{"spec":{"audiences":["x"` + strings.Repeat(`,"audience"`, 20_000) + `]}}`
	wantRefused(t, admin, botToken, many, 422, `TokenRequest.authentication.k8s.io "bot" is invalid: spec.audiences: Too long: the token would have 294196 bytes, and none of more than 16384 is accepted`)
	create[authenticationv1.TokenRequest](t, admin, botToken+"?dryRun=All", bound(`{"kind":"Secret","apiVersion":"v1","name":"s","uid":"`+uid+`"}`))
}

// TestBoundToken checks that a token bound to a Pod names the Pod and its node.
func TestBoundToken(t *testing.T) {
	s := withBot(t, &tidemark.Server{})
	admin := s.RESTConfig()
	node := create[metav1.PartialObjectMetadata](t, admin, "/api/v1/nodes", `{"metadata":{"name":"n"}}`)
	pod := create[metav1.PartialObjectMetadata](t, admin, "/api/v1/namespaces/default/pods",
		`{"metadata":{"name":"p"},"spec":{"serviceAccountName":"bot","nodeName":"n","terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i"}]}}`)
	r := create[authenticationv1.TokenRequest](t, admin, botToken, `{"spec":{"boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"p"}}}`)
	bot := servertest.WithToken(s, r.Status.Token)
	extra := create[authenticationv1.SelfSubjectReview](t, bot, selfReviews, `{}`).Status.UserInfo.Extra
	for key, want := range map[string]string{"pod-name": "p", "pod-uid": string(pod.UID), "node-name": "n", "node-uid": string(node.UID)} {
		if got := extra["authentication.kubernetes.io/"+key]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", key, got, want)
		}
	}
	remove(t, admin, "/api/v1/nodes/n")
	servertest.WantCode(t, bot, "/version", http.StatusOK, "") // it is the Pod that counts
	remove(t, admin, "/api/v1/namespaces/default/pods/p")
	servertest.WantCode(t, bot, "/version", http.StatusUnauthorized, "Unauthorized")
}

// TestTokenRestart checks that tokens survive a restart: the key is stored with the
// certificates.
func TestTokenRestart(t *testing.T) {
	dir := t.TempDir()
	s := withBot(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	r := create[authenticationv1.TokenRequest](t, s.RESTConfig(), botToken, `{}`)
	servertest.Stop(t, s)
	s = servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	servertest.WantCode(t, servertest.WithToken(s, r.Status.Token), "/api", http.StatusOK, "")
	servertest.Stop(t, s)
	s = servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Authentication: tidemark.Authentication{ServiceAccounts: tidemark.ServiceAccounts{Issuers: []string{"https://example.com"}}}})
	servertest.WantCode(t, servertest.WithToken(s, r.Status.Token), "/api", http.StatusUnauthorized, "Unauthorized")
}

func TestTokenReview(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	admin := s.RESTConfig()
	review := func(body string) authenticationv1.TokenReviewStatus {
		return create[authenticationv1.TokenReview](t, admin, tokenReviews, body).Status
	}
	own := admin.BearerToken
	if got := review(`{"spec":{"token":"` + own + `"}}`); !got.Authenticated || got.User.Username != "admin" || len(got.Audiences) != 1 {
		t.Errorf("%+v", got)
	}
	for _, body := range []string{`{"spec":{"token":"` + own + `","audiences":["x"]}}`, `{"spec":{"token":"garbage"},"status":{"authenticated":true,"user":{"username":"x"}}}`} {
		if got := review(body); got.Authenticated || got.Error != "invalid bearer token" || got.User.Username != "" {
			t.Errorf("%+v", got)
		}
	}
	wantRefused(t, admin, tokenReviews, `{"spec":{}}`, 400, "token is required for TokenReview in authentication")
}

// TestAccessReviews checks access reviews. Messages are those of kube-apiserver
// v1.36.
func TestAccessReviews(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	admin := s.RESTConfig()
	bob, err := s.RESTConfigFor("bob", "dev")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		as         *rest.Config
		path, body string
		want       bool
	}{
		{admin, selfAccess, `{"spec":{"resourceAttributes":{"verb":"*","group":"*","resource":"*"}}}`, true},
		{bob, selfAccess, `{"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}},"status":{"allowed":true}}`, false},
		{bob, selfAccess, `{"metadata":{"namespace":"x"},"spec":{"nonResourceAttributes":{"verb":"get","path":"/version"}}}`, true},
		{bob, selfAccess, `{"spec":{"resourceAttributes":{"verb":"create","group":"authorization.k8s.io","resource":"selfsubjectrulesreviews"}}}`, true},
		{admin, accessReviews, `{"spec":{"user":"x","resourceAttributes":{"verb":"get","resource":"pods"}}}`, false},
		{admin, accessReviews, `{"spec":{"groups":["system:masters"],"resourceAttributes":{"verb":"get","resource":"pods","labelSelector":{"rawSelector":"a=b"}}}}`, true},
		{admin, localAccess, `{"spec":{"user":"x","groups":["system:masters"],"resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}}`, true},
	} {
		if got := create[authorizationv1.SubjectAccessReview](t, row.as, row.path, row.body); got.Status.Allowed != row.want || got.Namespace != strings.Repeat("default", strings.Count(row.path, "/default/")) {
			t.Errorf("POST %s %s: %+v", row.path, row.body, got)
		}
	}
	wantRefused(t, bob, accessReviews, `{"spec":{}}`, 403, `subjectaccessreviews.authorization.k8s.io is forbidden: User "bob" cannot create resource "subjectaccessreviews" in API group "authorization.k8s.io" at the cluster scope`)
	const invalid, attributes = `.authorization.k8s.io "" is invalid: `, "spec.resourceAttributes"
	for _, row := range []struct{ path, body, message string }{
		{selfAccess, `{"spec":{}}`, `spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified`},
		{selfAccess, `{"spec":{"nonResourceAttributes":{},"resourceAttributes":{}}}`, `spec: Invalid value: {"Path":"","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes must be specified`},
		{selfAccess, `{"metadata":{"name":"x"},"spec":{"resourceAttributes":{}}}`, `metadata: Invalid value: {"name":"x"}: must be empty`},
		{accessReviews, `{"spec":{"resourceAttributes":{}}}`, `spec.user: Invalid value: "": at least one of user or group must be specified`},
		{accessReviews, `{"spec":{"user":"a","resourceAttributes":{"fieldSelector":{"rawSelector":"a=b","requirements":[{"key":"x","operator":"In","values":["a"]}]}}}}`, attributes + `.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at the same time as requirements`},
		{accessReviews, `{"spec":{"user":"a","resourceAttributes":{"fieldSelector":{"requirements":[{"key":"","operator":"Foo","values":["a"]}]},"labelSelector":{"requirements":[]}}}}`, `[` + attributes + `.fieldSelector.requirements[0].key: Required value: must be specified, ` + attributes + `.labelSelector.requirements: Required value: when spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required]`},
		{accessReviews, `{"spec":{"user":"a","resourceAttributes":{"labelSelector":{"requirements":[{"key":"a","operator":"In"},{"key":"a","operator":"Exists","values":["x"]}]}}}}`, `[` + attributes + ".labelSelector.requirements[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', " + attributes + ".labelSelector.requirements[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist']"},
		{localAccess, `{"spec":{"user":"a","resourceAttributes":{}}}`, attributes + `.namespace: Invalid value: "": must match metadata.namespace`},
		{localAccess, `{"spec":{"user":"a","nonResourceAttributes":{"verb":"get"}}}`, `spec.nonResourceAttributes: Invalid value: {"Path":"","Verb":"get"}: disallowed on this kind of request`},
		{localAccess, `{"metadata":{"name":"oo"},"spec":{}}`, `[` + `spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified, spec.user: Invalid value: "": at least one of user or group must be specified, metadata: Invalid value: {"name":"oo","namespace":"default"}: must be empty except for namespace]`},
	} {
		wantRefused(t, admin, row.path, row.body, 422, invalid+row.message)
	}
	wantRefused(t, admin, selfRules, `{"spec":{}}`, 400, "no namespace on request")
	rules := create[authorizationv1.SelfSubjectRulesReview](t, bob, selfRules, `{"spec":{"namespace":"default"}}`)
	if len(rules.Status.ResourceRules) != 2 || len(rules.Status.NonResourceRules) < 2 || rules.Status.Incomplete || rules.Spec.Namespace != "" {
		t.Errorf("%+v", rules.Status)
	}
}

// TestIssuerPages checks the documents with which others can verify tokens.
func TestIssuerPages(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{ServiceAccounts: tidemark.ServiceAccounts{Issuers: []string{"https://example.com"}}}})
	code, body := servertest.Get(t, s.RESTConfig(), "/.well-known/openid-configuration/")
	want := `{"issuer":"https://example.com","jwks_uri":"` + s.URL() + `/openid/v1/jwks","response_types_supported":["id_token"],"subject_types_supported":["public"],"id_token_signing_alg_values_supported":["RS256"]}`
	if code != http.StatusOK || body != want {
		t.Errorf("%d %s", code, body)
	}
	wantRefused(t, s.RESTConfig(), "/openid/v1/jwks", `{}`, 405, "the server does not allow this method on the requested resource")
	servertest.WantCode(t, servertest.Anonymous(s), "/openid/v1/jwks", http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "/openid/v1/jwks"`)
}

// TestComponentStatuses checks that component statuses are generated on read and have
// no resourceVersion.
func TestComponentStatuses(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c := s.RESTConfig()
	const etcd = `"metadata":{"name":"etcd-0"},"conditions":[{"type":"Healthy","status":"True","message":"ok"}]}`
	for _, test := range []struct {
		path, accept string
		code         int
		contains     string
	}{
		{"", "application/json", 200, `{"kind":"ComponentStatusList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"controller-manager"}`},
		{"", "application/json", 200, `{` + etcd + `]}`},
		{"?labelSelector=a", "application/json", 200, `"items":[]`},
		{"?fieldSelector=metadata.name=etcd-0", "application/json", 200, `"items":[{` + etcd + `]}`},
		{"?limit=1&resourceVersion=7&resourceVersionMatch=Exact", "application/json", 200, etcd},
		{"", "application/json;as=Table;g=meta.k8s.io;v=v1", 200, `"cells":["etcd-0","Healthy","ok",""]`},
		{"/etcd-0", "application/json", 200, `{"kind":"ComponentStatus","apiVersion":"v1",` + etcd},
		{"/etcd-1", "application/json", 404, `componentstatus \"etcd-1\" not found`},
		{"?watch=1", "application/json", 405, `watch is not supported on resources of kind \"componentstatuses\"`},
	} {
		code, body := servertest.GetAs(t, c, "/api/v1/componentstatuses"+test.path, test.accept)
		body = strings.TrimSpace(body)
		if code != test.code || !strings.Contains(body, test.contains) {
			t.Errorf("%s as %s: %d %s, want %d and %s", test.path, test.accept, code, body, test.code, test.contains)
		}
	}
}
