package store

import "time"

// Stats has sizes and counters of the store.
type Stats struct {
	Floor, Head Revision
	// Window is the revision above which all changes are in memory.
	Window Revision
	// HistoryBytes is the memory of history, as Options.MaxMemory bounds it.
	HistoryBytes int64
	// Changes counts the changes in memory, KeptStates the old states, Trees the trees of
	// single revisions that Exact keeps.
	Changes, KeptStates, Trees int
	Cursors                    int
	// ObjectBytes is about the memory that the current objects take. QuotaBytes is its bound,
	// zero if there is none. QuotaRefused counts the writes that the quota refused.
	ObjectBytes, QuotaBytes, QuotaRefused int64
	// SpaceRefused counts the writes that the log refused because its medium is full.
	SpaceRefused int64
	// GivenUp counts the revisions that were dropped because space was short.
	GivenUp     int64
	Collections int
	// CacheBytes is the part of HistoryBytes that Charge added.
	CacheBytes int64
	// HistoryAge is for how long the floor has been readable, in running time.
	HistoryAge time.Duration
	// Appending is for how long the log has been writing a group; zero: it writes none.
	Appending time.Duration
	Log       Usage
}

// Stats takes time linear in the collections and topics, not in the objects.
func (s *Store) Stats() Stats {
	var t Stats
	t.Floor, t.Head = s.Bounds()
	h := &s.history
	h.mu.Lock()
	t.Window, t.HistoryBytes = h.window, h.bytes.Load()
	t.Changes, t.KeptStates, t.Trees = h.order.len(), len(h.kept), len(h.pinned)
	h.mu.Unlock()
	t.CacheBytes = h.caches.Load()
	t.HistoryAge, t.Appending = s.aging.Age(t.Floor), s.measured.appending()
	t.ObjectBytes = s.Any().bytes
	t.QuotaBytes, t.QuotaRefused, t.SpaceRefused = s.quota.limit.Load(), s.quota.refused.Load(), s.noSpace.Load()
	t.GivenUp = s.givenUp.Load()
	for _, c := range *s.names.Load() {
		t.Collections++
		c.mu.RLock()
		for _, topic := range c.topics {
			t.Cursors += topic.Len()
		}
		c.mu.RUnlock()
	}
	s.old.mu.RLock()
	defer s.old.mu.RUnlock()
	if !s.old.closed {
		t.Log = s.archive.Usage()
	}
	return t
}
