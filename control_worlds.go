package tidemark

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/controller"
)

// worlds are the worlds of a server as the control API knows them: the root world, and all forks.
type worlds struct{ running *running }

var _ control.Worlds = worlds{}

// Names implements control.Worlds.
func (w worlds) Names() []string {
	names := []string{control.Root}
	for _, f := range w.running.forks.list() {
		names = append(names, f.Name())
	}
	return names
}

// Find implements control.Worlds.
func (w worlds) Find(name string) (control.World, error) {
	world, err := w.find(name)
	if err != nil {
		return nil, err
	}
	return &controlled{world}, nil
}

func (w worlds) find(name string) (*World, error) {
	if name == control.Root {
		return w.running.root, nil
	}
	f, err := w.running.forks.find(context.Background(), name)
	if err != nil {
		return nil, fmt.Errorf("the world %q: %w", name, err)
	}
	if f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("the world %q: %w: it was closed, or its test has ended", name, control.ErrNotFound)
}

// Create implements control.Worlds.
func (w worlds) Create(ctx context.Context, o control.Options) (control.World, error) {
	parent, err := w.find(o.Parent)
	if err != nil {
		return nil, err
	}
	if err := controller.Check(o.Controllers); err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	f, err := parent.Fork(ctx, ForkOptions{Name: o.Name, At: o.Revision, Since: o.Since, Controllers: o.Controllers, Seed: o.Seed})
	switch {
	case err == nil:
		return &controlled{f}, nil
	case errors.Is(err, ErrForkExists):
		return nil, fmt.Errorf("the world %q %w", o.Name, control.ErrExists)
	case errors.Is(err, ErrTooManyForks), errors.Is(err, ErrForkHistory), errors.Is(err, ErrForkMemory):
		return nil, fmt.Errorf("%w: %w", control.ErrLimit, err)
	case errors.Is(err, ErrForkClosed):
		return nil, fmt.Errorf("the world %q: %w: %w", o.Parent, control.ErrNotFound, err)
	}
	return nil, controlError(err)
}

// Delete implements control.Worlds.
func (w worlds) Delete(name string) error {
	if name == control.Root {
		return fmt.Errorf("the deletion of the world %q is %w: stop the server", name, control.ErrForbidden)
	}
	found, err := w.running.forks.delete(name)
	if !found {
		return fmt.Errorf("the world %q: %w", name, control.ErrNotFound)
	}
	return err
}
