package admission

import (
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/registry"
)

// Durations are the metrics of how long admission takes, with the names, labels and buckets of
// kube-apiserver. A plugin is counted if it handles a request. They are arrays of counters instead
// of a vector of histograms, since each write observes some. The methods are safe for concurrent use.
type Durations struct {
	plugins []string
	all     []histogram // by plugin, phase, operation and whether the request was refused; steps come last
	steps   *prometheus.SummaryVec
}

// histogram counts durations by bucket.
type histogram struct {
	counts [len(durationBuckets) + 1]atomic.Uint64
	nanos  atomic.Int64
}

// durationBuckets are the upper bounds, in seconds. durationBounds are the same as durations.
var (
	durationBuckets    = [...]float64{0.005, 0.025, 0.1, 0.5, 1, 2.5}
	durationBounds     = [...]time.Duration{5 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond, time.Second, 2500 * time.Millisecond}
	durationOperations = [...]registry.Operation{admissionv1.Create, admissionv1.Update, admissionv1.Delete, admissionv1.Connect}
	durationPhases     = [...]string{"admit", "validate"}
)

// NewDurations returns the metrics of a chain.
func NewDurations(chain []registry.Plugin) *Durations {
	d := &Durations{steps: prometheus.NewSummaryVec(prometheus.SummaryOpts{
		Name: "apiserver_admission_step_admission_duration_seconds_summary", Help: "Quantiles of the duration of a phase of admission, in the last five hours.",
		Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01, 0.99: 0.001}, MaxAge: 5 * time.Hour,
	}, stepLabels)}
	for i := range chain {
		d.plugins = append(d.plugins, chain[i].Name)
	}
	d.all = make([]histogram, d.index(len(chain)+1, 0, 0, 0))
	return d
}

func (d *Durations) index(plugin, phase, operation, refused int) int {
	return ((plugin*len(durationPhases)+phase)*len(durationOperations)+operation)*2 + refused
}

// Observe is a registry.Registry.Observe.
func (d *Durations) Observe(o registry.Observation) {
	plugin, phase, refused := o.Plugin, 0, 0
	if o.Validating {
		phase = 1
	}
	if o.Refused {
		refused = 1
	}
	operation := slices.Index(durationOperations[:], o.Operation)
	if operation < 0 {
		return
	}
	if plugin < 0 {
		plugin = len(d.plugins)
		d.steps.WithLabelValues(durationPhases[phase], string(o.Operation), strconv.FormatBool(o.Refused)).Observe(o.Duration.Seconds())
	}
	h := &d.all[d.index(plugin, phase, operation, refused)]
	bucket := 0
	for bucket < len(durationBounds) && o.Duration > durationBounds[bucket] {
		bucket++
	}
	h.counts[bucket].Add(1)
	h.nanos.Add(int64(o.Duration))
}

var (
	stepLabels    = []string{"type", "operation", "rejected"}
	stepDurations = prometheus.NewDesc("apiserver_admission_step_admission_duration_seconds",
		"Duration of a phase of admission.", stepLabels, nil)
	controllerDurations = prometheus.NewDesc("apiserver_admission_controller_admission_duration_seconds",
		"Duration of an admission plugin in a phase.", []string{"name", "type", "operation", "rejected"}, nil)
)

// Describe implements prometheus.Collector.
func (d *Durations) Describe(to chan<- *prometheus.Desc) {
	to <- stepDurations
	to <- controllerDurations
	d.steps.Describe(to)
}

// Collect implements prometheus.Collector. Plugins of the same name are one, those without a name
// are left out.
func (d *Durations) Collect(to chan<- prometheus.Metric) {
	d.steps.Collect(to)
	for phase, phaseName := range durationPhases {
		for operation, operationName := range durationOperations {
			for refused := range 2 {
				labels := []string{phaseName, string(operationName), strconv.FormatBool(refused == 1)}
				send(to, stepDurations, labels, &d.all[d.index(len(d.plugins), phase, operation, refused)])
				for i, name := range d.plugins {
					if name == "" || slices.Index(d.plugins, name) < i {
						continue
					}
					var same []*histogram
					for j := i; j < len(d.plugins); j++ {
						if d.plugins[j] == name {
							same = append(same, &d.all[d.index(j, phase, operation, refused)])
						}
					}
					send(to, controllerDurations, append([]string{name}, labels...), same...)
				}
			}
		}
	}
}

// send sends the sum of histograms, unless it is empty.
func send(to chan<- prometheus.Metric, d *prometheus.Desc, labels []string, all ...*histogram) {
	var n uint64
	var nanos int64
	buckets := make(map[float64]uint64, len(durationBuckets))
	for i := range len(durationBuckets) + 1 {
		for _, h := range all {
			n += h.counts[i].Load()
		}
		if i < len(durationBuckets) {
			buckets[durationBuckets[i]] = n
		}
	}
	for _, h := range all {
		nanos += h.nanos.Load()
	}
	if n > 0 {
		to <- prometheus.MustNewConstHistogram(d, n, time.Duration(nanos).Seconds(), buckets, labels...)
	}
}
