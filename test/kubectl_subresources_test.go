package test

import (
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const podBudget = `{"apiVersion":"policy/v1","kind":"PodDisruptionBudget","metadata":{"name":"b"},"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"app":"web"}}}}`

const nodePod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"nodeName":"n1","terminationGracePeriodSeconds":0,"securityContext":{},"containers":[{"name":"c","image":"nginx"}]}}`

// certificateRequest is a request whose content does not matter.
const certificateRequest = `{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"r"},"spec":{"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QmNqQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCTk5WY3RkMWczZzRBdmpvYVk3bEVnTEpUdTJyalRSK0w5dUdKZmtObHF5aUEwQ3BjTzRhREcrV0dGN1l1YVpDClRLQVpwNUhVMTFnUTRTRTJLcDhpOGkyZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpRUFsUnJ0bFd5MVM3OUMKMUFUOTdYa2UrYUljVDFFSFY2VEJja05zR3F5a0lXUUNJRnFwY0Y3cGplV05IeUdFZkh4Q2xhQ0tJWEVyVytXWgpZaC8rVStxczRTUUEKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==","signerName":"example.com/s","usages":["client auth"]}}`

// TestKubectlTokens: kubectl auth whoami and can-i, for a user and for a service account.
func TestKubectlTokens(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	k.want("", []string{"auth", "whoami"}, "admin", "system:masters")
	k.want("", []string{"auth", "can-i", "delete", "pods", "--all-namespaces"}, "yes")
	k.want("", []string{"auth", "can-i", "--list"}, "*.*")
	k.want("", []string{"auth", "can-i", "get", "pods", "--as=jane", "--as-group=system:masters"}, "yes")
	if out, err := k.run("", "auth", "can-i", "get", "pods", "--as=jane"); err == nil || !strings.Contains(out, "no") {
		t.Errorf("jane may get pods: %v\n%s", err, out)
	}
	k.want("", []string{"create", "serviceaccount", "bot"}, "serviceaccount/bot created")
	token := strings.TrimSpace(k.want("", []string{"create", "token", "bot", "--duration=20m"}, "ey"))
	k.want("", []string{"auth", "whoami", "--token=" + token, "--user="}, "system:serviceaccount:default:bot", "system:serviceaccounts:default")
	if out, err := k.run("", "create", "token", "bot", "--duration=1m"); err == nil || !strings.Contains(out, "may not specify a duration less than 10 minutes") {
		t.Errorf("a token for a minute: %v\n%s", err, out)
	}
}

// TestKubectlSubresources scales, evicts, debugs and approves.
func TestKubectlSubresources(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	k.want("", []string{"create", "deployment", "web", "--image=nginx", "--replicas=2"}, "created")
	k.want("", []string{"scale", "deployment/web", "--current-replicas=2", "--replicas=5"}, "deployment.apps/web scaled")
	k.want("", []string{"get", "deployment", "web", "--subresource=scale", "-o", "jsonpath={.spec.replicas} {.status.selector}"}, "5 app=web")
	if out, err := k.run("", "scale", "deployment/web", "--current-replicas=2", "--replicas=1"); err == nil || !strings.Contains(out, "Expected replicas to be 2, was 5") {
		t.Errorf("scaled from another number: %v\n%s", err, out)
	}

	k.want(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"}}`, []string{"create", "-f", "-"}, "node/n1 created")
	k.want(nodePod, []string{"create", "-f", "-"}, "pod/web created")
	k.want("", []string{"debug", "web", "--image=busybox:1", "--container=dbg", "--attach=false"})
	k.want("", []string{"get", "pod", "web", "-o", "jsonpath={.spec.ephemeralContainers[*].name}"}, "dbg")
	k.want("", []string{"patch", "pod", "web", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`}, "pod/web patched")
	k.want(podBudget, []string{"create", "-f", "-"}, "created")
	allow := func(n string) {
		k.want("", []string{"patch", "pdb", "b", "--subresource=status", "--type=merge", "-p", `{"status":{"observedGeneration":1,"disruptionsAllowed":` + n + `,"currentHealthy":2,"desiredHealthy":1,"expectedPods":2}}`}, "patched")
	}
	allow("0")
	for _, timeout := range []string{"1s", "5s", "40s"} { // on a slow machine, it takes longer until the first try
		out, err := k.run("", "drain", "n1", "--force", "--timeout="+timeout)
		if err != nil && strings.Contains(out, "Cannot evict pod") {
			break
		}
		if err == nil || timeout == "40s" {
			t.Errorf("drained below the budget: %v\n%s", err, out)
			break
		}
	}
	allow("1")
	k.want("", []string{"drain", "n1", "--force", "--timeout=5m"}, "pod/web evicted", "node/n1 drained")

	k.want(certificateRequest, []string{"create", "-f", "-"}, "created")
	k.want("", []string{"certificate", "approve", "r"}, "approved")
	k.want("", []string{"get", "csr", "r", "-o", "jsonpath={.status.conditions[0].type} {.status.conditions[0].reason}"}, "Approved KubectlApprove")
}

const approverRole = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"approver"},"rules":[
{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests"],"verbs":["get","list"]},
{"apiGroups":["certificates.k8s.io"],"resources":["certificatesigningrequests/approval"],"verbs":["update"]}]}`

const signerRole = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"signer"},"rules":[
{"apiGroups":["certificates.k8s.io"],"resources":["signers"],"resourceNames":["example.com/*"],"verbs":["approve"]}]}`

// TestKubectlCertificate: approving and denying a request takes the right on its signer, too.
func TestKubectlCertificate(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	k := newKubectl(t, servers.Start(t))
	k.want(certificateRequest, []string{"create", "-f", "-"}, "created")
	k.want(approverRole, []string{"create", "-f", "-"}, "created")
	k.want("", []string{"create", "clusterrolebinding", "approver", "--clusterrole=approver", "--user=jane", "--user=joe"}, "created")
	k.want(signerRole, []string{"create", "-f", "-"}, "created")
	k.want("", []string{"create", "clusterrolebinding", "signer", "--clusterrole=signer", "--user=jane"}, "created")
	for _, verb := range []string{"approve", "deny"} {
		out, err := k.run("", "certificate", verb, "r", "--as=joe")
		if err == nil || !strings.Contains(out, `user not permitted to approve requests with signerName "example.com/s"`) {
			t.Errorf("joe may %s: %v\n%s", verb, err, out)
		}
	}
	k.want("", []string{"certificate", "deny", "r", "--as=jane"}, "denied")
	k.want("", []string{"get", "csr", "r", "-o", "jsonpath={.status.conditions[0].type} {.status.conditions[0].reason}"}, "Denied KubectlDeny")
}
