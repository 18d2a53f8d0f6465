package world

import (
	"cmp"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// ReplicaOptions is tidemark.ReplicaOptions.
type ReplicaOptions struct {
	Name      string
	Lag       uint64
	At        uint64
	Resources []string
}

// Replica is World.Replica of package tidemark.
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
	return w.replicas.add(o.Name, func() (*Replica, error) {
		reads, err := w.store.Replica(store.Revision(o.At), lag)
		if err != nil {
			return nil, err
		}
		return &Replica{&w.replicas, o.Name, reads, w.handler.Replica(reads, replicaPath+o.Name, o.Resources), w.URL()}, nil
	})
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
func (w *World) Replicas() []*Replica { return w.replicas.list() }
