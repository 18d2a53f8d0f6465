// Package tier decides which tests run. CONTRIBUTING.md has the table of the tiers.
//
// The quick tier is what go test runs by itself. The change tier, .ci/run, runs the same tests, those of packages with
// concurrency under the race detector. The full tier, .ci/full, runs all tests. The environment variable TIDEMARK_TIER
// chooses: it is quick (the default), change or full.
package tier

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

// Variable is the environment variable that chooses the tier.
const Variable = "TIDEMARK_TIER"

// Full skips a test that runs in the full tier alone, unless that tier is chosen.
func Full(t testing.TB) {
	t.Helper()
	if !IsFull(t) {
		t.Skip("runs in the full tier: set TIDEMARK_TIER=full, or call .ci/full")
	}
}

// IsFull reports whether the full tier is chosen, for tests that repeat more in it.
func IsFull(t testing.TB) bool {
	t.Helper()
	chosen := os.Getenv(Variable)
	switch chosen {
	case "", "quick", "change":
		return false
	case "full":
		return true
	}
	t.Fatalf("%s=%s: want quick, change or full", Variable, chosen)
	return false
}

// Race runs the tests of a package whose concurrency the change tier checks with the race detector. .ci/run finds the
// packages by this call, which their TestMain makes. The change tier runs each test once: with the detector, or without it
// if plain has its name. Those are tests that the detector slows down a lot and that have little concurrency. Elsewhere
// go test runs all tests, with the detector or without.
func Race(m *testing.M, plain ...string) int {
	flag.Parse()
	if name := only(os.Getenv(Variable), Detector); name != "" {
		set(name, "^("+strings.Join(plain, "|")+")$")
	}
	return m.Run()
}

// only returns the flag of go test that takes the plain tests of Race: none if all tests run.
func only(tier string, detector bool) string {
	switch {
	case tier != "change":
		return ""
	case detector:
		return "test.skip"
	}
	fmt.Println("tier change: .ci/run runs all other tests of this package with the race detector")
	return "test.run"
}

// set sets a flag unless the command line does.
func set(name, value string) {
	f := flag.Lookup(name)
	if f.Value.String() == f.DefValue {
		flag.Set(name, value)
	}
}
