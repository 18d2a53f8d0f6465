package store

import (
	"iter"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// Operation is the kind of a write: it creates, updates or deletes an object.
type Operation int

// The operations.
const (
	Create Operation = iota
	Update
	Delete
)

// String returns the name of the operation in metrics.
func (o Operation) String() string { return [...]string{"create", "update", "delete"}[o] }

// MaxGroupWrites is the most writes that become durable together.
const MaxGroupWrites = 4096

var (
	writeBuckets = exposition.Seconds(0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
	syncBuckets  = exposition.Seconds(0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
	groupBuckets = exposition.Numbers(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, MaxGroupWrites)
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

// took returns the histogram of the durations of an operation.
func (c *collection) took(o Operation) *exposition.Histogram {
	p := &c.writes[o]
	if h := p.Load(); h != nil {
		return h
	}
	p.CompareAndSwap(nil, writeBuckets.New())
	return p.Load()
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

// Measured has the metrics of the store's log. All methods are safe for concurrent use.
type Measured struct {
	opened time.Time
	since  atomic.Int64 // when the log began to write a group, in nanoseconds after opened; zero: it writes none

	syncs, groups *exposition.Histogram
	bytes         atomic.Uint64
	compactions   *exposition.Histogram
}

func (m *Measured) start() {
	m.opened = time.Now().Add(-1) // so that since is never zero
	m.syncs, m.groups, m.compactions = syncBuckets.New(), groupBuckets.New(), syncBuckets.New()
}

// Begin is called when the log begins to write a group.
func (m *Measured) Begin() (began time.Duration) {
	began = time.Since(m.opened)
	m.since.Store(int64(began))
	return began
}

// End is called when the log has written the group, or has failed to.
func (m *Measured) End(began time.Duration, writes, bytes int, err error) {
	m.since.Store(0)
	if err == nil {
		m.syncs.Observe(int64(time.Since(m.opened) - began))
		m.groups.Observe(int64(writes))
		m.bytes.Add(uint64(bytes))
	}
}

// Wrote counts a transaction that a Shared has made.
func (m *Measured) Wrote(took time.Duration, writes, bytes int) {
	m.syncs.Observe(int64(took))
	m.groups.Observe(int64(writes))
	m.bytes.Add(uint64(bytes))
}

// Times returns when the log wrote a group that it has just written.
func (m *Measured) Times(began time.Duration, writes, bytes int) LogTimes {
	return LogTimes{Began: m.opened.Add(began), Ended: time.Now(), Writes: writes, Bytes: bytes}
}

// appending returns for how long the log has been writing a group.
func (m *Measured) appending() time.Duration {
	since := m.since.Load()
	if since == 0 {
		return 0
	}
	return time.Since(m.opened) - time.Duration(since)
}

// Compacted counts a compaction.
func (m *Measured) Compacted(took time.Duration) { m.compactions.Observe(int64(took)) }

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
