package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/kubelet/kubelettest"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// addNode adds a node with a kubelet, and a Pod on it.
func addNode(t *testing.T, c *rest.Config, k *kubelettest.Kubelet) {
	t.Helper()
	ip, _, _ := net.SplitHostPort(k.Listener.Addr().String())
	run(t, c, []step{
		{"POST /api/v1/nodes", `{"metadata":{"name":"n"}}`, 201, nil},
		{"PATCH /api/v1/nodes/n/status", fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`, ip, k.Port()), 200, nil},
		{"POST " + pods, `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i","ports":[{"containerPort":` + fmt.Sprint(k.Port()) + `}]}]}}`, 201, nil},
		{"PATCH " + pods + "/p/status", fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%q}]}}`, ip, ip), 200, nil},
	})
}

// openSocket opens a WebSocket.
func openSocket(t *testing.T, c *rest.Config, path string, headers http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	config, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	if c.BearerToken != "" {
		headers = http.Header{"Authorization": {"Bearer " + c.BearerToken}}
	}
	ws, resp, err := websocket.Dial(t.Context(), c.Host+path, &websocket.DialOptions{HTTPClient: h, HTTPHeader: headers, Subprotocols: protocols})
	if err == nil {
		t.Cleanup(func() { ws.CloseNow() })
	}
	return ws, resp, err
}

// channel reads messages until one of a channel is not empty.
func channel(t *testing.T, ws *websocket.Conn, number byte) string {
	t.Helper()
	for {
		_, m, err := ws.Read(t.Context())
		if err != nil {
			t.Errorf("waiting for channel %d: %v", number, err)
			return ""
		}
		if m[0] == number && len(m) > 1 {
			return string(m[1:])
		}
	}
}

// TestKubeletConnections checks what clients and kubelets get of each other.
func TestKubeletConnections(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	s := servertest.Start(t, &tidemark.Server{Audit: tidemark.Audit{PolicyFile: "testdata/audit/metadata.yaml", Log: tidemark.AuditLog{Path: log, Mode: "blocking"}}})
	c, k := s.RESTConfig(), kubelettest.Start(t)
	addNode(t, c, k)
	// Logs, over HTTP/2.
	code, header, body := exchange(t, c, "GET", pods+"/p/log?tailLines=3", "")
	if code != 200 || string(body) != "log tailLines=3" || header.Get("Content-Type") != "text/plain" || header.Get("Audit-Id") == "" {
		t.Errorf("the log: %d %v %s", code, header, body)
	}
	// exec, with a token in a subprotocol, which the kubelet must not get.
	run(t, c, []step{{"POST /api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, 201, nil},
		{"POST /apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"robot"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"ServiceAccount","name":"robot","namespace":"default"}]}`, 201, nil}})
	_, got := post(t, c, "/api/v1/namespaces/default/serviceaccounts/robot/token", `{}`)
	secret := pick(t, got, "status.token")
	token := servertest.Anonymous(s)
	encoded := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(strings.Trim(secret, `"`)))
	for _, protocol := range []string{"v5.channel.k8s.io", "v4.channel.k8s.io"} {
		ws, _, err := openSocket(t, token, pods+"/p/exec?command=echo&command=hi&stdout=true", http.Header{"X-Remote-User": {"x"}, "Cookie": {"a=b"}}, protocol, encoded)
		if err != nil {
			t.Fatalf("%s: %v", protocol, err)
		}
		want := map[string]string{"v5.channel.k8s.io": "hi", "v4.channel.k8s.io": "kubelet v4.channel.k8s.io"}[protocol]
		if got := channel(t, ws, 1); got != want {
			t.Errorf("%s: got %q", protocol, got)
		}
		if got := channel(t, ws, 3); !strings.Contains(got, `"status":"Success"`) {
			t.Errorf("%s: got %q", protocol, got)
		}
	}
	for _, r := range k.Requests() {
		for name, values := range r.Header {
			if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") || strings.Contains(strings.Join(values, ","), "bearer") {
				t.Errorf("%s: the kubelet got %s: %q", r.RequestURI, name, values)
			}
		}
	}
	// SPDY.
	conn, resp := upgradeTo(t, c, "POST", pods+"/p/portforward", "SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io")
	if resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "SPDY/3.1" {
		t.Errorf("SPDY: %s %v", resp.Status, resp.Header)
	}
	await.True(t, "the kubelet's stream", func() bool { return k.Open.Load() == 1 })
	if got := metrics(t, servertest.Client(t, c), c.Host)[`apiserver_longrunning_requests{component="apiserver",group="",resource="pods",scope="resource",subresource="portforward",verb="CONNECT",version="v1"}`]; got != 1 {
		t.Errorf("%v connections run", got)
	}
	conn.Close()
	await.True(t, "the kubelet's stream to end", func() bool { return k.Open.Load() == 0 })
	k.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return true
	}
	if _, resp := upgradeTo(t, c, "POST", pods+"/p/exec?command=x", "SPDY/3.1"); resp.StatusCode != 404 || resp.Header.Get("Audit-Id") == "" {
		t.Errorf("a kubelet that refuses: %s %v", resp.Status, resp.Header)
	}
	k.Refuse = nil
	for _, path := range []string{"/exec?command=x", "/attach", "/portforward"} {
		servertest.WantCode(t, c, pods+"/p"+path, 400, "Upgrade request required")
	}
	// A kubelet of the server's own machine has logs, and no proxy.
	servertest.WantCode(t, c, "/api/v1/nodes/n/proxy/metrics", 400, "address not allowed")
	servertest.WantCode(t, c, pods+"/p/proxy/", 400, "address not allowed")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"stage":"ResponseStarted","requestURI":"/api/v1/namespaces/default/pods/p/exec?command=echo\u0026command=hi\u0026stdout=true","verb":"get"`,
		`"stage":"ResponseStarted","requestURI":"/api/v1/namespaces/default/pods/p/portforward","verb":"create"`,
		`"stage":"ResponseComplete","requestURI":"/api/v1/namespaces/default/pods/p/portforward","verb":"create"`,
		`"resource":"pods","namespace":"default","name":"p","apiVersion":"v1","subresource":"portforward"},"responseStatus":{"metadata":{},"code":101}`,
		`"stage":"ResponseStarted","requestURI":"/api/v1/namespaces/default/pods/p/log?tailLines=3","verb":"get"`,
	} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the audit log has no %s:\n%s", want, b)
		}
	}
}

// upgradeTo sends a request for an upgrade with the credentials of an administrator.
func upgradeTo(t *testing.T, c *rest.Config, method, path, protocol string) (net.Conn, *http.Response) {
	t.Helper()
	config, err := rest.TLSConfigFor(c)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(c.Host, "https://"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	authorization := ""
	if c.BearerToken != "" {
		authorization = "Authorization: Bearer " + c.BearerToken + "\r\n"
	}
	fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%sContent-Length: 0\r\n\r\n", method, path, protocol, authorization)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp
}

// TestConnectionRights checks that a WebSocket needs the right to create, too, and that a proxy needs the right to the
// whole name with scheme and port.
func TestConnectionRights(t *testing.T) {
	admin, bob := startRBAC(t, &tidemark.Server{})
	addNode(t, admin.c, kubelettest.Start(t))
	admin.allowBob("reads", `{"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward","pods/log"],"verbs":["get"]}`)
	for _, of := range []string{"exec", "attach", "portforward"} {
		bob.want(403, `pods \"p\" is forbidden: User \"bob\" cannot create resource \"pods/`+of+`\"`, "GET", pods+"/p/"+of, "")
		bob.want(403, `cannot create resource`, "POST", pods+"/p/"+of, "")
	}
	bob.want(200, "log", "GET", pods+"/p/log", "")
	admin.allowBob("creates", `{"apiGroups":[""],"resources":["pods/exec","pods/attach","pods/portforward"],"verbs":["create"]}`)
	for _, of := range []string{"exec", "attach", "portforward"} {
		bob.want(400, "Upgrade request required", "GET", pods+"/p/"+of, "")
		bob.want(400, "Upgrade request required", "POST", pods+"/p/"+of, "")
	}
	admin.allowBob("proxies", `{"apiGroups":[""],"resources":["pods/proxy"],"resourceNames":["p"],"verbs":["get"]}`)
	bob.want(400, "address not allowed", "GET", pods+"/p/proxy/", "")
	bob.want(403, `pods \"p:80\" is forbidden`, "GET", pods+"/p:80/proxy/", "")
	bob.want(403, `cannot update resource`, "PUT", pods+"/p/proxy/", "")
}

// TestConnectionsEnd checks that connections end with the server, and that a fork has none.
func TestConnectionsEnd(t *testing.T) {
	s := &tidemark.Server{}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, k := s.RESTConfig(), kubelettest.Start(t)
	addNode(t, c, k)
	exec, _, err := openSocket(t, c, pods+"/p/exec?command=sleep&stdout=true", nil, "v5.channel.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	forward, _, err := openSocket(t, c, pods+"/p/portforward", nil, "SPDY/3.1+portforward.k8s.io")
	if err != nil {
		t.Fatal(err)
	}
	conn, _ := upgradeTo(t, c, "POST", pods+"/p/portforward", "SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io")
	log, err := servertest.Client(t, c).Get(c.Host + pods + "/p/log?follow=1")
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "four streams", func() bool { return k.Open.Load() == 4 })
	code, b := post(t, c, "/forks", `{"name":"f"}`)
	if code >= 300 {
		t.Fatalf("a fork: %d %s", code, b)
	}
	for _, path := range []string{"/pods/p/log", "/pods/p/exec?command=x", "/pods/p/proxy/"} {
		if code, text := servertest.Get(t, c, "/fork/f/api/v1/namespaces/default"+path); code != 501 && code != 403 {
			t.Errorf("%s in a fork: %d %s", path, code, text)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	await.True(t, "the kubelet's streams to end", func() bool { return k.Open.Load() == 0 })
	ctx := context.Background()
	for {
		if _, _, err := exec.Read(ctx); err != nil {
			break
		}
	}
	if _, _, err := forward.Read(ctx); err == nil {
		t.Error("a port is forwarded by a closed server")
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("a port is forwarded by a closed server")
	}
	_, _ = io.Copy(io.Discard, log.Body)
	log.Body.Close()
}
