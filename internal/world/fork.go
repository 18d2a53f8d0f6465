package world

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// ForkOptions is tidemark.ForkOptions.
type ForkOptions struct {
	Name        string
	At          uint64
	Since       uint64
	Controllers []string
	Seed        uint64
	Keep        bool
	// KubernetesVersion is that of tidemark.ForkOptions.
	KubernetesVersion string
}

// closeWait is how long Close waits for requests.
const closeWait = time.Second

// newFork returns a fork in memory. open opens the account of its memory.
func (w *World) newFork(ctx context.Context, o ForkOptions, open func() (*store.Account, error)) (_ *World, err error) {
	if o.Controllers == nil {
		o.Controllers = w.process.controllers()
	}
	kubernetes, err := w.version(o.KubernetesVersion)
	if err != nil {
		return nil, err
	}
	bytes := w.process.Forks.MaxBytes
	account, err := open()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			account.Close()
		}
	}()
	state, since, changes, err := w.beginning(ctx, &o, bytes/2, account)
	if err != nil {
		return nil, forkError(err)
	}
	f := &World{process: w.process, root: w.root, kubernetes: kubernetes, fork: &fork{
		name: o.Name, parent: w.Name(), ancestor: weak.Make(w), controllers: o.Controllers, base: state.Revision(), baseTime: state.Time(), created: w.process.clock(),
		past: w.forksPast(&o, state), adapts: kubernetes != w.kubernetes,
	}}
	f.seed, f.restrict = w.seed.fork(o.Seed, o.Name), f.restricted
	if f.clock = w.process.Config.Clock; f.clock == nil {
		f.clock = w.clock.Fork()
	}
	f.now = f.clock.Now
	f.issued = append([]*authn.Issued{new(authn.Issued)}, w.issued...)
	f.use, f.direct = f.openOnce, w.process.newDirect(f.serve, f.drain)
	f.store, err = stores.Fork(w.store, state, store.Options{
		Log: memlog.FromHistory(state, since, changes), Retention: w.process.History.Retention, MaxMemory: bytes / 2, Packed: packed, Now: f.now,
		Note: w.process.note, Account: account, OnFatal: f.logBroken, OnDivergence: f.diverged,
	})
	if errors.Is(err, store.ErrClosed) {
		return nil, ErrForkClosed
	}
	if err != nil {
		return nil, err
	}
	f.store.SetQuota(bytes - bytes/2)
	f.custom, f.tokens, f.rbac = w.custom.Fork(f.store, w.process.kinds(kubernetes)), accounts(f.store, w.tokens.Fork(), f.now), w.rbac.Fork(f.store)
	return f, nil
}

// forkError returns an error of beginning as Fork returns it.
func forkError(err error) error {
	switch {
	case errors.Is(err, store.ErrClosed):
		return ErrForkClosed
	case errors.As(err, new(*store.QuotaError)):
		return fmt.Errorf("%w: %w", ErrForkMemory, err)
	}
	return err
}

// beginning returns the initial state of a fork, and the changes after a revision that led to it.
// They take most bytes in history at most. Bytes that the fork has alone count in the account.
func (w *World) beginning(ctx context.Context, o *ForkOptions, most int64, of *store.Account) (state *store.State, since store.Revision, changes []store.Entry, err error) {
	state = w.store.Any()
	if o.At != 0 {
		if state, err = w.store.StateAt(ctx, store.Revision(o.At), of); err != nil {
			return nil, 0, nil, err
		}
	}
	since = store.Revision(cmp.Or(o.Since, uint64(state.Revision())))
	changes, err = w.store.History(ctx, since, state, most, of)
	return state, since, changes, err
}

// forksPast reports whether a fork that begins with a state is one of the past.
func (w *World) forksPast(o *ForkOptions, state *store.State) bool {
	return w.fork != nil && w.fork.past || o.At != 0 && state.Revision() < w.store.Any().Revision()
}

// uuid returns a UUID of the source of the world.
func (w *World) uuid() string {
	if w.source == nil {
		return uuid.New()
	}
	var b [16]byte
	w.source(b[:])
	return uuid.From(b)
}

// restricted returns the authorizer of a fork.
func (w *World) restricted(own authz.Authorizer) authz.Authorizer { return forkAccess{w, own} }

// openOnce opens the parts of a fork: with its first request, or with its first fork.
func (w *World) openOnce() error {
	w.fork.once.Do(func() { w.fork.err = w.openFork() })
	return w.fork.err
}

// openFork opens the parts of a fork that its first request needs. They share the parts of the
// server that exist once, such as seats, and hold nothing of the parent.
func (w *World) openFork() error {
	root := w.root
	w.metrics, w.durations = root.metrics, root.durations
	if err := w.open(); err != nil {
		return err
	}
	var err error
	if w.fork.credentials, err = findServerTokens(w.process.ending, w.store); err != nil {
		return err
	}
	c := w.api()
	own := c.OpenAPI
	c.OpenAPI = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if p := w.fork.ancestor.Value(); p != nil && w.custom.Catalog() == p.custom.Catalog() {
			p.openAPI.ServeHTTP(rw, r)
			return
		}
		own.ServeHTTP(rw, r)
	})
	c.RepresentationBytes = w.process.Forks.MaxBytes / 4
	w.handler = root.handler.Fork(c)
	if w.fork.adapts {
		return w.adapt()
	}
	return nil
}

// adapt gives the fork the objects of its version that every server has, in place of those of another version.
func (w *World) adapt() error {
	return startup.Adapt(context.Background(), startup.Config{
		Registry: w.verbs, Catalog: builtin.For(w.kubernetes), Enabled: w.kubernetes.Enabled, Now: w.now,
	})
}

// version returns the version of a fork: a minor version with the feature gates of the server; empty: that of the world.
func (w *World) version(minor string) (*features.Profile, error) {
	if minor == "" {
		return w.kubernetes, nil
	}
	p, err := w.process.Kubernetes.At(minor)
	if err != nil {
		return nil, fmt.Errorf("the version of Kubernetes, %q: %w", minor, err)
	}
	return p, nil
}

// diverged starts the controllers of a fork, after its first write, or when Settle waits for them.
func (w *World) diverged() {
	f := w.fork
	f.mu.Lock()
	if f.closed || f.begun {
		f.mu.Unlock()
		return
	}
	f.begun = true
	f.loops.Add(1)
	f.mu.Unlock()
	defer f.loops.Done()
	loops, err := w.startLoops()
	f.mu.Lock()
	w.loops, f.started = loops, true
	f.mu.Unlock()
	if err != nil {
		w.process.logOf(logForks).Error("the controllers of a fork do not run", "fork", f.name, "err", err)
	}
}

// logBroken is called if the log of a fork failed. The fork ends, the server goes on.
func (w *World) logBroken(err error) {
	w.process.logOf(logForks).Error("the log of a fork failed", "fork", w.fork.name, "err", err)
	if w.fork.broken != nil {
		w.fork.broken(err)
	}
}

// end ends a fork whose name was removed.
func (w *World) end() error {
	f := w.fork
	f.once.Do(func() { f.err = ErrForkClosed }) // waits if another goroutine opens it
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	idle := make(chan struct{})
	if f.active == 0 {
		close(idle)
	} else {
		f.idle = idle
	}
	f.mu.Unlock()
	w.endCalls()
	w.direct.Stop() // and drains
	wait := time.NewTimer(closeWait)
	defer wait.Stop()
	select {
	case <-idle:
	case <-wait.C:
	}
	f.loops.Wait()
	return w.stop()
}

// describe returns the fork as the API shows it.
func (w *World) describe() forkapi.Fork {
	t := w.store.Stats()
	return forkapi.Fork{
		Name: w.fork.name, Parent: w.fork.parent, URL: w.URL(), Path: w.prefix(), Created: metav1.NewTime(w.fork.created),
		Base: strconv.FormatUint(uint64(w.fork.base), 10), BaseTime: w.fork.baseTime, ResourceVersion: strconv.FormatUint(uint64(t.Head), 10),
		Bytes: t.ObjectBytes + t.HistoryBytes, Kept: w.fork.kept != nil,
	}
}
