package integration_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/tidemark-dev/tidemark"
)

const admissionPath = "/apis/admissionregistration.k8s.io/v1"

// allowBob gives bob the rules of a new ClusterRole.
func (c rbacClient) allowBob(name, rules string) {
	c.t.Helper()
	c.want(http.StatusCreated, "", "POST", rbacPath+"/clusterroles", roleBody(name, rules))
	c.want(http.StatusCreated, "", "POST", rbacPath+"/clusterrolebindings", bindingBody(name, "ClusterRole", name, rbacBob))
}

// TestParamRights: authors of policies and bindings must be able to read the params, or an expression would show them. The
// words are those of kube-apiserver v1.36.
func TestParamRights(t *testing.T) {
	admin, user := startRBAC(t, &tidemark.Server{})
	admin.allowBob("author", `{"apiGroups":["admissionregistration.k8s.io"],"resources":["*"],"verbs":["*"]}`)
	const bob = `user \u0026{bob  [dev system:authenticated] map[]}`
	for _, kind := range []struct{ title, plural, rules, actions string }{
		{"Validating", "validating", `"validations":[{"expression":"true"}]`, `,"validationActions":["Deny"]`},
		{"Mutating", "mutating", `"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: \"add\", path: \"/data/x\", value: \"y\"}]"}}]`, ""},
	} {
		t.Run(kind.title, func(t *testing.T) {
			policies, bindings := admissionPath+"/"+kind.plural+"admissionpolicies", admissionPath+"/"+kind.plural+"admissionpolicybindings"
			policy := func(name, params string) string {
				return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":%q,"metadata":{"name":%q},"spec":{%s%s,"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["*"],"operations":["CREATE"],"resources":["configmaps"]}]}}}`,
					kind.title+"AdmissionPolicy", name, kind.rules, params)
			}
			binding := func(name, of, params string) string {
				return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"policyName":%q%s%s}}`, name, of, kind.actions, params)
			}
			const (
				ofSecrets = `,"paramKind":{"apiVersion":"v1","kind":"Secret"}`
				all       = `spec.paramKind: Forbidden: ` + bob + ` must have \"get\" permission on all objects of the referenced paramKind (kind=Secret, apiVersion=v1)`
				one       = `,"paramRef":{"name":"s","namespace":"shop","parameterNotFoundAction":"Allow"}`
				selected  = `,"paramRef":{"selector":{},"parameterNotFoundAction":"Allow"}`
			)
			user.want(http.StatusUnprocessableEntity, all, "POST", policies, policy("p", ofSecrets))
			user.want(http.StatusUnprocessableEntity, all, "POST", policies+"?dryRun=All", policy("p", ofSecrets))
			user.want(http.StatusUnprocessableEntity, all, "APPLY", policies+"/p?fieldManager=t", policy("p", ofSecrets))
			user.want(http.StatusUnprocessableEntity, `unable to resolve paramKind {example.com/v1 None} to determine minimum required permissions and `+bob+` does not have \"get\" permission for all groups, versions and resources`,
				"POST", policies, policy("p", `,"paramKind":{"apiVersion":"example.com/v1","kind":"None"}`))
			user.want(http.StatusCreated, "", "POST", policies, policy("plain", ""))
			user.want(http.StatusUnprocessableEntity, all, "MERGE", policies+"/plain", `{"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"}}}`)
			admin.want(http.StatusCreated, "", "POST", policies, policy("p", ofSecrets))
			user.want(http.StatusOK, "", "MERGE", policies+"/p", `{"metadata":{"labels":{"a":"b"}}}`) // the paramKind is unchanged

			user.want(http.StatusUnprocessableEntity, `spec.paramRef: Forbidden: `+bob+` does not have \"get\" permission on the object referenced by paramRef`, "POST", bindings, binding("b", "p", one))
			user.want(http.StatusUnprocessableEntity, `does not have \"list\" permission on the object referenced by paramRef`, "POST", bindings, binding("b", "p", selected))
			user.want(http.StatusUnprocessableEntity, `unable to get policy none to determine minimum required permissions and `+bob+` does not have \"get\" permission for all groups, versions and resources`, "POST", bindings, binding("b", "none", one))
			user.want(http.StatusCreated, "", "POST", bindings, binding("plain", "p", ""))
			user.want(http.StatusUnprocessableEntity, "spec.paramRef: Forbidden", "MERGE", bindings+"/plain", `{"spec":{"paramRef":{"name":"s","namespace":"shop","parameterNotFoundAction":"Allow"}}}`)
			admin.want(http.StatusCreated, "", "POST", bindings, binding("b", "p", one))
			user.want(http.StatusOK, "", "MERGE", bindings+"/b", `{"metadata":{"labels":{"a":"b"}}}`)
			user.want(http.StatusUnprocessableEntity, "spec.paramRef: Forbidden", "MERGE", bindings+"/b", `{"spec":{"policyName":"plain"}}`)
		})
	}
	admin.allowBob("one", `{"apiGroups":[""],"resources":["secrets"],"resourceNames":["s"],"verbs":["get"]}`)
	user.want(http.StatusCreated, "", "POST", admissionPath+"/validatingadmissionpolicybindings",
		`{"metadata":{"name":"mine"},"spec":{"policyName":"p","validationActions":["Deny"],"paramRef":{"name":"s","namespace":"shop","parameterNotFoundAction":"Allow"}}}`)
	admin.allowBob("all", `{"apiGroups":[""],"resources":["secrets"],"verbs":["get"]}`)
	user.want(http.StatusOK, "", "MERGE", admissionPath+"/validatingadmissionpolicies/plain", `{"spec":{"paramKind":{"apiVersion":"v1","kind":"Secret"}}}`)
}

// TestClaimRights checks that a client that changes the status of a ResourceClaim needs rights that
// depend on the change. The messages are those of kube-apiserver v1.36.
func TestClaimRights(t *testing.T) {
	admin, user := startRBAC(t, &tidemark.Server{})
	claims := "/apis/resource.k8s.io/v1" + inShop + "/resourceclaims"
	admin.want(http.StatusCreated, "", "POST", claims, `{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"x"}}]}}}`)
	admin.allowBob("status", `{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/status"],"verbs":["update","patch"]}`)
	const (
		result    = `{"request":"r","driver":"a.example.com","pool":"p","device":"d"}`
		allocates = `{"status":{"allocation":{"devices":{"results":[` + result + `]},"nodeSelector":{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]}]}}}}`
		reserves  = `{"status":{"reservedFor":[{"resource":"pods","name":"p","uid":"u"}]}}`
		reports   = `{"status":{"devices":[{"driver":"a.example.com","pool":"p","device":"d","conditions":[]}]}}`
		binds     = `status: Forbidden: changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"patch\" permission: resourceclaims.resource.k8s.io is forbidden: User \"bob\" cannot patch resource \"resourceclaims/binding\" in API group \"resource.k8s.io\" at the cluster scope`
		drives    = `status.devices: Forbidden: changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[arbitrary-node:patch]\" permission: resourceclaims.resource.k8s.io \"a.example.com\" is forbidden: User \"bob\" cannot arbitrary-node:patch resource \"resourceclaims/driver\" in API group \"resource.k8s.io\" in the namespace \"shop\"`
	)
	status := claims + "/c/status"
	user.want(http.StatusUnprocessableEntity, binds, "MERGE", status, allocates)
	admin.want(http.StatusOK, "", "MERGE", status, allocates)
	user.want(http.StatusUnprocessableEntity, binds, "MERGE", status, reserves)
	user.want(http.StatusUnprocessableEntity, drives, "MERGE", status, reports)
	user.want(http.StatusOK, "", "MERGE", status, `{"metadata":{"labels":{"a":"b"}}}`)

	admin.allowBob("binding", `{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/binding"],"verbs":["patch"]}`)
	user.want(http.StatusOK, "", "MERGE", status, reserves)
	admin.allowBob("other", `{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/driver"],"resourceNames":["b.example.com"],"verbs":["arbitrary-node:patch"]}`)
	user.want(http.StatusUnprocessableEntity, drives, "MERGE", status, reports)
	admin.allowBob("near", `{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/driver"],"verbs":["associated-node:patch"]}`)
	user.want(http.StatusUnprocessableEntity, drives, "MERGE", status, reports)

	for _, role := range []string{"status", "near"} { // a service account, on another node and on that of the claim
		admin.want(http.StatusCreated, "", "POST", rbacPath+"/clusterrolebindings", bindingBody(role+"-driver", "ClusterRole", role, `{"kind":"ServiceAccount","name":"driver","namespace":"shop"}`))
	}
	for _, row := range []struct {
		node string
		code int
	}{{"n2", http.StatusUnprocessableEntity}, {"n1", http.StatusOK}} {
		driver := rbacClient{t, rbacAs(admin.c, "system:serviceaccount:shop:driver")}
		driver.c.Impersonate.Extra = map[string][]string{"authentication.kubernetes.io/node-name": {row.node}}
		driver.want(row.code, "", "MERGE", status, reports)
	}
	admin.want(http.StatusOK, "", "MERGE", status, `{"status":{"devices":null}}`)
	admin.allowBob("any", `{"apiGroups":["resource.k8s.io"],"resources":["resourceclaims/driver"],"resourceNames":["a.example.com"],"verbs":["arbitrary-node:patch"]}`)
	user.want(http.StatusOK, "", "MERGE", status, reports)
	user.want(http.StatusOK, "", "MERGE", status, `{"status":{"devices":null}}`)
}
