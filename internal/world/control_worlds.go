package world

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/controller"
)

// worlds are the worlds of a server as the control API knows them: the root world, and all forks.
type worlds struct{ forks *forks }

var _ control.Worlds = worlds{}

// Names implements control.Worlds.
func (w worlds) Names() []string {
	names := []string{control.Root}
	for _, f := range w.forks.list() {
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
	return &controlled{world, w.forks}, nil
}

func (w worlds) find(name string) (*World, error) {
	if name == control.Root {
		return w.forks.root, nil
	}
	f, err := w.forks.find(context.Background(), name)
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
	if _, err := parent.version(o.KubernetesVersion); err != nil {
		return nil, fmt.Errorf("%w: %w", control.ErrInvalid, err)
	}
	f, err := w.forks.Fork(ctx, parent, ForkOptions{Name: o.Name, At: o.Revision, Since: o.Since, Controllers: o.Controllers, Seed: o.Seed, KubernetesVersion: o.KubernetesVersion})
	switch {
	case err == nil:
		return &controlled{f, w.forks}, nil
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
	found, err := w.forks.delete(name)
	if !found {
		return fmt.Errorf("the world %q: %w", name, control.ErrNotFound)
	}
	return err
}

// Control returns the handler of the control API.
func (s *Server) Control() http.Handler {
	return control.New(control.Config{Worlds: worlds{s.forks}, Version: s.process.Version.Own, Leases: &s.leases})
}

// Idle returns a channel that is closed when no client of the control API has held a lease for the grace period.
func (s *Server) Idle(grace time.Duration) <-chan struct{} { return s.leases.Idle(grace) }
