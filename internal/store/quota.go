package store

// # The quota
//
// All current objects are in memory, so their bytes have a bound. Each state knows the
// memory of its objects. A write is checked with all writes before it, also those that are not published yet:
//
//	a deletion, a step of one, a write that does not grow its object   always
//	an update that grows its object by up to smallGrowth               up to quotaSlack above the bound
//	anything else that grows                                           up to the bound
//
// The slack lets updates of conditions, heartbeats and removals of finalizers succeed at the
// bound. They may add some bytes of managed fields, and they lead to the removal of objects.
const (
	smallGrowth = 4 << 10 // bytes
	// quotaSlack is the part of the bound that small updates may go beyond it.
	quotaSlack = 16

	// A warning is logged at quotaNear percent of the bound, and again only after the usage
	// was below quotaFar percent.
	quotaNear = 80
	quotaFar  = 75
)

// SetQuota bounds the memory of current objects, in bytes. Zero means no bound. If more is
// stored already, no object may grow.
func (s *Store) SetQuota(bytes int64) {
	s.quota.limit.Store(bytes)
	s.watchQuota(s.Any().bytes)
}

// Fits refuses a transaction that grows the objects beyond the quota or the budget. The objects use so many bytes before
// it. Object returns the one that a write replaces, and held the length of Object.Held after write i.
func (s Publisher) Fits(t *Txn, used int64, object func(collection, key string) *Object, held func(i int) int) error {
	for i := range t.Writes {
		w := &t.Writes[i]
		var had, has int64
		update := w.Next
		if w.Next {
			had = takes(held(i-1), len(w.Key))
		} else {
			before := object(w.Collection, w.Key)
			had, update = s.owned(before), before != nil
		}
		if w.Value != nil {
			has = takes(held(i), len(w.Key))
		}
		if err := s.writeFits(w, update, used, has-had); err != nil {
			return err
		}
		used += has - had
	}
	return nil
}

// writeFits is Fits for one write: the objects use so many bytes before it, and it adds grows.
func (s *Store) writeFits(w *Write, update bool, used, grows int64) error {
	limit := s.quota.limit.Load()
	if grows <= 0 || w.Deleting || w.Value == nil {
		return nil
	}
	most, small := limit, update && grows <= smallGrowth
	if small {
		most += limit / quotaSlack
	}
	if limit > 0 && used+grows > most {
		return &QuotaError{Used: used, Limit: limit, Grows: grows, Fork: s.o.Account != nil}
	}
	return s.fitsBudget(small, used, grows)
}

// fitsBudget is the part of writeFits about the budget.
func (s *Store) fitsBudget(small bool, objects, grows int64) error {
	a := s.o.Account
	if a == nil {
		return nil
	}
	limit := a.budget.limit
	if small {
		limit += limit / quotaSlack
	}
	// Writes that are not published do not count in the budget yet. The store drops its own history for its writes.
	used := a.budget.used.Load() + objects - s.Any().bytes
	if used+grows-s.history.spare() <= limit {
		return nil
	}
	return &QuotaError{Used: used, Limit: a.budget.limit, Grows: grows, AllForks: true}
}

// noteFull counts a write that the quota refused, and logs the first. The caller holds no lock: the logger may block.
func (s *Store) noteFull(err error) {
	s.quota.refused.Add(1)
	if !s.quota.full.Swap(true) {
		s.o.Note(true, "storage: writes that grow objects are refused", "error", err)
	}
}

// watchQuota logs when the usage crosses the thresholds.
func (s *Store) watchQuota(used int64) {
	limit := s.quota.limit.Load()
	if limit <= 0 {
		return
	}
	q := &s.quota
	switch percent := float64(used) / float64(limit) * 100; {
	case percent >= quotaNear && !q.near.Swap(true):
		s.o.Note(true, "storage: usage is above 80% of the quota", "bytes", used, "limit", limit)
	case percent < quotaFar && q.near.Swap(false):
		s.o.Note(false, "storage: usage is below 75% of the quota", "bytes", used, "limit", limit)
		q.full.Store(false)
	}
}
