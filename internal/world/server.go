package world

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/autobackup"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/serving"
)

// Server is a server that runs: the root world, its forks, and the listeners.
type Server struct {
	process *process
	root    *World
	*forks

	serving   *serving.Server   // nil: InProcess
	control   *inprocess.Server // of Host
	leases    control.Leases
	publisher publisher
	backups   *autobackup.Loop // nil: there is no schedule

	background     sync.WaitGroup // goroutines until process.ending is done
	stopBackground context.CancelFunc

	leaving         sync.Once
	handshakeErrors atomic.Int64 // of TLS
}

// Root returns the world of the server's own storage.
func (s *Server) Root() *World { return s.root }

// URL returns the address of the server.
func (s *Server) URL() string { return s.process.url }

// WriteKubeconfig writes the administrator's kubeconfig to a file, and again when the certificate authority is renewed.
func (s *Server) WriteKubeconfig(path string) error {
	if err := kubeconfig.Write(path, s.root.kubeconfig()); err != nil {
		return err
	}
	return s.publisher.add(path)
}

// ControlTransport calls the control API in the process.
func (s *Server) ControlTransport() http.RoundTripper {
	return s.control.Transport(context.Background(), nil)
}

// API calls the API in the process with the credentials of the requests; nil: the server listens.
func (s *Server) API() http.RoundTripper {
	if s.process.listeners != nil {
		return nil
	}
	return s.root.direct.Transport(authn.WithConnection(context.Background(), nil), nil)
}

// CloseIdle closes the kept forks that no request uses.
func (s *Server) CloseIdle() { s.forks.closeIdle(0) }

// Settled waits until the controllers of the root world have nothing to do.
func (s *Server) Settled(ctx context.Context) error { return s.root.loops.Settled(ctx) }

// transportUsed returns how many bytes wait for clients of HTTP/2 connections.
func (s *Server) transportUsed() int64 {
	if s.serving == nil {
		return 0
	}
	return s.serving.TransportUsed()
}
