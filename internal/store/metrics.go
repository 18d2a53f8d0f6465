package store

import (
	"iter"
	"time"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// count counts the writes of a transaction that was made.
func (s *Store) count(t *Txn, took time.Duration) {
	for i := range t.Writes {
		w := &t.Writes[i]
		o := Update
		switch {
		case w.Value == nil:
			o = Delete
		case w.If == 0 && !w.Next:
			o = Create
		}
		s.collection(w.Collection).took(o).Observe(int64(took))
	}
}

// Durations yields the durations of the transactions that wrote to a collection, by the operation. Operations that
// were never made are left out.
func (s *Store) Durations(collection string) iter.Seq2[Operation, *exposition.Histogram] {
	return func(yield func(Operation, *exposition.Histogram) bool) {
		c := (*s.names.Load())[collection]
		if c == nil {
			return
		}
		for o := range c.writes {
			if h := c.writes[o].Load(); h != nil && !yield(Operation(o), h) {
				return
			}
		}
	}
}

// Expose implements exposition.Source: the metrics of the log.
func (s *Store) Expose(w *exposition.Writer) {
	m := &s.measured
	w.Family("tidemark_log_sync_duration_seconds", exposition.HistogramKind, "Time in which the log made a group of writes durable.")
	w.Histogram("", m.syncs)
	w.Family("tidemark_log_group_writes", exposition.HistogramKind, "Writes that became durable together.")
	w.Histogram("", m.groups)
	w.Family("tidemark_log_written_bytes_total", exposition.CounterKind, "Bytes of objects that were written to the log, with the versions that they replaced.")
	w.Uint("", m.bytes.Load())
	w.Family("tidemark_log_compaction_duration_seconds", exposition.HistogramKind, "Time of compactions, which remove old history.")
	w.Histogram("", m.compactions)
}
