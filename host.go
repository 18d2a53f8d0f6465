package tidemark

import (
	"context"
	"net/http"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
)

// Host connects test harnesses with a server of the same process. It is a tidemarktest.Host: a
// tidemarktest.World with it has its clusters in that server. It is safe for concurrent use.
type Host struct{ running *running }

// Host returns the server as a host for tests. It panics before Start has succeeded.
func (s *Server) Host() *Host { return &Host{s.must()} }

// Control returns a transport for requests to the control API, whatever their host. It calls
// ControlHandler directly, and refuses requests after Close.
func (h *Host) Control() http.RoundTripper {
	return h.running.control.Transport(context.Background(), nil)
}

// API returns a transport for requests to the Kubernetes API of any world of the server, by its URL. It
// calls the server directly, with InProcess. Otherwise it is nil: clients use the network.
func (h *Host) API() http.RoundTripper {
	if h.running.listener != nil {
		return nil
	}
	return h.running.root.direct.Transport(authn.WithConnection(context.Background(), nil), nil)
}

// newControl returns what serves clients of the control API in the process.
func (s *Server) newControl(r *running) *inprocess.Server {
	return &inprocess.Server{
		Handler: s.controlHandler(r), HeaderBytes: httpapi.DefaultLimits.HeaderBytes, WriteTimeout: httpapi.DefaultLimits.WriteTimeout, Log: r.log,
	}
}
