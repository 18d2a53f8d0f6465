package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// # Decisions by a state that may be behind
//
// On a Shared, the published state can lack a write that another server acknowledged some milliseconds ago. That does not
// harm a write: the log decides it. But a response that writes nothing rests on that state alone: an unknown
// token, a refusal, NotFound, an update that changes nothing. Decide makes such a decision once more, by a state that
// has everything that was acknowledged before the request arrived:
//
//	[decide by the published state]  final: done
//	                                 else:  [MostRecent]  same revision: done
//	                                                      newer:         [decide again]
//
// A decision with side effects must not be made twice: it waits for MostRecent first. A request waits at most once, see Arrival.

// An Arrival is a request's point in time. A state that has every change acknowledged before it is new enough for
// the request. So a request waits at most once: MostRecent with a context of Arrive calls Shared.Head the
// first time, and later uses that revision, or returns that error. The zero value is an
// arrival that did not wait yet.
type Arrival struct {
	mu       sync.Mutex
	waited   bool
	revision Revision // a state of this revision or a later one is new enough
	err      error
}

// arrivalKey is the key of a waiting in a context.
type arrivalKey struct{}

type waiting struct {
	*Arrival
	enter func() (leave func(), err error)
}

// Arrive returns a context for the decisions of a request that arrived. MostRecent calls enter before it waits for the
// log, and leave afterwards. With an error of enter it does not wait and returns that error. Nil: nothing is called.
func Arrive(ctx context.Context, a *Arrival, enter func() (leave func(), err error)) context.Context {
	return context.WithValue(ctx, arrivalKey{}, waiting{a, enter})
}

// Err returns the error of the request's wait, or nil: it was successful, or the request did not wait.
func (a *Arrival) Err() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

// outcome returns the outcome of the wait. Waited is false if there was none.
func (a *Arrival) outcome() (r Revision, waited bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.revision, a.waited, a.err
}

func (a *Arrival) set(s *State, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waited = true; err == nil {
		a.revision, a.err = s.revision, nil
	} else if a.revision == 0 {
		a.err = err
	}
}

// Decide makes a decision by the published state. Unless it is final, which means that no newer state can change it,
// Decide makes it again by a state that MostRecent returns, if that is newer. On a Log the published state is the newest
// one, and there is one decision. With an error, which is that of MostRecent, the decision is not confirmed.
func (s *Store) Decide(ctx context.Context, decide func() (final bool)) error {
	before := s.Any().revision
	if decide() || !s.Shared() {
		return nil
	}
	if w, ok := ctx.Value(arrivalKey{}).(waiting); ok {
		if r, waited, err := w.outcome(); waited && err == nil && r <= before {
			return nil
		}
	}
	state, err := s.MostRecent(ctx)
	if err != nil {
		return err
	}
	if state.revision > before {
		decide()
	}
	return nil
}

// MostRecent returns a state that holds every change acknowledged to any client before
// the call: resourceVersion unset. On a Log that is Any. On a Shared it waits, but once for a request; see Arrival. An
// *UnavailableError says that the log cannot be reached, or that this store is too far behind.
func (s *Store) MostRecent(ctx context.Context) (*State, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, ok := ctx.Value(arrivalKey{}).(waiting)
	if !ok || !s.Shared() {
		return s.writer.MostRecent(ctx)
	}
	switch r, waited, err := w.outcome(); {
	case waited && err != nil:
		return nil, err
	case waited:
		return s.reached(ctx, r)
	}
	state, err := w.entered(func() (*State, error) { return s.writer.MostRecent(ctx) })
	if err == nil || ctx.Err() == nil { // otherwise only this part of the request has ended
		w.set(state, err)
	}
	return state, err
}

// entered calls a function that waits, between enter and leave.
func (w *waiting) entered(wait func() (*State, error)) (*State, error) {
	if w.enter != nil {
		leave, err := w.enter()
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	return wait()
}

// longestLag bounds how long reads of the most recent state and writes wait for a revision to be published.
const longestLag = 10 * time.Second

// reached waits until a revision that the log has is published. The context bounds it.
func (s *Store) reached(ctx context.Context, r Revision) (*State, error) {
	state, err := s.NotOlderThan(ctx, r, longestLag)
	if late := (*TooLargeError)(nil); errors.As(err, &late) {
		return nil, &UnavailableError{Err: fmt.Errorf("this server is behind: %w", err)}
	}
	return state, err
}
