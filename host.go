package tidemark

import (
	"bytes"
	"context"
	"io"
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
)

// Host connects test harnesses with a server of the same process. It is a tidemarktest.Host and a nethttp.Host: a
// tidemarktest.World with it has its clusters in that server. It is safe for concurrent use.
type Host struct{ running *running }

// Host returns the server as a host for tests. It panics before Start has succeeded.
func (s *Server) Host() *Host { return &Host{s.must()} }

// Control sends a request to the control API: a path that begins with /control/v1, with its query, and a body in
// JSON, which may be empty. It returns the status code and the body of the answer, which the caller closes. It calls
// ControlHandler directly, and refuses requests after Close.
func (h *Host) Control(ctx context.Context, method, path string, body []byte) (status int, answer io.ReadCloser, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://control"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := h.running.control.Transport(context.Background(), nil).RoundTrip(r)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, resp.Body, nil
}

// API returns a transport for requests to the Kubernetes API of any world of the server, by its URL. It
// calls the server directly, with InProcess. Otherwise it is nil: clients use the network.
func (h *Host) API() http.RoundTripper {
	if h.running.listeners != nil {
		return nil
	}
	return h.running.root.direct.Transport(authn.WithConnection(context.Background(), nil), nil)
}

// newControl returns what serves clients of the control API in the process.
func (s *Server) newControl(r *running) *inprocess.Server {
	return &inprocess.Server{
		Handler: s.controlHandler(r), HeaderBytes: httpapi.DefaultLimits.HeaderBytes, WriteTimeout: httpapi.DefaultLimits.WriteTimeout, Log: s.logOf(logConnections),
	}
}
