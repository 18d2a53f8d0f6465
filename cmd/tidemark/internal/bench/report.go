package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"
)

// Format is the format of the reports of this version.
const Format = "tidemark-bench/1"

// Report is the result of a run, as --output=json writes it and Compare reads it.
type Report struct {
	Format  string    `json:"format"`
	Date    time.Time `json:"date"`
	Machine Machine   `json:"machine"`
	// Command is the command line.
	Command []string `json:"command,omitempty"`
	Options Options  `json:"options"`
	// Servers has one or two entries: the server, and the baseline.
	Servers []ServerReport `json:"servers"`
	// Interrupted is true if the run ended early.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Machine describes the machine of the generator.
type Machine struct {
	CPUs      int    `json:"cpus"`
	Model     string `json:"model,omitempty"`
	MemoryMiB int64  `json:"memoryMiB,omitempty"`
	OS        string `json:"os"`
	Arch      string `json:"arch"`
	GoVersion string `json:"goVersion"`
}

// ServerReport is everything measured of one server.
type ServerReport struct {
	Server
	// Name is the name of the kubeconfig's context.
	Name    string `json:"name"`
	URL     string `json:"url"`
	Version string `json:"version,omitempty"`
	// OtherURL is the other server of the same cluster, if there is one.
	OtherURL string `json:"otherURL,omitempty"`
	// ConfigMapPad is the number of bytes added to each ConfigMap sent.
	ConfigMapPad int `json:"configMapPad,omitempty"`
	// DeploymentPad is the number of bytes added to each Deployment sent.
	DeploymentPad int `json:"deploymentPad,omitempty"`
	// Processes describes the processes at the start of the run.
	Processes []Process `json:"processes,omitempty"`
	Results   []Result  `json:"results"`
}

// Result is one row: a scenario, or a variant of it.
type Result struct {
	// Name is the scenario and, after a slash, the variant: "create-pod/16".
	Name string `json:"name"`
	// Loop describes the load: "closed, 16 clients", "open, 500/s".
	Loop string `json:"loop,omitempty"`
	// Unit names one operation: "get", "list", "event and watcher".
	Unit string `json:"unit,omitempty"`
	// Skipped is the reason why there are no rounds.
	Skipped string `json:"skipped,omitempty"`
	// Failed is the error that ended the measurement; earlier rounds are kept.
	Failed string         `json:"failed,omitempty"`
	Rounds []Measurements `json:"rounds,omitempty"`
}

// Measurements are the results of one round. A nil pointer means not measured.
type Measurements struct {
	// Ops operations completed in Seconds, which is zero if a rate has no meaning.
	Ops     int64   `json:"ops"`
	Seconds float64 `json:"seconds,omitempty"`
	// Latency of an operation, from its start in a closed loop, from its intended
	// start in an open one.
	Latency *Latency `json:"latencyMillis,omitempty"`
	// Bytes is the size of the bodies as received, after compression. Items is the number
	// of objects in them.
	Bytes int64 `json:"bytes,omitempty"`
	Items int64 `json:"items,omitempty"`
	// ServerCPU is the CPU time of all processes of the server, in seconds.
	ServerCPU *float64 `json:"serverCPUSeconds,omitempty"`
	// Memory of all processes of the server after the round.
	Memory *Memory `json:"memory,omitempty"`
	// GoRuntime has the server's metrics of its Go runtime, if it has any.
	GoRuntime *GoRuntime `json:"goRuntime,omitempty"`
	// OwnCPU is the CPU time of the generator, in seconds.
	OwnCPU *float64 `json:"ownCPUSeconds,omitempty"`
	// Extra has measurements of this scenario alone, by name with the unit.
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

// GoRuntime holds metrics of the process that serves /metrics. Other processes of the
// server are not included.
type GoRuntime struct {
	// LiveHeap is the live heap after the last garbage collection, in bytes.
	LiveHeap int64 `json:"liveHeap"`
	// GOGC is in percent. GOMEMLIMIT is in bytes; math.MaxInt64 is no limit.
	GOGC       int64   `json:"gogc"`
	GOMEMLIMIT float64 `json:"gomemlimit"`
	// MarkCPU is the CPU time of the collector's mark phase in the round, in seconds. The
	// runtime adds it when a collection ends.
	MarkCPU float64 `json:"markCPUSeconds"`
}

// The metrics of the tables; ok is false if the round has no such measurement.

func (f Measurements) rate() (float64, bool) {
	return float64(f.Ops) / f.Seconds, f.Ops > 0 && f.Seconds > 0 && f.Latency != nil
}

func (f Measurements) cpuPerOp() (micros float64, ok bool) {
	if f.ServerCPU == nil || f.Ops == 0 {
		return 0, false
	}
	return *f.ServerCPU * 1e6 / float64(f.Ops), true
}

func (f Measurements) cpuPerByte() (nanos float64, ok bool) {
	if f.ServerCPU == nil || f.Bytes == 0 {
		return 0, false
	}
	return *f.ServerCPU * 1e9 / float64(f.Bytes), true
}

func (f Measurements) bytesPerItem() (float64, bool) {
	return float64(f.Bytes) / float64(f.Items), f.Items > 0
}

func (f Measurements) ownPerOp() (micros float64, ok bool) {
	if f.OwnCPU == nil || f.Ops == 0 {
		return 0, false
	}
	return *f.OwnCPU * 1e6 / float64(f.Ops), true
}

func (f Measurements) p50() (millis float64, ok bool) {
	if f.Latency == nil {
		return 0, false
	}
	return f.Latency.P50, true
}

func (f Measurements) p99() (millis float64, ok bool) {
	if f.Latency == nil {
		return 0, false
	}
	return f.Latency.P99, true
}

func (f Measurements) rss() (mib float64, ok bool) {
	if f.Memory == nil {
		return 0, false
	}
	return float64(f.Memory.RSS) / (1 << 20), true
}

func (f Measurements) anon() (mib float64, ok bool) {
	if f.Memory == nil {
		return 0, false
	}
	return float64(f.Memory.Anon) / (1 << 20), true
}

func (f Measurements) peak() (mib float64, ok bool) {
	if f.Memory == nil {
		return 0, false
	}
	return float64(f.Memory.Peak) / (1 << 20), true
}

func (f Measurements) liveHeap() (mib float64, ok bool) {
	if f.GoRuntime == nil {
		return 0, false
	}
	return float64(f.GoRuntime.LiveHeap) / (1 << 20), true
}

func (f Measurements) gogc() (percent float64, ok bool) {
	if f.GoRuntime == nil {
		return 0, false
	}
	return float64(f.GoRuntime.GOGC), true
}

// markShare is the share of the server's CPU in the collector's mark phase.
func (f Measurements) markShare() (percent float64, ok bool) {
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

// ReadReport reads a report from a file. Anything else in the file is an error.
func ReadReport(path string) (*Report, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%s is not a report of bench: %w", path, err)
	}
	if r.Format != Format || len(r.Servers) == 0 {
		return nil, fmt.Errorf("%s is not a report of this version of bench: its format is %q, want %q", path, r.Format, Format)
	}
	return &r, nil
}

// Failures returns a line for each row that failed.
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
