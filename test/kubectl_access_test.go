package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const accessRoles = `
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Namespace
  metadata: {name: shop}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: Role
  metadata: {name: reader, namespace: shop}
  rules:
  - {apiGroups: [""], resources: [pods], verbs: [get, list]}
- apiVersion: rbac.authorization.k8s.io/v1
  kind: RoleBinding
  metadata: {name: readers, namespace: shop}
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
  subjects:
  - {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
  - {kind: ServiceAccount, name: bot, namespace: shop}
`

// TestKubectlCanI: rights that kubectl reconciles are those that it finds.
func TestKubectlCanI(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	can := func(want string, args ...string) {
		t.Helper()
		out, code := k.exit("", append([]string{"auth", "can-i"}, args...)...)
		if response, _, _ := strings.Cut(strings.TrimSpace(out[strings.LastIndex("\n"+strings.TrimSpace(out), "\n"):]), " "); response != want || (code == 0) != (want == "yes") {
			t.Errorf("kubectl auth can-i %s: %d\n%s\nwant %s", strings.Join(args, " "), code, out, want)
		}
	}
	can("no", "get", "pods", "-n", "shop", "--as=bob")
	k.want(accessRoles, []string{"auth", "reconcile", "-f", "-"}, "role.rbac.authorization.k8s.io/reader reconciled", "rolebinding.rbac.authorization.k8s.io/readers reconciled")
	can("yes", "get", "pods", "-n", "shop", "--as=bob")
	can("yes", "list", "pods", "-n", "shop", "--as=bob")
	can("yes", "get", "pods/web", "-n", "shop", "--as=bob")
	can("no", "get", "pods", "--subresource=log", "-n", "shop", "--as=bob")
	can("no", "create", "pods", "-n", "shop", "--as=bob")
	can("no", "get", "pods", "-n", "default", "--as=bob")
	can("no", "get", "pods", "--all-namespaces", "--as=bob")
	can("no", "get", "nodes", "--as=bob")
	can("yes", "get", "/version", "--as=bob")
	can("no", "get", "/metrics", "--as=bob")
	can("yes", "get", "/metrics")
	can("yes", "*", "*", "--all-namespaces")
	k.want("", []string{"auth", "can-i", "--list", "-n", "shop", "--as=bob"}, "pods", "[get list]", "selfsubjectaccessreviews.authorization.k8s.io", "/healthz")
	k.want("", []string{"auth", "can-i", "--list", "--as=system:serviceaccount:shop:bot", "-n", "shop"}, "[get list]")

	more := strings.Replace(accessRoles, "[pods], verbs: [get, list]", "[configmaps], verbs: [get]", 1)
	k.want(more, []string{"auth", "reconcile", "-f", "-"}, "reader reconciled")
	can("yes", "get", "pods", "-n", "shop", "--as=bob")
	can("yes", "get", "configmaps", "-n", "shop", "--as=bob")
	k.want(more, []string{"auth", "reconcile", "--remove-extra-permissions", "--remove-extra-subjects", "-f", "-"}, "reader reconciled")
	can("no", "get", "pods", "-n", "shop", "--as=bob")
	can("yes", "get", "configmaps", "-n", "shop", "--as=bob")

	// A user that may write roles can grant only the rights that it has.
	k.want("", []string{"create", "clusterrole", "writer", "--verb=get,list,create,update,patch,delete", "--resource=roles.rbac.authorization.k8s.io,rolebindings.rbac.authorization.k8s.io,namespaces"}, "created")
	k.want("", []string{"create", "clusterrolebinding", "writer", "--clusterrole=writer", "--user=eve"}, "created")
	if out, code := k.exit(accessRoles, "auth", "reconcile", "-f", "-", "--as=eve"); code == 0 || !strings.Contains(out, `user "eve" (groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently held`) {
		t.Errorf("%d\n%s", code, out)
	}
}

// TestKubectlAsAccount: a token of a service account is a credential of its own, with the
// rights of its account and no others.
func TestKubectlAsAccount(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	k.want(accessRoles, []string{"auth", "reconcile", "-f", "-"}, "reconciled")
	k.want("", []string{"create", "serviceaccount", "bot", "-n", "shop"}, "created")
	token := strings.TrimSpace(k.want("", []string{"create", "token", "bot", "-n", "shop", "--duration=20m"}, "ey"))
	bot := k.withToken(token)
	bot.want("", []string{"auth", "whoami"}, "system:serviceaccount:shop:bot", "system:serviceaccounts:shop", "system:authenticated", "JTI=")
	bot.want("", []string{"get", "pods", "-n", "shop"}, "No resources found")
	bot.want("", []string{"auth", "can-i", "list", "pods", "-n", "shop"}, "yes")
	bot.wantError("", []string{"get", "secrets", "-n", "shop"}, `User "system:serviceaccount:shop:bot" cannot list resource "secrets"`)
	bot.wantError("", []string{"get", "pods"}, `in the namespace "default"`)
	bot.wantError("", []string{"create", "token", "bot", "-n", "shop"}, `cannot create resource "serviceaccounts/token"`)
	bot.wantError("", []string{"get", "pods", "-n", "shop", "--as=bob"}, "is forbidden", "cannot impersonate")
	k.want("", []string{"delete", "rolebinding", "readers", "-n", "shop"}, "deleted")
	bot.wantError("", []string{"get", "pods", "-n", "shop"}, `cannot list resource "pods"`)
	k.want("", []string{"delete", "serviceaccount", "bot", "-n", "shop"}, "deleted")
	bot.wantError("", []string{"get", "pods", "-n", "shop"}, "Unauthorized")
}

// withToken returns a kubectl whose only credential is a token.
func (k *kubectlIn) withToken(token string) *kubectlIn {
	k.t.Helper()
	config, err := clientcmd.LoadFromFile(k.kubeconfig)
	if err != nil {
		k.t.Fatal(err)
	}
	for name := range config.AuthInfos {
		config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	}
	other := &kubectlIn{t: k.t, home: k.t.TempDir()}
	other.kubeconfig = filepath.Join(other.home, "kubeconfig")
	b, err := clientcmd.Write(*config)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := os.WriteFile(other.kubeconfig, b, 0o600); err != nil {
		k.t.Fatal(err)
	}
	return other
}

// TestKubectlApprove: approving a certificate needs a right on the request and one on its
// signer.
func TestKubectlApprove(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	k.want(certificateRequest, []string{"create", "-f", "-"}, "created")
	approve := []string{"certificate", "approve", "r", "--as=dora"}
	k.wantError("", approve, `User "dora" cannot get resource "certificatesigningrequests"`)
	k.want("", []string{"create", "clusterrole", "approver", "--verb=get,list,watch,update", "--resource=certificatesigningrequests.certificates.k8s.io,certificatesigningrequests.certificates.k8s.io/approval"}, "created")
	k.want("", []string{"create", "clusterrolebinding", "approver", "--clusterrole=approver", "--user=dora"}, "created")
	k.wantError("", approve, `user not permitted to approve requests with signerName "example.com/s"`)
	k.want(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"signer"},"rules":[{"apiGroups":["certificates.k8s.io"],"resources":["signers"],"resourceNames":["example.com/*"],"verbs":["approve"]}]}`, []string{"create", "-f", "-"}, "created")
	k.want("", []string{"create", "clusterrolebinding", "signer", "--clusterrole=signer", "--user=dora"}, "created")
	k.want("", approve, "certificatesigningrequest.certificates.k8s.io/r approved")
	k.want("", []string{"get", "csr", "r", "-o", "jsonpath={.status.conditions[0].type}"}, "Approved")
}
