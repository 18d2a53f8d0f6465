package world

import (
	"cmp"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// allMetrics returns the metrics of the parts of the root world and of its server.
func (s *Server) allMetrics() []httpapi.Metric {
	p, w := s.process, s.root
	floor, head := w.store.Bounds()
	all := []httpapi.Metric{
		{
			Name: "apiserver_tls_handshake_errors_total", Counter: true,
			Help:  "TLS handshakes that failed.",
			Value: float64(s.handshakeErrors.Load()),
		},
		{
			Name:  "tidemark_transport_bytes",
			Help:  "Memory that waits for clients of all HTTP/2 connections: responses that are not sent yet, bodies that are not read yet, headers.",
			Value: float64(s.transportUsed()),
		},
		{
			Name:  "tidemark_store_revision",
			Help:  "The newest revision of the store: the resourceVersion of a list made now.",
			Value: float64(head),
		},
		{
			Name:  "tidemark_store_oldest_revision",
			Help:  "The oldest revision that can still be read and watched from.",
			Value: float64(floor),
		},
		{
			Name:  "tidemark_controllers_revision",
			Help:  "How far the controllers have seen the store: its revision, but for a moment after a write.",
			Value: float64(w.loops.Revision()),
		},
	}
	if c := p.firstToEnd(); c != nil {
		all = append(all, httpapi.Metric{
			Name:  "tidemark_serving_certificate_expiration_timestamp_seconds",
			Help:  "When the serving certificate that ends first ends, in seconds since 1970.",
			Value: float64(c.NotAfter.Unix()),
		})
	}
	all = append(all, s.storageMetrics()...)
	all = append(all, p.auditMetrics()...)
	all = append(all, p.encryptionMetrics()...)
	all = append(all, p.followerMetrics()...)
	all = append(all, s.backupMetrics()...)
	return all
}

// storageMetrics returns the use of memory and of the log, and their limits.
func (s *Server) storageMetrics() []httpapi.Metric {
	stats := s.root.store.Stats()
	all := []httpapi.Metric{
		{
			Name:  "tidemark_storage_bytes",
			Help:  "What the current objects take in memory, about.",
			Value: float64(stats.ObjectBytes),
		},
		{
			Name:  "tidemark_storage_limit_bytes",
			Help:  "What the current objects may take in memory; 0 is no limit.",
			Value: float64(stats.QuotaBytes),
		},
		{
			Name: "tidemark_storage_refused_writes_total", Counter: true,
			Help:  "Writes that were refused because the current objects take as much memory as they may.",
			Value: float64(stats.QuotaRefused),
		},
		{
			Name:  "tidemark_forks_bytes",
			Help:  "What all forks together take in memory, about, apart from what they share with the server.",
			Value: float64(s.process.forkBudget.Used()),
		},
		{
			Name:  "tidemark_forks_limit_bytes",
			Help:  "What all forks together may take in memory.",
			Value: float64(s.process.forkBudget.Limit()),
		},
	}
	return slices.Concat(all, s.logMetrics(&stats), s.memoryMetrics(&stats))
}

// logMetrics returns the size of the log and of its history, and the space of the disk.
func (s *Server) logMetrics(stats *store.Stats) []httpapi.Metric {
	return []httpapi.Metric{
		{
			Name:  "tidemark_log_bytes",
			Help:  "The size of the log on the disk.",
			Value: float64(stats.Log.TotalBytes),
		},
		{
			Name: "apiserver_storage_size_bytes", Labels: map[string]string{"storage_cluster_id": "log"},
			Help:  "The size of the log on the disk.",
			Value: float64(stats.Log.TotalBytes),
		},
		{
			Name:  "tidemark_log_limit_bytes",
			Help:  "What the size of the log may be: the quota of etcd's database; 0 is no limit.",
			Value: float64(stats.Log.LimitBytes),
		},
		{
			Name:  "tidemark_log_history_bytes",
			Help:  "The part of the log that is history, before compression.",
			Value: float64(stats.Log.HistoryBytes),
		},
		{
			Name:  "tidemark_log_stalled_seconds",
			Help:  "For how long the log has been writing a group of writes; 0 if it writes none.",
			Value: stats.Appending.Seconds(),
		},
		{
			Name:  "tidemark_history_age_seconds",
			Help:  "For how long the oldest revision of the history has been readable, in running time.",
			Value: stats.HistoryAge.Seconds(),
		},
		{
			Name:  "tidemark_history_retention_seconds",
			Help:  "For how long a replaced state stays readable if there is space for it.",
			Value: cmp.Or(s.process.History.Retention, store.DefaultRetention).Seconds(),
		},
		{
			Name:  "tidemark_disk_free_bytes",
			Help:  "Free space of the file system of the log, or in the quota of etcd's database; 0 if there is none, or it is not known.",
			Value: float64(stats.Log.FreeBytes),
		},
		{
			Name:  "tidemark_disk_needed_bytes",
			Help:  "Free space below which writes are refused, but for deletions. History is given up below twice of it.",
			Value: float64(stats.Log.NeededBytes),
		},
		{
			Name: "tidemark_disk_refused_writes_total", Counter: true,
			Help:  "Writes that were refused because the disk is full, or etcd's database.",
			Value: float64(stats.SpaceRefused),
		},
		{
			Name: "tidemark_history_given_up_revisions_total", Counter: true,
			Help:  "Revisions that were given up before their time because the disk was nearly full.",
			Value: float64(stats.GivenUp),
		},
	}
}

// memoryMetrics returns the estimated memory of the server, by holder.
func (s *Server) memoryMetrics(stats *store.Stats) (all []httpapi.Metric) {
	for holder, bytes := range map[string]int64{
		"objects": stats.ObjectBytes, "history": stats.HistoryBytes - stats.CacheBytes, "caches": stats.CacheBytes,
		"requests": s.root.handler.WaitingBytes(), "transport": s.transportUsed(), "forks": s.process.forkBudget.Used(),
	} {
		all = append(all, httpapi.Metric{
			Name: "tidemark_memory_bytes", Labels: map[string]string{"holder": holder}, Value: float64(bytes),
			Help: "Memory, about, by what holds it: current objects, their history in memory, caches of representations, requests that wait for their clients, HTTP/2 connections, forks.",
		})
	}
	return all
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
