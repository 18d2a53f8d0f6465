package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Format is what a report of this version names itself.
const Format = "tidemark-bench/1"

// Report is the result of a run. It is what --output=json writes and Compare reads.
type Report struct {
	Format  string    `json:"format"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	// Command is the command line.
	Command []string `json:"command,omitempty"`
	Options Options  `json:"options"`
	// Servers has one or two: the server, and the one it is measured against.
	Servers []ServerReport `json:"servers"`
	// Interrupted says that the run was ended early.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Machine is where the generator ran.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model,omitempty"`
	MemoryMiB int64  `json:"memoryMiB,omitempty"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	GoVersion string `json:"goVersion"`
}

// ServerReport is all that was measured of one server.
type ServerReport struct {
	Server
	// Name is the context's.
	Name    string `json:"name"`
	URL     string `json:"url"`
	Version string `json:"version,omitempty"`
	// ConfigMapPad makes each ConfigMap so many bytes larger as it is sent.
	ConfigMapPad int `json:"configMapPad,omitempty"`
	// DeploymentPad makes each Deployment so many bytes larger as it is sent.
	DeploymentPad int `json:"deploymentPad,omitempty"`
	// Processes describes the processes at the start of the run.
	Processes []Process `json:"processes,omitempty"`
	Results   []Result  `json:"results"`
}

// Result is one row: a scenario, or a variant of it.
type Result struct {
	// Name is "create-pod/16": the scenario, and after a slash the variant.
	Name string `json:"name"`
	// Loop says how the load was made: "closed, 16 clients", "open, 500/s".
	Loop string `json:"loop,omitempty"`
	// Unit is what one operation is: "get", "list", "event and watcher".
	Unit string `json:"unit,omitempty"`
	// Skipped says why there are no rounds.
	Skipped string `json:"skipped,omitempty"`
	// Failed says what was wrong; the rounds before it are kept.
	Failed string    `json:"failed,omitempty"`
	Rounds []Figures `json:"rounds,omitempty"`
}

// Figures are those of one round. A pointer is nil where it was not measured.
type Figures struct {
	// Ops were finished in Seconds, which is zero where a rate would say nothing.
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds,omitempty"`
	// Latency of an operation, from its start in a closed loop, from its intended
	// start in an open one.
	Latency *Latency `json:"latencyMillis,omitempty"`
	// Bytes of bodies as received (compressed where they came so), and the Items in
	// them.
	Bytes int64 `json:"bytes,omitempty"`
	Items int64 `json:"items,omitempty"`
	// ServerCPU is what all processes of the server used, in seconds.
	ServerCPU *float64 `json:"serverCPUSeconds,omitempty"`
	// Memory of all processes of the server after the round.
	Memory *Memory `json:"memory,omitempty"`
	// GoRuntime is what the server tells of its own runtime, if it is written in Go.
	GoRuntime *GoRuntime `json:"goRuntime,omitempty"`
	// OwnCPU is what the generator used, in seconds.
	OwnCPU *float64 `json:"ownCPUSeconds,omitempty"`
	// Extra has what only this scenario counts, by name with its unit.
	Extra map[string]float64 `json:"extra,omitempty"`
}

// Memory is the memory of all processes of a server, in bytes.
type Memory struct {
	// RSS is the resident memory, with the clean pages of the programs, which the
	// kernel can drop and read again.
	RSS int64 `json:"rss"`
	// Anon is the anonymous part of RSS, which the machine has to give: heap, stacks
	// and written pages.
	Anon int64 `json:"rssAnon"`
	// Peak is the high-water mark of RSS, since the round began when PeakOfRound, else
	// since the processes started.
	Peak        int64 `json:"peak"`
	PeakOfRound bool  `json:"peakOfRound,omitempty"`
}

// GoRuntime is told by the process that answers, at /metrics; by the others of the
// server it is not.
type GoRuntime struct {
	// LiveHeap is what the last collection found alive, in bytes.
	LiveHeap int64 `json:"liveHeap"`
	// GOGC is the growth in percent after which it collects again, GOMEMLIMIT its
	// bound in bytes; math.MaxInt64: it has none.
	GOGC       int64   `json:"gogc"`
	GOMEMLIMIT float64 `json:"gomemlimit"`
	// MarkCPU is the CPU of marking in the round, in seconds; the runtime counts it
	// when a collection ends.
	MarkCPU float64 `json:"markCPUSeconds"`
}

// The figures that are shown and compared; ok is false where there is none.

func (f Figures) rate() (float64, bool) {
	return float64(f.Ops) / f.Seconds, f.Ops > 0 && f.Seconds > 0 && f.Latency != nil
}

func (f Figures) cpuPerOp() (micros float64, ok bool) {
	if f.ServerCPU == nil || f.Ops == 0 {
		return 0, false
	}
	return *f.ServerCPU * 1e6 / float64(f.Ops), true
}

func (f Figures) cpuPerByte() (nanos float64, ok bool) {
	if f.ServerCPU == nil || f.Bytes == 0 {
		return 0, false
	}
	return *f.ServerCPU * 1e9 / float64(f.Bytes), true
}

func (f Figures) bytesPerItem() (float64, bool) {
	return float64(f.Bytes) / float64(f.Items), f.Items > 0
}

func (f Figures) ownPerOp() (micros float64, ok bool) {
	if f.OwnCPU == nil || f.Ops == 0 {
		return 0, false
	}
	return *f.OwnCPU * 1e6 / float64(f.Ops), true
}

func (f Figures) p50() (millis float64, ok bool) {
	if f.Latency == nil {
		return 0, false
	}
	return f.Latency.P50, true
}

func (f Figures) p99() (millis float64, ok bool) {
	if f.Latency == nil {
		return 0, false
	}
	return f.Latency.P99, true
}

func (f Figures) rss() (mib float64, ok bool) {
	if f.Memory == nil {
		return 0, false
	}
	return float64(f.Memory.RSS) / (1 << 20), true
}

func (f Figures) anon() (mib float64, ok bool) {
	if f.Memory == nil {
		return 0, false
	}
	return float64(f.Memory.Anon) / (1 << 20), true
}

func (f Figures) peak() (mib float64, ok bool) {
	if f.Memory == nil {
		return 0, false
	}
	return float64(f.Memory.Peak) / (1 << 20), true
}

func (f Figures) liveHeap() (mib float64, ok bool) {
	if f.GoRuntime == nil {
		return 0, false
	}
	return float64(f.GoRuntime.LiveHeap) / (1 << 20), true
}

func (f Figures) gogc() (percent float64, ok bool) {
	if f.GoRuntime == nil {
		return 0, false
	}
	return float64(f.GoRuntime.GOGC), true
}

// markShare is the part of the server's CPU that marked.
func (f Figures) markShare() (percent float64, ok bool) {
	if f.GoRuntime == nil || f.ServerCPU == nil || *f.ServerCPU == 0 {
		return 0, false
	}
	return 100 * f.GoRuntime.MarkCPU / *f.ServerCPU, true
}

// WriteJSON writes the report, indented.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// ReadReport reads a report from a file, and refuses what is none.
func ReadReport(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s is no report of bench: %w", path, err)
	}
	if r.Format != Format || len(r.Servers) == 0 {
		return nil, fmt.Errorf("%s is no report of this bench: its format is %q, want %q", path, r.Format, Format)
	}
	return &r, nil
}

// Failures lists the rows that went wrong, a line each.
func (r *Report) Failures() []string {
	var lines []string
	for _, s := range r.Servers {
		for _, row := range s.Results {
			if row.Failed != "" {
				lines = append(lines, fmt.Sprintf("%s on %s: %s", row.Name, s.Name, row.Failed))
			}
		}
	}
	return lines
}
