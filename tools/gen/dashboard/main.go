// Command dashboard writes deploy/monitoring/dashboard.json, the Grafana dashboard, from the panels below.
//
//	go run ./tools/gen/dashboard
package main

import (
	"encoding/json"
	"log"
	"os"
	"strings"
)

const file = "deploy/monitoring/dashboard.json"

func main() {
	if err := os.WriteFile(file, dashboard(), 0o644); err != nil { //nolint:gosec // it has no secrets
		log.Fatal(err)
	}
}

// panel is a graph. {$ in an expression stands for { and the selector of the server.
type panel struct {
	title, unit string
	series      []series
}

type series struct{ expr, legend string }

// row is panels under a title.
type row struct {
	title  string
	panels []panel
}

func one(expr, legend string) []series { return []series{{expr, legend}} }

// quantile is the 99th percentile of a histogram.
func quantile(histogram, by string) string {
	return "histogram_quantile(0.99, sum by (" + strings.TrimPrefix(by+", le", ", ") + ") (rate(" + histogram + "[$__rate_interval])))"
}

var rows = []row{
	{"Requests", []panel{
		{"Requests, by code", "reqps", one("sum by (code) (rate(apiserver_request_total{$}[$__rate_interval]))", "{{code}}")},
		{"Errors of the server", "percentunit", one(`sum(rate(apiserver_request_total{$,code=~"5.."}[$__rate_interval])) / sum(rate(apiserver_request_total{$}[$__rate_interval]))`, "5xx")},
		{"Slowest 1% of reads", "s", one(quantile(`apiserver_request_sli_duration_seconds_bucket{$,verb=~"GET|LIST"}`, "verb, scope"), "{{verb}} {{scope}}")},
		{"Slowest 1% of writes", "s", one(quantile(`apiserver_request_sli_duration_seconds_bucket{$,verb=~"POST|PUT|PATCH|APPLY|DELETE"}`, "verb"), "{{verb}}")},
		{"Requests under way", "short", one("apiserver_current_inflight_requests{$}", "{{request_kind}}")},
		{"Requests rejected or ended", "reqps", []series{
			{"sum by (priority_level, reason) (rate(apiserver_flowcontrol_rejected_requests_total{$}[$__rate_interval]))", "{{priority_level}}: {{reason}}"},
			{"sum by (code) (rate(apiserver_request_terminations_total{$}[$__rate_interval]))", "ended with {{code}}"},
			{"sum(rate(apiserver_request_aborts_total{$}[$__rate_interval]))", "broken off"},
		}},
	}},
	{"Watches", []panel{
		{"Watches, by resource", "short", one(`topk(10, sum by (group, resource) (apiserver_longrunning_requests{$,verb="WATCH"}))`, "{{resource}} {{group}}")},
		{"Events sent", "ops", one("topk(10, sum by (group, resource) (rate(apiserver_watch_events_total{$}[$__rate_interval])))", "{{resource}} {{group}}")},
		{"Bytes of events", "Bps", one("sum(rate(apiserver_watch_events_sizes_sum{$}[$__rate_interval]))", "bytes")},
		{"Watches ended because their client was slow", "short", one("sum by (resource) (increase(apiserver_terminated_watchers_total{$}[$__rate_interval]))", "{{resource}}")},
	}},
	{"Log and history", []panel{
		{"Time of a sync", "s", []series{
			{quantile("tidemark_log_sync_duration_seconds_bucket{$}", ""), "99%"},
			{"rate(tidemark_log_sync_duration_seconds_sum{$}[$__rate_interval]) / rate(tidemark_log_sync_duration_seconds_count{$}[$__rate_interval])", "average"},
			{"tidemark_log_stalled_seconds{$}", "under way"},
		}},
		{"Writes in a group", "short", one("rate(tidemark_log_group_writes_sum{$}[$__rate_interval]) / rate(tidemark_log_group_writes_count{$}[$__rate_interval])", "average")},
		{"Bytes written", "Bps", one("rate(tidemark_log_written_bytes_total{$}[$__rate_interval])", "bytes")},
		{"Disk", "bytes", []series{
			{"tidemark_log_bytes{$}", "log"}, {"tidemark_log_history_bytes{$}", "history in it"},
			{"tidemark_disk_free_bytes{$}", "free"}, {"tidemark_disk_needed_bytes{$}", "needed"},
		}},
		{"Age of the history", "s", []series{{"tidemark_history_age_seconds{$}", "age"}, {"tidemark_history_retention_seconds{$}", "retention"}}},
		{"Compaction", "s", one("rate(tidemark_log_compaction_duration_seconds_sum{$}[$__rate_interval])", "time per second")},
	}},
	{"Objects and memory", []panel{
		{"Objects, by resource", "short", one("topk(10, apiserver_resource_objects{$})", "{{resource}} {{group}}")},
		{"Memory, by what holds it", "bytes", one("tidemark_memory_bytes{$}", "{{holder}}")},
		{"Memory of the process", "bytes", []series{{"process_resident_memory_bytes{$}", "resident"}, {"go_gc_heap_live_bytes{$}", "live heap"}}},
		{"Processor", "short", one("rate(process_cpu_seconds_total{$}[$__rate_interval])", "cores")},
	}},
	{"Access, admission, controllers", []panel{
		{"Authentication", "reqps", one("sum by (result) (rate(authentication_attempts{$}[$__rate_interval]))", "{{result}}")},
		{"Authorization", "reqps", one("sum by (result) (rate(authorization_attempts_total{$}[$__rate_interval]))", "{{result}}")},
		{"Slowest 1% of admission webhooks", "s", one(quantile("apiserver_admission_webhook_admission_duration_seconds_bucket{$}", "name"), "{{name}}")},
		{"Failures of webhooks", "short", []series{
			{`sum by (name) (increase(apiserver_admission_webhook_rejection_count{$,error_type!="no_error"}[$__rate_interval]))`, "{{name}}: refused"},
			{"sum by (name) (increase(apiserver_admission_webhook_fail_open_count{$}[$__rate_interval]))", "{{name}}: ignored"},
		}},
		{"Objects that controllers have to look at", "short", one("workqueue_depth{$}", "{{name}}")},
		{"End of the serving certificate", "s", one("tidemark_serving_certificate_expiration_timestamp_seconds{$} - time()", "left")},
	}},
}

// object is an object of JSON.
type object = map[string]any

// source is where the dashboard gets its data from.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// dashboard returns the dashboard as JSON.
func dashboard() []byte {
	var panels []object
	id, y := 0, 0
	for _, r := range rows {
		id++
		panels = append(panels, object{"id": id, "type": "row", "title": r.title, "collapsed": false, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}, "panels": []any{}})
		y++
		for i, p := range r.panels {
			id++
			x := i % 3 * 8
			panels = append(panels, p.graph(id, x, y))
			if x == 16 || i == len(r.panels)-1 {
				y += 8
			}
		}
	}
	variable := func(name, label, kind, query string, refresh int) object {
		return object{"name": name, "label": label, "type": kind, "query": query, "refresh": refresh, "datasource": source, "includeAll": false, "multi": false}
	}
	from := variable("datasource", "Data source", "datasource", "prometheus", 1)
	delete(from, "datasource")
	text, err := json.MarshalIndent(object{
		"title": "Tidemark", "uid": "tidemark", "tags": []string{"tidemark", "kubernetes"}, "schemaVersion": 39, "editable": true, "refresh": "30s",
		"time":       object{"from": "now-1h", "to": "now"},
		"templating": object{"list": []object{from, variable("instance", "Instance", "query", `label_values(tidemark_store_revision, instance)`, 2)}},
		"panels":     panels,
	}, "", " ")
	if err != nil {
		log.Fatal(err)
	}
	return append(text, '\n')
}

// selector selects the series of the chosen server.
const selector = `instance="$instance"`

func (p *panel) graph(id, x, y int) object {
	var targets []object
	for i, s := range p.series {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "legendFormat": s.legend,
			"expr": strings.NewReplacer("{$", "{"+selector).Replace(s.expr),
		})
	}
	return object{
		"id": id, "type": "timeseries", "title": p.title, "datasource": source, "targets": targets,
		"gridPos":     object{"x": x, "y": y, "w": 8, "h": 8},
		"fieldConfig": object{"defaults": object{"unit": p.unit, "min": 0, "custom": object{"fillOpacity": 10, "showPoints": "never"}}, "overrides": []any{}},
		"options":     object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}},
	}
}
