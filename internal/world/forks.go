package world

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// forksPath is where clients list, make and delete forks: docs/how-to/fork.md. The root world authorizes
// the requests.
const forksPath = forkapi.Path

// forks are the forks of a server, by their names.
type forks struct {
	process  *process
	root     *World
	logs     store.ForkLogs // nil: forks cannot be kept
	openings slots          // of kept forks
	waiting  atomic.Int64   // requests for kept forks that are not open
	ending   sync.WaitGroup // of kept forks whose logs failed

	mu     sync.Mutex
	all    map[string]*World // in memory alone
	kept   map[string]*kept
	closed bool
}

// kept is a fork that is kept, whether it is open or not.
type kept struct {
	forks  *forks
	name   string
	facts  keptFacts
	issued []*authn.Issued // World.issued
	// own authenticates clients by the tokens that the fork has issued. It does not read the objects of the fork.
	own   *authn.Credentials
	world atomic.Pointer[World]
	// held: a Go program or the control API has the world, so it stays open even if no request uses it.
	held atomic.Bool

	mu     slots     // one, held while the fork is made, opened, closed or deleted
	gone   bool      // it was deleted
	failed time.Time // of the last try to open it
	err    error     // why that failed; nil: it did not
}

// account opens an account for a fork.
func (f *forks) account() (*store.Account, error) {
	bytes := f.process.Forks.MaxBytes
	account, err := f.process.forkBudget.Open(bytes - bytes/2)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForkMemory, err)
	}
	return account, nil
}

// add adds a fork, unless there are as many as there may be.
func (f *forks) add(w *World) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return ErrForkClosed
	case f.taken(w.fork.name):
		return ErrForkExists
	case f.full():
		return ErrTooManyForks
	}
	if f.all == nil {
		f.all = map[string]*World{}
	}
	f.all[w.fork.name] = w
	return nil
}

// taken reports whether there is a fork with the name. The caller holds mu.
func (f *forks) taken(name string) bool {
	return f.all[name] != nil || f.kept[name] != nil || name == control.Root
}

// full reports whether there are as many forks as there may be. The caller holds mu.
func (f *forks) full() bool {
	return len(f.all)+len(f.kept) >= max(0, f.process.Forks.Max)
}

// addKept is add for a kept fork.
func (f *forks) addKept(k *kept) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return ErrForkClosed
	case f.taken(k.name):
		return ErrForkExists
	case f.full():
		return ErrTooManyForks
	case len(f.kept) >= MaxKeptForks:
		return ErrTooManyKept
	}
	f.keepLocked(k)
	return nil
}

// keep adds a kept fork of the storage, beyond all limits.
func (f *forks) keep(k *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(k)
}

func (f *forks) keepLocked(k *kept) {
	if f.kept == nil {
		f.kept = map[string]*kept{}
	}
	f.kept[k.name] = k
}

func (f *forks) removeKept(k *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept[k.name] == k {
		delete(f.kept, k.name)
	}
}

// get returns a fork, both nil if there is none.
func (f *forks) get(name string) (*World, *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[name], f.kept[name]
}

func (f *forks) remove(w *World) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[w.fork.name] == w {
		delete(f.all, w.fork.name)
	}
}

// refused reports whether the server stops.
func (f *forks) refused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// refuse refuses new forks.
func (f *forks) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// keptOf returns the kept fork that a world is; nil: it is none, or was deleted.
func (f *forks) keptOf(w *World) *kept {
	if w.fork == nil || w.fork.kept == nil {
		return nil
	}
	if _, k := f.get(w.fork.name); k != nil && &k.facts == w.fork.kept {
		return k
	}
	return nil
}
