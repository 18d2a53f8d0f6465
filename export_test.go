package tidemark

import "time"

// SetClock sets the clock for certificates and for looking at files.
func (s *Server) SetClock(now func() time.Time) { s.now = now }
