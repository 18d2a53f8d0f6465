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

// MaxKeptForks, 16, is how many forks a server keeps. Each has a log of its own, with files and memory.
const MaxKeptForks = world.MaxKeptForks

// ForkOptions configures a fork. The zero value is a fork of the newest state with a generated name.
type ForkOptions struct {
	// Name is the name of the fork, a DNS label, which its URL ends with. The name "root" is taken.
	// Empty: a name is generated.
	Name string
	// At is the resource version of the state that the fork begins with, in the history of its parent;
	// zero: the newest.
	At uint64
	// Since is the resource version that the history of the fork reaches back to: the changes after it, up to
	// At, are those of the parent, with their resource versions. Watches, exact lists and replicas from Since on
	// work in the fork, also when the parent no longer has that history. The changes count in Forks.MaxBytes.
	// Zero: the history begins with the state of the fork.
	Since uint64
	// Controllers selects the controllers, as Server.Controllers does. Nil: those of the server.
	Controllers []string
	// Seed selects the UIDs, generated names and addresses that are made in the fork, as Server.Seed does. It does
	// not depend on the name, nor on the seed of the server. Zero: the seed of the world that is forked, if it has
	// one, together with the name.
	Seed uint64
	// Keep keeps the fork in the storage of the server: it is there after a restart, with all that was written to
	// it. The fork then has a copy of all objects, which counts in Forks.MaxBytes, so that it takes time in
	// proportion to them. Since and Seed must be zero. A server has MaxKeptForks of them at most.
	Keep bool
	// KubernetesVersion is the minor version of Kubernetes whose kinds, fields, roles and defaults of feature gates the
	// fork has, as Server.KubernetesVersion, with the gates that Server.FeatureGates sets. Empty: that of the world that is
	// forked.
	KubernetesVersion string
}

// Errors of World.Fork.
var (
	// ErrForkExists is returned if there is a fork with the name.
	ErrForkExists = world.ErrForkExists
	// ErrTooManyForks is returned if there are Forks.Max forks.
	ErrTooManyForks = world.ErrTooManyForks
	// ErrForkMemory is returned if the forks of the server take Forks.MaxTotalBytes, or would
	// together with the initial state of the new fork, or if a fork would begin with copies of more
	// old objects than its memory has room for.
	ErrForkMemory = world.ErrForkMemory
	// ErrForkHistory is returned if the changes after ForkOptions.Since take more than half of Forks.MaxBytes.
	ErrForkHistory = world.ErrForkHistory
	// ErrForkNotKept is returned for ForkOptions.Keep by a server without a data directory to write to.
	ErrForkNotKept = world.ErrForkNotKept
	// ErrTooManyKept is returned if there are MaxKeptForks kept forks.
	ErrTooManyKept = world.ErrTooManyKept
	// ErrNoFork is returned if there is no fork with the name.
	ErrNoFork = world.ErrNoFork
	// ErrForkClosed is returned for a world that was closed.
	ErrForkClosed = world.ErrForkClosed
)

// Fork makes a world that begins with a state of this one, and then has changes, custom resources,
// permissions and controllers of its own. It shares the objects of the state, so that it takes the same
// time and memory however many there are. It is in memory, until its Close or that of the server, or kept
// (see ForkOptions.Keep). Its resource versions continue above that of the state. The response to older ones is 410, with
// ForkOptions.Since those below it.
//
// The controllers start with the first write, or with Settle. Tokens that the world accepts are valid in the fork, but not
// the other way around.
//
// The errors are ErrForkExists, ErrTooManyForks, ErrForkHistory, ErrForkMemory, ErrForkClosed, ErrForkNotKept,
// ErrTooManyKept, those of the storage of a kept fork, errors for an invalid name, unknown controllers or a Since after At, and those of reading an old resource version.
func (w *World) Fork(ctx context.Context, o ForkOptions) (*World, error) {
	f, err := w.server.Fork(ctx, w.world, world.ForkOptions(o))
	if err != nil {
		return nil, err
	}
	return &World{w.server, f}, nil
}

// Close ends a fork: it ends watches cleanly, lets requests finish for a moment, and frees the memory. Its
// own forks go on. It is idempotent. A kept fork stays in the storage, and the next request opens it again; see
// Delete. A root world is closed with its server; for it, Close does nothing.
func (w *World) Close() error { return w.server.Close(w.world) }

// Delete closes a fork, and removes its files. For a root world it does nothing.
func (w *World) Delete() error { return w.server.Delete(w.world) }
