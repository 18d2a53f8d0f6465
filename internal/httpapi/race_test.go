//go:build race

package httpapi_test

// raceEnabled: sync.Pool forgets at random then, so allocations say nothing.
const raceEnabled = true
