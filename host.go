package tidemark

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/tidemark-dev/tidemark/internal/world"
)

// Host connects test harnesses with a server of the same process. It is a tidemarktest.Host and a nethttp.Host: a
// tidemarktest.World with it has its clusters in that server. It is safe for concurrent use.
type Host struct{ server *world.Server }

// Host returns the server as a host for tests. It panics before Start has succeeded.
func (s *Server) Host() *Host { return &Host{s.must()} }

// Control sends a request to the control API: a path that begins with /control/v1, with its query, and a body in
// JSON, which may be empty. It returns the status code and the body of the response, which the caller closes. It calls
// Server.Control directly, and refuses requests after Close.
func (h *Host) Control(ctx context.Context, method, path string, body []byte) (status int, response io.ReadCloser, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://control"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := h.server.ControlTransport().RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, resp.Body, nil
}

// API returns a transport for requests to the Kubernetes API of any world of the server, by its URL. It
// calls the server directly, with InProcess. Otherwise it is nil: clients use the network.
func (h *Host) API() http.RoundTripper {
	return h.server.API()
}

// Control is the control API of a server, which docs/formats/control-api.md describes: it creates and deletes worlds,
// applies manifests, adds users, and reads states and histories. It does not authenticate: each client that reaches it has
// every right. The worlds end with the server. It is an http.Handler.
type Control struct {
	server  *world.Server
	handler http.Handler
}

// Control returns the control API. It panics before Start has succeeded.
func (s *Server) Control() *Control {
	r := s.must()
	return &Control{r, r.Control()}
}

// ServeHTTP serves a request to the control API.
func (c *Control) ServeHTTP(rw http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(rw, r) }

// Idle returns a channel that is closed when no client of the control API has held a lease for
// the grace period, which begins now. From then on clients get no lease, and the caller should close
// the server. Only the grace period of the first call counts.
func (c *Control) Idle(grace time.Duration) <-chan struct{} { return c.server.Idle(grace) }
