package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// TestClient: a long response is an error, no redirect is followed, and the kubeconfig's paths begin
// at its directory. All clients of webhooks for authentication, authorization and images are made
// this way.
func TestClient(t *testing.T) {
	followed := false
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat("x", responseBytes+1)))
		case "/most":
			_, _ = w.Write([]byte(strings.Repeat("x", responseBytes)))
		case "/301", "/302", "/303", "/307", "/308":
			code, _ := strconv.Atoi(r.URL.Path[1:])
			http.Redirect(w, r, "/other", code)
		case "/other":
			followed = true
		}
		if got := r.Header.Get("Authorization"); got != "Bearer a-token" {
			t.Errorf("the token is %q", got)
		}
	}))
	defer s.Close()
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("a-token"), 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(path string) error {
		t.Helper()
		text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: u, user: {tokenFile: token}}]}`, s.URL+path)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Config(file)
		if err != nil {
			t.Fatal(err)
		}
		c.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
		client, err := Client(c)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Client.CloseIdleConnections()
		_, err = client.Get().DoRaw(t.Context())
		return err
	}
	if err := get("/most"); err != nil {
		t.Errorf("a response of the limit: %v", err)
	}
	if err := get("/long"); !errors.Is(err, errLargeResponse) {
		t.Errorf("a long response: %v", err)
	}
	for _, path := range []string{"/301", "/302", "/303", "/307", "/308"} {
		if err := get(path); err == nil || followed {
			t.Errorf("a redirect with %s: %v, followed %t", path[1:], err, followed)
		}
	}
	if _, err := Config(filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
