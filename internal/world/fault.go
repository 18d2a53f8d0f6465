package world

import "github.com/tidemark-dev/tidemark/internal/fault"

// AddFault lets requests of the world fail as the rule says, until it is removed: World.AddFault of package tidemark.
func (w *World) AddFault(f fault.Rule) (fault.State, error) {
	if err := w.use(); err != nil {
		return fault.State{}, err
	}
	added, err := w.faults.Add(f)
	if err == nil && f.Fault == fault.Drop {
		w.handler.DropWatches(added.ID)
	}
	return added, err
}

// Faults returns the faults in the order in which they were added.
func (w *World) Faults() []fault.State { return w.faults.List() }

// RemoveFault removes a fault.
func (w *World) RemoveFault(id string) error { return w.faults.Remove(id) }

// ClearFaults removes all faults.
func (w *World) ClearFaults() { w.faults.Clear() }
