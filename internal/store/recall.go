package store

import (
	"context"
	"iter"
	"slices"
)

// Range selects changes of the history.
type Range struct {
	// Collection is that of the changes; empty: all collections. Key is the key of the one object; empty: all objects.
	Collection, Key string
	// After < revision <= UpTo. UpTo is at most the newest revision.
	After, UpTo Revision
	// Backward: the newest change comes first. The changes of one revision are in the opposite order, too.
	Backward bool
}

// Recalled is a change of the history, and whether it was read back from the log, which is much slower.
type Recalled struct {
	CollectionChange
	FromLog bool
}

// keyed is a log that finds the changes of one object without those of others.
type keyed interface {
	// ChangesOf yields the changes of one object with after < revision <= upTo. Newest first with backward, otherwise
	// oldest first. Memory: O(1) changes at a time; time: in proportion to the changes that are yielded.
	ChangesOf(ctx context.Context, collection, key string, after, upTo Revision, backward bool) iter.Seq2[Entry, error]
}

const (
	// recallBatch is about how many changes are taken from memory at a time, recallLook how many are looked at.
	recallBatch = 256
	recallLook  = 8192
	// recallRead is how many revisions are read from the log at a time, recallBytes about how many bytes.
	recallRead  = 64
	recallBytes = 4 << 20
)

// Recall yields the changes that the range selects, as far as the history has them. An *ExpiredError means that the range
// begins below the history, or that compaction overtook the reader. The context bounds reads from the log.
//
// Objects that cannot be decrypted are stand-ins; see Object.Unreadable.
//
// Recall holds no lock while it yields, and a few MiB at most.
func (s *Store) Recall(ctx context.Context, r Range) iter.Seq2[Recalled, error] {
	ctx = WithStandIns(ctx)
	return func(yield func(Recalled, error) bool) {
		r := r
		r.UpTo = min(r.UpTo, s.Any().revision)
		if floor := Revision(s.floor.Load()); r.After < floor {
			yield(Recalled{}, &ExpiredError{Revision: r.After, Floor: floor})
			return
		}
		for r.After < r.UpTo {
			batch, fromLog, err := s.recall(ctx, &r)
			for _, c := range batch {
				if !yield(Recalled{c, fromLog}, nil) {
					return
				}
			}
			if err != nil {
				yield(Recalled{}, err)
				return
			}
		}
	}
}

// recall returns the next changes of the range, in whole revisions, and removes their revisions from it.
func (s *Store) recall(ctx context.Context, r *Range) (batch []CollectionChange, fromLog bool, err error) {
	if batch, found := s.recallRecent(r); found {
		return batch, false, nil
	}
	_, knows := s.archive.(keyed)
	knows = knows && r.Key != ""
	err = s.old.batch(ctx, s.old.batches, func(ctx context.Context) error {
		if floor := Revision(s.floor.Load()); r.After < floor {
			return &ExpiredError{Revision: r.After, Floor: floor}
		}
		if knows {
			batch, err = s.recallKeyed(ctx, r)
		} else {
			batch, err = s.recallOld(ctx, r)
		}
		return err
	})
	return batch, true, err
}

// recallRecent takes changes from memory. It returns false if the next ones are not there.
func (s *Store) recallRecent(r *Range) (batch []CollectionChange, found bool) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	if !r.Backward && r.After < h.window || r.Backward && r.UpTo <= h.window {
		return nil, false
	}
	looked, last, whole := 0, Revision(0), true
	more := func(c *Change) bool {
		if c.Revision != last && (looked >= recallLook || len(batch) >= recallBatch) {
			whole = false
			return false
		}
		looked++
		last = c.Revision
		return true
	}
	if r.Collection == "" {
		walkDeque(&h.order, h.after, r, h.window, func(o *ordered) bool {
			if !more(o.change) {
				return false
			}
			batch = append(batch, CollectionChange{o.collection.name, o.change})
			return true
		})
	} else {
		c, sum := s.collection(r.Collection), hash(r.Key)
		c.mu.RLock()
		walkDeque(&c.records, c.after, r, h.window, func(o *record) bool {
			if !more(o.change) {
				return false
			}
			if r.Key == "" || o.key == sum && o.change.Key() == r.Key {
				batch = append(batch, CollectionChange{c.name, o.change})
			}
			return true
		})
		c.mu.RUnlock()
	}
	switch {
	case r.Backward && whole:
		r.UpTo = max(r.After, h.window)
	case r.Backward:
		r.UpTo = last - 1
	case whole:
		r.After = r.UpTo
	default:
		r.After = last
	}
	return batch, true
}

// walkDeque calls f for the elements of the range that are in memory, until f returns false.
func walkDeque[T any](d *deque[T], after func(Revision) int, r *Range, window Revision, f func(*T) bool) {
	i, j := after(max(r.After, window)), after(r.UpTo)
	for i < j {
		at := i
		if r.Backward {
			j--
			at = j
		} else {
			i++
		}
		if !f(d.at(at)) {
			return
		}
	}
}

// recallKeyed reads the changes of one object from a log that finds them.
func (s *Store) recallKeyed(ctx context.Context, r *Range) (batch []CollectionChange, err error) {
	bytes, upTo := 0, min(r.UpTo, s.window())
	if r.Backward {
		upTo = r.UpTo
	}
	for e, err := range s.archive.(keyed).ChangesOf(ctx, r.Collection, r.Key, r.After, upTo, r.Backward) {
		if err != nil {
			return batch, s.readError(err)
		}
		if len(batch) >= recallRead || bytes >= recallBytes {
			if r.Backward {
				r.UpTo = e.Revision
			} else {
				r.After = e.Revision - 1
			}
			return batch, nil
		}
		batch = append(batch, CollectionChange{e.Collection, e.change()})
		bytes += e.size()
	}
	if r.Backward {
		r.UpTo = r.After
	} else {
		r.After = upTo
	}
	return batch, nil
}

// recallOld reads changes from the log, those of a few revisions at a time.
func (s *Store) recallOld(ctx context.Context, r *Range) (batch []CollectionChange, err error) {
	for step := Revision(recallRead); ; step /= 2 {
		after, upTo := r.After, min(r.UpTo, s.window())
		if r.Backward {
			upTo = r.UpTo
			after = max(after, upTo-min(step, upTo))
		} else {
			upTo = min(upTo, after+step)
		}
		bytes := 0
		batch = batch[:0]
		for e, err := range s.archive.Changes(ctx, r.Collection, after, upTo) {
			if err != nil {
				return nil, s.readError(err)
			}
			if r.Key != "" && e.Key != r.Key {
				continue
			}
			batch = append(batch, CollectionChange{e.Collection, e.change()})
			bytes += e.size()
			if bytes > recallBytes && step > 1 {
				break
			}
		}
		if bytes > recallBytes && step > 1 {
			continue // with fewer revisions
		}
		if r.Backward {
			slices.Reverse(batch)
			r.UpTo = after
		} else {
			r.After = upTo
		}
		return batch, nil
	}
}
