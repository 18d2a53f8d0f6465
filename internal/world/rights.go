package world

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/authz"
)

// # Rights in forks
//
// A fork begins with the roles and bindings of its parent at that time. Two kinds of requests also require the same right in
// the current state of the server:
//
//   - All requests to a fork of the past, which began with an older state than the newest, and to its own forks. Otherwise
//     such a fork would return rights that were removed since to the client that makes it, and to others.
//   - Requests for Secrets with tokens that the server accepts.

// forkAccess authorizes the requests to a fork.
type forkAccess struct {
	w   *World
	own authz.Authorizer // of the fork
}

// Authorize implements authz.Authorizer.
func (f forkAccess) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	d, reason, err := f.own.Authorize(ctx, a)
	if d != authz.Allow || !f.w.fork.past && !f.w.fork.credentials.concern(a) {
		return d, reason, err
	}
	if p := f.w.fork.ancestor.Value(); f.w.fork.past && p != nil && p.fork != nil {
		if err := p.use(); err != nil {
			return authz.NoOpinion, "", err
		}
		if d, reason, err := p.access.Authorize(ctx, a); d != authz.Allow {
			return d, reason, err
		}
	}
	d, _, err = f.w.root.authorizer.Authorize(ctx, a)
	if d != authz.Allow {
		return d, "the fork allows it, and the server does not", err
	}
	return d, reason, err
}
