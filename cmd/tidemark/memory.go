package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The collector runs when the heap has grown by GOGC percent, 100 by default: a
// store of a gigabyte would take two. But most of a large heap is the bytes of
// objects, which the collector does not look into, so that collecting more often
// costs little. What is kept free of it is spareHeap, or leastGrowth percent where
// that is more.
const (
	spareHeap   = 64 << 20 // bytes
	leastGrowth = 25       // percent
	mostGrowth  = 100
)

// growth is the percentage for a live heap of so many bytes.
func growth(live uint64) int {
	if live == 0 {
		return mostGrowth
	}
	return int(min(max(spareHeap*100/live, leastGrowth), mostGrowth))
}

// boundGarbage adapts the collector to the heap after each of its runs, unless the
// environment says what to do.
func boundGarbage() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	afterCollection(&tuner{percent: mostGrowth})
}

type tuner struct{ percent int }

// afterCollection has the tuner called once after the next run of the collector,
// which finds a new object to be garbage.
func afterCollection(t *tuner) {
	runtime.AddCleanup(new([16]byte), (*tuner).adapt, t)
}

func (t *tuner) adapt() {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	// Each change stops the world for some microseconds: small ones are not worth it.
	if next := growth(sample[0].Value.Uint64()); next != t.percent && (next*10 < t.percent*9 || next*10 > t.percent*11) {
		debug.SetGCPercent(next)
		t.percent = next
	}
	afterCollection(t)
}

// startSettles is how long after the start its last work is done: the controllers
// have seen all objects.
const startSettles = time.Second

// endStart gives back the memory that only the start needed.
func endStart() {
	debug.FreeOSMemory()
	unmapStart()
}
