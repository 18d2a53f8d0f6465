package bench

// Process describes a process of a server.
type Process struct {
	PID int `json:"pid"`
	// Command is the name of the program.
	Command string `json:"command,omitempty"`
	// GOGC and GOMEMLIMIT are from its environment; empty if not set.
	GOGC       string `json:"gogc,omitempty"`
	GOMEMLIMIT string `json:"gomemlimit,omitempty"`
	Memory     Memory `json:"memory"`
}

// usage is the CPU time of the processes and of the generator at one moment.
type usage struct {
	processes []processUsage
	own       float64 // CPU seconds of the generator; negative if unknown
}

// processUsage is the CPU time of a process from two sources. The sum over threads has
// nanosecond resolution but loses threads that ended. Ticks have a resolution of 10 ms.
type processUsage struct {
	threads map[int]uint64 // nanoseconds by thread
	ticks   float64        // seconds
}

// since returns the CPU seconds that the processes used after an earlier reading.
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
			return p.ticks - before.ticks // a thread ended, and its time is lost
		}
	}
	for id, now := range p.threads {
		nanos += now - before.threads[id]
	}
	return float64(nanos) / 1e9
}
