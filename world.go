package tidemark

import (
	"context"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/world"
)

// World is a state of its own in a server: objects and their history, custom resources,
// permissions, controllers. Each server has a root world; Fork makes others. All methods are safe for
// concurrent use.
type World struct {
	server *world.Server
	world  *world.World
}

// Name returns the name of a fork; empty: the world is the root world of the server.
func (w *World) Name() string { return w.world.Name() }

// URL returns the address of the world: "https://127.0.0.1:6443" of a root world,
// "https://127.0.0.1:6443/fork/try" of a fork.
func (w *World) URL() string { return w.world.URL() }

// Handler returns the API of the world, with authentication. The paths of its requests begin with /api
// or the like, also in a fork.
func (w *World) Handler() http.Handler { return w.world.Handler() }

// Revision returns the newest revision of the world: the resourceVersion of a list made now.
func (w *World) Revision() uint64 { return w.world.Revision() }

// RESTConfig returns a configuration for client-go as administrator, a copy that the caller may
// change. It is InProcessConfig if the server does not listen.
func (w *World) RESTConfig() *rest.Config { return w.world.RESTConfig() }

// RESTConfigFor returns a configuration for client-go as a user. It has a client certificate that is
// valid for a year, in all worlds of the server. It is InProcessConfigFor if the server does not listen.
func (w *World) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	return w.world.RESTConfigFor(user, groups...)
}

// InProcessConfig returns a configuration for client-go as administrator, whose Transport calls the
// server directly: no port, no TLS, the whole HTTP API. The caller may change it, but must not add TLS
// options, which client-go refuses beside a Transport. Watches of one configuration share their
// deliveries, like those of one HTTP/2 connection.
//
// Clients that open connections of their own cannot use it: remotecommand, port forwarding, and other
// programs. rest.AnonymousClientConfig removes the Transport.
func (w *World) InProcessConfig() *rest.Config { return w.world.InProcessConfig() }

// InProcessConfigFor is InProcessConfig as a user. The client has a certificate that is valid for a
// year, in all worlds of the server.
func (w *World) InProcessConfigFor(user string, groups ...string) (*rest.Config, error) {
	return w.world.InProcessConfigFor(user, groups...)
}

// Kubeconfig returns a kubeconfig file with the administrator's credentials.
func (w *World) Kubeconfig() []byte { return w.world.Kubeconfig() }

// Clock is the clock of the world, which Advance moves: that of the server if Server.Clock is set,
// otherwise one of the fork alone. The same parts follow it as follow Server.Clock, but
// certificates, which follow the clock of the server. Nil: the root world of a server without a
// Clock, and a kept fork, follow the clock of package time.
func (w *World) Clock() *Clock { return clockOf(w.world.Clock()) }

// Settle waits until the world has nothing left to do: no request is under way, no controller of the
// server has an object in a queue, each open watch has read everything that is stored, and its client
// has taken the bytes. It looks twice, and nothing has begun in between. It returns the revision of that moment.
//
// The controllers of a fork, which otherwise start with its first write, start when Settle begins.
//
// Clients in the process have taken what they have read. Over a network, they have taken what their connection
// accepted. The server does not know whether a client has processed it: a client with a delay in a queue of
// its own, or between two requests, counts as settled, and may write later. Reads of one goroutine after Settle see
// everything that was written before.
//
// The error is that of the context, with what is left to do, or ErrForkClosed.
func (w *World) Settle(ctx context.Context) (revision uint64, err error) { return w.world.Settle(ctx) }

// SettleFor waits until the world has settled, has then had no write for the duration of quiet, and has settled
// still. Reads do not count as long as they have ended in the end. It returns the revision, which was the same all the
// time. A quiet of zero or less is that of Settle. It may return up to a sixteenth of quiet late.
//
// The errors are those of Settle.
func (w *World) SettleFor(ctx context.Context, quiet time.Duration) (revision uint64, err error) {
	return w.world.SettleFor(ctx, quiet)
}
