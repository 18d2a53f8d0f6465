package integration_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// newUndecided starts an authorization webhook that allows all requests, except those with the verb of one of the rights,
// or, after a slash, the subresource. It cannot decide these. The result is the path of its kubeconfig.
func newUndecided(t *testing.T, rights ...string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		response := `{"allowed":true}`
		for _, right := range rights {
			if a := review.Spec.ResourceAttributes; a != nil && (a.Verb == right || "/"+a.Subresource == right || a.Name == right) {
				response = `{"allowed":true,"denied":true}` // an error: a review must not have both
			}
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"authorization.k8s.io/v1","kind":"SubjectAccessReview","status":%s}`, response)
	}))
	t.Cleanup(s.Close)
	return file(t, "webhook.kubeconfig", fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"c","cluster":{"server":%q}}],"contexts":[{"name":"x","context":{"cluster":"c"}}],"current-context":"x"}`, s.URL))
}

// TestUndecidedRights: where a check beyond the authorization of a request asks for a right that the authorizer cannot
// decide, the response is 500, as for the request itself. A client that gets 403 or 422 would not try again.
func TestUndecidedRights(t *testing.T) {
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers: [" +
		`{type: Webhook, name: w, webhook: {timeout: 30s, subjectAccessReviewVersion: v1, failurePolicy: Deny, matchConditionSubjectAccessReviewVersion: v1, connectionInfo: {type: KubeConfigFile, kubeConfigFile: ` +
		newUndecided(t, "escalate", "bind", "approve", "sign", "/finalizers", "/binding", "/driver", "delete", "params", "*", "impersonate", "impersonate:serviceaccount", "impersonate:user-info", "request-serviceaccounts-token-audience", "breakglass") +
		`}}}, {type: RBAC, name: rbac}]`
	s := servertest.Start(t, &tidemark.Server{
		Authorization: tidemark.Authorization{ConfigFile: file(t, "config.yaml", config)},
		Admission:     tidemark.Admission{Enable: []string{"OwnerReferencesPermissionEnforcement", "NodeRestriction"}},
		Controllers:   []string{"-*"},
	})
	admin := rbacClient{t, s.RESTConfig()}
	user := rbacClient{t, rbacAs(admin.c, "ann")}
	const (
		namespaced = "/api/v1/namespaces/n"
		role       = `{"metadata":{"name":"r"},"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}]}`
		requests   = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
		claims     = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims"
		results    = `"devices":{"results":[{"request":"r","driver":"a.example.com","pool":"p","device":"d"}]}`
		owner      = `"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"d","uid":"u1","blockOwnerDeletion":true}]`
		roles      = rbacPath + "/namespaces/n/roles"
	)
	ofKind := func(params string) string {
		return `{"metadata":{"name":"p"},"spec":{"paramKind":{"apiVersion":"v1","kind":"` + params + `"},"validations":[{"expression":"true"}],"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["pods"]}]}}}`
	}
	for _, one := range []struct{ path, body string }{
		{"/api/v1/namespaces", `{"metadata":{"name":"n"}}`},
		{roles, strings.Replace(role, `"r"`, `"secrets"`, 1)},
		{namespaced + "/configmaps", `{"metadata":{"name":"c"}}`},
		{namespaced + "/serviceaccounts", `{"metadata":{"name":"a"}}`},
		{"/api/v1/nodes", `{"metadata":{"name":"w"}}`},
		{namespaced + "/pods", `{"metadata":{"name":"pod"},"spec":{"nodeName":"w","serviceAccountName":"a","containers":[{"name":"c","image":"i"}]}}`},
		{requests, `{"metadata":{"name":"q"},"spec":{"request":"` + request(t, "mary", "") + `","signerName":"example.com/s","usages":["client auth"]}}`},
		{claims, `{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"x"}}]}}}`},
		{admissionPath + "/validatingadmissionpolicies", ofKind("Secret")},
		{admissionPath + "/validatingadmissionpolicies", `{"metadata":{"name":"deny"},"spec":{"validations":[{"expression":"authorizer.group('').resource('secrets').check('breakglass').allowed()"}],"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["configmaps"]}]}}}`},
		{admissionPath + "/validatingadmissionpolicybindings", `{"metadata":{"name":"deny"},"spec":{"policyName":"deny","validationActions":["Deny"],"matchResources":{"objectSelector":{"matchLabels":{"policy":"deny"}}}}}`},
	} {
		admin.want(http.StatusCreated, "", "POST", one.path, one.body)
	}
	admin.want(http.StatusOK, "", "MERGE", claims+"/c/status", `{"status":{"allocation":{`+results+`}}}`)

	_, _, b := exchange(t, admin.c, "POST", namespaced+"/serviceaccounts/a/token", `{}`)
	var token authenticationv1.TokenRequest
	if err := json.Unmarshal(b, &token); err != nil {
		t.Fatal(err)
	}
	impersonator := rest.CopyConfig(admin.c)
	impersonator.BearerToken, impersonator.BearerTokenFile = token.Status.Token, ""
	impersonator.Impersonate.UserName = "bob"
	node := rbacClient{t, rbacAs(admin.c, "system:node:w", "system:nodes")}
	pod := podUID(t, admin)

	const undecided = "the authorizer could not decide"
	for _, row := range []struct {
		as                 rbacClient
		method, path, body string
	}{
		{user, "POST", roles, role},
		{user, "MERGE", roles + "/secrets", `{"rules":[{"apiGroups":[""],"resources":["secrets"],"verbs":["list"]}]}`},
		{user, "POST", rbacPath + "/clusterroles", `{"metadata":{"name":"r"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`},
		{user, "POST", rbacPath + "/namespaces/n/rolebindings", bindingBody("b", "Role", "secrets", rbacBob)},
		{user, "POST", rbacPath + "/namespaces/n/rolebindings", bindingBody("b", "Role", "none", rbacBob)},
		{user, "POST", rbacPath + "/clusterrolebindings", bindingBody("b", "ClusterRole", "cluster-admin", rbacBob)},
		{user, "MERGE", requests + "/q/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"x"}]}}`},
		{user, "MERGE", requests + "/q/status", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"x"}]}}`},
		{user, "MERGE", namespaced + "/configmaps/c", `{"metadata":{` + strings.Replace(owner, "true", "false", 1) + `}}`},
		{user, "POST", namespaced + "/configmaps", `{"metadata":{"name":"d",` + owner + `}}`},
		{user, "POST", admissionPath + "/validatingadmissionpolicies", strings.Replace(ofKind("Secret"), `"p"`, `"q"`, 1)},
		{user, "POST", admissionPath + "/validatingadmissionpolicybindings", `{"metadata":{"name":"b"},"spec":{"policyName":"p","validationActions":["Deny"],"paramRef":{"name":"params","namespace":"n","parameterNotFoundAction":"Allow"}}}`},
		{user, "MERGE", claims + "/c/status", `{"status":{"allocation":null}}`},
		{user, "MERGE", claims + "/c/status", `{"status":{"devices":[{"driver":"a.example.com","pool":"p","device":"d","conditions":[]}]}}`},
		{user, "POST", namespaced + "/configmaps", `{"metadata":{"name":"e","labels":{"policy":"deny"}}}`},
		{node, "POST", namespaced + "/serviceaccounts/a/token", `{"spec":{"audiences":["vault"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod","uid":"` + pod + `"}}}`},
		{rbacClient{t, impersonator}, "GET", namespaced + "/configmaps", ""},
	} {
		row.as.want(http.StatusInternalServerError, undecided, row.method, row.path, row.body)
	}
	// Rights that the user has otherwise decide.
	user.want(http.StatusCreated, "", "POST", namespaced+"/configmaps", `{"metadata":{"name":"d"}}`)
	admin.want(http.StatusCreated, "", "POST", rbacPath+"/namespaces/n/rolebindings", bindingBody("ann", "Role", "secrets", `{"kind":"User","name":"ann"}`))
	user.want(http.StatusCreated, "", "POST", roles, role)
}

func podUID(t *testing.T, c rbacClient) string {
	t.Helper()
	_, _, b := exchange(t, c.c, "GET", "/api/v1/namespaces/n/pods/pod", "")
	var pod struct{ Metadata struct{ UID string } }
	if err := json.Unmarshal(b, &pod); err != nil {
		t.Fatal(err)
	}
	return pod.Metadata.UID
}
