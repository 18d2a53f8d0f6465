package tidemark

import (
	"context"
	"time"
)

// SetClock sets the clock for certificates and for looking at files.
func (s *Server) SetClock(now func() time.Time) { s.now = now }

// Settled waits until the controllers have nothing left to do.
func (s *Server) Settled(ctx context.Context) error { return s.must().loops.Settled(ctx) }
