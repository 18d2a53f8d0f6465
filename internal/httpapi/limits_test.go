package httpapi_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

func TestLimitsDefaults(t *testing.T) {
	if got := (httpapi.Limits{}).WithDefaults(); got != httpapi.DefaultLimits {
		t.Errorf("%+v", got)
	}
	if got := (httpapi.Limits{InFlight: 7}).WithDefaults(); got.InFlight != 7 || got.BodyBytes != 3<<20 {
		t.Errorf("%+v", got)
	}
}

// TestInFlight fills the room for reads, in which health, writes, watches and administrators
// do not count.
func TestInFlight(t *testing.T) {
	started, release := make(chan bool), make(chan bool)
	s := start(t, wiring{config: func(c *httpapi.Config) {
		c.Limits.InFlight, c.NoFairness = 1, true
		c.OpenAPI = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			started <- true
			<-release
		})
	}})
	done := make(chan int)
	go func() {
		r, _ := http.NewRequest("GET", s.URL+"/openapi/v2", nil)
		r.Header.Set("Authorization", "Bearer editor")
		resp, err := s.client.Do(r)
		if err != nil {
			done <- 0
			return
		}
		resp.Body.Close()
		done <- resp.StatusCode
	}()
	<-started
	a := s.do(t, "GET", "/api", "", editor)
	if a.code != 429 || a.header.Get("Retry-After") != "1" || a.body != "Too many requests, please try again later.\n" ||
		a.header.Get("Content-Type") != "text/plain; charset=utf-8" {
		t.Errorf("over the limit: %d %v %q", a.code, a.header, a.body)
	}
	if a := s.do(t, "GET", "/api", ""); a.code != 200 {
		t.Errorf("an administrator: %d", a.code)
	}
	if a := s.do(t, "GET", "/livez", ""); a.code != 200 {
		t.Errorf("health: %d", a.code)
	}
	if a := s.do(t, "POST", "/version", "", editor); a.code != 405 {
		t.Errorf("a write: %d", a.code)
	}
	release <- true
	if code := <-done; code != 200 {
		t.Errorf("the request in flight: %d", code)
	}
	if a := s.do(t, "GET", "/api", "", editor); a.code != 200 {
		t.Errorf("afterwards: %d", a.code)
	}
}

func TestBodyTooLarge(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		s := start(t, wiring{http1: http1, config: func(c *httpapi.Config) { c.Limits.BodyBytes = 1000 }})
		bodies := map[string]io.Reader{
			"known length":   strings.NewReader(strings.Repeat("x", 1001)),
			"unknown length": io.MultiReader(strings.NewReader(strings.Repeat("x", 1001))),
		}
		for name, body := range bodies {
			resp := s.open(t, t.Context(), "POST", "/api/v1/namespaces/default/configmaps", body)
			b, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			a := response{resp.StatusCode, resp.Header, string(b)}
			code, reason, message := a.status(t)
			if code != 413 || reason != "RequestEntityTooLarge" || message != "Request entity too large: limit is 1000" {
				t.Errorf("HTTP/1 %v, %s: %s", http1, name, a.body)
			}
		}
	}
}

// TestEndlessBody has clients that never end their bodies.
func TestEndlessBody(t *testing.T) {
	for _, http1 := range []bool{false, true} {
		s := start(t, wiring{http1: http1})
		body := &endless{make(chan struct{})}
		resp := s.open(t, t.Context(), "POST", "/api/v1/namespaces/default/configmaps?timeout=100ms", body)
		b, _ := io.ReadAll(resp.Body)
		close(body.done)
		resp.Body.Close()
		code, reason, _ := (response{resp.StatusCode, resp.Header, string(b)}).status(t)
		if code != 504 || reason != "Timeout" {
			t.Errorf("HTTP/1 %v: %d %s", http1, code, reason)
		}
		if a := s.do(t, "GET", "/livez", ""); a.code != 200 {
			t.Errorf("afterwards: %d", a.code)
		}
	}
}

// TestStalledReader has clients that ask for much and read nothing: their requests end, and the
// memory that they held is free again.
func TestStalledReader(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps"
	for _, http1 := range []bool{false, true} {
		s := start(t, wiring{http1: http1, config: func(c *httpapi.Config) { c.Limits.WriteTimeout = 200 * time.Millisecond }})
		// Clients that read take longer than the timeout as well, on a slow machine: these requests have none.
		without := func(method, path, body string) *httptest.ResponseRecorder {
			r, a := httptest.NewRequest(method, path, strings.NewReader(body)), httptest.NewRecorder()
			r.Header.Set("Authorization", "Bearer admin")
			s.handler.ServeHTTP(a, r)
			return a
		}
		for i := range 12 { // 10 MB, more than clients and the kernel buffer
			if a := without("POST", path, fmt.Sprintf(`{"metadata":{"name":"big-%02d"},"data":{"k":%q}}`, i, strings.Repeat("x", 900<<10))); a.Code != http.StatusCreated {
				t.Fatalf("%d %.1000s", a.Code, a.Body)
			}
		}
		for _, query := range []string{"", "?watch=1&resourceVersion=0", "?pretty=1"} {
			t.Run(fmt.Sprintf("http1=%v%s", http1, query), func(t *testing.T) {
				if http1 {
					stallHTTP1(t, s, path+query)
				} else {
					r, _ := http.NewRequestWithContext(t.Context(), "GET", s.URL+path+query, nil)
					r.Header.Set("Authorization", "Bearer admin")
					r.Header.Set("Accept-Encoding", "identity")
					if resp, err := s.client.Do(r); err == nil { // otherwise it was stalled before its header
						defer resp.Body.Close() // not read
					}
				}
				s.waitEnded(t, "GET "+path)
				if a := without("GET", "/metrics", ""); !strings.Contains(a.Body.String(), `apiserver_current_inflight_requests{request_kind="readOnly"} 1`) {
					t.Error("the request still counts as in flight")
				}
			})
		}
	}
}

// TestMissingBody: a client that announces a body and does not send it gets a response, and holds
// nothing.
func TestMissingBody(t *testing.T) {
	t.Parallel()
	s := start(t, wiring{http1: true})
	for i := range 5 {
		s.create(t, "default", fmt.Sprint("a", i), 4<<10)
	}
	for len(s.ended) > 0 {
		<-s.ended
	}
	const maps = "/api/v1/namespaces/default/configmaps"
	for request, want := range map[string]string{
		"POST " + maps + " HTTP/1.1\r\nAuthorization: Bearer wrong": " 401 ",
		"GET " + maps + " HTTP/1.1\r\nAuthorization: Bearer admin":  " 200 ",
	} {
		conn := s.dialHTTP1(t)
		fmt.Fprintf(conn, "%s\r\nHost: x\r\nContent-Length: 5\r\n\r\n", request)
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.Contains(line, want) {
			t.Errorf("%.4s: %q, %v", request, line, err)
		}
		method, _, _ := strings.Cut(request, " ")
		s.waitEnded(t, method+" "+maps)
	}
}

// stallHTTP1 sends a request on a connection of its own, and reads nothing.
func stallHTTP1(t *testing.T, s *server, path string) {
	t.Helper()
	conn := s.dialHTTP1(t)
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin\r\n\r\n", path); err != nil {
		t.Fatal(err)
	}
}

// dialHTTP1 opens a connection for requests that no client would send.
func (s *server) dialHTTP1(t *testing.T) net.Conn {
	t.Helper()
	config := s.client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestSlowVerbTimesOut(t *testing.T) {
	s := start(t, wiring{config: func(c *httpapi.Config) { c.Limits.RequestTimeout = 100 * time.Millisecond }})
	a := s.do(t, "GET", "/api/v1/namespaces/default/configmaps?resourceVersion=9000000000000000000", "")
	if code, reason, _ := a.status(t); code != 504 || reason != "Timeout" {
		t.Errorf("%d %s", a.code, a.body)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/api", nil)
	if _, err := s.client.Do(r); err == nil {
		t.Error("a canceled request got a response")
	}
}
