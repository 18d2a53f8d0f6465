package world

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// replicaPath is the beginning of the paths of replicas, below that of their world.
const replicaPath = "/replica/"

// Replica is another address of a world, whose reads are behind: tidemark.Replica.
type Replica struct {
	of      *replicas
	name    string
	reads   *store.Replica
	handler *httpapi.Replica
	world   string // its URL
}

// Name returns the name of the replica.
func (r *Replica) Name() string { return r.name }

// Path is the end of the address of the replica, behind that of its world.
func (r *Replica) Path() string { return replicaPath + r.name }

// URL returns the address of the replica.
func (r *Replica) URL() string { return r.world + r.Path() }

// Revision returns the revision of the replica.
func (r *Replica) Revision() uint64 { return uint64(r.reads.Revision()) }

// Late returns how often a client has seen that the replica is behind.
func (r *Replica) Late() uint64 { return r.reads.Late() }

// Advance moves the replica forward by a number of changes, to the newest at most.
func (r *Replica) Advance(changes uint64) { r.reads.Advance(changes) }

// CatchUp ends the lag of the replica.
func (r *Replica) CatchUp() { r.reads.CatchUp() }

// Close ends the replica and its watches. It is idempotent.
func (r *Replica) Close() {
	r.of.remove(r)
	r.reads.Close()
}

// replicas are the replicas of a world, by their names.
type replicas struct {
	mu     sync.Mutex
	all    map[string]*Replica
	closed bool
}

// add adds a replica that open makes, unless there is one with the name, there are too many, or the world was closed.
func (a *replicas) add(name string, open func() (*Replica, error)) (*Replica, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		return nil, ErrForkClosed
	case a.all[name] != nil:
		return nil, ErrReplicaExists
	case len(a.all) >= MaxReplicas:
		return nil, ErrTooManyReplicas
	}
	r, err := open()
	if err != nil {
		return nil, err
	}
	if a.all == nil {
		a.all = map[string]*Replica{}
	}
	a.all[name] = r
	return r, nil
}

// get returns a replica, nil if there is none.
func (a *replicas) get(name string) *Replica {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.all[name]
}

// list returns the replicas in the order of their names.
func (a *replicas) list() []*Replica {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.SortedFunc(maps.Values(a.all), func(x, y *Replica) int { return strings.Compare(x.name, y.name) })
}

func (a *replicas) remove(r *Replica) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[r.name] == r {
		delete(a.all, r.name)
	}
}

// close closes all replicas, and refuses new ones.
func (a *replicas) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	for _, r := range a.list() {
		r.Close()
	}
}
