package tidemark

import "github.com/tidemark-dev/tidemark/internal/fault"

// Fault selects requests of a world, and says how they fail. A field that is empty selects all requests.
// docs/how-to/faults.md describes the kinds.
type Fault struct {
	// Fault is the effect: "conflict", "latency", "status", "gone", "drop", "lostResponse" or
	// "webhookTimeout".
	Fault string

	// Verbs are those of RBAC: "get", "list", "watch", "create", "update", "patch", "delete",
	// "deletecollection".
	Verbs []string
	// Group is an API group; "core" is the one of pods.
	Group string
	// Resource is "pods", "pods/status", or "pods/*" for both and all other subresources.
	Resource string
	// Namespace is that of the request.
	Namespace string
	// Name is the name in the path of the request, or the one that a field selector selects. A create has none,
	// unless it is of a subresource.
	Name string
	// User is the name of the user who is authorized: the impersonated one.
	User string
	// UserAgent is the beginning of the header User-Agent.
	UserAgent string

	// After is how many of the selected requests are spared first, Times how often the fault then
	// happens; zero: no limit.
	After uint64
	Times uint64
	// Probability is between 0 and 1; zero: 1. Seed makes the same choices for the same sequence of
	// requests.
	Probability float64
	Seed        uint64

	// DelayMilliseconds is how long the fault "latency" delays a request; it needs a value.
	DelayMilliseconds int64
	// Code, 429, 500, 503 or 504, and RetryAfterSeconds are of the fault "status". Zero seconds: there is no Retry-After.
	Code              int
	RetryAfterSeconds int
	// Events is after how many events the fault "drop" breaks a watch; zero: at once, also those that are open.
	Events uint64
	// Webhook is the admission webhook that seems not to respond, of the fault "webhookTimeout"; empty: "webhook.tidemark.example".
	Webhook string
}

// FaultState is a fault of a world, and how often it has happened.
type FaultState struct {
	// ID is the name of the fault, for RemoveFault.
	ID string
	Fault
	// Selected is how many requests the fault has selected, Fired how often it has happened.
	Selected, Fired uint64
}

// AddFault lets requests of the world fail as the rule says, until it is removed. A fault that drops watches
// after no events also drops those that are open. A world has at most 100 faults. Forks have none of their
// parent.
func (w *World) AddFault(f Fault) (FaultState, error) {
	added, err := w.world.AddFault(fault.Rule(f))
	return faultState(added), err
}

// Faults returns the faults in the order in which they were added.
func (w *World) Faults() (all []FaultState) {
	for _, f := range w.world.Faults() {
		all = append(all, faultState(f))
	}
	return all
}

func faultState(f fault.State) FaultState {
	return FaultState{ID: f.ID, Fault: Fault(f.Rule), Selected: f.Selected, Fired: f.Fired}
}

// RemoveFault removes a fault.
func (w *World) RemoveFault(id string) error { return w.world.RemoveFault(id) }

// ClearFaults removes all faults.
func (w *World) ClearFaults() { w.world.ClearFaults() }
