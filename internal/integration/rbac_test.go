package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const (
	rbacPath = "/apis/rbac.authorization.k8s.io/v1"
	inShop   = "/namespaces/shop"
)

// rbacAs returns a configuration that acts as a user, whose groups get system:authenticated.
func rbacAs(c *rest.Config, name string, groups ...string) *rest.Config {
	c = rest.CopyConfig(c)
	c.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: groups}
	return c
}

// rbacClient sends requests of one user.
type rbacClient struct {
	t *testing.T
	c *rest.Config
}

// want sends a request and compares the code and a part of the response.
func (c rbacClient) want(code int, part, method, path, body string) {
	c.t.Helper()
	got, _, b := exchange(c.t, c.c, method, path, body)
	if got != code || !strings.Contains(string(b), part) {
		c.t.Errorf("%s %s as %s: %d %s\nwant %d %s", method, path, c.c.Impersonate.UserName, got, b, code, part)
	}
}

// roleBody and bindingBody are the bodies of roles and bindings.
func roleBody(name, rules string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s]}`, name, rules)
}

func bindingBody(name, kind, role, subjects string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[%s]}`, name, kind, role, subjects)
}

const rbacBob = `{"kind":"User","name":"bob"}`

// startRBAC starts a server with the namespace shop, and returns its administrator and bob.
func startRBAC(t *testing.T, s *tidemark.Server) (admin, user rbacClient) {
	c := servertest.Start(t, s).RESTConfig()
	admin, user = rbacClient{t, c}, rbacClient{t, rbacAs(c, "bob", "dev")}
	admin.want(http.StatusCreated, "", "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	return admin, user
}

// TestRBACAtOnce: each change of a role or binding is in effect with the next request.
func TestRBACAtOnce(t *testing.T) {
	admin, user := startRBAC(t, &tidemark.Server{})
	configMaps := "/api/v1" + inShop + "/configmaps"
	refused := `configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"shop\"`
	reader := `{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list"]}`
	for range 20 {
		user.want(http.StatusForbidden, refused+`"`, "GET", configMaps, "")
		admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/rolebindings", bindingBody("b", "Role", "r", rbacBob))
		user.want(http.StatusForbidden, refused+`: rbac: RBAC: role.rbac.authorization.k8s.io \"r\" not found"`, "GET", configMaps, "")
		admin.want(http.StatusCreated, "", "POST", rbacPath+inShop+"/roles", roleBody("r", reader))
		user.want(http.StatusOK, "", "GET", configMaps, "")
		user.want(http.StatusForbidden, "at the cluster scope", "GET", "/api/v1/configmaps", "")
		user.want(http.StatusForbidden, `in the namespace \"default\"`, "GET", "/api/v1/namespaces/default/configmaps", "")
		user.want(http.StatusForbidden, `User \"bob\" cannot create resource`, "POST", configMaps, `{"metadata":{"name":"x"}}`)
		admin.want(http.StatusOK, "", "PUT", rbacPath+inShop+"/roles/r", roleBody("r", `{"apiGroups":[""],"resources":["secrets"],"verbs":["*"]}`))
		user.want(http.StatusForbidden, refused+`"`, "GET", configMaps, "")
		user.want(http.StatusOK, "", "GET", "/api/v1"+inShop+"/secrets", "")
		admin.want(http.StatusOK, "", "PUT", rbacPath+inShop+"/rolebindings/b", bindingBody("b", "Role", "r", `{"kind":"Group","name":"ops"}`))
		user.want(http.StatusForbidden, "", "GET", "/api/v1"+inShop+"/secrets", "")
		admin.want(http.StatusOK, "", "DELETE", rbacPath+inShop+"/rolebindings/b", "")
		admin.want(http.StatusOK, "", "DELETE", rbacPath+inShop+"/roles/r", "")
	}
}

// TestEscalation: users cannot grant permissions that they do not have, in any way of writing, not
// even in a dry-run. The words are those of kube-apiserver v1.36.
func TestEscalation(t *testing.T) {
	admin, user := startRBAC(t, &tidemark.Server{})
	const (
		editor = `{"apiGroups":["rbac.authorization.k8s.io"],"resources":["*"],"verbs":["get","create","update","patch"]}`
		pods   = `{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}`
		crb    = rbacPath + "/clusterrolebindings"
		roles  = rbacPath + inShop + "/roles"
		rb     = rbacPath + inShop + "/rolebindings"
		beg    = `user \"bob\" (groups=[\"dev\" \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n`
	)
	admin.want(http.StatusCreated, "", "POST", rbacPath+"/clusterroles", roleBody("editor", editor+","+pods))
	admin.want(http.StatusCreated, "", "POST", crb, bindingBody("bob", "ClusterRole", "editor", rbacBob))

	user.want(http.StatusCreated, "", "POST", roles, roleBody("pods", pods))
	user.want(http.StatusCreated, "", "POST", rb, bindingBody("pods", "Role", "pods", rbacBob))
	user.want(http.StatusOK, "", "MERGE", roles+"/pods", `{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}`)

	secrets := roleBody("secrets", `{"apiGroups":["b","a",""],"resources":["secrets","pods/log"],"verbs":["list","get"],"resourceNames":["n1","n2"]},{"apiGroups":[""],"resources":["pods","secrets"],"verbs":["watch","get"]}`)
	missing := beg + strings.Join([]string{
		`{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"watch\"]}`,
		`{APIGroups:[\"\"], Resources:[\"pods/log\"], ResourceNames:[\"n1\"], Verbs:[\"list\" \"get\"]}`,
		`{APIGroups:[\"\"], Resources:[\"pods/log\"], ResourceNames:[\"n2\"], Verbs:[\"list\" \"get\"]}`,
		`{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"n1\"], Verbs:[\"list\" \"get\"]}`,
		`{APIGroups:[\"\"], Resources:[\"secrets\"], ResourceNames:[\"n2\"], Verbs:[\"list\" \"get\"]}`,
		`{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"watch\" \"get\"]}`,
		`{APIGroups:[\"a\"], Resources:[\"pods/log\"], ResourceNames:[\"n1\"], Verbs:[\"list\" \"get\"]}`,
	}, `\n`)
	user.want(http.StatusForbidden, `"roles.rbac.authorization.k8s.io \"secrets\" is forbidden: `+missing, "POST", roles, secrets)
	user.want(http.StatusForbidden, missing, "POST", roles+"?dryRun=All", secrets)
	user.want(http.StatusForbidden, missing, "PUT", roles+"/secrets", secrets)
	user.want(http.StatusForbidden, missing, "APPLY", roles+"/secrets?fieldManager=t", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role",`+secrets[1:])
	user.want(http.StatusForbidden, missing, "PUT", roles+"/pods", strings.Replace(secrets, `"secrets"`, `"pods"`, 1))
	user.want(http.StatusForbidden, beg+`{APIGroups:[\"\"], Resources:[\"*\"], Verbs:[\"get\"]}"`, "MERGE", roles+"/pods", `{"rules":[{"apiGroups":[""],"resources":["*"],"verbs":["get"]}]}`)
	user.want(http.StatusForbidden, `"roles.rbac.authorization.k8s.io is forbidden: `+beg, "POST", roles, strings.Replace(secrets, `"name"`, `"generateName"`, 1))
	user.want(http.StatusForbidden, beg+`{NonResourceURLs:[\"/a\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/a\"], Verbs:[\"list\"]}"`, "POST", rbacPath+"/clusterroles", roleBody("paths", `{"nonResourceURLs":["/a"],"verbs":["list","get"]}`))
	user.want(http.StatusForbidden, beg+`{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}"`, "POST", crb, bindingBody("all", "ClusterRole", "cluster-admin", rbacBob))
	user.want(http.StatusForbidden, `must have cluster-admin privileges to use the aggregationRule`, "POST", rbacPath+"/clusterroles", `{"metadata":{"name":"sum"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`)

	user.want(http.StatusNotFound, `"rolebindings.rbac.authorization.k8s.io \"none\" not found"`, "POST", rb, bindingBody("x", "Role", "none", rbacBob))
	user.want(http.StatusNotFound, `"rolebindings.rbac.authorization.k8s.io \"none\" not found"`, "POST", rb+"?dryRun=All", bindingBody("x", "ClusterRole", "none", rbacBob))
	user.want(http.StatusInternalServerError, `unsupported role reference kind: \"Foo\"`, "POST", rb, bindingBody("x", "Foo", "none", rbacBob))
	user.want(http.StatusBadRequest, `Namespace parameter required.`, "POST", crb, bindingBody("x", "Role", "none", rbacBob))

	admin.want(http.StatusCreated, "", "POST", crb, bindingBody("dangling", "ClusterRole", "gone", rbacBob))
	user.want(http.StatusForbidden, `; resolution errors: [roles.rbac.authorization.k8s.io \"gone\" not found]"`, "POST", roles, secrets)
	admin.want(http.StatusCreated, "", "POST", crb, bindingBody("dangling2", "ClusterRole", "gone2", rbacBob))
	user.want(http.StatusForbidden, `; resolution errors: [[roles.rbac.authorization.k8s.io \"gone\" not found, roles.rbac.authorization.k8s.io \"gone2\" not found]]"`, "POST", roles, secrets)

	t.Run("collector", func(t *testing.T) { // finalizers and owners may change in a role that grants more
		user := rbacClient{t, user.c}
		admin.want(http.StatusCreated, "", "POST", roles, secrets)
		user.want(http.StatusOK, "", "MERGE", roles+"/secrets", `{"metadata":{"finalizers":["a.b/c"]}}`)
		user.want(http.StatusOK, "", "MERGE", roles+"/secrets", `{"metadata":{"finalizers":null}}`)
		user.want(http.StatusForbidden, beg, "MERGE", roles+"/secrets", `{"metadata":{"labels":{"a":"b"}}}`)
	})
	t.Run("verbs", func(t *testing.T) { // escalate and bind allow it
		user := rbacClient{t, user.c}
		may := `{"apiGroups":["rbac.authorization.k8s.io"],"resources":["roles"],"resourceNames":["secrets"],"verbs":["escalate","bind"]}`
		admin.want(http.StatusCreated, "", "POST", rbacPath+"/clusterroles", roleBody("gone", may))
		user.want(http.StatusForbidden, beg, "POST", roles, strings.Replace(secrets, `"secrets"`, `"more"`, 1)) // a POST has no name
		user.want(http.StatusOK, "", "MERGE", roles+"/secrets", `{"metadata":{"labels":{"a":"b"}}}`)
		user.want(http.StatusCreated, "", "POST", rb, bindingBody("s", "Role", "secrets", rbacBob))
		user.want(http.StatusNotFound, `secrets \"n1\" not found`, "GET", "/api/v1"+inShop+"/secrets/n1", "")
	})
}
