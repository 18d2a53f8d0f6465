package tidemark

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// MaxReplicas is how many replicas a world may have at a time.
const MaxReplicas = 16

// Errors of World.Replica.
var (
	// ErrReplicaExists is returned if the world has a replica with the name.
	ErrReplicaExists = errors.New("a replica with this name exists")
	// ErrNoResource is returned if the server does not have a resource of ReplicaOptions.Resources.
	ErrNoResource = errors.New("the server has no resource")
	// ErrTooManyReplicas is returned if the world has MaxReplicas replicas.
	ErrTooManyReplicas = fmt.Errorf("the world has %d replicas, as many as it may have", MaxReplicas)
)

// ReplicaOptions configures a replica. The zero value is a replica that is not behind, with a generated
// name.
type ReplicaOptions struct {
	// Name is the name of the replica, a DNS label, which its URL ends with. Empty: a name is generated.
	Name string
	// Lag is how many changes the replica stays behind the world. Each change has a revision of its own.
	Lag uint64
	// At is the resource version that the replica stands at until Advance or CatchUp moves it. Lag must
	// be zero then. Zero: the replica follows the world.
	At uint64
	// Resources are the resources that are behind, such as "pods" or "deployments.apps"; the others are read as in the
	// world. Empty: all resources are behind.
	Resources []string
}

// Replica is another address of a world, which behaves like a second API server of a cluster whose watch
// cache is behind. It does only what the Kubernetes API allows:
//
//   - get and list with resourceVersion=0 return the state of the replica's revision, which may be old
//   - with resourceVersion=N they return a state that is not older than N. A replica that has not reached N
//     moves there
//   - without a resourceVersion, with resourceVersionMatch=Exact and with continue tokens they return what the
//     world returns: the newest state, or exactly the one that is named
//   - watches begin with the state that a get with the same resourceVersion reads, and deliver events in
//     their order, those above the replica's revision when the replica has reached them
//   - writes go to the world at once
//
// The revision of a replica never decreases. A replica whose revision the history of the world no longer
// has moves to the oldest that there is. Everything that is not a read of objects has no lag:
// authentication, authorization, admission, discovery.
//
// All methods are safe for concurrent use.
type Replica struct {
	world   *World
	name    string
	reads   *store.Replica
	handler *httpapi.Replica
}

// replicaPath is the beginning of the paths of replicas, below that of their world.
const replicaPath = "/replica/"

// replicas are the replicas of a world, by their names.
type replicas struct {
	mu     sync.Mutex
	all    map[string]*Replica
	closed bool
}

// Replica makes a replica of the world, until its Close or that of the world. The errors are
// ErrReplicaExists, ErrTooManyReplicas, ErrNoResource, ErrForkClosed, errors for an invalid name or an At that is not in
// the history of the world, and an error if both At and Lag are set.
func (w *World) Replica(o ReplicaOptions) (*Replica, error) {
	o.Name = cmp.Or(o.Name, "replica-"+uuid.New()[:8])
	if faults := validation.IsDNS1123Label(o.Name); len(faults) > 0 {
		return nil, fmt.Errorf("the name %q of a replica: %s", o.Name, faults[0])
	}
	lag := o.Lag
	if o.At != 0 {
		if o.Lag != 0 {
			return nil, errors.New("a replica stands at a resource version or follows with a lag: want one of them")
		}
		lag = store.Frozen
	}
	for _, name := range o.Resources {
		if !w.serves(name) {
			return nil, fmt.Errorf("%w %q: want the plural name, with the group: %q or %q", ErrNoResource, name, "pods", "deployments.apps")
		}
	}
	if err := w.use(); err != nil {
		return nil, err
	}
	all := &w.replicas
	all.mu.Lock()
	defer all.mu.Unlock()
	switch {
	case all.closed:
		return nil, ErrForkClosed
	case all.all[o.Name] != nil:
		return nil, ErrReplicaExists
	case len(all.all) >= MaxReplicas:
		return nil, ErrTooManyReplicas
	}
	reads, err := w.store.Replica(store.Revision(o.At), lag)
	if err != nil {
		return nil, err
	}
	r := &Replica{w, o.Name, reads, w.handler.Replica(reads, replicaPath+o.Name, o.Resources)}
	if all.all == nil {
		all.all = map[string]*Replica{}
	}
	all.all[o.Name] = r
	return r, nil
}

// serves reports whether the world has a resource, such as "pods" or "deployments.apps".
func (w *World) serves(resource string) bool {
	for t := range w.custom.Catalog().Types() {
		if t.Collection == resource {
			return true
		}
	}
	return false
}

// Replicas returns the replicas of the world in the order of their names.
func (w *World) Replicas() []*Replica {
	w.replicas.mu.Lock()
	defer w.replicas.mu.Unlock()
	return slices.SortedFunc(maps.Values(w.replicas.all), func(a, b *Replica) int { return strings.Compare(a.name, b.name) })
}

// replica returns a replica, nil if there is none.
func (w *World) replica(name string) *Replica {
	w.replicas.mu.Lock()
	defer w.replicas.mu.Unlock()
	return w.replicas.all[name]
}

// closeReplicas closes all replicas, and refuses new ones.
func (w *World) closeReplicas() {
	w.replicas.mu.Lock()
	w.replicas.closed = true
	w.replicas.mu.Unlock()
	for _, r := range w.Replicas() {
		r.Close()
	}
}

// answer answers a request whose path is below that of the world: for the world, or for one of its replicas.
func (w *World) answer(rw http.ResponseWriter, q *http.Request) {
	rest, ok := strings.CutPrefix(q.URL.Path, replicaPath)
	if !ok {
		w.handler.ServeHTTP(rw, q)
		return
	}
	name, _, _ := strings.Cut(rest, "/")
	r := w.replica(name)
	if r == nil { // the world refuses the client or the path
		w.handler.ServeHTTP(rw, q)
		return
	}
	r.handler.ServeHTTP(rw, without(q, replicaPath+name))
}

// Name returns the name of the replica.
func (r *Replica) Name() string { return r.name }

// URL returns the address of the replica: "https://127.0.0.1:6443/replica/old", or
// "https://127.0.0.1:6443/fork/try/replica/old" in a fork.
func (r *Replica) URL() string { return r.world.URL() + replicaPath + r.name }

// Revision returns the revision of the replica: the resourceVersion of a list with resourceVersion=0 made
// now.
func (r *Replica) Revision() uint64 { return uint64(r.reads.Revision()) }

// Late returns how often a client has seen that the replica is behind: a read returned a state without the newest changes of
// its resource, or a watch did not get an event. If it is zero, clients of the replica saw what clients of the world see.
func (r *Replica) Late() uint64 { return r.reads.Late() }

// Advance moves the replica forward by a number of changes, to the newest at most.
func (r *Replica) Advance(changes uint64) { r.reads.Advance(changes) }

// CatchUp ends the lag of the replica: from now on it is like the world.
func (r *Replica) CatchUp() { r.reads.CatchUp() }

// RESTConfig returns a configuration for client-go as administrator, a copy that the caller may change. It
// calls the server in the process if that does not listen, like World.RESTConfig.
func (r *Replica) RESTConfig() *rest.Config { return r.at(r.world.RESTConfig()) }

// InProcessConfig is World.InProcessConfig for the replica.
func (r *Replica) InProcessConfig() *rest.Config { return r.at(r.world.InProcessConfig()) }

// RESTConfigFor is World.RESTConfigFor for the replica.
func (r *Replica) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	c, err := r.world.RESTConfigFor(user, groups...)
	if err != nil {
		return nil, err
	}
	return r.at(c), nil
}

// at adds the path of the replica to the address of the world.
func (r *Replica) at(c *rest.Config) *rest.Config {
	c.Host += replicaPath + r.name
	return c
}

// Close ends the replica and its watches. It is idempotent.
func (r *Replica) Close() {
	r.world.replicas.mu.Lock()
	if r.world.replicas.all[r.name] == r {
		delete(r.world.replicas.all, r.name)
	}
	r.world.replicas.mu.Unlock()
	r.reads.Close()
}
