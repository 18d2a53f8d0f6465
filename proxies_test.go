package tidemark_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/kubelet/kubelettest"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// exchanged sends a request, follows no redirect, and returns the response with its body.
func exchanged(t *testing.T, c *rest.Config, method, path, body string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}
	client := servertest.Client(t, c)
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// TestProxies checks the proxies of pods, services and nodes with all methods. Their address leads to a kubelet on the
// loopback of the test.
func TestProxies(t *testing.T) {
	const ip, inside, nodes = "192.0.2.7", "/api/v1/namespaces/default", "/api/v1/nodes"
	k := kubelettest.Start(t)
	s := &tidemark.Server{Controllers: []string{"-*"}}
	s.SetDialNodes(func(ctx context.Context, network, address string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, strings.Replace(address, ip, "127.0.0.1", 1))
	})
	c := servertest.Start(t, s).RESTConfig()
	status := func(port any) string {
		return fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%v}}}}`, ip, port)
	}
	for _, w := range [][3]string{
		{"POST", nodes, `{"metadata":{"name":"n"}}`},
		{"PATCH", nodes + "/n/status", status(k.Port())},
		{"POST", inside + "/pods", fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i","ports":[{"containerPort":%d}]}]}}`, k.Port())},
		{"PATCH", inside + "/pods/p/status", fmt.Sprintf(`{"status":{"podIP":%q,"podIPs":[{"ip":%[1]q}]}}`, ip)},
		{"POST", inside + "/services", `{"metadata":{"name":"s"},"spec":{"ports":[{"name":"web","port":80}]}}`},
		{"POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", fmt.Sprintf(`{"metadata":{"name":"s","labels":{"kubernetes.io/service-name":"s"}},"addressType":"IPv4","ports":[{"name":"web","port":%d}],"endpoints":[{"addresses":[%q],"targetRef":{"kind":"Pod","namespace":"default","name":"p"}}]}`, k.Port(), ip)},
	} {
		if r, body := exchanged(t, c, w[0], w[1], w[2]); r.StatusCode >= 300 {
			t.Fatal(w, r.Status, body)
		}
	}
	for _, of := range []string{inside + "/pods/https:p:", inside + "/services/https:s:80", inside + "/services/https:s:web", nodes + "/n", fmt.Sprintf("%s/https:n:%d", nodes, k.Port()), fmt.Sprintf("%s/pods/https:p:%d", inside, k.Port())} {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			r, body := exchanged(t, c, method, of+"/proxy/a%2Fb//c/../d/?x=%20y", "")
			if want := method + " /a/b/d/?x=%20y"; r.StatusCode != 200 || body != want {
				t.Errorf("%s %s: got %s %s, want %s", method, of, r.Status, body, want)
			}
		}
		r, _ := exchanged(t, c, "GET", of+"/proxy?x=1", "")
		if r.StatusCode != 301 || r.Header.Get("Location") != of+"/proxy/?x=1" {
			t.Errorf("%s without a path: %s %s", of, r.Status, r.Header.Get("Location"))
		}
	}
	k.Refuse = func(w http.ResponseWriter, r *http.Request) bool {
		w.Header()["Location"] = []string{"/there"}
		w.Header().Set("Warning", `299 - "old"`)
		w.WriteHeader(302)
		return true
	}
	r, _ := exchanged(t, c, "GET", nodes+"/n/proxy/x", "")
	if r.StatusCode != 302 || r.Header.Get("Location") != nodes+"/n/proxy/there" || r.Header.Get("Warning") == "" {
		t.Errorf("a redirect: %s %v", r.Status, r.Header)
	}
	for _, r := range k.Requests() {
		if r.Header.Get("Authorization") != "" || len(r.TLS.PeerCertificates) > 0 {
			t.Errorf("%s: the backend got credentials", r.RequestURI)
		}
	}
	k.Server.Close()
	if r, body := exchanged(t, c, "GET", nodes+"/n/proxy/", ""); r.StatusCode != 503 || !strings.Contains(body, `"message":"error trying to reach service: dial tcp `) {
		t.Errorf("a kubelet that is down: %s %s", r.Status, body)
	}
	// The server itself is no kubelet.
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(c.Host, "https://"))
	exchanged(t, c, "PATCH", nodes+"/n/status", strings.ReplaceAll(status(port), ip, "127.0.0.1"))
	if r, body := exchanged(t, c, "GET", inside+"/pods/p/log", ""); r.StatusCode != 400 || !strings.Contains(body, "address not allowed") {
		t.Errorf("a kubelet that is the server: %s %s", r.Status, body)
	}
	// It is not one by an address that leads to it through the translation of addresses either.
	exchanged(t, c, "PATCH", nodes+"/n/status", status(port))
	if r, body := exchanged(t, c, "GET", nodes+"/n/proxy/version", ""); r.StatusCode != http.StatusLoopDetected {
		t.Errorf("a proxy to the server: %s %s", r.Status, body)
	}
	if r, body := exchanged(t, c, "GET", inside+"/pods/p/log", ""); r.StatusCode != http.StatusLoopDetected || !strings.Contains(body, "no kubelet") {
		t.Errorf("a log of the server: %s %s", r.Status, body)
	}
	if r, body := exchanged(t, c, "GET", fmt.Sprintf("%s/pods/https:p:%s/proxy/version", inside, port), ""); r.StatusCode != 200 {
		t.Errorf("a Pod that is an API server: %s %s", r.Status, body)
	}
}
