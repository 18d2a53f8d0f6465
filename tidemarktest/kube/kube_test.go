package kube_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// status sends a request with client-go's transport and returns the status code.
func status(t *testing.T, c *rest.Config, method, path, body string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestConfig(t *testing.T) {
	env := tidemarktest.Start(t)
	if code := status(t, kube.Config(env), "GET", "/api/v1/secrets", ""); code != 200 {
		t.Errorf("the administrator gets %d", code)
	}
	if code := status(t, kube.Config(env.As("alice")), "GET", "/api/v1/secrets", ""); code != 403 {
		t.Errorf("a user without rights gets %d", code)
	}
}

// TestEnvironment: what suites for envtest do.
func TestEnvironment(t *testing.T) {
	testEnv := &kube.Environment{
		CRDDirectoryPaths:     []string{filepath.Join("..", "testdata", "crd")},
		ErrorIfCRDPathMissing: true,
		WebhookInstallOptions: kube.WebhookInstallOptions{Paths: []string{filepath.Join("..", "testdata", "webhook")}},
	}
	cfg, err := testEnv.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := testEnv.Stop(); err != nil {
			t.Error(err)
		}
	}()
	o := &testEnv.WebhookInstallOptions
	certificate, err := tls.LoadX509KeyPair(filepath.Join(o.LocalServingCertDir, "tls.crt"), filepath.Join(o.LocalServingCertDir, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if !x509.NewCertPool().AppendCertsFromPEM(o.LocalServingCAData) {
		t.Error("LocalServingCAData has no certificate")
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(o.LocalServingHost, fmt.Sprint(o.LocalServingPort)), &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	called := make(chan string, 1)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		called <- r.URL.Path
		w.WriteHeader(http.StatusInternalServerError)
	})}
	go server.Serve(listener)
	defer server.Close()
	if code := status(t, cfg, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"}}`); code != 500 {
		t.Errorf("with a webhook that fails: %d", code)
	}
	if path := <-called; path != "/validate" {
		t.Errorf("the webhook was called at %s", path)
	}
	if code := status(t, cfg, "POST", "/apis/example.com/v1/namespaces/default/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"}}`); code != 201 {
		t.Errorf("a custom resource: %d", code)
	}
	user, err := testEnv.AddUser(kube.User{Name: "alice", Groups: []string{"system:masters"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if code := status(t, user.Config(), "GET", "/api/v1/secrets", ""); code != 200 {
		t.Errorf("the user gets %d", code)
	}
	if text, err := user.KubeConfig(); err != nil || !strings.Contains(string(text), "alice") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestExistingCluster(t *testing.T) {
	existing := true
	e := &kube.Environment{UseExistingCluster: &existing}
	if _, err := e.Start(); err == nil {
		t.Error("an existing cluster without a Config")
	}
	e.Config = &rest.Config{Host: "https://example.com"}
	if got, err := e.Start(); err != nil || got != e.Config {
		t.Errorf("%v %v", got, err)
	}
	if err := e.Stop(); err != nil {
		t.Error(err)
	}
}
