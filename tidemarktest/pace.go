package tidemarktest

import (
	"context"
	"time"
)

// paceTick is how often a process that has the CPU it needs wakes up in a pace.
const paceTick = 10 * time.Millisecond

// pace measures for how much of a time the process could run: it wakes up at a steady pace, and misses turns while
// the process waits for a CPU, or its goroutines for each other.
type pace struct {
	stop  chan struct{}
	turns chan []time.Time
}

func startPace() *pace {
	p := &pace{make(chan struct{}), make(chan []time.Time)}
	go p.run()
	return p
}

func (p *pace) run() {
	tick := time.NewTicker(paceTick)
	defer tick.Stop()
	var turns []time.Time
	for {
		select {
		case <-tick.C:
			turns = append(turns, time.Now())
		case <-p.stop:
			p.turns <- turns
			return
		}
	}
}

// end ends the pace. It returns for how much of the last time the process could run, which is at least one tick.
func (p *pace) end(last time.Duration) time.Duration {
	close(p.stop)
	turns := <-p.turns
	begin := time.Now().Add(-last)
	ran := paceTick
	for _, t := range turns {
		if t.After(begin) {
			ran += paceTick
		}
	}
	return ran
}

const (
	// probes is how many requests measure the load, and maxProbe is how long each may take.
	probes   = 9
	maxProbe = time.Second
	// slowProbe is how long these requests take on average if the machine is overloaded. Otherwise they take less than
	// a millisecond.
	slowProbe = 5 * time.Millisecond
)

// overloaded reports whether requests that need nothing but a little of a CPU, here and in the server, wait for it.
// It is the average that counts, since a process that gets little of a CPU gets it in bursts.
func (s *session) overloaded() bool {
	begin := time.Now()
	for range probes {
		ctx, cancel := context.WithTimeout(context.Background(), maxProbe)
		_ = s.control.call(ctx, "GET", "", nil, nil) // an error took its time too
		cancel()
	}
	return time.Since(begin) >= probes*slowProbe
}
