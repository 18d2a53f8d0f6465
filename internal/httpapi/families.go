package httpapi

import (
	"sync/atomic"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// families are the metrics of requests. Several routes may share a series. The lock of metrics guards them.
type families struct {
	requests     family[*atomic.Uint64]
	terminations family[*atomic.Uint64]
	aborts       family[*atomic.Uint64]
	durations    family[*exposition.Histogram]
	slis         family[*exposition.Histogram]
	sizes        family[*exposition.Histogram]
	bodies       family[*exposition.Histogram]
	deprecated   family[*atomic.Int64]

	lists    [4]family[*atomic.Uint64] // how many, objects read, looked at, listed
	logLists family[*exposition.Histogram]

	running    family[*atomic.Int64]
	events     family[*atomic.Uint64]
	eventSizes family[*exposition.Histogram]
	initial    family[*atomic.Uint64]
	watchLists family[*exposition.Histogram]
	terminated family[*atomic.Uint64]
}

// seriesKey is the key by which series are forgotten.
type seriesKey struct{ group, version, resource string }

// family is a metric with its series.
type family[M any] struct {
	name, help string
	make       func() M
	series     []series[M]
	index      map[string]int // by labels
}

type series[M any] struct {
	key    seriesKey
	labels string
	metric M
}

// of returns the series with the labels.
func (f *family[M]) of(k seriesKey, labels string) M {
	if i, known := f.index[labels]; known {
		return f.series[i].metric
	}
	m := f.make()
	f.index[labels] = len(f.series)
	f.series = append(f.series, series[M]{k, labels, m})
	return m
}

// forget drops series. Requests under way may still count in them.
func (f *family[M]) forget(gone func(*seriesKey) bool) {
	var kept []series[M] // a scrape may read the old ones
	clear(f.index)
	for i := range f.series {
		if s := &f.series[i]; !gone(&s.key) {
			f.index[s.labels] = len(kept)
			kept = append(kept, *s)
		}
	}
	f.series = kept
}

func counters(name, help string) family[*atomic.Uint64] {
	return family[*atomic.Uint64]{name: name, help: help, make: func() *atomic.Uint64 { return new(atomic.Uint64) }, index: map[string]int{}}
}

func gauges(name, help string) family[*atomic.Int64] {
	return family[*atomic.Int64]{name: name, help: help, make: func() *atomic.Int64 { return new(atomic.Int64) }, index: map[string]int{}}
}

func histograms(name, help string, b *exposition.Buckets) family[*exposition.Histogram] {
	return family[*exposition.Histogram]{name: name, help: help, make: b.New, index: map[string]int{}}
}

// begin makes the families.
func (f *families) begin() {
	f.requests = counters("apiserver_request_total", "Requests, by verb, dry run, group, version, resource, scope, component and code.")
	f.terminations = counters("apiserver_request_terminations_total", "Requests that the server ended in self-defence.")
	f.aborts = counters("apiserver_request_aborts_total", "Requests whose response was broken off.")
	f.durations = histograms("apiserver_request_duration_seconds", "Time from the headers of a request to the end of its response.", durationBuckets)
	f.slis = histograms("apiserver_request_sli_duration_seconds", "Time of a request without that in queues and in admission webhooks; watches are not in it.", sliBuckets)
	f.sizes = histograms("apiserver_response_sizes", "Bytes of the responses to get, list and watch.", sizeBuckets)
	f.bodies = histograms("apiserver_request_body_size_bytes", "Bytes of the bodies of writes.", bodyBuckets)
	f.deprecated = gauges("apiserver_requested_deprecated_apis", "1 for each deprecated resource that was requested.")
	for i, name := range [...]string{"list_total", "list_fetched_objects_total", "list_evaluated_objects_total", "list_returned_objects_total"} {
		help := [...]string{"Lists, by where they read objects: memory (watchcache) or the log (etcd).", "Objects that lists have read.",
			"Objects of the log that lists have compared with a selector.", "Objects in lists."}[i]
		f.lists[i] = counters("apiserver_storage_"+name, help)
	}
	f.logLists = histograms("apiserver_storage_list_duration_seconds", "Time of lists that have read the log, until they were sent.", durationBuckets)
	f.running = gauges("apiserver_longrunning_requests", "Watches and connections under way.")
	f.events = counters("apiserver_watch_events_total", "Events sent to watches.")
	f.eventSizes = histograms("apiserver_watch_events_sizes", "Bytes of events sent to watches.", eventBuckets)
	f.initial = counters("apiserver_init_events_total", "Objects sent to watches at their beginning.")
	f.watchLists = histograms("apiserver_watch_list_duration_seconds", "Time until a watch that began with a list has sent it.", listBuckets)
	f.terminated = counters("apiserver_terminated_watchers_total", "Watches that ended because their clients did not read.")
}

// forget drops series of all families.
func (f *families) forget(gone func(*seriesKey) bool) {
	for _, c := range f.counters() {
		c.forget(gone)
	}
	for _, g := range []*family[*atomic.Int64]{&f.deprecated, &f.running} {
		g.forget(gone)
	}
	for _, h := range f.histograms() {
		h.forget(gone)
	}
}

func (f *families) counters() []*family[*atomic.Uint64] {
	all := []*family[*atomic.Uint64]{&f.requests, &f.terminations, &f.aborts, &f.events, &f.initial, &f.terminated}
	for i := range f.lists {
		all = append(all, &f.lists[i])
	}
	return all
}

func (f *families) histograms() []*family[*exposition.Histogram] {
	return []*family[*exposition.Histogram]{&f.durations, &f.slis, &f.sizes, &f.bodies, &f.eventSizes, &f.watchLists, &f.logLists}
}

// Expose implements exposition.Source.
func (m *metrics) Expose(w *exposition.Writer) {
	m.mu.RLock()
	f := m.families // their slices only grow, or are replaced
	m.mu.RUnlock()
	for _, c := range f.counters() {
		c.expose(w, exposition.CounterKind, func(s *series[*atomic.Uint64]) {
			if n := s.metric.Load(); n > 0 {
				w.Uint(s.labels, n)
			}
		})
	}
	f.running.expose(w, exposition.GaugeKind, func(s *series[*atomic.Int64]) { w.Float(s.labels, float64(s.metric.Load())) })
	f.deprecated.expose(w, exposition.GaugeKind, func(s *series[*atomic.Int64]) {
		if s.metric.Load() > 0 {
			w.Float(s.labels, 1)
		}
	})
	for _, h := range f.histograms() {
		h.expose(w, exposition.HistogramKind, func(s *series[*exposition.Histogram]) {
			if !s.metric.Empty() {
				w.Histogram(s.labels, s.metric)
			}
		})
	}
	w.Family("authorization_attempts_total", exposition.CounterKind, "Requests, by the result of their authorization: allowed, denied, no-opinion or error.")
	for i := range m.authorized {
		if n := m.authorized[i].attempts.Load(); n > 0 {
			w.Uint(exposition.Labels("result", outcomes[i]), n)
		}
	}
	w.Family("authorization_duration_seconds", exposition.HistogramKind, "Time to authorize a request.")
	for i := range m.authorized {
		if m.authorized[i].attempts.Load() > 0 {
			w.Histogram(exposition.Labels("result", outcomes[i]), m.authorized[i].took)
		}
	}
	w.Family("field_validation_request_duration_seconds", exposition.HistogramKind, "Time of creates, updates and patches, by the parameter fieldValidation.")
	for _, v := range [...]string{"", "Ignore", "Warn", "Strict", invalidValue} {
		if h := m.validations[v]; !h.Empty() {
			w.Histogram(exposition.Labels("field_validation", v), h)
		}
	}
}

func (f *family[M]) expose(w *exposition.Writer, kind exposition.Kind, one func(*series[M])) {
	w.Family(f.name, kind, f.help)
	for i := range f.series {
		one(&f.series[i])
	}
}
