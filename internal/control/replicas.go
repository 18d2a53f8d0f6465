package control

import (
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Replica is another address of a world, whose reads and watches may be behind: see tidemark.Replica. All methods
// are safe for concurrent use.
type Replica interface {
	Name() string
	URL() string
	Revision() uint64
	// Late is how often a client has seen that the replica is behind.
	Late() uint64
	// Advance moves the replica forward by a number of changes, to the newest at most.
	Advance(changes uint64)
	// CatchUp ends the lag of the replica.
	CatchUp()
	// Close ends the replica and its watches.
	Close()
}

// ReplicaOptions sets how far a replica is behind. At most one of Lag and At is set.
type ReplicaOptions struct {
	// Name is a DNS label; empty: the server chooses one.
	Name string `json:"name"`
	// Lag is how many changes the replica stays behind the world; zero: it is not behind.
	Lag uint64 `json:"lag"`
	// At is the revision that the replica stays at until a call or a request moves it; zero: it follows the world.
	At uint64 `json:"at"`
	// Resources are the resources that are behind, such as "pods" or "deployments.apps"; empty: all.
	Resources []string `json:"resources"`
}

// replicaRow is a replica in responses.
type replicaRow struct {
	Name     string `json:"name"`
	Revision uint64 `json:"revision"`
	Late     uint64 `json:"late"`
	URL      string `json:"url"`
}

func rowOf(r Replica) replicaRow { return replicaRow{r.Name(), r.Revision(), r.Late(), r.URL()} }

func (h *handler) addReplica(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	var o ReplicaOptions
	if err := readJSON(w, r, maxBodyBytes, &o); err != nil {
		return err
	}
	if o.Name != "" {
		if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 {
			return badRequest("the name %q of the replica: %s", o.Name, problems[0])
		}
	}
	if o.Lag != 0 && o.At != 0 {
		return badRequest("a replica stands at a revision or follows with a lag: want one of at and lag")
	}
	replica, err := world.AddReplica(o)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, rowOf(replica))
	return nil
}

func (h *handler) replicas(w http.ResponseWriter, r *http.Request) error {
	world, err := h.world(r)
	if err != nil {
		return err
	}
	rows := []replicaRow{}
	for _, replica := range world.Replicas() {
		rows = append(rows, rowOf(replica))
	}
	writeJSON(w, http.StatusOK, map[string]any{"replicas": rows})
	return nil
}

func (h *handler) getReplica(w http.ResponseWriter, r *http.Request) error {
	replica, err := h.replica(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, rowOf(replica))
	return nil
}

func (h *handler) deleteReplica(w http.ResponseWriter, r *http.Request) error {
	replica, err := h.replica(r)
	if err != nil {
		return err
	}
	replica.Close()
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *handler) advanceReplica(w http.ResponseWriter, r *http.Request) error {
	replica, err := h.replica(r)
	if err != nil {
		return err
	}
	var body struct {
		Changes uint64 `json:"changes"`
	}
	if err := readJSON(w, r, maxBodyBytes, &body); err != nil {
		return err
	}
	if body.Changes == 0 {
		return badRequest("changes: want the number of changes to move the replica by, at least 1")
	}
	replica.Advance(body.Changes)
	writeJSON(w, http.StatusOK, rowOf(replica))
	return nil
}

func (h *handler) catchUpReplica(w http.ResponseWriter, r *http.Request) error {
	replica, err := h.replica(r)
	if err != nil {
		return err
	}
	replica.CatchUp()
	writeJSON(w, http.StatusOK, rowOf(replica))
	return nil
}

// replica returns the replica that the path names.
func (h *handler) replica(r *http.Request) (Replica, error) {
	world, err := h.world(r)
	if err != nil {
		return nil, err
	}
	name := r.PathValue("replica")
	for _, replica := range world.Replicas() {
		if replica.Name() == name {
			return replica, nil
		}
	}
	return nil, fmt.Errorf("the replica %q: %w", name, ErrNotFound)
}
