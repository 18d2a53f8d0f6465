package store

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// RevisionAt returns the newest revision whose change was made at the time or before it. If that is below the history,
// the error is an *ExpiredError whose Revision is zero. Changes whose time is unknown count as older than all others.
//
// It reads changes back from a Log in O(log n). On a Shared it knows the changes in memory alone: the log has no times.
func (s *Store) RevisionAt(ctx context.Context, t time.Time) (Revision, error) {
	now := s.Any()
	if !now.time.IsZero() && !t.Before(now.time) {
		return now.revision, nil
	}
	r, window := s.recentAt(t, now.revision)
	if r != 0 {
		return r, nil
	}
	floor := Revision(s.floor.Load())
	if s.Shared() || s.inMemory {
		return 0, &ExpiredError{Floor: max(floor, window)}
	}
	oldest := floor
	for upTo := window; floor < upTo; {
		middle := floor + (upTo-floor+1)/2
		first, made, err := s.firstAt(ctx, middle, upTo)
		switch {
		case err != nil:
			return 0, err
		case first != 0 && !t.Before(made):
			floor = first
		default:
			upTo = middle - 1
		}
	}
	if floor == oldest {
		return 0, &ExpiredError{Floor: oldest}
	}
	return floor, nil
}

// recentAt returns the newest revision in memory, up to a revision, whose change was not made after the time; zero: there is
// none. All changes above window are in memory.
func (s *Store) recentAt(t time.Time, upTo Revision) (r, window Revision) {
	h := &s.history
	h.mu.Lock()
	defer h.mu.Unlock()
	i, j := 0, h.after(upTo)
	for i < j {
		m := int(uint(i+j) >> 1)
		if h.order.at(m).change.origin.Time.After(t) {
			j = m
		} else {
			i = m + 1
		}
	}
	if i == 0 {
		return 0, h.window
	}
	return h.order.at(i - 1).change.Revision, h.window
}

// firstAt returns the revision and the time of the first change from one revision to another in the log; zero: there is none.
func (s *Store) firstAt(ctx context.Context, from, upTo Revision) (r Revision, made time.Time, err error) {
	err = s.old.batch(WithStandIns(ctx), s.old.batches, func(ctx context.Context) error {
		for e, err := range s.archive.Changes(ctx, "", from-1, upTo) {
			if err != nil {
				return s.readError(err)
			}
			r = e.Revision
			if e.Origin != nil {
				made = e.Origin.Time
			}
			break
		}
		return nil
	})
	return r, made, err
}

// TimeOf returns when the change of a revision was made. It is zero if that is unknown, as for the oldest revision of the
// history: the change that made it is no longer there.
func (s *Store) TimeOf(ctx context.Context, r Revision) (time.Time, error) {
	if r == 0 {
		return time.Time{}, nil
	}
	feed, err := s.Feed(r - 1)
	if errors.As(err, new(*ExpiredError)) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	defer feed.Close()
	var first [1]CollectionChange
	n, err := feed.TryNext(WithStandIns(ctx), first[:])
	if errors.As(err, new(*ExpiredError)) || err == nil && (n == 0 || first[0].Revision != r) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	return first[0].Origin().Time, nil
}

// Get returns the object with the key, nil if there is none.
func (v *View) Get(key string) (*Object, error) {
	t := v.tree()
	switch {
	case v.closed.Load():
		return nil, ErrClosed
	case t != nil:
		return t.root.get(key), nil
	}
	var found *Object
	err := v.eachOld(key, "", func(o *Object) bool { // in the order of keys: the key comes before those that begin with it
		if o.Key == key {
			found = o
		}
		return false
	})
	return found, err
}

// rootAt returns the tree of a collection at a revision, and the bytes of the copied objects.
func (s *Store) rootAt(ctx context.Context, collection string, r Revision, of *Account) (*node, int64, error) {
	v, err := s.Exact(ctx, collection, r, 0)
	if err != nil {
		return nil, 0, err
	}
	defer v.Close()
	if t := v.tree(); t != nil {
		return t.root, 0, nil
	}
	var objects []*Object
	var copied int64
	now := s.Any().Snapshot(collection)
	for o, err := range v.Scan("", "") {
		if err != nil {
			return nil, 0, err
		}
		bytes := int64(nodeShare)
		if current := now.Get(o.Key); current != nil && current.Modified == o.Modified {
			o = current
		} else {
			bytes = ObjectBytes(o)
		}
		if err := of.copied(bytes); err != nil {
			return nil, 0, &CopyError{r, err}
		}
		copied += bytes
		objects = append(objects, o)
	}
	return build(objects), copied, nil
}

// CopyError is returned for a state that is not in memory any more, if there is no room for a copy of it. Err
// is the *QuotaError.
type CopyError struct {
	Revision Revision
	Err      error
}

func (e *CopyError) Error() string {
	return fmt.Sprintf("the state at revision %d is not in memory any more, and there is no room for a copy of it: %v", e.Revision, e.Err)
}

func (e *CopyError) Unwrap() error { return e.Err }
