package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// TestHistogram compares quantiles with the quantiles of the sorted values.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		var h histogram
		values := make([]float64, 1+r.IntN(5000))
		for i := range values {
			d := time.Duration(math.Exp(r.Float64() * 28)) // from 1 ns to 20 min
			h.record(d)
			values[i] = float64(d) / 1e6
		}
		slices.Sort(values)
		got := h.latency()
		for q, g := range map[float64]float64{0.5: got.P50, 0.9: got.P90, 0.99: got.P99, 1: got.Max} {
			want := values[int(q*float64(len(values)-1))]
			if math.Abs(g-want) > want/128 {
				t.Errorf("quantile %v of %d values: %v, want %v", q, len(values), g, want)
			}
		}
	}
	var h histogram
	if h.latency() != nil {
		t.Error("nothing has a latency")
	}
	h.record(-1)
	h.record(math.MaxInt64)
	if l := h.latency(); l.P50 != 0 || l.Max != float64(math.MaxInt64)/1e6 {
		t.Errorf("the ends: %+v", l)
	}
}

func TestBuckets(t *testing.T) {
	for i := range buckets - 1 {
		low, next := floorOf(i), floorOf(i+1)
		if low >= next || bucketOf(low) != i || bucketOf(next-1) != i {
			t.Fatalf("bucket %d is %d to %d, but its ends are in %d and %d", i, low, next-1, bucketOf(low), bucketOf(next-1))
		}
	}
}

func TestSpread(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   string
	}{
		{[]float64{3}, "3"},
		{[]float64{1, 2}, "1.5 (1..2)"},
		{[]float64{12.345, 0.0012345, 67890.9}, "12.3 (0.00123..67891)"},
		{[]float64{0, 0}, "0"},
		{[]float64{99.96, 100.04}, "100"},
	} {
		if s, ok := spreadOf(test.values); !ok || s.String() != test.want {
			t.Errorf("%v: %s, want %s", test.values, s, test.want)
		}
	}
	if _, ok := spreadOf(nil); ok {
		t.Error("there is a spread of nothing")
	}
}

// row returns a result with so many seconds of CPU for ten operations in a second.
func resultOf(name string, cpus ...float64) Result {
	x := Result{Name: name}
	for _, cpu := range cpus {
		x.Rounds = append(x.Rounds, Measurements{Ops: 10, Seconds: cpu, ServerCPU: &cpu, Latency: &Latency{P50: cpu, P99: 2 * cpu}})
	}
	return x
}

func TestCompare(t *testing.T) {
	report := func(name string, results ...Result) *Report {
		return &Report{Format: Format, Servers: []ServerReport{{Name: name, Results: results}}}
	}
	a := report("ours", resultOf("get", 1, 2, 4), resultOf("list", 1), resultOf("ours-alone", 1), Result{Name: "skipped", Skipped: "why"})
	b := report("theirs", resultOf("get", 8, 10, 12), resultOf("list", 2, 4), resultOf("theirs-alone", 1), resultOf("skipped", 1))
	c, err := Compare(a, b)
	if err != nil || len(c.Rows) != 2 {
		t.Fatalf("%v %+v", err, c)
	}
	// In pairs 8/1, 10/2, 12/4; of the medians 10/2.
	want := Spread{Median: 5, Min: 3, Max: 8}
	for name, got := range map[string]*Spread{"CPU": c.Rows[0].CPUPerOp, "rate": c.Rows[0].Rate, "p50": c.Rows[0].P50, "p99": c.Rows[0].P99} {
		if got == nil || *got != want {
			t.Errorf("%s of get: %v, want %v", name, got, want)
		}
	}
	// Of unequal numbers of rounds: 3/1, and from 2/1 to 4/1.
	if got := c.Rows[1].CPUPerOp; got == nil || *got != (Spread{Median: 3, Min: 2, Max: 4}) {
		t.Errorf("CPU of list: %v", got)
	}
	if c.Rows[0].RSS != nil || c.Rows[0].CPUPerByte != nil {
		t.Error("there are ratios of what was not measured")
	}
	if got := strings.Join(c.Alone, ", "); got != "ours-alone (a alone), theirs-alone (b alone), skipped (b alone)" {
		t.Errorf("alone: %s", got)
	}
	var table bytes.Buffer
	if err := c.WriteTable(&table); err != nil || !strings.Contains(table.String(), "b is theirs: the baseline") || !strings.Contains(table.String(), "5 (3..8)") {
		t.Errorf("%v\n%s", err, &table)
	}
	if _, err := Compare(a, nil); err == nil {
		t.Error("one server was compared")
	}
	a.Servers = append(a.Servers, b.Servers...)
	if c, err := Compare(a, nil); err != nil || c.B != "theirs" || len(c.Rows) != 2 {
		t.Errorf("two servers of one report: %+v %v", c, err)
	}
}

// TestMemoryColumns: anonymous memory is shown and compared in addition to RSS.
func TestMemoryColumns(t *testing.T) {
	server := func(name string, anon int64) ServerReport {
		m := Memory{RSS: 100 << 20, Anon: anon << 20, Peak: 200 << 20}
		return ServerReport{Name: name, Processes: []Process{{PID: 7, Command: "server", Memory: m}}, Results: []Result{{Name: "get", Rounds: []Measurements{{Ops: 1, Memory: &m}}}}}
	}
	r := &Report{Format: Format, Servers: []ServerReport{server("ours", 10), server("theirs", 40)}}
	var table bytes.Buffer
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"process 7 server: RSS 100 MiB, anonymous 10 MiB\n", "  RSS MiB  anon MiB  ", "RSS ratio  anon MiB a  b   anon ratio  "} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &table)
		}
	}
	c, err := Compare(r, nil)
	if err != nil || c.Rows[0].Anon == nil || c.Rows[0].Anon.Median != 4 || c.Rows[0].RSS.Median != 1 {
		t.Errorf("%v %+v", err, c)
	}
	if p, err := NewPlot(PlotOptions{X: "objects", Y: "anon"}, []*Report{{Options: Options{Objects: 1}, Servers: r.Servers}}); err != nil || p.Panels[0].Lines[0].Points[0].Y != 10 {
		t.Errorf("%v %+v", err, p)
	}
}

// TestObjects: they are of the size that is promised, and the same for a seed.
func TestObjects(t *testing.T) {
	o := objects{seed: 1}
	pod, config := o.pod(podName(7), 7), o.configMap(configMapName(7), 7, 1234567890, "")
	if len(pod) < 1900 || len(pod) > 2400 {
		t.Errorf("a pod has %d bytes", len(pod))
	}
	if len(config) < 1000 || len(config) > 1300 {
		t.Errorf("a ConfigMap has %d bytes", len(config))
	}
	if !bytes.Equal(pod, o.pod(podName(7), 7)) || bytes.Equal(pod, objects{seed: 2}.pod(podName(7), 7)) || bytes.Equal(pod, o.changedPod(podName(7), 7, 1)) {
		t.Error("a pod does not depend on seed, number and change alone")
	}
	for _, pad := range []int{0, 1, 100, 5000} {
		padded := objects{seed: 1, pad: pad}.pod(podName(7), 7)
		if got := len(padded) - len(pod); got != pad && pad > len(padKey) {
			t.Errorf("padded by %d bytes, a pod has %d more", pad, got)
		}
		for _, b := range [][]byte{padded, o.configMap("c", 1, 2, "3")} {
			if !json.Valid(b) || bytes.Count(b, markBytes) != 1 {
				t.Errorf("not as it should be: %s", b)
			}
		}
	}
}

// TestScan: the input may come in pieces of any size.
func TestScan(t *testing.T) {
	text := `{"metadata":{"resourceVersion":"123","continue":"token"},"items":["` + mark + `","` + mark + mark + `"]}`
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)),
		"halves": iotest.HalfReader(strings.NewReader(text)), "error with data": iotest.DataErrReader(strings.NewReader(text)),
	} {
		c := &client{}
		s, err := c.scan(r)
		if err != nil || s.marks != 3 || s.bytes != int64(len(text)) || string(s.tail[:]) != text[len(text)-8:] || string(s.head) != text {
			t.Errorf("%s: %+v %v", name, s, err)
		}
		if rv, ok := revisionIn(s.head); rv != 123 || !ok {
			t.Errorf("%s: resource version %d", name, rv)
		}
	}
	if _, err := (&client{}).scan(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(text)))); err != iotest.ErrTimeout {
		t.Errorf("an error in the middle: %v", err)
	}
}

func TestUntilMark(t *testing.T) {
	const text = "abc<the end>"
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
	} {
		u := &untilMark{Reader: io.MultiReader(r, iotest.ErrReader(iotest.ErrTimeout)), mark: []byte("<the end>")}
		if got, err := io.ReadAll(u); err != nil || string(got) != text {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	u := &untilMark{Reader: strings.NewReader("abc"), mark: []byte("<the end>")}
	if _, err := io.ReadAll(u); err != io.ErrUnexpectedEOF {
		t.Errorf("without the mark: %v", err)
	}
}

// TestUsage: threads are counted, unless one has ended.
func TestUsage(t *testing.T) {
	before := processUsage{threads: map[int]uint64{1: 1e9, 2: 2e9}, ticks: 3}
	for want, after := range map[float64]processUsage{
		2.5: {threads: map[int]uint64{1: 2e9, 2: 3e9, 3: 5e8}, ticks: 5.49},
		7:   {threads: map[int]uint64{1: 2e9}, ticks: 10},
	} {
		if got := after.since(before); got != want {
			t.Errorf("%+v: %v seconds, want %v", after, got, want)
		}
	}
	all := usage{processes: []processUsage{before, before}}
	if got := (usage{processes: []processUsage{{threads: map[int]uint64{1: 2e9, 2: 2e9}}, before}}).since(all); got != 1 {
		t.Errorf("two processes: %v seconds, want 1", got)
	}
}

// TestStart measures a command that is a server of another process: a shell that
// says where one is.
func TestStart(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no SIGTERM")
	}
	running := serve(t)
	b, err := os.ReadFile(running.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	ready, later := filepath.Join(dir, "ready"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(ready, b, 0o600); err != nil {
		t.Fatal(err)
	}
	s := Server{Kubeconfig: later, StartCommand: "cp " + ready + " " + later + "; sleep 60; true"}
	r, err := Run(t.Context(), tiny("start"), []Server{s}, progress.Progress{})
	if err != nil || len(r.Failures()) > 0 || len(r.Servers[0].Results[0].Rounds) != 1 {
		t.Fatalf("%v %+v", err, r.Servers)
	}
	s.StartCommand = "echo it is broken; exit 3"
	os.Remove(later)
	r, err = Run(t.Context(), tiny("start"), []Server{s}, progress.Progress{})
	if failures := strings.Join(r.Failures(), ""); err != nil || !strings.Contains(failures, "it is broken") {
		t.Errorf("a command that fails: %v %s", err, failures)
	}
}
