package tidemark

import (
	"context"
	"net"
	"time"

	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// SetClock sets the clock for certificates and for looking at files.
func (s *Server) SetClock(now func() time.Time) { s.now = now }

// SetBackupTime sets how long a backup may take.
func (s *Server) SetBackupTime(d time.Duration) { s.backupTime = d }

// SetDialNodes sets how the server connects to nodes and Pods.
func (s *Server) SetDialNodes(dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	s.dialNodes = dial
}

// Store returns the store of a running server.
func (s *Server) Store() *store.Store { return StoreOf(s.Root()) }

// Settled waits until the loops of a running server have nothing to do.
func (s *Server) Settled(ctx context.Context) error { return s.must().Settled(ctx) }

// CloseIdle closes the kept forks that no request uses.
func (s *Server) CloseIdle() { s.must().CloseIdle() }

// StoreOf returns the store of a world.
func StoreOf(w *World) *store.Store { return w.world.Store() }

// Exposed returns the metrics of a server's root world with many series.
func (s *Server) Exposed() exposition.Source { return s.must().Root().Exposed() }
