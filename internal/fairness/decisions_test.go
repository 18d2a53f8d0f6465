package fairness_test

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark/internal/fairness"
)

// recorded is a request of testdata/decisions.txt and its outcome: times are in nanoseconds since
// the earliest possible arrival.
type recorded struct {
	at      time.Duration
	flow    uint64
	width   int
	service time.Duration
	final   int
	extra   time.Duration
	began   string // or "refused"
}

// TestDecisions compares decisions with those of kube-apiserver 1.36.3, whose queues got the same
// requests: which ones were refused, and when the others began. Its file has a line for each level,
// and below it one for each request, in the order of the fields above. One rule is switched off: see
// Gate.startAtR.
func TestDecisions(t *testing.T) {
	f, err := os.Open("testdata/decisions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type example struct {
		seats    int
		level    fairness.Level
		requests []recorded
	}
	var examples []*example
	for lines := bufio.NewScanner(f); lines.Scan(); {
		r := &example{level: fairness.Level{HandSize: 1}}
		if n, _ := fmt.Sscanf(lines.Text(), "level seats=%d queues=%d length=%d", &r.seats, &r.level.Queues, &r.level.QueueLength); n == 3 {
			examples = append(examples, r)
			continue
		}
		var q recorded
		if _, err := fmt.Sscan(lines.Text(), &q.at, &q.flow, &q.width, &q.service, &q.final, &q.extra, &q.began); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		last := examples[len(examples)-1]
		last.requests = append(last.requests, q)
	}
	for i, r := range examples {
		synctest.Test(t, func(t *testing.T) {
			g := one(r.seats, r.level)
			g.StartAtR()
			var all sync.WaitGroup
			start := time.Now()
			for _, q := range r.requests {
				all.Go(func() {
					time.Sleep(q.at)
					s, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: q.flow, Width: q.width, FinalWidth: q.final, Extra: q.extra})
					began := time.Since(start)
					if err != nil || q.began == "refused" {
						if (err != nil) != (q.began == "refused") {
							t.Errorf("example %d, %+v: %v", i, q, err)
						}
						if err != nil {
							return
						}
					} else if want := parseNanos(t, q.began); began-want > 2*time.Microsecond || want-began > 2*time.Microsecond { // work is rounded there
						t.Errorf("example %d, %+v: began at %d", i, q, began)
					}
					time.Sleep(q.service)
					s.Release()
				})
			}
			all.Wait()
		})
	}
	if len(examples) < 20 {
		t.Errorf("%d examples", len(examples))
	}
}

func parseNanos(t *testing.T, s string) (d time.Duration) {
	if _, err := fmt.Fscan(strings.NewReader(s), (*int64)(&d)); err != nil {
		t.Error(err)
	}
	return d
}

// TestNothingIsSavedUp: a queue whose requests execute and that has none waiting does not fall
// behind in virtual time: otherwise it could burst later.
func TestNothingIsSavedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := one(3, fairness.Level{Queues: 2, HandSize: 1, QueueLength: 10})
		long := mustAcquire(t, g, fairness.Request{})
		time.Sleep(10 * time.Second)
		second := mustAcquire(t, g, fairness.Request{})
		if s := state(t, g, "l"); s.R < 9 || s.Queues[0].Start < s.R {
			t.Errorf("the queue starts at %v, R is %v", s.Queues[0].Start, s.R)
		}
		long.Release()
		second.Release()
	})
}
