package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/connect"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/kubelet/kubelettest"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// TestAdmitConnection checks the attributes of connections that admission gets: their options,
// before it is known whether the object exists.
func TestAdmitConnection(t *testing.T) {
	var seen []string
	see := func(phase string) func(ctx context.Context, a *registry.Attributes) error {
		return func(ctx context.Context, a *registry.Attributes) error {
			v, err := a.In(ctx, a.Forms()[0])
			if err != nil {
				return err
			}
			object, old, err := v.JSON()
			if err != nil {
				return err
			}
			seen = append(seen, fmt.Sprintf("%s %s %s %s %s %v %s", phase, a.Operation, a.ShownName(), v.Kind.Kind, object, a.Options() == nil, old))
			if phase == "mutate" && strings.Contains(string(object), "secret") {
				return a.Replace(ctx, v.Form, []byte(strings.Replace(string(object), "secret", "public", 1)))
			}
			if strings.Contains(string(object), "denied") {
				return a.Forbidden("no")
			}
			return nil
		}
	}
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Registry.Plugins = []registry.Plugin{{Mutate: see("mutate"), Validate: see("validate")}}
	}})
	for _, c := range []struct {
		method, path string
		code         int
		want         string
	}{
		{"GET", "pods/p/exec?container=c&command=ls&command=a&stdin=&tty=0&stderr=FALSE", 404, `p PodExecOptions {"kind":"PodExecOptions","apiVersion":"v1","stdin":true,"container":"c","command":["ls","a"]}`},
		{"POST", "pods/p/attach?stdout=true", 404, `p PodAttachOptions {"kind":"PodAttachOptions","apiVersion":"v1","stdout":true}`},
		{"POST", "pods/p/portforward?ports=80,90&ports=70", 404, `p PodPortForwardOptions {"kind":"PodPortForwardOptions","apiVersion":"v1","ports":[80,90,70]}`},
		{"GET", "pods/p/portforward?ports=abc", 400, ``},
		{"GET", "pods/p/exec?dryRun=All", 400, ``},
		{"GET", "pods/p/proxy?path=/x", 404, `p PodProxyOptions {"kind":"PodProxyOptions","apiVersion":"v1"}`},
		{"GET", "pods/p/proxy/", 404, `p PodProxyOptions {"kind":"PodProxyOptions","apiVersion":"v1","path":"/"}`},
		{"PUT", "services/https:s:80/proxy/a%2Fb/", 404, `https:s:80 ServiceProxyOptions {"kind":"ServiceProxyOptions","apiVersion":"v1","path":"/a/b/"}`},
		{"GET", "services/a:b:c:d/proxy", 400, `a:b:c:d ServiceProxyOptions {"kind":"ServiceProxyOptions","apiVersion":"v1"}`},
		{"GET", "pods/p/log", 404, ``},
	} {
		seen = nil
		path := "/api/v1/namespaces/default/" + c.path
		if r := s.do(t, c.method, path, ""); r.code != c.code {
			t.Errorf("%s %s: %d %s", c.method, c.path, r.code, r.body)
		}
		var want []string
		if c.want != "" {
			want = []string{"mutate CONNECT " + c.want + " true ", "validate CONNECT " + c.want + " true "}
		}
		if strings.Join(seen, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s %s: plugins saw\n%s\nwant\n%s", c.method, c.path, strings.Join(seen, "\n"), strings.Join(want, "\n"))
		}
	}
	if r := s.do(t, "GET", "/api/v1/namespaces/default/pods/p/exec?container=denied", ""); r.code != http.StatusForbidden || !strings.Contains(r.body, `pods \"p\" is forbidden: no`) {
		t.Errorf("denied: %d %s", r.code, r.body)
	}
	seen = nil
	s.do(t, "GET", "/api/v1/namespaces/default/pods/p/exec?container=secret", "")
	if len(seen) != 2 || !strings.Contains(seen[1], `"container":"public"`) {
		t.Errorf("changed options: %q", seen)
	}
}

// TestShareOfConnections: a user with many connections leaves some for others.
func TestShareOfConnections(t *testing.T) {
	kubelets, err := kubelet.New(kubelet.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kubelets.CloseIdleConnections)
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Connections = connect.New(kubelets)
		c.Limits.Connections = 16
	}})
	host, port, _ := net.SplitHostPort(kubelettest.Start(t).Listener.Addr().String())
	for _, r := range []struct{ method, path, body string }{
		{"POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`},
		{"PUT", "/api/v1/nodes/n/status", `{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"` + host + `"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":` + port + `}}}}`},
		{"POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`},
	} {
		if a := s.do(t, r.method, r.path, r.body); a.code >= 300 {
			t.Fatalf("%s %s: %d %s", r.method, r.path, a.code, a.body)
		}
	}
	const log = "/api/v1/namespaces/default/pods/p/log"
	open := 0
	for {
		resp := s.open(t, t.Context(), "GET", log+"?follow=true", nil, "Authorization: Bearer editor")
		t.Cleanup(func() { resp.Body.Close() })
		if resp.StatusCode != http.StatusOK {
			b, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
				t.Errorf("beyond the share: %d %s", resp.StatusCode, b)
			}
			break
		}
		open++
	}
	if open != 7 { // half of the connections that are not reserved for administrators
		t.Errorf("one user has %d connections", open)
	}
	if a := s.do(t, "GET", log, ""); a.code != http.StatusOK {
		t.Errorf("another user: %d %s", a.code, a.body)
	}
}
