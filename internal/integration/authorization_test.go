package integration_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// oracle is an authorization webhook, whose responses depend on the user. It keeps the reviews.
type oracle struct {
	kubeconfig string
	responses  map[string]string // the status by user; others: no opinion
	slow       chan struct{}     // the user slow waits for it

	mu   sync.Mutex
	sent []authorizationv1.SubjectAccessReviewSpec // guarded by mu
}

func newOracle(t *testing.T, responses map[string]string) *oracle {
	o := &oracle{responses: responses, slow: make(chan struct{})}
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	o.kubeconfig = file(t, "webhook.kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`, s.URL))
	return o
}

// ServeHTTP implements http.Handler.
func (o *oracle) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authorizationv1.SubjectAccessReview
	b, _ := io.ReadAll(r.Body)
	if err := json.Unmarshal(b, &review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	o.sent = append(o.sent, review.Spec)
	o.mu.Unlock()
	if review.Spec.User == "slow" {
		<-o.slow
	}
	response, ok := o.responses[review.Spec.User]
	switch {
	case !ok:
		response = `{"allowed":false}`
	case response == "":
		http.Error(w, "broken", http.StatusTeapot)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, response)
}

// last returns the last review of a user, nil if there was none.
func (o *oracle) last(user string) *authorizationv1.SubjectAccessReviewSpec {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := len(o.sent) - 1; i >= 0; i-- {
		if o.sent[i].User == user {
			return &o.sent[i]
		}
	}
	return nil
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAuthorizationModes starts servers with other modes than Node and RBAC.
func TestAuthorizationModes(t *testing.T) {
	start := func(a tidemark.Authorization) rbacClient {
		return rbacClient{t, servertest.Start(t, &tidemark.Server{Authorization: a}).RESTConfig()}
	}
	const nodes = "/api/v1/nodes"
	ann := func(c rbacClient) rbacClient { return rbacClient{t, rbacAs(c.c, "ann")} }

	s := servertest.Start(t, &tidemark.Server{Authorization: tidemark.Authorization{Modes: []string{"AlwaysAllow"}}})
	ann(rbacClient{t, s.RESTConfig()}).want(200, "NodeList", "GET", nodes, "")
	servertest.WantCode(t, servertest.Anonymous(s), "/healthz", http.StatusUnauthorized, "Unauthorized")

	c := start(tidemark.Authorization{Modes: []string{"AlwaysDeny", "RBAC"}})
	c.want(200, "NodeList", "GET", nodes, "")
	ann(c).want(403, `nodes is forbidden: User \"ann\" cannot list resource \"nodes\" in API group \"\" at the cluster scope: alwaysdeny: Everything is forbidden.`, "GET", nodes, "")
	ann(c).want(200, "", "GET", "/healthz", "") // RBAC is asked next

	c = start(tidemark.Authorization{Modes: []string{"ABAC"}, PolicyFile: file(t, "policy", `{"user":"ann","resource":"nodes","readonly":true}`)})
	ann(c).want(200, "NodeList", "GET", nodes, "")
	ann(c).want(403, "at the cluster scope: abac: No policy matched.", "DELETE", nodes+"/x", "")
	for _, row := range []struct {
		a    tidemark.Authorization
		want string
	}{
		{tidemark.Authorization{Modes: []string{"rbac"}}, `--authorization-mode=rbac is not a valid mode`},
		{tidemark.Authorization{Modes: []string{"RBAC"}, ConfigFile: "/x"}, "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined"},
		{tidemark.Authorization{ConfigFile: file(t, "c", "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n")}, "authorizers: Required value: at least one authorization mode must be defined"},
		{tidemark.Authorization{Modes: []string{"ABAC"}, PolicyFile: file(t, "p", "{")}, "line 1: {: "},
		{tidemark.Authorization{Modes: []string{"Webhook"}, WebhookConfigFile: file(t, "w", "{}")}, "no configuration has been provided"},
	} {
		if err := (&tidemark.Server{Authorization: row.a}).Start(t.Context()); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%+v: %v, want %q", row.a, err, row.want)
		}
	}
}

// TestAuthorizationWebhook checks the messages of denials by a webhook, and the reviews that it
// gets.
func TestAuthorizationWebhook(t *testing.T) {
	o := newOracle(t, map[string]string{
		"ann": `{"allowed":true,"reason":"ann may"}`, "eve": `{"allowed":false,"denied":true,"reason":"eve <never>"}`,
		"bob": `{"allowed":false,"reason":"not yet"}`, "both": `{"allowed":true,"denied":true}`, "broken": "", "slow": `{"allowed":true}`,
	})
	hook := func(name, policy, condition string) string {
		return `{type: Webhook, name: ` + name + `, webhook: {timeout: 30s, subjectAccessReviewVersion: v1, failurePolicy: ` + policy + `, matchConditionSubjectAccessReviewVersion: v1,
    matchConditions: [{expression: "` + condition + `"}], connectionInfo: {type: KubeConfigFile, kubeConfigFile: ` + o.kubeconfig + `}}}`
	}
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [" +
		hook("open", "NoOpinion", "request.user == 'broken' && request.resourceAttributes.namespace == 'open'") + ", " +
		hook("strict", "Deny", "request.user != 'broken' || !has(request.resourceAttributes) || request.resourceAttributes.namespace != 'open'") + ", {type: RBAC, name: rbac}]"
	s := servertest.Start(t, &tidemark.Server{Authorization: tidemark.Authorization{ConfigFile: file(t, "config.yaml", config)}})
	admin := rbacClient{t, s.RESTConfig()}
	as := func(user string) rbacClient { return rbacClient{t, rbacAs(admin.c, user)} }
	const pods = "/api/v1/namespaces/az/pods"
	as("ann").want(200, "PodList", "GET", pods, "")
	as("bob").want(403, `cannot list resource \"pods\" in API group \"\" in the namespace \"az\": strict: not yet"`, "GET", pods, "")
	as("eve").want(403, `in the namespace \"az\": eve \u003cnever\u003e"`, "GET", pods, "")
	as("bob").want(200, "", "GET", "/healthz", "") // by RBAC
	as("eve").want(403, "", "GET", "/healthz", "")
	as("both").want(500, `"message":"Internal Server Error: \"/api/v1/namespaces/az/pods?limit=1\": webhook subject access review returned both allow and deny response","reason":"InternalError"`, "GET", pods+"?limit=1", "")
	as("broken").want(500, `Internal Server Error: \"/healthz\": `, "GET", "/healthz", "")
	as("broken").want(500, `Internal Server Error: \"/version\": the server responded with the status code 418`, "GET", "/version", "")
	as("broken").want(500, "Internal Server Error: ", "GET", "/api/v1/namespaces/open/pods", "") // no authorizer allows it
	if o.last("admin") != nil {
		t.Error("the webhook was asked about system:masters")
	}

	as("ann").want(200, "", "GET", pods+"?fieldSelector=metadata.name%3Dx&labelSelector=a+in+(b,c)", "")
	r := o.last("ann").ResourceAttributes
	if r.Version != "v1" || r.Verb != "list" || r.Name != "x" || len(r.FieldSelector.Requirements) != 1 || len(r.LabelSelector.Requirements) != 1 {
		t.Errorf("sent %+v", r)
	}
	as("ann").want(200, "", "DELETE", pods+"?fieldSelector=metadata.name%3Dx", "")
	if r := o.last("ann").ResourceAttributes; r.Verb != "deletecollection" || r.Name != "" || r.FieldSelector == nil || r.FieldSelector.Requirements[0].Key != "metadata.name" {
		t.Errorf("sent %+v", r)
	}
	rules := create[authorizationv1.SelfSubjectRulesReview](t, rbacAs(admin.c, "ann"), selfRules, `{"spec":{"namespace":"az"}}`)
	if !rules.Status.Incomplete || !strings.Contains(rules.Status.EvaluationError, "webhook authorizer does not support user rule resolution") {
		t.Errorf("%+v", rules.Status)
	}
	testWebhookReviews(t, admin, o)

	done := make(chan struct{})
	go func() { // a slow response holds up its request alone
		defer close(done)
		as("slow").want(200, "", "GET", "/version", "")
	}()
	as("ann").want(200, "", "GET", pods+"?limit=7", "")
	close(o.slow)
	<-done
}

// testWebhookReviews checks access reviews that a webhook decides.
func testWebhookReviews(t *testing.T, admin rbacClient, o *oracle) {
	for _, row := range []struct {
		spec string
		want authorizationv1.SubjectAccessReviewStatus
	}{
		{`{"user":"ann","resourceAttributes":{"verb":"get","resource":"x"}}`, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "ann may"}},
		{`{"user":"eve","resourceAttributes":{"verb":"get","resource":"x"}}`, authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: "eve <never>"}},
		{`{"user":"bob","resourceAttributes":{"verb":"get","resource":"x"}}`, authorizationv1.SubjectAccessReviewStatus{Reason: "strict: not yet"}},
		{`{"user":"both","nonResourceAttributes":{"verb":"get","path":"/x"}}`, authorizationv1.SubjectAccessReviewStatus{Denied: true, EvaluationError: "webhook subject access review returned both allow and deny response"}},
		{`{"user":"ann","resourceAttributes":{"verb":"list","resource":"x","labelSelector":{"rawSelector":"a=!"},"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]},{"key":"a","operator":"Exists"}]}}}`,
			authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "ann may", EvaluationError: "spec.resourceAttributes.fieldSelector partially ignored due to parse error; spec.resourceAttributes.labelSelector ignored due to parse error"}},
	} {
		if got := create[authorizationv1.SubjectAccessReview](t, admin.c, accessReviews, `{"spec":`+row.spec+`}`); got.Status != row.want {
			t.Errorf("%s: %+v, want %+v", row.spec, got.Status, row.want)
		}
	}
	r := o.last("ann").ResourceAttributes
	if r.Version != "*" || r.LabelSelector != nil || r.FieldSelector == nil || len(r.FieldSelector.Requirements) != 1 || r.FieldSelector.Requirements[0].Values[0] != "b" {
		t.Errorf("sent %+v", r)
	}
}

// TestMatchConditionCost: a request whose match conditions cost too much is refused, whatever the failure policy. The webhook
// could otherwise be bypassed, or the request could occupy the server: it has no seat yet.
func TestMatchConditionCost(t *testing.T) {
	o := newOracle(t, map[string]string{"ann": `{"allowed":false,"denied":true}`})
	const all = "request.resourceAttributes.labelSelector.requirements"
	config := `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: hook
  webhook:
    timeout: 30s
    subjectAccessReviewVersion: v1
    failurePolicy: NoOpinion
    matchConditionSubjectAccessReviewVersion: v1
    matchConditions:
    - expression: has(request.resourceAttributes) && has(request.resourceAttributes.labelSelector)
    - expression: "` + all + `.all(a, ` + all + `.all(b, ` + all + `.all(c, a.key != b.key + c.key)))"
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: ` + o.kubeconfig + `}
- type: RBAC
  name: rbac
`
	s := servertest.Start(t, &tidemark.Server{Authorization: tidemark.Authorization{ConfigFile: file(t, "config.yaml", config)}})
	admin := rbacClient{t, s.RESTConfig()}
	create[rbacv1.ClusterRoleBinding](t, admin.c, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`{"metadata":{"name":"ann"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"}]}`)
	selector := func(terms int) string {
		text := "a0"
		for i := range terms - 1 {
			text += fmt.Sprint(",a", i+1)
		}
		return text
	}
	ann := rbacClient{t, rbacAs(admin.c, "ann")}
	const pods = "/api/v1/namespaces/az/pods?labelSelector="
	ann.want(403, "", "GET", pods+selector(10), "") // the webhook denies it
	if o.last("ann") == nil {
		t.Error("the webhook was not asked")
	}
	ann.want(403, `hook: the match conditions cost too much for this request`, "GET", pods+selector(150), "")
	review := fmt.Sprintf(`{"spec":{"user":"ann","resourceAttributes":{"verb":"list","resource":"pods","namespace":"az","labelSelector":{"rawSelector":%q}}}}`, selector(150))
	if got := create[authorizationv1.SubjectAccessReview](t, admin.c, accessReviews, review); got.Status.Allowed || !got.Status.Denied {
		t.Errorf("a review: %+v", got.Status)
	}
}
