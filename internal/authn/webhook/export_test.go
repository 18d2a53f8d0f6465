package webhook

import "time"

func init() { retries.Duration = time.Millisecond }

// Waiting returns the number of requests that wait for the service.
func (w *Tokens) Waiting() int { return w.flights.Waiting() }

// SetMost sets the limit of requests that wait.
func (w *Tokens) SetMost(n int) { w.flights.Most = n }

// SetFresh sets for how long requests join a call.
func (w *Tokens) SetFresh(d time.Duration) { w.flights.Fresh = d }
