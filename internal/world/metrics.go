package world

import (
	"cmp"

	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// expose writes the metrics of the parts of the root world and of its server. Those with many series are in exposed.go.
func (s *Server) expose(w *exposition.Writer) {
	p, root := s.process, s.root
	floor, head := root.store.Bounds()
	w.Counter("apiserver_tls_handshake_errors_total", float64(s.handshakeErrors.Load()),
		"TLS handshakes that failed.")
	w.Gauge("tidemark_transport_bytes", float64(s.transportUsed()),
		"Memory that waits for clients of all HTTP/2 connections: responses that are not sent yet, bodies that are not read yet, headers.")
	w.Gauge("tidemark_store_revision", float64(head),
		"The newest revision of the store: the resourceVersion of a list made now.")
	w.Gauge("tidemark_store_oldest_revision", float64(floor),
		"The oldest revision that can still be read and watched from.")
	w.Gauge("tidemark_controllers_revision", float64(root.loops.Revision()),
		"How far the controllers have seen the store: its revision, but for a moment after a write.")
	if c := p.firstToEnd(); c != nil {
		w.Gauge("tidemark_serving_certificate_expiration_timestamp_seconds", float64(c.NotAfter.Unix()),
			"When the serving certificate that ends first ends, in seconds since 1970.")
	}
	stats := root.store.Stats()
	s.exposeStorage(w, &stats)
	s.exposeLog(w, &stats)
	s.exposeMemory(w, &stats)
	p.exposeAudit(w)
	p.exposeEncryption(w)
	p.exposeFollower(w)
	s.exposeBackups(w)
}

// exposeStorage writes the memory of the objects, and its limits.
func (s *Server) exposeStorage(w *exposition.Writer, stats *store.Stats) {
	w.Gauge("tidemark_storage_bytes", float64(stats.ObjectBytes),
		"What the current objects take in memory, about.")
	w.Gauge("tidemark_storage_limit_bytes", float64(stats.QuotaBytes),
		"What the current objects may take in memory; 0 is no limit.")
	w.Counter("tidemark_storage_refused_writes_total", float64(stats.QuotaRefused),
		"Writes that were refused because the current objects take as much memory as they may.")
	w.Gauge("tidemark_forks_bytes", float64(s.process.forkBudget.Used()),
		"What all forks together take in memory, about, apart from what they share with the server.")
	w.Gauge("tidemark_forks_limit_bytes", float64(s.process.forkBudget.Limit()),
		"What all forks together may take in memory.")
}

// exposeLog writes the size of the log and of its history, and the space of the disk.
func (s *Server) exposeLog(w *exposition.Writer, stats *store.Stats) {
	w.Gauge("tidemark_log_bytes", float64(stats.Log.TotalBytes),
		"The size of the log on the disk.")
	w.Family("apiserver_storage_size_bytes", exposition.GaugeKind, "The size of the log on the disk.")
	w.Float(exposition.Labels("storage_cluster_id", "log"), float64(stats.Log.TotalBytes))
	w.Gauge("tidemark_log_limit_bytes", float64(stats.Log.LimitBytes),
		"What the size of the log may be: the quota of etcd's database; 0 is no limit.")
	w.Gauge("tidemark_log_history_bytes", float64(stats.Log.HistoryBytes),
		"The part of the log that is history, before compression.")
	w.Gauge("tidemark_log_stalled_seconds", stats.Appending.Seconds(),
		"For how long the log has been writing a group of writes; 0 if it writes none.")
	w.Gauge("tidemark_history_age_seconds", stats.HistoryAge.Seconds(),
		"For how long the oldest revision of the history has been readable, in running time.")
	w.Gauge("tidemark_history_retention_seconds", cmp.Or(s.process.History.Retention, store.DefaultRetention).Seconds(),
		"For how long a replaced state stays readable if there is space for it.")
	w.Gauge("tidemark_disk_free_bytes", float64(stats.Log.FreeBytes),
		"Free space of the file system of the log, or in the quota of etcd's database; 0 if there is none, or it is not known.")
	w.Gauge("tidemark_disk_needed_bytes", float64(stats.Log.NeededBytes),
		"Free space below which writes are refused, but for deletions. History is given up below twice of it.")
	w.Counter("tidemark_disk_refused_writes_total", float64(stats.SpaceRefused),
		"Writes that were refused because the disk is full, or etcd's database.")
	w.Counter("tidemark_history_given_up_revisions_total", float64(stats.GivenUp),
		"Revisions that were given up before their time because the disk was nearly full.")
}

// exposeMemory writes the estimated memory of the server, by holder.
func (s *Server) exposeMemory(w *exposition.Writer, stats *store.Stats) {
	w.Family("tidemark_memory_bytes", exposition.GaugeKind,
		"Memory, about, by what holds it: current objects, their history in memory, caches of representations, requests that wait for their clients, HTTP/2 connections, forks.")
	for _, of := range []struct {
		holder string
		bytes  int64
	}{
		{"caches", stats.CacheBytes},
		{"forks", s.process.forkBudget.Used()},
		{"history", stats.HistoryBytes - stats.CacheBytes},
		{"objects", stats.ObjectBytes},
		{"requests", s.root.handler.WaitingBytes()},
		{"transport", s.transportUsed()},
	} {
		w.Float(exposition.Labels("holder", of.holder), float64(of.bytes))
	}
}

// loopChecks has a line for each enabled controller, so that operators see which run. A
// controller that fails retries, which does not make the server unready: the metrics show
// its failures.
func (w *World) loopChecks() []httpapi.Check {
	var all []httpapi.Check
	for _, f := range w.loops.Metrics() {
		all = append(all, httpapi.Check{Name: "controller/" + f.Name, Probe: func() error { return w.loops.Err() }, Note: func() string {
			if paused, led := w.loops.Standby(); paused && led { // its name is in the Lease: clients without credentials read this
				return ", paused: another server leads"
			} else if paused {
				return ", paused: no server leads"
			}
			if f.Paused() > 0 {
				return ", paused: a kube-controller-manager holds its lease"
			}
			return ""
		}})
	}
	return all
}
