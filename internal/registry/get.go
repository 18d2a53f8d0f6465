package registry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Get reads one object. See docs/compatibility.md#p6 for the state that a resourceVersion selects.
func (r *Registry) Get(ctx context.Context, t Target, resourceVersion string) (Object, error) {
	class, revision, err := parseVersion(resourceVersion)
	if err != nil {
		return Object{}, err
	}
	if s := r.source(t); s != nil {
		return s.get(ctx, t)
	}
	if t.At != 0 {
		return r.getAt(ctx, t, plan{read: getTable[class], revision: revision})
	}
	s, err := r.snapshot(ctx, t, getTable[class], revision)
	if err != nil {
		return Object{}, err
	}
	o := s.Get(t.key())
	if o == nil {
		return Object{}, t.notFound()
	}
	return Object{Stored: o}, unreadable(o)
}

// getAt reads one object as of Target.At.
func (r *Registry) getAt(ctx context.Context, t Target, p plan) (Object, error) {
	v, err := r.viewAt(ctx, t, p)
	if err != nil {
		return Object{}, err
	}
	defer v.Close()
	o, err := v.Get(t.key())
	switch {
	case err != nil:
		return Object{}, status(err)
	case o == nil:
		return Object{}, t.notFound()
	}
	return Object{Stored: o}, unreadable(o)
}

// Read returns the decoded object in its stored version, or NotFound. The caller owns the result.
func (r *Registry) Read(ctx context.Context, t Target) (runtime.Object, error) {
	if t.Name == "" {
		return nil, apierrors.NewBadRequest("Name parameter required.")
	}
	got, err := r.Get(ctx, t, "")
	if err != nil {
		return nil, err
	}
	return t.read(ctx, got.Stored)
}

// snapshot returns the collection of a target for a read that needs no history.
func (r *Registry) snapshot(ctx context.Context, t Target, how read, revision store.Revision) (store.Snapshot, error) {
	state, err := r.state(ctx, how, revision) // this can wait for the revision
	switch {
	case err != nil:
		return store.Snapshot{}, err
	case t.lags(how):
		t.Replica.Reach(revision)
		s, err := t.Replica.Snapshot(ctx, t.Type.Collection)
		return s, status(err)
	}
	return state.Snapshot(t.Type.Collection), nil
}

// lags reports whether a read may get the state of a replica that is behind.
func (t Target) lags(how read) bool {
	return t.Replica != nil && (how == anyState || how == notOlderThan)
}

// state returns a state for a read that needs no history.
func (r *Registry) state(ctx context.Context, how read, revision store.Revision) (*store.State, error) {
	switch how {
	case anyState:
		return r.Store.Any(), nil
	case notOlderThan:
		var s *store.State
		err := r.waitFor(ctx, revision, func() (err error) {
			s, err = r.Store.NotOlderThan(ctx, revision, r.futureWait())
			return err
		})
		return s, status(err)
	}
	s, err := r.Store.MostRecent(ctx)
	return s, readStatus(err)
}

// waitFor calls f, which waits until the revision is reached. The request has no seat while it
// waits.
func (r *Registry) waitFor(ctx context.Context, revision store.Revision, f func() error) error {
	if revision <= r.Store.Any().Revision() {
		return f()
	}
	return fairness.Wait(ctx, 0, f)
}
