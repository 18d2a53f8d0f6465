package bench

// Process is one process of a server.
type Process struct {
	PID int `json:"pid"`
	// Command is the name of the program.
	Command string `json:"command,omitempty"`
	// GOGC and GOMEMLIMIT are those of its environment, empty where not set.
	GOGC       string `json:"gogc,omitempty"`
	GOMEMLIMIT string `json:"gomemlimit,omitempty"`
	Memory     Memory `json:"memory"`
}

// usage is a moment's reading of the processes and of the generator itself.
type usage struct {
	processes []processUsage
	own       float64 // seconds of CPU of this process; below zero: unknown
}

// processUsage is the CPU of a process, counted twice: threads are precise to the
// nanosecond but forget a thread that ended, ticks are not precise (10 ms).
type processUsage struct {
	threads map[int]uint64 // nanoseconds by thread
	ticks   float64        // seconds
}

// since is the CPU in seconds that the processes used after an earlier reading.
func (u usage) since(before usage) float64 {
	var total float64
	for i, now := range u.processes {
		total += now.since(before.processes[i])
	}
	return total
}

func (p processUsage) since(before processUsage) float64 {
	var nanos uint64
	for id := range before.threads {
		if _, ok := p.threads[id]; !ok {
			return p.ticks - before.ticks // a thread ended, and took its count with it
		}
	}
	for id, now := range p.threads {
		nanos += now - before.threads[id]
	}
	return float64(nanos) / 1e9
}
