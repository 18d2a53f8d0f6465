package kube_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// status sends a request with client-go's transport and returns the status code.
func status(t *testing.T, c *rest.Config, method, path, body string) int {
	t.Helper()
	code, _ := send(t, c, method, path, body)
	return code
}

// send sends a request with client-go's transport and returns the response.
func send(t *testing.T, c *rest.Config, method, path, body string) (int, string) {
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
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
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

// TestEnvironment: the calls of suites for envtest.
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

// TestEnvironmentWebhooks: configurations as objects, and paths that do not exist.
func TestEnvironmentWebhooks(t *testing.T) {
	wrong := &kube.Environment{WebhookInstallOptions: kube.WebhookInstallOptions{Paths: []string{"missing"}}}
	if _, err := wrong.Start(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a path that does not exist: %v", err)
	}
	path, effects := "/mutate", admissionregistrationv1.SideEffectClassNone
	testEnv := &kube.Environment{WebhookInstallOptions: kube.WebhookInstallOptions{
		Paths:                    []string{"missing"},
		IgnoreErrorIfPathMissing: true,
		MutatingWebhooks: []*admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "mutating"},
			Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "mutating.example.com", SideEffects: &effects, AdmissionReviewVersions: []string{"v1"},
				ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "default", Name: "hook", Path: &path}},
			}},
		}},
		ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "validating"}}},
	}}
	cfg, err := testEnv.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := testEnv.Stop(); err != nil {
			t.Error(err)
		}
	}()
	o := testEnv.WebhookInstallOptions
	for kind, want := range map[string]string{
		"mutating":   fmt.Sprintf("https://%s:%d/mutate", o.LocalServingHost, o.LocalServingPort),
		"validating": `"name":"validating"`,
	} {
		code, body := send(t, cfg, "GET", "/apis/admissionregistration.k8s.io/v1/"+kind+"webhookconfigurations/"+kind, "")
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("the %s webhook: %d, %s, want one with %s", kind, code, body, want)
		}
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
