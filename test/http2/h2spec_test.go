// Package http2 runs the protocol's own conformance tests.
package http2

import (
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/summerwind/h2spec"
	"github.com/summerwind/h2spec/config"

	"github.com/tidemark-dev/tidemark/internal/http2"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestConformance runs h2spec, strict, against a server whose handler reads the
// body before it responds.
func TestConformance(t *testing.T) {
	tier.Full(t)
	s := &http2.Server{
		MaxStreams: 100, HeaderBytes: 1 << 20, UploadBytes: 256 << 10, IdleTimeout: time.Minute, WriteTimeout: time.Minute,
		Log: slog.New(slog.DiscardHandler),
	}
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "hello")
	}))
	ts.EnableHTTP2 = true
	ts.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){"h2": s.Serve}
	ts.StartTLS()
	defer ts.Close()
	host, port, err := net.SplitHostPort(ts.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	passed, err := h2spec.Run(&config.Config{
		Host: host, Port: number, Path: "/", TLS: true, Insecure: true, Strict: true, Timeout: 30 * time.Second, MaxHeaderLen: 4000,
	})
	if err != nil || !passed {
		t.Errorf("see above; %v", err)
	}
}
