// Package testrand gives randomized tests their chance, and a way to have it again.
package testrand

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var seed = flag.Uint64("seed", 0, "seed of the randomized tests; 0 takes a fresh one")

// New returns a source of chance, whose seed the test prints: a fresh one, or that
// of the flag -seed.
func New(t testing.TB) *rand.Rand {
	t.Helper()
	n := *seed
	if n == 0 {
		n = rand.Uint64()
	}
	t.Logf("repeat with: go test -run '%s' -seed %d", t.Name(), n)
	return rand.New(rand.NewPCG(n, 0))
}
