package fairness_test

import (
	"context"
	"fmt"
	"testing"

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
			tally := fairness.NewTally(level, "schema")
			flow := uint64(0)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				flow += 1 << 40
				r := fairness.Request{Level: level, Flow: flow, User: fmt.Sprint(flow), Tally: tally}
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
