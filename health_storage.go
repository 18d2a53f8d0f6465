package tidemark

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// storageMetrics returns the use of memory and of the log, and their limits.
func (w *World) storageMetrics() []httpapi.Metric {
	stats := w.store.Stats()
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
			Value: float64(w.running.forks.budget.Used()),
		},
		{
			Name:  "tidemark_forks_limit_bytes",
			Help:  "What all forks together may take in memory.",
			Value: float64(w.running.forks.budget.Limit()),
		},
	}
	return slices.Concat(all, w.logMetrics(&stats), w.memoryMetrics(&stats))
}

// logMetrics returns the size of the log and of its history, and the space of the disk.
func (w *World) logMetrics(stats *store.Stats) []httpapi.Metric {
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
			Value: cmp.Or(w.server.History.Retention, store.DefaultRetention).Seconds(),
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

// memoryMetrics returns the estimated memory of the server, by what holds it.
func (w *World) memoryMetrics(stats *store.Stats) (all []httpapi.Metric) {
	for holder, bytes := range map[string]int64{
		"objects": stats.ObjectBytes, "history": stats.HistoryBytes - stats.CacheBytes, "caches": stats.CacheBytes,
		"requests": w.handler.WaitingBytes(), "transport": w.running.transportUsed(), "forks": w.running.forks.budget.Used(),
	} {
		all = append(all, httpapi.Metric{
			Name: "tidemark_memory_bytes", Labels: map[string]string{"holder": holder}, Value: float64(bytes),
			Help: "Memory, about, by what holds it: current objects, their history in memory, caches of representations, requests that wait for their clients, HTTP/2 connections, forks.",
		})
	}
	return all
}

// storageChecks are those of the memory, the disk and the log. A server that refuses writes because its objects use
// too much memory is ready: it answers reads, and deletions make room. The detail follows the check's name.
func (w *World) storageChecks() []httpapi.Check {
	fine := func() error { return nil }
	return []httpapi.Check{
		{Name: "storage-quota", Probe: fine, Note: func() string {
			t := w.store.Stats()
			switch {
			case t.QuotaBytes > 0 && t.ObjectBytes >= t.QuotaBytes:
				return fmt.Sprintf(", full: objects use %d of %d bytes, and writes that grow them are refused", t.ObjectBytes, t.QuotaBytes)
			case t.QuotaBytes > 0 && t.ObjectBytes >= t.QuotaBytes/5*4:
				return fmt.Sprintf(", nearly full: objects use %d of %d bytes", t.ObjectBytes, t.QuotaBytes)
			}
			return ""
		}},
		{Name: "log-sync", Probe: func() error {
			if t := w.store.Stats().Appending; t > longestSync {
				return fmt.Errorf("the log has been writing for %v", t.Round(time.Second))
			}
			return nil
		}},
		{Name: "disk-space", Probe: func() error {
			if u := w.store.Stats().Log; u.FreeBytes < u.NeededBytes {
				return fmt.Errorf("%d bytes are free, and writes need %d", u.FreeBytes, u.NeededBytes)
			}
			return nil
		}, Note: func() string {
			u := w.store.Stats().Log
			switch {
			case u.Full: // All servers are full alike, and still answer reads and deletions: the check passes.
				return fmt.Sprintf(", full: etcd refuses writes, its database of %d bytes has reached its quota", u.TotalBytes)
			case u.LimitBytes > 0 && u.TotalBytes >= u.LimitBytes/5*4:
				return fmt.Sprintf(", nearly full: etcd's database has %d of %d bytes", u.TotalBytes, u.LimitBytes)
			case u.FreeBytes < 2*u.NeededBytes:
				return fmt.Sprintf(", nearly full: %d bytes are free, writes need %d, and history is given up below %d", u.FreeBytes, u.NeededBytes, 2*u.NeededBytes)
			}
			return ""
		}},
	}
}
