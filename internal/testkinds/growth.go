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

// coldMemory makes each step begin without free memory in the heap. Otherwise a small step runs in memory that earlier
// steps used, and a large one pays for page faults. It takes time, so only suspects are measured like that.
var coldMemory bool

// Steps holds the CPU time of the steps of a run, by their names and outcomes.
type Steps map[string]time.Duration

// Do runs a step and adds its CPU time. It returns the step's error. A step with an error counts as another one: an
// object that is valid with a few entries and not with many is checked, and refused, in another way. The garbage
// collector is off meanwhile, because its cost falls on whichever step starts it. Do must not run in parallel.
func (s Steps) Do(name string, step func() error) error {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	if coldMemory {
		debug.FreeOSMemory()
	} else {
		runtime.GC() // ends a collection that is still running
	}
	begin := CPUTime()
	err := step()
	if err != nil {
		name += ", refused"
	}
	s[name] += CPUTime() - begin
	return err
}

// Growth calls run with n and with 4n entries. It returns a description of the steps
// whose CPU time grows much faster than the number of entries, or "" if there are none.
// Steps that take less than noise with 4n entries, or have no counterpart with n, are not compared. While a step looks
// slow, both sizes are measured again, one after the other: a step is slow if it is slow
// in each pair, because other work on the machine slows down one size and not the other.
func Growth(n int, noise time.Duration, run func(n int) Steps) (slow string) {
	var suspects map[string]string // descriptions of the steps that were slow in each pair, by their names
	defer func() { coldMemory = false }()
	for attempt := range growthAttempts {
		coldMemory = attempt > 0
		few, many := run(n), run(4*n)
		found := map[string]string{}
		for step, took := range many {
			if _, suspect := suspects[step]; attempt > 0 && !suspect {
				continue
			}
			if base, both := few[step]; both && took > growthBound*base && took > noise {
				found[step] = fmt.Sprintf("\n%s: %d entries take %v, %d %v", step, n, base, 4*n, took)
			}
		}
		if suspects = found; len(suspects) == 0 {
			return ""
		}
	}
	for _, step := range slices.Sorted(maps.Keys(suspects)) {
		slow += suspects[step]
	}
	return slow
}
