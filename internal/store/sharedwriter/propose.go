package sharedwriter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Commit implements store.Writer.
func (f *writer) Commit(ctx context.Context, t *store.Txn) ([]*store.Object, error) {
	a, err := f.begin(t)
	if err != nil {
		return nil, err
	}
	defer f.flights.end(a)
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.store.Context(), cancel)()
	made, err := f.decide(both, a)
	if err != nil && ctx.Err() == nil && f.store.Context().Err() != nil && errors.Is(err, context.Canceled) {
		return nil, fmt.Errorf("%w: %w", store.ErrUnknown, store.ErrClosed)
	}
	return made, err
}

// mostRefusals is how often the log may refuse a transaction although the state at its revision allows it. Other
// writers can be the reason some times in a row.
const mostRefusals = 20

// The log may refuse freeRefusals transactions in a row for reasons that the state does not show. Each further refusal is
// followed by a pause, which doubles from shortestRefusal to longestRefusal. A transaction that is made ends the row.
const (
	freeRefusals                    = 8
	shortestRefusal, longestRefusal = time.Millisecond, time.Second
)

// refused counts a refusal that the state does not explain, and pauses.
func (f *writer) refused(ctx context.Context) error {
	n := f.refusals.Add(1) - freeRefusals
	if n <= 0 {
		return nil
	}
	pause := longestRefusal
	if n <= 10 {
		pause = min(pause, shortestRefusal<<(n-1))
	}
	if !sleep(ctx, pause) {
		return ctx.Err()
	}
	return nil
}

// decide proposes a transaction until the log has made it, or it fails by a state that is not
// older than the call.
func (f *writer) decide(ctx context.Context, a *flight) ([]*store.Object, error) {
	state, recent := f.store.Any(), false
	for refusals := 0; ; {
		by := state
		err := f.check(by, a.txn)
		switch {
		case err != nil && recent:
			return nil, err
		case err != nil: // the state may be behind
			if state, err = f.store.MostRecent(ctx); err != nil {
				return nil, err
			}
			recent = true
			continue
		}
		d, err := f.propose(ctx, a)
		if err != nil {
			return nil, err
		}
		switch state, err = f.store.Reached(ctx, d.Revision); {
		case errors.As(err, new(*store.UnavailableError)) && d.Made && exact(&d, a.txn):
			return f.objects(a, by, d), nil // it will be readable here
		case err != nil && d.Made:
			return nil, fmt.Errorf("%w: %w", store.ErrUnknown, err)
		case err != nil:
			return nil, err
		case d.Made:
			f.refusals.Store(0)
			if !f.shows(a, d) {
				return nil, fmt.Errorf("%w: the storage made the write, and its changes do not have it", store.ErrUnknown)
			}
			return f.objects(a, by, d), nil
		}
		recent = true
		if len(a.txn.Guards) == 0 {
			if refusals++; refusals == mostRefusals {
				w := &a.txn.Writes[0]
				return nil, &store.UnavailableError{RetryAfter: time.Second, Err: fmt.Errorf("the storage refuses the write of %s %q again and again, and the state does not show why", w.Collection, w.Key)}
			}
			if err := f.check(state, a.txn); err == nil { // others are faster
				if err := f.refused(ctx); err != nil {
					return nil, err
				}
			}
			continue
		}
		// The state has no guards. If all else holds, one of them was in the way.
		if err := f.check(state, a.txn); err == nil {
			if err := f.refused(ctx); err != nil {
				return nil, err
			}
			return nil, &store.TxnError{Part: store.GuardPart, Index: 0, Err: store.ErrStale}
		}
	}
}

// propose has the log decide, and measures it.
func (f *writer) propose(ctx context.Context, a *flight) (store.Decision, error) {
	m, began := f.store.Measured(), time.Now()
	d, err := f.log.Propose(ctx, a.txn)
	if err != nil {
		f.note(err)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("the write may still happen: %w", err)
		}
		return d, err
	}
	ended := time.Now()
	if d.Made {
		m.Wrote(ended.Sub(began), len(a.txn.Writes), int(a.bytes))
	}
	if a.txn.Times != nil {
		*a.txn.Times = store.LogTimes{Began: began, Ended: ended, Writes: len(a.txn.Writes), Bytes: int(a.bytes)}
	}
	return d, nil
}

// check compares the conditions of a transaction with a state, and its size with the quota.
func (f *writer) check(state *store.State, t *store.Txn) error {
	if err := t.Holds(state.Get); err != nil {
		return err
	}
	return f.store.Fits(t, f.store.Any().Bytes(), state.Get, func(i int) int { return len(t.Writes[i].Value) })
}

// objects returns the objects of a transaction that was made at revisions which are published. By is the state that it was
// checked with.
func (f *writer) objects(a *flight, by *store.State, d store.Decision) []*store.Object {
	f.flights.mu.Lock()
	seen := a.seen
	f.flights.mu.Unlock()
	all := make([]*store.Object, 0, len(a.txn.Writes))
	for first, last := range stored(a.txn) {
		own := published(seen, first, d)
		if len(own) == 0 { // a reload has passed over it, or it is not here yet
			own = append(own, object(last, by.Get(first.Collection, first.Key), revisionOf(&d, len(all), a.txn)))
		}
		for i := 0; ; i++ {
			all = append(all, own[min(i, len(own)-1)]) // a log that does not store all of them has one
			if &a.txn.Writes[len(all)-1] == last {
				break
			}
		}
	}
	return all
}

// published returns the objects that the transaction made of an object, in order, as responses show them. None is
// there if no change was seen.
func published(seen []seenChange, w *store.Write, d store.Decision) (all []*store.Object) {
	first := d.First
	if first == 0 {
		first = d.Revision
	}
	for _, c := range seen {
		switch {
		case c.Revision < first || c.Revision > d.Revision || c.collection != w.Collection || c.Key() != w.Key:
		case c.After != nil:
			all = append(all, c.After)
		default:
			all = append(all, c.Gone())
		}
	}
	return all
}

// object returns the object that a write made at a revision, from the object before it.
func object(w *store.Write, before *store.Object, r store.Revision) *store.Object {
	if w.Value == nil {
		if before == nil {
			return nil // created and deleted in one step
		}
		return before.At(r)
	}
	d := store.NewDraft(w.Value, w.RevisionAt, r)
	o := d.Object(r)
	o.Key, o.Created = w.Key, r
	if before != nil {
		o.Created = before.Created
	}
	return o
}

// exact reports whether the decision gives the revision of each write.
func exact(d *store.Decision, t *store.Txn) bool {
	return d.First != 0 && d.Revision-d.First == store.Revision(len(t.Writes)-1)
}

// revisionOf returns the revision of the object that a write made, or that the last write of its object made.
func revisionOf(d *store.Decision, write int, t *store.Txn) store.Revision {
	if !exact(d, t) {
		return d.Revision
	}
	for write+1 < len(t.Writes) && t.Writes[write+1].Next {
		write++
	}
	return d.First + store.Revision(write)
}

// shows reports whether the published changes have those of a transaction. A log whose transactions have one revision may
// have passed over them in a reload.
func (f *writer) shows(a *flight, d store.Decision) bool {
	if d.First == 0 {
		return true
	}
	f.flights.mu.Lock()
	seen := a.seen
	f.flights.mu.Unlock()
	for first := range stored(a.txn) {
		if len(published(seen, first, d)) == 0 {
			return false
		}
	}
	return true
}
