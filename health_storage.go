package tidemark

import (
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
)

// storageMetrics returns the use of memory and disk, and their limits.
func (w *World) storageMetrics() []httpapi.Metric {
	stats := w.store.Stats()
	return []httpapi.Metric{
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
		{
			Name:  "tidemark_log_bytes",
			Help:  "The size of the log on the disk.",
			Value: float64(stats.Log.TotalBytes),
		},
		{
			Name:  "tidemark_log_history_bytes",
			Help:  "The part of the log that is history, before compression.",
			Value: float64(stats.Log.HistoryBytes),
		},
		{
			Name:  "tidemark_disk_free_bytes",
			Help:  "Free space of the file system of the log; 0 if there is none, or it is not known.",
			Value: float64(stats.Log.FreeBytes),
		},
		{
			Name:  "tidemark_disk_needed_bytes",
			Help:  "Free space below which writes are refused, but for deletions. History is given up below twice of it.",
			Value: float64(stats.Log.NeededBytes),
		},
		{
			Name: "tidemark_history_given_up_revisions_total", Counter: true,
			Help:  "Revisions that were given up before their time because the disk was nearly full.",
			Value: float64(stats.GivenUp),
		},
	}
}

// storageChecks have a line each for the memory and the disk. A server that refuses writes
// still answers reads, so they do not fail: the detail follows the check's name.
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
		{Name: "disk-space", Probe: fine, Note: func() string {
			u := w.store.Stats().Log
			switch {
			case u.FreeBytes < u.NeededBytes:
				return fmt.Sprintf(", full: %d bytes are free, and writes need %d; deletions go on", u.FreeBytes, u.NeededBytes)
			case u.FreeBytes < 2*u.NeededBytes:
				return fmt.Sprintf(", nearly full: %d bytes are free, writes need %d, and history is given up below %d", u.FreeBytes, u.NeededBytes, 2*u.NeededBytes)
			}
			return ""
		}},
	}
}
