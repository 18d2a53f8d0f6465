package world

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
)

// Fork makes a world that begins with a state of another one: World.Fork of package tidemark.
func (f *forks) Fork(ctx context.Context, w *World, o ForkOptions) (*World, error) {
	if err := w.use(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "fork-" + w.uuid()[:8]
	}
	if faults := validation.IsDNS1123Label(o.Name); len(faults) > 0 {
		return nil, fmt.Errorf("the name %q of a fork: %s", o.Name, faults[0])
	}
	if err := controller.Check(o.Controllers); err != nil {
		return nil, err
	}
	if o.At != 0 && o.Since > o.At {
		return nil, fmt.Errorf("the history of a fork of resource version %d cannot begin later, at %d", o.At, o.Since)
	}
	if o.Keep {
		return f.keepFork(ctx, w, o)
	}
	made, err := w.newFork(ctx, o, f.account)
	if err != nil {
		return nil, err
	}
	if err := f.add(made); err != nil {
		made.endCalls()
		return nil, errors.Join(err, made.store.Close())
	}
	return made, nil
}

// Close ends a fork: World.Close of package tidemark.
func (f *forks) Close(w *World) error {
	if w.fork == nil {
		return nil
	}
	if k := f.keptOf(w); k != nil {
		return k.close(w)
	}
	f.remove(w)
	return w.end()
}

// Delete closes a fork, and removes its files: World.Delete of package tidemark.
func (f *forks) Delete(w *World) error {
	if k := f.keptOf(w); k != nil {
		return k.delete()
	}
	return f.Close(w)
}

// Find returns the fork with the name: Server.Fork of package tidemark.
func (f *forks) Find(name string) (*World, error) {
	w, err := f.find(context.Background(), name)
	if err == nil && w == nil {
		return nil, ErrNoFork
	}
	if err == nil {
		f.hold(w, true)
	}
	return w, err
}

// keepFork makes a kept fork, and holds it.
func (f *forks) keepFork(ctx context.Context, w *World, o ForkOptions) (*World, error) {
	made, err := f.makeKept(ctx, w, o)
	if err == nil {
		f.hold(made, true)
	}
	return made, err
}

// hold keeps a kept fork open until Close, also if no request uses it. With false, it no longer does.
func (f *forks) hold(w *World, held bool) {
	if k := f.keptOf(w); k != nil {
		k.held.Store(held)
	}
}

// find returns a fork, nil without an error if there is none. It opens a kept one. The client has the right to that.
func (f *forks) find(ctx context.Context, name string) (*World, error) {
	w, k := f.get(name)
	if k != nil {
		return k.use(ctx)
	}
	return w, nil
}

// delete deletes a fork. It reports false if there is none.
func (f *forks) delete(name string) (bool, error) {
	w, k := f.get(name)
	switch {
	case k != nil:
		return true, k.delete()
	case w != nil:
		return true, f.Close(w)
	}
	return false, nil
}

// list returns the forks that are open, in the order of their names.
func (f *forks) list() []*World {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := slices.Collect(maps.Values(f.all))
	for _, k := range f.kept {
		if w := k.world.Load(); w != nil {
			all = append(all, w)
		}
	}
	slices.SortFunc(all, func(a, b *World) int { return strings.Compare(a.fork.name, b.fork.name) })
	return all
}

// describe describes all forks, in the order of their names. It opens none.
func (f *forks) describe() []forkapi.Fork {
	f.mu.Lock()
	worlds, kept := slices.Collect(maps.Values(f.all)), slices.Collect(maps.Values(f.kept))
	f.mu.Unlock()
	all := []forkapi.Fork{}
	for _, w := range worlds {
		all = append(all, w.describe())
	}
	for _, k := range kept {
		all = append(all, k.describe())
	}
	slices.SortFunc(all, func(a, b forkapi.Fork) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// close closes all forks. There are no requests any more. Those that are kept stay in the storage.
func (f *forks) close() error {
	f.mu.Lock()
	worlds, kept := slices.Collect(maps.Values(f.all)), slices.Collect(maps.Values(f.kept))
	f.mu.Unlock()
	var errs []error
	for _, w := range worlds {
		errs = append(errs, f.Close(w))
	}
	for _, k := range kept {
		k.mu.lock() // waits until it is open, if a request opens it
		errs = append(errs, k.closeLocked(k.world.Load()))
		k.mu.unlock()
	}
	f.ending.Wait()
	return errors.Join(errs...)
}

// loadKept finds the kept forks of the storage. It opens none.
func (f *forks) loadKept() {
	logs := f.process.storage.Forks
	if logs == nil {
		return
	}
	f.logs = logs
	all, err := logs.List()
	if err != nil {
		f.process.logOf(logForks).Error("the kept forks cannot be listed", "err", err)
		return
	}
	for name, facts := range all {
		if len(validation.IsDNS1123Label(name)) > 0 {
			f.process.logOf(logForks).Warn("a directory among the kept forks is ignored: its name is not one of a fork", "name", name)
			continue
		}
		var read keptFacts
		err := read.read(facts)
		k := f.newKept(name, read, f.root.issued)
		if err != nil {
			k.err = fmt.Errorf("its description is damaged: %w", err)
			f.process.logOf(logForks).Error("a kept fork cannot be used", "fork", name, "err", k.err)
		} else if read.Past == nil {
			f.process.logOf(logForks).Warn("an earlier version made a kept fork: each request to it also needs the right on the server; a fork that is made again has permissions of its own", "fork", name)
		}
		f.keep(k)
	}
}

// makeKept makes a kept fork of a world, and opens it. The options were checked.
func (f *forks) makeKept(ctx context.Context, w *World, o ForkOptions) (*World, error) {
	switch {
	case f.logs == nil:
		return nil, ErrForkNotKept
	case o.Since != 0:
		return nil, errors.New("a kept fork begins without the history of its parent: Since must be zero")
	case o.Seed != 0:
		return nil, errors.New("a kept fork has no seed: after a restart, its UIDs would be repeated")
	}
	account, err := f.account()
	if err != nil {
		return nil, err
	}
	defer account.Close()
	state, _, _, err := w.beginning(ctx, &o, 0, account)
	if err == nil {
		err = account.Reserve(state)
	}
	if err != nil {
		return nil, forkError(err)
	}
	kubernetes, err := w.version(o.KubernetesVersion)
	if err != nil {
		return nil, err
	}
	past := w.forksPast(&o, state)
	k := f.newKept(o.Name, keptFacts{
		Parent: w.Name(), Base: uint64(state.Revision()), BaseTime: state.Time(), Created: w.process.clock(), Controllers: o.Controllers,
		Tokens: w.tokens.Fork().Forks(), Past: &past, Kubernetes: chosen(kubernetes, w.process.Kubernetes), Adapts: kubernetes != w.kubernetes,
	}, w.issued)
	k.mu.lock()
	defer k.mu.unlock()
	if err := f.addKept(k); err != nil {
		return nil, err
	}
	if err = k.write(ctx, state); err == nil {
		account.Close() // the store has its own
		if err = k.open(); err == nil {
			return k.world.Load(), nil
		}
		err = errors.Join(err, f.logs.Delete(k.name))
	}
	k.gone = true
	f.removeKept(k)
	return nil, err
}

// sweepKept closes kept forks that no request uses, until the server ends.
func (f *forks) sweepKept() {
	ticker := time.NewTicker(keptSweep)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			f.closeIdle(keptIdle)
		case <-f.process.ending.Done():
			return
		}
	}
}

// closeIdle closes the kept forks that no request has used for a time. The next request opens them again.
func (f *forks) closeIdle(after time.Duration) {
	f.mu.Lock()
	all := slices.Collect(maps.Values(f.kept))
	f.mu.Unlock()
	for _, k := range all {
		w := k.world.Load()
		if w == nil || k.held.Load() || !w.fork.unused(after) {
			continue
		}
		if err := k.close(w); err != nil {
			f.process.logOf(logForks).Warn("a kept fork was not closed cleanly", "fork", k.name, "err", err)
		}
	}
}
