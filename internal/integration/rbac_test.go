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

// want sends a request and compares the code and a part of the answer.
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
		user.want(http.StatusForbidden, refused+`: RBAC: role.rbac.authorization.k8s.io \"r\" not found"`, "GET", configMaps, "")
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
