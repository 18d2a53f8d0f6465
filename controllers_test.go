package tidemark_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// send sends a request with a body, and returns the code and the answer.
func send(t testing.TB, h *http.Client, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

// TestControllers: a server that nobody helps deletes namespaces, and one sees
// which controllers run.
func TestControllers(t *testing.T) {
	s := start(t, &tidemark.Server{Controllers: []string{"*", "-serviceaccount"}})
	c := s.RESTConfig()
	h := client(t, c)
	if err := s.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code, text := get(t, c, "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt"); code != http.StatusOK || !strings.Contains(text, "BEGIN CERTIFICATE") {
		t.Errorf("%d %s", code, text)
	}
	wantCode(t, c, "/api/v1/namespaces/default/serviceaccounts/default", http.StatusNotFound, "")
	if code, text := send(t, h, "POST", c.Host+"/api/v1/namespaces", `{"metadata":{"name":"n"}}`); code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := send(t, h, "DELETE", c.Host+"/api/v1/namespaces/n", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	if err := s.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCode(t, c, "/api/v1/namespaces/n", http.StatusNotFound, "")
	_, ready := get(t, c, "/readyz?verbose")
	_, figures := get(t, c, "/metrics")
	for text, want := range map[string]bool{
		"[+]controller/namespace ok\n":         true,
		"[+]controller/garbage-collector ok\n": true,
		"controller/serviceaccount":            false,
	} {
		if strings.Contains(ready, text) != want {
			t.Errorf("%q in readyz: %v\n%s", text, !want, ready)
		}
	}
	for _, text := range []string{`workqueue_depth{name="namespace"} 0`, `workqueue_retries_total{name="event-ttl"} 0`, `tidemark_controller_paused{name="garbage-collector"} 0`, "tidemark_controllers_revision "} {
		if !strings.Contains(figures, text) {
			t.Errorf("no %s in metrics", text)
		}
	}
}

func TestControllersRefused(t *testing.T) {
	for _, s := range []*tidemark.Server{{Controllers: []string{"*", "-jobs"}}, {EventTTL: -1}} {
		if err := s.Start(t.Context()); err == nil {
			s.Close()
			t.Errorf("it started with %q, %v", s.Controllers, s.EventTTL)
		}
	}
}

// BenchmarkDeleteNamespace deletes a namespace with 10,000 ConfigMaps from a
// server on disk, from the request to the end of the namespace.
func BenchmarkDeleteNamespace(b *testing.B) {
	s := &tidemark.Server{Storage: &datadir.Dir{Path: b.TempDir()}}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	c := s.RESTConfig()
	h, err := rest.HTTPClientFor(c)
	if err != nil {
		b.Fatal(err)
	}
	const objects, clients = 10_000, 64
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		namespace := fmt.Sprintf("%s/api/v1/namespaces/big%d", c.Host, round)
		send(b, h, "POST", c.Host+"/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":"big%d"}}`, round))
		var wg sync.WaitGroup
		for n := range clients {
			wg.Go(func() {
				for i := n; i < objects; i += clients {
					send(b, h, "POST", namespace+"/configmaps", fmt.Sprintf(`{"metadata":{"name":"m%d"},"data":{"k":"v"}}`, i))
				}
			})
		}
		wg.Wait()
		if err := s.Settled(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if code, text := send(b, h, "DELETE", namespace, ""); code != http.StatusOK {
			b.Fatal(text)
		}
		if err := s.Settled(b.Context()); err != nil {
			b.Fatal(err)
		}
		if code, text := send(b, h, "GET", namespace, ""); code != http.StatusNotFound {
			b.Fatal(text)
		}
	}
}
