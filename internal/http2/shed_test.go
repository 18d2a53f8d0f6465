package http2

import (
	"sync/atomic"
	"testing"
	"time"
)

// TestOverBudgetIsNoticed: the server does not miss a charge that comes while it finds that
// it is within its budget again.
func TestOverBudgetIsNoticed(t *testing.T) {
	const turns = 20_000
	var turn, charged atomic.Int64 // both goroutines act at once: the gap has some nanoseconds
	servers := make([]Server, turns)
	for i := range servers {
		servers[i].TransportBytes = 1 << 20
		servers[i].overBudget.Store(true)
	}
	go func() {
		for i := range servers {
			spin(&turn, i)
			for range i % 50 {
				charged.Load()
			}
			servers[i].charge(2 << 20)
			charged.Add(1)
		}
	}()
	for i := range servers {
		turn.Add(1)
		s := &servers[i]
		s.shed()
		spin(&charged, i)
		over := s.overBudget.Load()
		s.charge(-2 << 20) // shed ends
		if !over {
			t.Fatalf("turn %d: the server is over its budget and does not know", i)
		}
	}
}

// spin waits until n is greater than i.
func spin(n *atomic.Int64, i int) {
	for spins := 1; n.Load() <= int64(i); spins++ {
		if spins%1000 == 0 {
			time.Sleep(time.Microsecond) // the other goroutine may wait for this processor
		}
	}
}
