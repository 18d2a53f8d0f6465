package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// The garbage collector runs when the heap has grown by GOGC percent, by default 100: a
// store of 1 GiB would use 2 GiB. But most of a large heap is the bytes of objects, which
// the collector does not scan, so frequent collections are cheap. The heap may therefore
// grow by spareHeap, or by leastGrowth percent if that is more. A small heap may grow
// threefold, because it would be collected too often, and is trimmed when idle. A heap
// below leastLive keeps Go's default.
const (
	spareHeap   = 64 << 20 // bytes
	leastGrowth = 25       // percent
	mostGrowth  = 200
	leastLive   = 8 << 20 // bytes
	firstGrowth = 100
)

// growth returns the GOGC percentage for a live heap, in bytes.
func growth(live uint64) int {
	if live < leastLive {
		return firstGrowth
	}
	return int(min(max(spareHeap*100/live, leastGrowth), mostGrowth))
}

// boundGarbage adapts GOGC to the heap after each collection, unless the environment
// sets GOGC or GOMEMLIMIT.
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

// afterCollection calls the tuner once, after the next collection: the cleanup of an
// unreachable object runs then.
func afterCollection(t *tuner) {
	runtime.AddCleanup(new([16]byte), (*tuner).adapt, t)
}

func (t *tuner) adapt() {
	// SetGCPercent stops the world for microseconds, so changes below 10 % are not made.
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

// After a burst of work, memory goes back to the system once no collection has run for
// quiet, if that frees at least leastTrim.
const (
	quiet     = 10 * time.Second
	leastTrim = 8 << 20 // bytes
)

// trim returns free memory to the system. FreeOSMemory collects, which calls trim once
// more, with nothing left to free.
func trim() {
	v := readBytes("/memory/classes/heap/free:bytes", "/memory/classes/heap/objects:bytes", "/gc/heap/live:bytes")
	if toGain(v[0], v[1], v[2]) {
		debug.FreeOSMemory()
	}
}

// toGain reports whether trimming frees enough memory to pay for a collection, whose
// cost follows the live heap. Free is the free part of the heap; allocated includes
// garbage since the last collection, when live bytes were in use.
func toGain(free, allocated, live uint64) bool {
	gain := free
	if allocated > live {
		gain += allocated - live
	}
	return gain >= max(leastTrim, live/16)
}

// startSettles is the time after which the work of a start is done: the controllers
// have seen all objects, and the memory that only the start needed can be freed.
const startSettles = time.Second
