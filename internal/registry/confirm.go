package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// confirmed calls attempt, which decides on the published state. If it stored nothing and a newer state
// can change that, confirmed calls it again on that state: see store.Decide. Each call of attempt begins with the request as the client sent it.
func (r *Registry) confirmed(ctx context.Context, attempt func() (Object, error)) (Object, error) {
	var made Object
	var err error
	failed := r.Store.Decide(ctx, func() (final bool) {
		made, err = attempt()
		return err == nil && made.committed || err != nil && !stale(err)
	})
	if failed != nil {
		return Object{}, readStatus(failed)
	}
	return made, err
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
