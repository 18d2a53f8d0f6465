package testkinds

import (
	"fmt"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

const (
	// growthBound is how much more CPU four times as many entries may take. An
	// algorithm that compares all pairs takes sixteen times as much.
	growthBound = 8
	// growthAttempts is how often a slow step is measured before it counts as slow.
	growthAttempts = 5
)

// Steps holds the CPU time of the steps of a run, by their names.
type Steps map[string]time.Duration

// Do runs a step and adds its CPU time. It returns the step's error. The garbage
// collector is off meanwhile, because its cost falls on whichever step starts it.
func (s Steps) Do(name string, step func() error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC() // ends a collection that is still running
	begin := cpuTime()
	err := step()
	s[name] += cpuTime() - begin
	return err
}

// Growth calls run with n and with 4n entries. It returns a description of the steps
// whose CPU time grows much faster than the number of entries, or "" if there are none.
// Steps that take less than noise with 4n entries are not compared. A slow step is
// measured several times, and its best time counts: other work only adds to it.
func Growth(n int, noise time.Duration, run func(n int) Steps) (slow string) {
	few, many := run(n), run(4*n)
	for range growthAttempts {
		slow = ""
		for _, step := range slices.Sorted(maps.Keys(many)) {
			if took := many[step]; took > growthBound*few[step] && took > noise {
				slow += fmt.Sprintf("\n%s: %d entries take %v, %d %v", step, n, few[step], 4*n, took)
			}
		}
		if slow == "" {
			return ""
		}
		for step, again := range run(4 * n) {
			many[step] = min(many[step], again)
		}
	}
	return slow
}
