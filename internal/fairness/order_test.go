package fairness

import (
	"slices"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// Users returns the number of users that are kept.
func (g *Gate) Users() (n int) {
	for i := range g.users.shards {
		s := &g.users.shards[i]
		s.mu.Lock()
		n += len(s.byID)
		s.mu.Unlock()
	}
	return n
}

// StartAtR has idle queues begin as in kube-apiserver.
func (g *Gate) StartAtR() { g.startAtR = true }

// TestDeal: a hand has distinct queues, the same ones each time, and all queues are dealt equally
// often.
func TestDeal(t *testing.T) {
	r := testrand.New(t)
	var cards [maxHand]int
	for range 10_000 {
		flow, deck := r.Uint64(), 1+r.IntN(600)
		size := 1 + r.IntN(min(deck, 10))
		hand := slices.Clone(deal(flow, deck, size, &cards))
		if again := deal(flow, deck, size, &cards); !slices.Equal(hand, again) {
			t.Fatalf("%v, then %v", hand, again)
		}
		slices.Sort(hand)
		if len(slices.Compact(slices.Clone(hand))) != size || hand[0] < 0 || hand[size-1] >= deck {
			t.Fatalf("%d of %d: %v", size, deck, hand)
		}
	}
	var counts [10]int
	for range 100_000 {
		for _, c := range deal(r.Uint64(), 10, 3, &cards) {
			counts[c]++
		}
	}
	for c, n := range counts {
		if n < 28_500 || n > 31_500 { // ten standard deviations
			t.Errorf("queue %d was dealt %d times in 30,000", c, n)
		}
	}
}

// TestSquishing: the probability that flows which flood their queues leave no queue of another
// flow free is the one in the documentation of Kubernetes.
func TestSquishing(t *testing.T) {
	r := testrand.New(t)
	for _, row := range []struct {
		hand, queues, elephants int
		want                    float64
	}{
		{12, 32, 4, 0.11431348830099144},
		{12, 32, 16, 0.9935089607656024},
		{10, 32, 4, 0.06196451981004347},
		{8, 64, 16, 0.35935114681123076},
		{9, 64, 16, 0.4282314876454858},
		{8, 128, 16, 0.02746173137155063},
	} {
		const trials = 20_000
		squished := 0
		var cards [maxHand]int
		for range trials {
			busy := make([]bool, row.queues)
			for range row.elephants {
				for _, q := range deal(r.Uint64(), row.queues, row.hand, &cards) {
					busy[q] = true
				}
			}
			if !slices.ContainsFunc(deal(r.Uint64(), row.queues, row.hand, &cards), func(q int) bool { return !busy[q] }) {
				squished++
			}
		}
		if got := float64(squished) / trials; got < row.want-0.025 || got > row.want+0.025 { // seven standard deviations
			t.Errorf("hands of %d of %d queues, %d elephants: %.4f, want %.4f", row.hand, row.queues, row.elephants, got, row.want)
		}
	}
}
