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
// that is more. A small heap may grow threefold, as it is collected so often otherwise,
// and gives that back when it is quiet; but not that of a server with next to nothing.
const (
	spareHeap   = 64 << 20 // bytes
	leastGrowth = 25       // percent
	mostGrowth  = 200
	leastLive   = 8 << 20 // bytes; below it: firstGrowth
	firstGrowth = 100
)

// growth is the percentage for a live heap of so many bytes.
func growth(live uint64) int {
	if live < leastLive {
		return firstGrowth
	}
	return int(min(max(spareHeap*100/live, leastGrowth), mostGrowth))
}

// boundGarbage adapts the collector to the heap after each of its runs, unless the
// environment says what to do.
func boundGarbage() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	afterCollection(&tuner{percent: firstGrowth})
}

type tuner struct {
	percent int
	trim    *time.Timer
}

// afterCollection has the tuner called once after the next run of the collector,
// which finds a new object to be garbage.
func afterCollection(t *tuner) {
	runtime.AddCleanup(new([16]byte), (*tuner).adapt, t)
}

func (t *tuner) adapt() {
	// Each change stops the world for some microseconds: small ones are not worth it.
	if next := growth(readBytes("/gc/heap/live:bytes")[0]); next != t.percent && (next*10 < t.percent*9 || next*10 > t.percent*11) {
		debug.SetGCPercent(next)
		t.percent = next
	}
	if t.trim == nil {
		t.trim = time.AfterFunc(quiet, trim)
	} else {
		t.trim.Reset(quiet)
	}
	afterCollection(t)
}

func readBytes(names ...string) []uint64 {
	samples := make([]metrics.Sample, len(names))
	for i, name := range names {
		samples[i].Name = name
	}
	metrics.Read(samples)
	values := make([]uint64, len(names))
	for i := range samples {
		values[i] = samples[i].Value.Uint64()
	}
	return values
}

// What a burst of work needed is given back once the collector has had nothing to do
// for so long, if that much is to gain.
const (
	quiet     = 10 * time.Second
	leastTrim = 8 << 20 // bytes
)

// trim gives back what is not needed any more. It is called once after the last run of
// the collector, and after the one that it makes, when there is nothing left to gain.
func trim() {
	v := readBytes("/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes", "/gc/heap/live:bytes")
	if toGain(v[0], v[1], v[2]) {
		debug.FreeOSMemory()
	}
}

// toGain reports whether giving memory back pays: what is free, and what was allocated
// since the last run of the collector, of which little may live; a run costs what is
// live.
func toGain(free, allocated, live uint64) bool {
	gain := free
	if allocated > live {
		gain += allocated - live
	}
	return gain >= max(leastTrim, live/4)
}

// startSettles is the time after which the work of a start is done: the controllers
// have seen all objects, and the memory that only the start needed can be freed.
const startSettles = time.Second
