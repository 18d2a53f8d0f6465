package http2

import (
	"io"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// onWrite calls itself for each line of a log.
type onWrite func()

func (f onWrite) Write(line []byte) (int, error) {
	f()
	return io.Discard.Write(line)
}

// TestOverBudgetIsNoticed: the server does not miss a charge that comes while it finds that
// it is within its budget again.
func TestOverBudgetIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{TransportBytes: 1 << 20}
		s.overBudget.Store(true)
		s.ended.connections = 1 // so shed logs between its look at the budget and its end
		logged := 0
		s.Log = slog.New(slog.NewTextHandler(onWrite(func() {
			logged++
			s.charge(2 << 20)
		}), nil))
		s.shed()
		if logged != 1 {
			t.Fatalf("shed has logged %d lines, want 1", logged)
		}
		if !s.overBudget.Load() {
			t.Error("the server is over its budget and does not know")
		}
		s.charge(-2 << 20)
		time.Sleep(2 * shedInterval)
		if s.overBudget.Load() {
			t.Error("the server is within its budget and does not know")
		}
	})
}
