package store

import (
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/exposition"
)

// MaxGroupWrites is the most writes that become durable together.
const MaxGroupWrites = 4096

var (
	syncBuckets  = exposition.Seconds(0.00001, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
	groupBuckets = exposition.Numbers(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, MaxGroupWrites)
)

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
