package integration_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestControllers checks that the server deletes namespaces, and that health checks
// and metrics show which controllers run.
func TestControllers(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"*", "-serviceaccount"}})
	c := s.RESTConfig()
	h := servertest.Client(t, c)
	settle(t, c)
	if code, text := servertest.Get(t, c, "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt"); code != http.StatusOK || !strings.Contains(text, "BEGIN CERTIFICATE") {
		t.Errorf("%d %s", code, text)
	}
	servertest.WantCode(t, c, "/api/v1/namespaces/default/serviceaccounts/default", http.StatusNotFound, "")
	if code, text := send(t, h, "POST", c.Host+"/api/v1/namespaces", `{"metadata":{"name":"n"}}`); code != http.StatusCreated {
		t.Fatalf("%d %s", code, text)
	}
	if code, text := send(t, h, "DELETE", c.Host+"/api/v1/namespaces/n", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, text)
	}
	settle(t, c)
	servertest.WantCode(t, c, "/api/v1/namespaces/n", http.StatusNotFound, "")
	_, ready := servertest.Get(t, c, "/readyz?verbose")
	_, metrics := servertest.Get(t, c, "/metrics")
	for text, want := range map[string]bool{
		"[+]controller/namespace ok\n":         true,
		"[+]controller/garbage-collector ok\n": true,
		"controller/serviceaccount ":           false,
	} {
		if strings.Contains(ready, text) != want {
			t.Errorf("%q in readyz: %v\n%s", text, !want, ready)
		}
	}
	for _, text := range []string{`workqueue_depth{name="namespace"} 0`, `workqueue_retries_total{name="event-ttl"} 0`, `tidemark_controller_paused{name="garbage-collector"} 0`, "tidemark_controllers_revision "} {
		if !strings.Contains(metrics, text) {
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
// server on disk, from the request to the DELETED event of the namespace.
func BenchmarkDeleteNamespace(b *testing.B) {
	c := servertest.Start(b, &tidemark.Server{Storage: &datadir.Dir{Path: b.TempDir()}}).RESTConfig()
	h := servertest.Client(b, c)
	const objects, clients = 10_000, 64
	for round := 0; b.Loop(); round++ {
		b.StopTimer()
		name := fmt.Sprintf("big%d", round)
		namespace := c.Host + "/api/v1/namespaces/" + name
		send(b, h, "POST", c.Host+"/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		var wg sync.WaitGroup
		for n := range clients {
			wg.Go(func() {
				for i := n; i < objects; i += clients {
					send(b, h, "POST", namespace+"/configmaps", fmt.Sprintf(`{"metadata":{"name":"m%d"},"data":{"k":"v"}}`, i))
				}
			})
		}
		wg.Wait()
		settle(b, c)
		events := watch(b, c, "/api/v1/namespaces?watch=true&fieldSelector=metadata.name="+name)
		b.StartTimer()
		if code, text := send(b, h, "DELETE", namespace, ""); code != http.StatusOK {
			b.Fatal(text)
		}
		for events.Scan() && !strings.Contains(events.Text(), `"DELETED"`) {
		}
		if err := events.Err(); err != nil {
			b.Fatal(err)
		}
	}
}
