package fairness_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// suggested are the levels of a new cluster.
func suggested() []fairness.Level {
	limited := func(name string, shares, lendable, queues, hand, length int) fairness.Level {
		return fairness.Level{Name: name, Shares: shares, LendablePercent: lendable, Queues: queues, HandSize: hand, QueueLength: length}
	}
	return []fairness.Level{
		{Name: "exempt", Exempt: true},
		limited("system", 30, 33, 64, 6, 50),
		limited("node-high", 40, 25, 64, 6, 50),
		limited("leader-election", 10, 0, 16, 4, 50),
		limited("workload-high", 40, 50, 128, 6, 50),
		limited("workload-low", 100, 90, 128, 6, 50),
		limited("global-default", 20, 50, 128, 6, 50),
		{Name: "catch-all", Shares: 5},
	}
}

// BenchmarkAcquire is a request that finds a free seat. Each goroutine is a flow and a user.
func BenchmarkAcquire(b *testing.B) {
	for _, level := range []string{"exempt", "workload-low", "catch-all"} {
		b.Run(level, func(b *testing.B) {
			g := fairness.New(fairness.Config{Bytes: 256 << 20, Watches: 50_000})
			g.Configure(suggested(), 600)
			metrics := fairness.NewFlowMetrics(level, "schema")
			var flow atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				f := flow.Add(1 << 40)
				r := fairness.Request{Level: level, Flow: f, User: fmt.Sprint(f), Metrics: metrics}
				for pb.Next() {
					s, err := g.Acquire(context.Background(), r)
					if err != nil {
						b.Fatal(err)
					}
					s.Release()
				}
			})
		})
	}
}

// BenchmarkWaits is a request that gives its seat back while it waits for its client, twice, as
// most writes do.
func BenchmarkWaits(b *testing.B) {
	for _, level := range []string{"exempt", "workload-low"} {
		b.Run(level, func(b *testing.B) {
			g := fairness.New(fairness.Config{Bytes: 256 << 20, Watches: 50_000})
			g.Configure(suggested(), 600)
			var flow atomic.Uint64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				f := flow.Add(1 << 40)
				r := fairness.Request{Level: level, Flow: f, User: fmt.Sprint(f), Privileged: level == "exempt", Metrics: fairness.NewFlowMetrics(level, "schema")}
				for pb.Next() {
					s, err := g.Acquire(context.Background(), r)
					if err != nil || !s.Suspend(0) || s.Resume(context.Background()) != nil || !s.Leave(0) {
						b.Fatal(err)
					}
					s.Release()
				}
			})
		})
	}
}

// BenchmarkQueued has ten thousand requests wait for ten seats: an operation is a request that
// gets its seat and joins its queue again. It reports the memory of a request that waits, with
// its goroutine.
func BenchmarkQueued(b *testing.B) {
	const waiting = 10_000
	g := fairness.New(fairness.Config{Bytes: 1 << 30})
	g.Configure([]fairness.Level{{Name: "l", Shares: 1, Queues: 512, HandSize: 4, QueueLength: 1000}}, 10)
	before := memory()
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	var served atomic.Int64
	finished := make(chan bool)
	var first []*fairness.Seat
	for range 10 {
		s, err := g.Acquire(ctx, fairness.Request{Level: "l"})
		if err != nil {
			b.Fatal(err)
		}
		first = append(first, s)
	}
	for i := range waiting {
		done.Go(func() {
			r := fairness.Request{Level: "l", Flow: uint64(i) * 0x9e3779b97f4a7c15, User: "u", MaxWait: time.Hour, Privileged: true}
			for ctx.Err() == nil {
				s, err := g.Acquire(ctx, r)
				if err != nil {
					return
				}
				if served.Add(1) == int64(b.N) {
					close(finished)
				}
				s.Release()
			}
		})
	}
	await.Nil(b, "the requests", func() error {
		if n := g.Snapshot(false).Levels[0].Waiting; n < waiting {
			return fmt.Errorf("%d of %d wait", n, waiting)
		}
		return nil
	})
	each := float64(memory()-before) / waiting
	b.ResetTimer()
	for _, s := range first {
		s.Release()
	}
	<-finished
	b.StopTimer()
	b.ReportMetric(each, "B/waiting")
	cancel()
	done.Wait()
}

// memory returns the memory in use for objects and stacks.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
