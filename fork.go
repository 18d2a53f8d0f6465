package tidemark

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/world"
)

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

// Fork returns the fork with the name. It opens a kept one that is not in use; the error may be that of its log.
// If there is none, the error is ErrNoFork. It panics before Start has succeeded.
func (s *Server) Fork(name string) (*World, error) {
	r := s.must()
	w, err := r.Find(name)
	if err != nil {
		return nil, err
	}
	return &World{r, w}, nil
}
