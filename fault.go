package tidemark

import "github.com/tidemark-dev/tidemark/internal/fault"

// Fault selects requests of a world, and says how they fail. docs/how-to/faults.md describes the kinds.
type Fault = fault.Rule

// FaultState is a fault of a world, and how often it has happened.
type FaultState = fault.State

// AddFault lets requests of the world fail as the rule says, until it is removed. A fault that drops watches
// after no events also drops those that are open. A world has at most 100 faults. Forks have none of their
// parent.
func (w *World) AddFault(f Fault) (FaultState, error) {
	if err := w.use(); err != nil {
		return FaultState{}, err
	}
	added, err := w.faults.Add(f)
	if err == nil && f.Fault == fault.Drop {
		w.handler.DropWatches(added.ID)
	}
	return added, err
}

// Faults returns the faults in the order in which they were added.
func (w *World) Faults() []FaultState { return w.faults.List() }

// RemoveFault removes a fault.
func (w *World) RemoveFault(id string) error { return w.faults.Remove(id) }

// ClearFaults removes all faults.
func (w *World) ClearFaults() { w.faults.Clear() }
