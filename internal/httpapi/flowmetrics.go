package httpapi

import (
	"math"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/flowschema"
)

// flowMetrics collects the metrics of priority and fairness, by kube-apiserver's names. They are
// computed for each scrape, so requests pay for none of them.
type flowMetrics struct {
	gate  *fairness.Gate
	flows *flowschema.Classifier
}

// flowMetric is the description of a metric.
func flowMetric(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("apiserver_flowcontrol_"+name, help, labels, nil)
}

const (
	levelLabel  = "priority_level"
	schemaLabel = "flow_schema"
)

var (
	flowRejected        = flowMetric("rejected_requests_total", "Requests rejected, by reason.", levelLabel, schemaLabel, "reason")
	flowDispatched      = flowMetric("dispatched_requests_total", "Requests that got their seats.", levelLabel, schemaLabel)
	flowQueuedRequests  = flowMetric("current_inqueue_requests", "Requests in queues.", levelLabel, schemaLabel)
	flowQueuedSeats     = flowMetric("current_inqueue_seats", "Seats that the requests in queues wait for.", levelLabel, schemaLabel)
	flowExecuting       = flowMetric("current_executing_requests", "Requests that execute; of watches, those that send their first events.", levelLabel, schemaLabel)
	flowExecutingSeats  = flowMetric("current_executing_seats", "Seats of the requests that execute.", levelLabel, schemaLabel)
	flowWaited          = flowMetric("request_wait_duration_seconds", "Time in a queue.", levelLabel, schemaLabel, "execute")
	flowExecuted        = flowMetric("request_execution_seconds", "Time of execution; of watches, until the first events were sent.", levelLabel, schemaLabel, "type")
	flowEstimated       = flowMetric("work_estimated_seats", "Estimated seats of requests.", levelLabel, schemaLabel)
	flowWatchers        = flowMetric("watch_count_samples", "Watches that may see a write.", levelLabel, schemaLabel)
	flowUnaccommodated  = flowMetric("request_dispatch_no_accommodation_total", "Times that the free seats were too few for the request that was next.", levelLabel, schemaLabel)
	flowQueueLength     = flowMetric("request_queue_length_after_enqueue", "Length of a queue after a request was added.", levelLabel, schemaLabel)
	levelNominal        = flowMetric("nominal_limit_seats", "Nominal seats of a level.", levelLabel)
	levelLower          = flowMetric("lower_limit_seats", "Seats that a level keeps whatever it lends.", levelLabel)
	levelUpper          = flowMetric("upper_limit_seats", "Seats that a level has at most, with those it borrows.", levelLabel)
	levelCurrent        = flowMetric("current_limit_seats", "Seats that a level has now.", levelLabel)
	levelDemandMost     = flowMetric("demand_seats_high_watermark", "Most seats in use or wanted, in the last period of adjustment.", levelLabel)
	levelDemandAverage  = flowMetric("demand_seats_average", "Average of the seats in use or wanted, in the last period of adjustment.", levelLabel)
	levelDemandDev      = flowMetric("demand_seats_stdev", "Standard deviation of the seats in use or wanted, in the last period of adjustment.", levelLabel)
	levelDemandSmoothed = flowMetric("demand_seats_smoothed", "Smoothed demand of seats.", levelLabel)
	levelTarget         = flowMetric("target_seats", "Seats that a level would get if there were enough for all.", levelLabel)
	levelR              = flowMetric("current_r", "Virtual time of a level, in seat-seconds.", levelLabel)
	levelNextS          = flowMetric("next_s_bounds", "Least and greatest virtual start time of the queues with waiting requests.", levelLabel, "bound")
	levelDemand         = flowMetric("demand_seats", "Nanoseconds by the seats in use or wanted, as a fraction of the limit.", levelLabel)
	levelSeats          = flowMetric("priority_level_seat_utilization", "Nanoseconds by the seats in use, as a fraction of the limit.", levelLabel, "phase")
	levelRequests       = flowMetric("priority_level_request_utilization", "Nanoseconds by the requests that execute or wait, as a fraction of the limit or of the places in queues.", levelLabel, "phase")
	fairFraction        = flowMetric("seat_fair_frac", "Fraction of its demand that a level gets which nothing limits.")
	inQueue             = prometheus.NewDesc("apiserver_current_inqueue_requests", "Requests in queues.", []string{"request_kind"}, nil)
)

// Describe implements prometheus.Collector. It describes nothing, so that labels may come and go
// with the objects that name them.
func (flowMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m flowMetrics) Collect(to chan<- prometheus.Metric) {
	s := m.gate.Snapshot(true)
	gauge(to, fairFraction, s.FairFraction)
	reads, writes := 0, 0
	for i := range s.Levels {
		l := &s.Levels[i]
		reads, writes = reads+l.Waiting-l.WaitingWrites, writes+l.WaitingWrites
		if i == 0 || s.Levels[i-1].Name != l.Name { // another one may drain
			collectLevel(to, l)
		}
	}
	gauge(to, inQueue, float64(reads), "readOnly")
	gauge(to, inQueue, float64(writes), "mutating")
	for _, one := range m.flows.Schemas() {
		t := one.Metrics.State()
		collectFlow(to, &t)
	}
}

func gauge(to chan<- prometheus.Metric, d *prometheus.Desc, v float64, labels ...string) {
	to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func collectLevel(to chan<- prometheus.Metric, l *fairness.LevelState) {
	for d, v := range map[*prometheus.Desc]float64{
		levelNominal: float64(l.Nominal), levelLower: float64(l.Lower), levelUpper: float64(l.Upper), levelCurrent: float64(l.Current),
		levelDemandMost: float64(l.Demand.HighWatermark), levelDemandAverage: l.Demand.Average, levelDemandDev: l.Demand.Deviation,
		levelDemandSmoothed: l.Demand.Smoothed, levelTarget: l.Demand.Target, levelR: l.R,
	} {
		gauge(to, d, v, l.Name)
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, q := range l.Queues {
		if q.Waiting > 0 {
			least, most = min(least, q.Start), max(most, q.Start)
		}
	}
	if least <= most {
		gauge(to, levelNextS, least, l.Name, "min")
		gauge(to, levelNextS, most, l.Name, "max")
	}
	times(to, levelDemand, &l.DemandRatio, l.Name)
	times(to, levelSeats, &l.SeatUtilization, l.Name, "executing")
	times(to, levelRequests, &l.ExecutingRatio, l.Name, "executing")
	times(to, levelRequests, &l.WaitingRatio, l.Name, "waiting")
}

// times sends a histogram of times.
func times(to chan<- prometheus.Metric, d *prometheus.Desc, h *fairness.TimeHistogram, labels ...string) {
	buckets, count := make(map[float64]uint64, len(h.Bounds)), uint64(0)
	for i, n := range h.Nanos {
		if count += n; i < len(h.Bounds) {
			buckets[h.Bounds[i]] = count
		}
	}
	to <- prometheus.MustNewConstHistogram(d, count, h.Sum, buckets, labels...)
}

func collectFlow(to chan<- prometheus.Metric, t *fairness.FlowSnapshot) {
	counter := func(d *prometheus.Desc, n uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	histogram := func(d *prometheus.Desc, h fairness.Histogram, labels ...string) {
		if h.Count > 0 {
			to <- prometheus.MustNewConstHistogram(d, h.Count, h.Sum, h.Buckets, labels...)
		}
	}
	for reason, n := range t.Rejected {
		if n > 0 {
			counter(flowRejected, n, t.Level, t.Schema, fairness.Reason(reason).String())
		}
	}
	if t.Dispatched == 0 && t.Seats.Count == 0 {
		return // no request has come
	}
	counter(flowDispatched, t.Dispatched, t.Level, t.Schema)
	counter(flowUnaccommodated, t.NotAccommodated, t.Level, t.Schema)
	for d, n := range map[*prometheus.Desc]int64{
		flowQueuedRequests: t.QueuedRequests, flowQueuedSeats: t.QueuedSeats, flowExecuting: t.ExecutingRequests, flowExecutingSeats: t.ExecutingSeats,
	} {
		gauge(to, d, float64(n), t.Level, t.Schema)
	}
	histogram(flowWaited, t.WaitedToExecute, t.Level, t.Schema, strconv.FormatBool(true))
	histogram(flowWaited, t.WaitedInVain, t.Level, t.Schema, strconv.FormatBool(false))
	histogram(flowExecuted, t.Executed, t.Level, t.Schema, "regular")
	histogram(flowExecuted, t.Initialized, t.Level, t.Schema, "watch")
	histogram(flowEstimated, t.Seats, t.Level, t.Schema)
	histogram(flowQueueLength, t.QueueLengths, t.Level, t.Schema)
	histogram(flowWatchers, t.Watchers, t.Level, t.Schema)
}
