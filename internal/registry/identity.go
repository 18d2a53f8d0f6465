package registry

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

type identityKey struct{}

// As returns a context in which the server's own writes, those without a client, are written as a
// user: webhooks and policies see them. Other plugins still take them for the server's.
//
// Without it, the server's writes are not shown to webhooks and policies. So the server can start
// and maintain its own objects, whatever a webhook does.
func As(ctx context.Context, user *authn.User) context.Context {
	return context.WithValue(ctx, identityKey{}, user)
}

// identify finds the user that writes.
func (w *write) identify(ctx context.Context) {
	if w.as = w.by; w.as == nil {
		w.as, _ = ctx.Value(identityKey{}).(*authn.User)
	}
}

// Client returns the user that webhooks and policies see: the client, or the controller of the
// server that writes. It is nil for the server itself, whose writes they do not see.
func (a *Attributes) Client() *authn.User {
	if a.w == nil {
		return a.User
	}
	return a.w.as
}
