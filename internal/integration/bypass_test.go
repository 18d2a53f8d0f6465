package integration_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// These tests play attacks on other API servers. docs/security.md has a row for each.

// besieged is a server with secrets, and bob, who may do everything in the namespace shop that
// is namespaced, and read a few paths.
type besieged struct {
	*tidemark.Server
	t *testing.T
}

// hidden is a value that bob must never see.
const hidden = "h1dd3n"

func besiege(t *testing.T) besieged {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("t-admin,root,1,system:masters\nt-bob,bob,2\nt-ann,ann,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.Start(t, &tidemark.Server{Authentication: tidemark.Authentication{TokenFile: file}})
	secret := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"stringData":{"k":"` + hidden + `"}}`
	}
	clusterWide := `{"metadata":{"name":"gadgets.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"gadgets","kind":"Gadget"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	run(t, s.RESTConfig(), []step{
		{"POST /api/v1/namespaces", `{"metadata":{"name":"shop"}}`, 201, nil},
		{"POST /api/v1/namespaces", `{"metadata":{"name":"bank"}}`, 201, nil},
		{"POST /api/v1/namespaces/bank/secrets", secret("vault"), 201, nil},
		{"POST /api/v1/namespaces/kube-system/secrets", secret("vault"), 201, nil},
		{"POST " + definitions, clusterWide, 201, nil},
		{"POST /apis/example.com/v1/gadgets", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"g"},"spec":"` + hidden + `"}`, 201, nil},
		{"POST " + rbacPath + "/clusterroles", roleBody("pages", `{"nonResourceURLs":["/healthz","/logs/*","/version"],"verbs":["get"]}`), 201, nil},
		{"POST " + rbacPath + "/clusterrolebindings", bindingBody("pages", "ClusterRole", "pages", rbacBob), 201, nil},
		{"POST " + rbacPath + inShop + "/roles", roleBody("all", `{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}`), 201, nil},
		{"POST " + rbacPath + inShop + "/rolebindings", bindingBody("all", "Role", "all", rbacBob), 201, nil},
	})
	return besieged{s, t}
}

// raw sends a request over HTTP/1.1 as it is written, and returns the status code and the rest of
// the response. Each header is a line.
func (b besieged) raw(request string, headers ...string) (int, string) {
	b.t.Helper()
	c := b.dial()
	defer c.Close()
	fmt.Fprintf(c, "%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n", request, strings.Join(append(headers, ""), "\r\n"))
	method, _, _ := strings.Cut(request, " ")
	resp, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	if err != nil {
		b.t.Fatalf("%s: %v", request, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.t.Fatalf("%s: %v", request, err)
	}
	return resp.StatusCode, string(text)
}

func (b besieged) dial() *tls.Conn {
	b.t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(b.RESTConfig().CAData)
	c, err := tls.Dial("tcp", strings.TrimPrefix(b.URL(), "https://"), &tls.Config{RootCAs: pool, NextProtos: []string{"http/1.1"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

const asBob, asRoot = "Authorization: Bearer t-bob", "Authorization: Bearer t-admin"

// TestPathTricks checks that for any spelling of a path, the served resource is the one that was
// authorized.
func TestPathTricks(t *testing.T) {
	b := besiege(t)
	for _, path := range []string{
		"/api/v1/namespaces/shop/../bank/secrets/vault",
		"/api/v1/namespaces/shop/%2e%2e/bank/secrets/vault",
		"/api/v1/namespaces/shop/secrets/../../bank/secrets/vault",
		"/api/v1/namespaces/shop/secrets/..%2f..%2fbank%2fsecrets%2fvault",
		"/api/v1/namespaces/shop%2f..%2fbank/secrets/vault",
		"/api/v1/namespaces/shop%00/../bank/secrets/vault",
		"/api/v1/namespaces/shop/secrets/vault/../../../bank/secrets/vault",
		"/api/v1/namespaces//bank/secrets/vault",
		"/api/v1/namespaces/bank//secrets/vault",
		"/api/v1/namespaces/./bank/secrets/vault",
		"/api/v1/./namespaces/bank/secrets/vault",
		"//api/v1/namespaces/bank/secrets/vault",
		"/api//v1/namespaces/bank/secrets/vault",
		"/API/v1/namespaces/bank/secrets/vault",
		"/api/v1/namespaces/bank/Secrets/vault",
		"/api/v1/namespaces/BANK/secrets/vault",
		"/api/v1/namespaces/bank;shop/secrets/vault",
		"/api/v1/namespaces/bank/secrets;a=b/vault",
		"/api/v1/namespaces/bank/secrets/vault/",
		"/api/v1/namespaces/bank/secrets/vault%20",
		"/api/v1/namespaces/bank/secrets/vault?namespace=shop",
		"/api/v1/namespaces/bank/secrets/vault#/namespaces/shop",
		"/api/v1/secrets?fieldSelector=metadata.namespace%3Dshop",
		"/api/v1/secrets?fieldSelector=metadata.name%3Dvault",
		"/api/v1/watch/namespaces/bank/secrets/vault",
		"/api/v1/watch/secrets?timeoutSeconds=1",
		"/api/v1/proxy/namespaces/bank/secrets/vault",
		"/api/v1/namespaces/bank/services/https:kubernetes:443/proxy/api/v1/namespaces/bank/secrets",
		"https://localhost/api/v1/namespaces/bank/secrets/vault",
		"/healthz/../api/v1/namespaces/bank/secrets/vault",
		"/logs/../api/v1/namespaces/bank/secrets/vault",
		"/logs/..%2fapi%2fv1%2fnamespaces%2fbank%2fsecrets%2fvault",
	} {
		code, text := b.raw("GET "+path, asBob)
		if code == http.StatusOK || strings.Contains(text, hidden) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	for _, path := range []string{"/healthz/../metrics", "/logs/../metrics", "/logs/%2e%2e/metrics", "/logs/..%2fmetrics", "//metrics", "/metrics/", "/metrics", "/./metrics", "/version/../metrics", "/healthz;/metrics",
		"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/flags/v", "/debug/api_priority_and_fairness/dump_requests", "/configz", "/statusz", "/flagz"} {
		for who, header := range map[string]string{"bob": asBob, "a client without credentials": "Accept: */*"} {
			code, text := b.raw("GET "+path, header)
			if code != http.StatusForbidden && code != http.StatusNotFound || strings.Contains(text, "tidemark_") {
				t.Errorf("%s as %s: %d %.300s", path, who, code, text)
			}
		}
	}
}

// TestScope: rights in a namespace are no rights on objects of the cluster, and no path makes
// one look like the other (CVE-2019-11247).
func TestScope(t *testing.T) {
	b := besiege(t)
	for _, request := range []string{
		"GET /apis/example.com/v1/namespaces/shop/gadgets/g",
		"GET /apis/example.com/v1/namespaces/shop/gadgets",
		"DELETE /apis/example.com/v1/namespaces/shop/gadgets/g",
		"DELETE /apis/example.com/v1/namespaces/shop/gadgets",
		"GET /apis/example.com/v1/gadgets/g",
		"GET /apis/rbac.authorization.k8s.io/v1/namespaces/shop/clusterroles/cluster-admin",
		"DELETE /apis/rbac.authorization.k8s.io/v1/namespaces/shop/clusterroles/cluster-admin",
		"GET /api/v1/namespaces/shop/nodes",
		"GET /api/v1/namespaces/shop/namespaces/bank",
		"DELETE /api/v1/namespaces/shop/namespaces/bank",
		"GET /api/v1/namespaces/shop/persistentvolumes",
	} {
		code, text := b.raw(request, asBob)
		if code < 400 || strings.Contains(text, hidden) {
			t.Errorf("%s: %d %.300s", request, code, text)
		}
	}
	servertest.WantCode(t, b.RESTConfig(), "/apis/example.com/v1/gadgets/g", http.StatusOK, "")
	servertest.WantCode(t, b.RESTConfig(), "/api/v1/namespaces/bank", http.StatusOK, "")
}

// TestVerbs checks that a right to one verb does not allow another, by any method, parameter or
// header of a request.
func TestVerbs(t *testing.T) {
	b := besiege(t)
	annMay := func(verbs, resources string) {
		t.Helper()
		if code, _, text := exchange(t, b.RESTConfig(), "PUT", rbacPath+"/namespaces/bank/roles/ann", roleBody("ann", `{"apiGroups":[""],"resources":[`+resources+`],"verbs":[`+verbs+`]}`)); code >= 300 {
			t.Fatalf("%d %s", code, text)
		}
	}
	annMay(`"get"`, `"secrets"`)
	if code, _, text := exchange(t, b.RESTConfig(), "POST", rbacPath+"/namespaces/bank/rolebindings", bindingBody("ann", "Role", "ann", `{"kind":"User","name":"ann"}`)); code != 201 {
		t.Fatalf("%d %s", code, text)
	}
	const ann = "Authorization: Bearer t-ann"
	const in = " /api/v1/namespaces/bank/"
	for _, row := range []struct {
		verbs, resources string
		refused          []string // "METHOD PATH", and perhaps a header after " | "
	}{
		{`"get"`, `"secrets"`, []string{
			"GET" + in + "secrets",
			"GET" + in + "secrets?watch=1&timeoutSeconds=1",
			"GET" + in + "secrets?fieldSelector=metadata.name%3Dvault",
			"GET" + in + "secrets/?limit=1",
			"HEAD" + in + "secrets",
			"DELETE" + in + "secrets/vault",
			"DELETE" + in + "secrets/vault?dryRun=All",
			"GET" + in + "secrets | X-HTTP-Method-Override: GET",
			"POST" + in + "secrets/vault | X-HTTP-Method-Override: GET",
			"DELETE" + in + "secrets/vault | X-HTTP-Method: GET",
			"GET /api/v1/watch/namespaces/bank/secrets?timeoutSeconds=1",
			"GET /api/v1/watch/namespaces/bank/secrets/vault?timeoutSeconds=1",
		}},
		{`"list"`, `"secrets"`, []string{
			"GET" + in + "secrets/vault",
			"GET" + in + "secrets?watch=1&timeoutSeconds=1",
			"GET" + in + "secrets?watch=true&watch=false&timeoutSeconds=1",
			"GET" + in + "secrets?watch=&timeoutSeconds=1",
			"GET" + in + "secrets?%77atch=1&timeoutSeconds=1",
			"GET" + in + "secrets?limit=1&wat%63h=%31&timeoutSeconds=1",
			"DELETE" + in + "secrets",
		}},
		{`"delete"`, `"secrets"`, []string{"DELETE" + in + "secrets", "DELETE" + in + "secrets?fieldSelector=metadata.name%3Dvault", "GET" + in + "secrets/vault"}},
		{`"patch","update"`, `"secrets"`, []string{
			"POST" + in + "secrets",
			"GET" + in + "secrets/vault",
			"PATCH" + in + "secrets/new?fieldManager=m | Content-Type: application/apply-patch+yaml",
		}},
		{`"*"`, `"pods","nodes","services"`, []string{
			"GET" + in + "pods/p/log", "POST" + in + "pods/p/exec?command=sh", "GET" + in + "pods/p/attach", "GET" + in + "pods/p/proxy/", "POST" + in + "pods/p/eviction",
			"POST" + in + "pods/p/binding", "PATCH" + in + "pods/p/ephemeralcontainers", "PUT" + in + "pods/p/status", "GET" + in + "pods/p/status", "PATCH" + in + "pods/p/resize",
			"GET" + in + "services/s/proxy/", "GET /api/v1/nodes/n/proxy/", "GET" + in + "services/http:s:80/proxy/x",
		}},
		{`"*"`, `"serviceaccounts"`, []string{"POST" + in + "serviceaccounts/default/token"}},
		{`"*"`, `"pods/log"`, []string{"GET" + in + "pods/log", "GET" + in + "pods", "DELETE" + in + "pods/p"}},
	} {
		annMay(row.verbs, row.resources)
		for _, refused := range row.refused {
			request, header, _ := strings.Cut(refused, " | ")
			headers := []string{ann}
			if header != "" {
				headers = append(headers, header)
			}
			if code, text := b.raw(request, headers...); code != http.StatusForbidden && code != http.StatusMethodNotAllowed || strings.Contains(text, hidden) {
				t.Errorf("with %s on %s: %s: %d %.300s", row.verbs, row.resources, refused, code, text)
			}
		}
	}
	servertest.WantCode(t, b.RESTConfig(), "/api/v1/namespaces/bank/secrets/vault", http.StatusOK, "")
}

// TestUpgrades: a request to switch the protocol is authorized like any other, and no
// connection becomes a tunnel: the next request on it is authenticated for itself
// (CVE-2018-1002105).
func TestUpgrades(t *testing.T) {
	b := besiege(t)
	run(t, b.RESTConfig(), []step{
		{"POST /api/v1/nodes", `{"metadata":{"name":"n"}}`, 201, nil},
		{"POST /api/v1/namespaces/shop/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, 201, nil},
		{"POST /api/v1/namespaces/shop/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"port":80}]}}`, 201, nil},
	})
	for _, path := range []string{"/api/v1/namespaces/shop/pods/p/exec?command=sh", "/api/v1/namespaces/shop/pods/p/portforward", "/api/v1/namespaces/shop/pods/p/attach", "/api/v1/namespaces/shop/services/s/proxy/",
		"/api/v1/namespaces/shop/services/s:port/proxy/", "/api/v1/nodes/n/proxy/", "/apis/metrics.k8s.io/v1beta1", "/api/v1/namespaces/shop/configmaps?watch=1", "/livez"} {
		for _, protocol := range []string{"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: channel.k8s.io", "SPDY/3.1", "h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA", "nonsense"} {
			c := b.dial()
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", path, asBob, protocol)
			r := bufio.NewReader(c)
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatalf("%s %s: %v", path, protocol, err)
			}
			watch := strings.Contains(path, "watch") && strings.HasPrefix(protocol, "websocket") // served by this server itself
			if resp.StatusCode == http.StatusSwitchingProtocols != watch {
				t.Errorf("%s with %.9s: %s", path, protocol, resp.Status)
			}
			if resp.StatusCode == http.StatusSwitchingProtocols || strings.Contains(path, "watch") {
				c.Close()
				continue
			}
			io.Copy(io.Discard, resp.Body)
			fmt.Fprint(c, "GET /api/v1/namespaces/bank/secrets/vault HTTP/1.1\r\nHost: localhost\r\n\r\n")
			if resp, err := http.ReadResponse(r, nil); err == nil && resp.StatusCode != http.StatusForbidden {
				t.Errorf("after %s with %.9s: %s", path, protocol, resp.Status)
			}
			c.Close()
		}
	}
}

// TestNoConnectionsInside: whatever a client writes into a Node, a Service or Endpoints, a proxy
// leads to no address of the server's machine (CVE-2020-8562, CVE-2022-3294). Extension servers may
// be there; package aggregation tests which of their addresses are called.
func TestNoConnectionsInside(t *testing.T) {
	b := besiege(t)
	inside, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	reached := make(chan struct{}, 1)
	go func() {
		if c, err := inside.Accept(); err == nil {
			c.Close()
			reached <- struct{}{}
		}
	}()
	port := inside.Addr().(*net.TCPAddr).Port
	run(t, b.RESTConfig(), []step{
		{"POST /api/v1/nodes", `{"metadata":{"name":"n"}}`, 201, nil},
		{"PUT /api/v1/nodes/n/status", fmt.Sprintf(`{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"127.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, port), 200, nil},
		{"POST /api/v1/namespaces/shop/services", fmt.Sprintf(`{"metadata":{"name":"s"},"spec":{"type":"ExternalName","externalName":"localhost","ports":[{"port":%d}]}}`, port), 201, nil},
	})
	for _, path := range []string{"/api/v1/nodes/n/proxy/", fmt.Sprintf("/api/v1/nodes/https:n:%d/proxy/", port), fmt.Sprintf("/api/v1/namespaces/shop/services/s:%d/proxy/", port)} {
		if code, text := b.raw("GET "+path, asRoot); code < 400 {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	select {
	case <-reached:
		t.Error("the server opened a connection to an address that a client chose")
	default:
	}
}
