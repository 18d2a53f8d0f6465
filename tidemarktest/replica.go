package tidemarktest

import (
	"context"
)

// Replica is another address of a cluster, which behaves like a second API server whose watch cache is behind. A
// client of its Env reads old states and gets late events where the Kubernetes API allows it: get and list with
// resourceVersion=0 return the state of the replica's revision, and watches deliver later changes when the
// replica has reached them. Reads without a resourceVersion, and all writes, go to the newest state.
//
// Settle, Changes, Apply and the other methods that use the control API are those of the cluster. The replica ends
// with the cluster, or with Close. A cluster has at most 16 replicas.
type Replica struct {
	*Env
	info replicaInfo
}

// replicaInfo is a replica as the control API describes it.
type replicaInfo struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	Late     uint64 `json:"late"`
	URL      string `json:"url"`
}

// ReplicaOption sets how far a replica is behind: see Lag and At. The zero value is a replica that is not behind.
type ReplicaOption struct {
	lag, at   uint64
	resources []string
}

// Lag makes a replica follow the cluster at a distance of a number of changes. Zero: it is not behind.
func Lag(changes uint64) ReplicaOption { return ReplicaOption{lag: changes} }

// At keeps a replica at a revision until Advance, CatchUp, or a request with a newer resourceVersion moves it. Zero: it
// is not behind.
func At(revision uint64) ReplicaOption { return ReplicaOption{at: revision} }

// Of limits the lag to some resources, such as "pods" or "deployments.apps". The others are read as
// in the cluster: the watch cache of an API server is one for each resource, too.
func (o ReplicaOption) Of(resources ...string) ReplicaOption {
	o.resources = append(o.resources[:len(o.resources):len(o.resources)], resources...)
	return o
}

// Replica creates a replica of the cluster, seen by the same user. It fails the test if the history of the cluster does
// not have the revision of At, or the server has no resource of Of.
func (e *Env) Replica(t TB, o ReplicaOption) *Replica {
	t.Helper()
	var r *Replica
	call(t, func(ctx context.Context) (err error) {
		r, err = e.replica(ctx, o)
		return err
	})
	return r
}

func (e *Env) replica(ctx context.Context, o ReplicaOption) (*Replica, error) {
	body := map[string]any{"lag": o.lag, "at": o.at, "resources": o.resources}
	r := new(Replica)
	if err := e.session.control.call(ctx, "POST", worldPath(e.world.Name, "replicas"), body, &r.info); err != nil {
		return nil, err
	}
	r.Env = e.seenBy(e.token, e.kubeconfig)
	r.via, r.users = &r.info, map[string]*Env{}
	for name, u := range e.users {
		r.users[name] = r.seenBy(u.token, u.kubeconfig)
	}
	return r, nil
}

// Revision is the revision of the replica's state: the resourceVersion of a list with resourceVersion=0 made now.
func (r *Replica) Revision(t TB) uint64 {
	t.Helper()
	var now uint64
	call(t, func(ctx context.Context) (err error) {
		now, err = r.revision(ctx)
		return err
	})
	return now
}

func (r *Replica) revision(ctx context.Context) (uint64, error) {
	now, err := r.now(ctx)
	return now.Revision, err
}

func (r *Replica) now(ctx context.Context) (now replicaInfo, err error) {
	err = r.call(ctx, "GET", nil, &now)
	return now, err
}

// late reports whether a client has read an old state, or has waited for an event.
func (r *Replica) late(ctx context.Context) (bool, error) {
	now, err := r.now(ctx)
	return now.Late > 0, err
}

// Advance moves the replica forward by a number of changes, at least one, to the newest at most.
func (r *Replica) Advance(t TB, changes uint64) {
	t.Helper()
	call(t, func(ctx context.Context) error { return r.advance(ctx, changes) })
}

func (r *Replica) advance(ctx context.Context, changes uint64) error {
	return r.call(ctx, "POST", map[string]uint64{"changes": changes}, nil, "advance")
}

// CatchUp ends the lag of the replica: from now on it is like the cluster.
func (r *Replica) CatchUp(t TB) {
	t.Helper()
	call(t, r.catchUp)
}

func (r *Replica) catchUp(ctx context.Context) error {
	return r.call(ctx, "POST", nil, nil, "catchup")
}

// Close ends the replica and its watches. It is idempotent.
func (r *Replica) Close() error {
	r.closeOnce.Do(func() {
		ctx, cancel := callContext()
		defer cancel()
		r.closeErr = r.call(ctx, "DELETE", nil, nil)
	})
	return r.closeErr
}

// call sends a request about the replica to the control API.
func (r *Replica) call(ctx context.Context, method string, body, out any, what ...string) error {
	path := append([]string{"replicas", r.info.Name}, what...)
	return r.session.control.call(ctx, method, worldPath(r.world.Name, path...), body, out)
}
