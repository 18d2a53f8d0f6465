package registry

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Request is the part of the request of a client that a context has, for the origin of its changes.
type Request struct {
	UserAgent string
	// Impersonator is the name of the user who sent the request as another one; empty: the user sent it.
	Impersonator string
	AuditID      store.AuditID
	// Times gets the time of parts of the request; nil: they are not measured.
	Times *Times
}

// Times is how long parts of a request took. Its methods are safe for concurrent use: parts of a
// deletecollection run in parallel, and their times are added.
type Times struct{ admission, commit atomic.Int64 }

// Admission returns the time of the plugins, with webhooks and policies.
func (t *Times) Admission() time.Duration { return time.Duration(t.admission.Load()) }

// Commit returns the time until the log had the changes.
func (t *Times) Commit() time.Duration { return time.Duration(t.commit.Load()) }

// timesOf returns the times of a request; nil if they are not measured.
func timesOf(ctx context.Context) *Times {
	if r, _ := ctx.Value(requestKey{}).(*Request); r != nil {
		return r.Times
	}
	return nil
}

type (
	requestKey struct{}
	loopKey    struct{}
	virtualKey struct{}
)

// WithRequest returns a context for the writes of a client's request.
func WithRequest(ctx context.Context, r *Request) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

// WithLoop returns a context for the writes of a part of the server, such as a controller. The
// origins of its changes have the name.
func WithLoop(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, loopKey{}, name)
}

// serverUser is the user of writes of the server itself that have no other, as in kube-apiserver.
const serverUser = "system:apiserver"

// origin returns the origin of the changes of a write.
func (w *write) origin(ctx context.Context) *store.Origin {
	made := &struct { // one allocation
		store.Origin
		store.Actor
	}{}
	o, actor := &made.Origin, &made.Actor
	o.Verb, o.Actor = w.verb, actor
	actor.User, actor.Subresource = serverUser, w.Subresource
	if w.as != nil {
		actor.User = w.as.Name
	} else if w.by != nil {
		actor.User = w.by.Name
	}
	if w.by == nil {
		actor.Loop, _ = ctx.Value(loopKey{}).(string)
	}
	if w.options != nil {
		actor.UserAgent, actor.FieldManager = w.options.UserAgent, w.manager()
	}
	if w.source == fromVirtual {
		o.Verb = store.VerbCreate
		actor.Subresource, _ = ctx.Value(virtualKey{}).(string)
	}
	if sent, _ := ctx.Value(requestKey{}).(*Request); sent != nil {
		o.AuditID = sent.AuditID
		if w.by != nil {
			actor.UserAgent, actor.Impersonator = sent.UserAgent, sent.Impersonator
		}
	}
	return o
}
