package world

import "context"

// slots is a semaphore: as many callers hold it as its capacity.
type slots chan struct{}

// take waits for a slot until the context is done.
func (s slots) take(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	default:
	}
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lock waits for a slot.
func (s slots) lock() { s <- struct{}{} }

func (s slots) unlock() { <-s }
