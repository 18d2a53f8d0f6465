package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// # Refusals on a shared log
//
// A request decides by the state at hand, which can lack what another server has acknowledged some
// milliseconds ago. A write does no harm then: the log decides. But an answer that writes nothing
// rests on that state alone: AlreadyExists, NotFound, a conflict, a refusal by admission, an update
// that changes nothing, a dry-run. So each of these is confirmed: the server waits until it has all
// that was acknowledged before, and makes the request once more if that is newer.

// confirmed makes an attempt of a write. If the store is on a shared log and the attempt stores nothing,
// confirmed makes it again by a state that is not older than the call.
func (r *Registry) confirmed(ctx context.Context, dryRun bool, attempt func() (Object, error)) (Object, error) {
	if !r.Store.Shared() {
		return attempt()
	}
	if dryRun {
		if _, err := r.Store.MostRecent(ctx); err != nil {
			return Object{}, readStatus(err)
		}
		return attempt()
	}
	before := r.Store.Any().Revision()
	made, err := attempt()
	if err == nil && made.committed || err != nil && !stale(err) {
		return made, err
	}
	state, failed := r.Store.MostRecent(ctx)
	switch {
	case failed != nil:
		return Object{}, readStatus(failed)
	case state.Revision() == before:
		return made, err
	}
	return attempt()
}

// stale reports whether a refusal can be due to a state that is behind.
func stale(err error) bool {
	var refused apierrors.APIStatus
	if !errors.As(err, &refused) {
		return false
	}
	switch code := refused.Status().Code; code {
	case 413, 415, 429: // too large, unsupported, too many requests
		return false
	default:
		return code >= 400 && code < 500
	}
}
