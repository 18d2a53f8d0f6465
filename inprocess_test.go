package tidemark_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// post creates an object.
func post(t *testing.T, c *rest.Config, path, body string) {
	t.Helper()
	resp, err := servertest.Client(t, c).Post(c.Host+path, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if response, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusCreated {
		t.Fatalf("POST %s: %s %s", path, resp.Status, response)
	}
}

// follow watches a path, and sends the types of the events. The channel is closed when the watch ends.
func follow(t *testing.T, c *rest.Config, path string) <-chan string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	events := make(chan string, 100)
	go func() {
		defer close(events)
		defer resp.Body.Close()
		for d := json.NewDecoder(resp.Body); ; {
			var e struct{ Type string }
			if err := d.Decode(&e); err != nil {
				if err != io.EOF { //nolint:errorlint // it must be a clean end
					events <- err.Error()
				}
				return
			}
			events <- e.Type
		}
	}()
	return events
}

// TestBubble starts, uses and closes a server in a bubble. An hour and more passes: Events expire,
// watches end, a namespace is deleted with its objects.
func TestBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { useInBubble(t, servertest.Start(t, &tidemark.Server{InProcess: true})) })
}

func useInBubble(t *testing.T, s *tidemark.Server) {
	c := s.RESTConfig()
	post(t, c, "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	post(t, c, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"tests.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"tests","kind":"Test"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,
		"x-kubernetes-validations":[{"rule":"has(self.kind)"}]}}}]}}`)
	synctest.Wait()
	post(t, c, "/apis/example.com/v1/namespaces/shop/tests", `{"apiVersion":"example.com/v1","kind":"Test","metadata":{"generateName":"a-"}}`)
	post(t, c, "/api/v1/namespaces/shop/services", `{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`)
	events := follow(t, c, "/api/v1/namespaces/shop/events?watch=1")
	post(t, c, "/api/v1/namespaces/shop/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"shop"}}`)
	synctest.Wait()
	if n := len(events); n != 1 {
		t.Errorf("%d events", n)
	}
	time.Sleep(time.Hour - time.Second)
	synctest.Wait()
	servertest.WantCode(t, c, "/api/v1/namespaces/shop/events/e", http.StatusOK, "")
	time.Sleep(2 * time.Second)
	synctest.Wait()
	servertest.WantCode(t, c, "/api/v1/namespaces/shop/events/e", http.StatusNotFound, "")
	if first := <-events; first != "ADDED" {
		t.Errorf("the watch began with %s", first)
	}
	for e := range events {
		t.Errorf("the watch of an hour ago does not end: %s", e)
	}
	r, _ := http.NewRequest(http.MethodDelete, c.Host+"/api/v1/namespaces/shop", nil)
	resp, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	synctest.Wait()
	servertest.WantCode(t, c, "/api/v1/namespaces/shop", http.StatusNotFound, "")
	servertest.WantCode(t, c, "/openapi/v2", http.StatusOK, "")
	servertest.WantCode(t, c, "/metrics", http.StatusOK, "")
}

// TestBubbles runs several bubbles, beside each other and one after the other: servers share nothing that
// belongs to a bubble.
func TestBubbles(t *testing.T) {
	for range 2 {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				t.Run("", func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { useInBubble(t, servertest.Start(t, &tidemark.Server{InProcess: true})) })
				})
			})
		}
		wg.Wait()
	}
	servertest.Start(t, &tidemark.Server{}) // none of it is left in a bubble
}

// TestInProcessUsers checks tokens, certificates and anonymous requests of clients in the process, of a server
// that listens and of one that does not.
func TestInProcessUsers(t *testing.T) {
	for _, s := range []*tidemark.Server{{InProcess: true}, {}} {
		t.Run(fmt.Sprint(s.InProcess), func(t *testing.T) {
			servertest.Start(t, s)
			w := s.Root()
			alice, err := w.InProcessConfigFor("alice", "readers")
			if err != nil {
				t.Fatal(err)
			}
			if code, body := review(t, alice); code != http.StatusCreated || !strings.Contains(body, `"username":"alice"`) || !strings.Contains(body, `"readers"`) {
				t.Errorf("by certificate: %d %s", code, body)
			}
			if code, body := review(t, w.InProcessConfig()); code != http.StatusCreated || !strings.Contains(body, `"username":"admin"`) {
				t.Errorf("by token: %d %s", code, body)
			}
			anonymous := w.InProcessConfig()
			anonymous.BearerToken = ""
			servertest.WantCode(t, anonymous, "/api", http.StatusForbidden, `forbidden: User "system:anonymous" cannot get path "/api"`)
			anonymous.BearerToken = "wrong"
			servertest.WantCode(t, anonymous, "/api", http.StatusUnauthorized, "")
			servertest.WantCode(t, alice, "/api/v1/namespaces", http.StatusForbidden, `namespaces is forbidden: User "alice" cannot list resource "namespaces" in API group "" at the cluster scope`)
			servertest.WantCode(t, rest.AddUserAgent(w.InProcessConfig(), "x"), "/readyz", http.StatusOK, "")
		})
	}
}

// review asks who the user is.
func review(t *testing.T, c *rest.Config) (int, string) {
	t.Helper()
	resp, err := servertest.Client(t, c).Post(c.Host+"/apis/authentication.k8s.io/v1/selfsubjectreviews", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestInProcessWebSocket watches over a WebSocket in a bubble, and checks the response of exec.
func TestInProcessWebSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Start(t, &tidemark.Server{InProcess: true})
		c := s.RESTConfig()
		conn, _, err := websocket.Dial(t.Context(), c.Host+"/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Da", &websocket.DialOptions{
			HTTPClient: servertest.Client(t, c),
		})
		if err != nil {
			t.Fatal(err)
		}
		post(t, c, "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
		if _, b, err := conn.Read(t.Context()); err != nil || !strings.Contains(string(b), `"ADDED"`) {
			t.Errorf("%s %v", b, err)
		}
		conn.Close(websocket.StatusNormalClosure, "")
		servertest.WantCode(t, c, "/api/v1/namespaces/default/pods/p/exec?command=ls", http.StatusNotFound, "")
	})
}

func TestInProcessRefuses(t *testing.T) {
	for _, s := range []*tidemark.Server{{InProcess: true, Listen: tidemark.Listen{Port: 1}}, {InProcess: true, Listen: tidemark.Listen{Address: "::1"}}, {InProcess: true, TLS: tidemark.TLS{CertFile: "x"}}} {
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "in process") {
			t.Errorf("got %v", err)
		}
	}
	s := servertest.Start(t, &tidemark.Server{InProcess: true})
	if err := s.WriteKubeconfig(t.TempDir() + "/k"); err == nil {
		t.Error("a kubeconfig of a server without a port is written")
	}
	c := s.RESTConfig()
	servertest.Stop(t, s)
	_, err := servertest.Client(t, c).Get(c.Host)
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("after Close: %v", err)
	}
}

// BenchmarkStartInProcess measures from Start to the first response, and Close.
func BenchmarkStartInProcess(b *testing.B) {
	for b.Loop() {
		s := &tidemark.Server{InProcess: true}
		if err := s.Start(b.Context()); err != nil {
			b.Fatal(err)
		}
		servertest.Get(b, s.RESTConfig(), "/api/v1/namespaces/default")
		s.Close()
	}
}
