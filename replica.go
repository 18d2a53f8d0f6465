package tidemark

import (
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/world"
)

// MaxReplicas, 16, is how many replicas a world may have at a time.
const MaxReplicas = world.MaxReplicas

// Errors of World.Replica.
var (
	// ErrReplicaExists is returned if the world has a replica with the name.
	ErrReplicaExists = world.ErrReplicaExists
	// ErrNoResource is returned if the server does not have a resource of ReplicaOptions.Resources.
	ErrNoResource = world.ErrNoResource
	// ErrTooManyReplicas is returned if the world has MaxReplicas replicas.
	ErrTooManyReplicas = world.ErrTooManyReplicas
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
	replica *world.Replica
}

// Replica makes a replica of the world, until its Close or that of the world. The errors are
// ErrReplicaExists, ErrTooManyReplicas, ErrNoResource, ErrForkClosed, errors for an invalid name or an At that is not in
// the history of the world, and an error if both At and Lag are set.
func (w *World) Replica(o ReplicaOptions) (*Replica, error) {
	r, err := w.world.Replica(world.ReplicaOptions(o))
	if err != nil {
		return nil, err
	}
	return &Replica{w, r}, nil
}

// Replicas returns the replicas of the world in the order of their names.
func (w *World) Replicas() (all []*Replica) {
	for _, r := range w.world.Replicas() {
		all = append(all, &Replica{w, r})
	}
	return all
}

// Name returns the name of the replica.
func (r *Replica) Name() string { return r.replica.Name() }

// URL returns the address of the replica: "https://127.0.0.1:6443/replica/old", or
// "https://127.0.0.1:6443/fork/try/replica/old" in a fork.
func (r *Replica) URL() string { return r.replica.URL() }

// Revision returns the revision of the replica: the resourceVersion of a list with resourceVersion=0 made
// now.
func (r *Replica) Revision() uint64 { return r.replica.Revision() }

// Late returns how often a client has seen that the replica is behind: a read returned a state without the newest changes of
// its resource, or a watch did not get an event. If it is zero, clients of the replica saw what clients of the world see.
func (r *Replica) Late() uint64 { return r.replica.Late() }

// Advance moves the replica forward by a number of changes, to the newest at most.
func (r *Replica) Advance(changes uint64) { r.replica.Advance(changes) }

// CatchUp ends the lag of the replica: from now on it is like the world.
func (r *Replica) CatchUp() { r.replica.CatchUp() }

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
	c.Host += r.replica.Path()
	return c
}

// Close ends the replica and its watches. It is idempotent.
func (r *Replica) Close() { r.replica.Close() }
