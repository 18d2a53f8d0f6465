package world

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/upgraded"
)

const (
	// keptOpenings is how many kept forks a server opens at a time: each reads its whole log.
	keptOpenings = 2
	// keptWaiting is how many requests wait for kept forks to be opened.
	keptWaiting = 256
	// keptWait is how long a request waits for it.
	keptWait = time.Minute
)

// keptIdle is how long a kept fork that requests opened stays open after the last one has ended, and keptSweep the pause
// between two looks for such forks.
const keptIdle, keptSweep = 10 * time.Minute, time.Minute

// retryKept is how long a kept fork that could not be opened is not tried again: a try reads its whole log.
const retryKept = 10 * time.Second

// newKept returns a kept fork that is not open. parents are the tokens of World.issued of its parents.
func (f *forks) newKept(name string, facts keptFacts, parents []*authn.Issued) *kept {
	issued := append([]*authn.Issued{new(authn.Issued)}, parents...)
	p := f.process
	a := &p.authentication
	return &kept{
		forks: f, name: name, facts: facts, issued: issued, mu: make(slots, 1),
		own: &authn.Credentials{
			Audiences: a.base.Audiences, Now: a.base.Now,
			Tokens: []authn.Tokens{a.forServer(issued[0]), p.keys.ForkAs(facts.Tokens).Signatures()},
		},
	}
}

// write writes the log of the fork: a copy of the state that it begins with. Writes to the parent go on
// meanwhile. The caller holds mu.
func (k *kept) write(ctx context.Context, state *store.State) error {
	facts, err := json.Marshal(&k.facts)
	if err != nil {
		return err
	}
	set, err := k.forks.process.encryption(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errForkLog, err)
	}
	defer set.Close()
	begin := store.Beginning{Revision: state.Revision(), Time: state.Time()}
	begin.Objects, begin.Err = set.Encrypt(state.All())
	if err := k.forks.logs.Create(ctx, k.name, facts, begin); err != nil {
		return fmt.Errorf("%w: %w", errForkLog, err)
	}
	return nil
}

// use returns the open world. It opens it if it is not. Nil without an error: the fork was deleted. The context ends
// the wait alone: an opening that has begun goes on.
func (k *kept) use(ctx context.Context) (*World, error) {
	if w := k.world.Load(); w != nil {
		return w, nil
	}
	f := k.forks
	defer f.waiting.Add(-1)
	if f.waiting.Add(1) > keptWaiting {
		return nil, errKeptBusy
	}
	if err := k.mu.take(ctx); err != nil {
		return nil, err
	}
	defer k.mu.unlock()
	w := k.world.Load()
	switch {
	case k.gone || w != nil:
		return w, nil
	case k.err != nil && k.forks.process.clock().Sub(k.failed) < retryKept:
		return nil, k.err
	case k.facts.Base == 0: // its description cannot be read
		return nil, k.err
	}
	if err := f.openings.take(ctx); err != nil {
		return nil, err
	}
	defer f.openings.unlock()
	if f.refused() {
		return nil, ErrForkClosed
	}
	if err := k.open(); err != nil {
		return nil, err
	}
	return k.world.Load(), nil
}

// admits reports whether a request may open the fork, or wait until it is open. The roles of the fork are among its objects,
// which are not read yet. So a request is admitted if the fork has issued its token, or if its user may POST the path of the
// fork below /forks on the server, as roles for making forks allow. The error is that of authz.Undecided.
func (k *kept) admits(q *http.Request) (bool, error) {
	if user, _ := k.own.Authenticate(q); user != nil {
		return true, nil
	}
	root := k.forks.root
	user, err := root.credentials.Authenticate(without(q, forkPath+k.name))
	if err != nil {
		root.process.logOf(logForks).Debug("authentication failed", "fork", k.name, "err", err)
	}
	if user == nil || user.IsAnonymous() {
		return false, nil
	}
	ok, _, err := authz.Allowed(q.Context(), root.authorizer, &authz.Attributes{User: user, Verb: "post", Path: forksPath + "/" + k.name})
	if err != nil {
		root.process.logOf(logForks).Debug("authorization failed", "fork", k.name, "err", err)
	}
	return ok, err
}

// open opens the world, and remembers why it cannot be opened. The caller holds mu.
func (k *kept) open() error {
	// A canceled request does not end an opening for which others wait.
	w, err := k.openWorld(context.Background())
	if errors.Is(err, ErrForkMemory) { // a deletion of another fork may help at once
		return fmt.Errorf("the kept fork %s cannot be opened: %w", k.name, err)
	}
	if err != nil {
		k.err, k.failed = fmt.Errorf("the kept fork %s cannot be opened: %w", k.name, err), k.forks.process.clock()
		k.forks.process.logOf(logForks).Error("a kept fork cannot be opened", "fork", k.name, "err", err)
		return k.err
	}
	k.err = nil
	k.world.Store(w)
	return nil
}

func (k *kept) openWorld(ctx context.Context) (_ *World, err error) {
	f, p := k.forks, k.forks.process
	account, err := f.account()
	if err != nil {
		return nil, err
	}
	set, err := p.encryption(ctx)
	if err != nil {
		account.Close()
		return nil, err
	}
	log, err := f.logs.Open(ctx, k.name)
	if err != nil {
		account.Close()
		set.Close()
		return nil, err
	}
	controllers := k.facts.Controllers
	if controllers == nil {
		controllers = p.controllers()
	}
	kubernetes, err := f.root.version(k.facts.Kubernetes)
	if err != nil {
		return nil, err
	}
	w := &World{process: p, root: f.root, kubernetes: kubernetes, fork: &fork{
		name: k.name, parent: k.facts.Parent, controllers: controllers, base: store.Revision(k.facts.Base), baseTime: k.facts.BaseTime, created: k.facts.Created, kept: &k.facts, past: k.facts.past(), adapts: k.facts.Adapts, lastUse: time.Now(),
	}}
	w.fork.broken = func(err error) { k.broken(w, err) }
	w.issued, w.clock, w.now, w.restrict = k.issued, p.Config.Clock, p.Now, w.restricted
	w.use, w.direct = w.openOnce, p.newDirect(w.serve, w.drain)
	ready := make(chan struct{})
	defer close(ready)
	note := func(warning bool, message string, pairs ...any) {
		p.note(warning, message, append(pairs, "fork", k.name)...)
	}
	encrypted, bytes := encryption.Wrap(log, encryption.NewActive(set)), p.Forks.MaxBytes
	encrypted.StandIns = p.standIns()
	w.store, err = stores.Open(ctx, store.Options{
		Log: upgraded.Wrap(encrypted), Encryption: encrypted, Retention: p.History.Retention, MaxMemory: bytes / 2, MaxDisk: f.diskShare(p.History.MaxDiskBytes), Packed: packed,
		Now: p.Now, Note: note, Account: account, OnFatal: w.logBroken, Base: w.fork.base, OnDivergence: func() { <-ready; w.diverged() },
	})
	if err != nil {
		account.Close()
		w.direct.Stop()
		return nil, err
	}
	w.store.SetQuota(bytes - bytes/2)
	w.custom = crd.NewSet(w.store, p.kinds(kubernetes), p.logOf(logCustomResources))
	w.tokens, w.rbac = accounts(w.store, p.keys.ForkAs(k.facts.Tokens), w.now), rbac.New(w.store)
	if err := w.use(); err != nil {
		return nil, errors.Join(err, w.end())
	}
	if p.Encryption.AutomaticReload {
		encrypted.Follow(p.encryptionConfig())
	}
	return w, nil
}

// diskShare returns the disk space for the history of one kept fork. All of them together have as much as the server,
// whether they are open or not.
func (f *forks) diskShare(most int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return cmp.Or(most, store.DefaultMaxDisk) / int64(max(MaxKeptForks, len(f.kept)))
}

// close closes the world, if it is w. It may be opened again.
func (k *kept) close(w *World) error {
	k.mu.lock()
	defer k.mu.unlock()
	return k.closeLocked(w)
}

func (k *kept) closeLocked(w *World) error {
	if w == nil || !k.world.CompareAndSwap(w, nil) {
		return nil
	}
	k.held.Store(false)
	return w.end()
}

// broken closes the world w, whose log failed. It may be called by a write to it.
func (k *kept) broken(w *World, err error) {
	k.forks.ending.Go(func() {
		k.mu.lock()
		defer k.mu.unlock()
		k.err, k.failed = fmt.Errorf("the log of the kept fork %s failed: %w", k.name, err), k.forks.process.clock()
		_ = k.closeLocked(w) // with the same error
	})
}

// delete closes the fork, and removes its files.
func (k *kept) delete() error {
	k.mu.lock()
	defer k.mu.unlock()
	if k.gone {
		return nil
	}
	if err := k.closeLocked(k.world.Load()); err != nil {
		k.forks.process.logOf(logForks).Warn("a fork was not closed cleanly", "fork", k.name, "err", err)
	}
	if err := k.forks.logs.Delete(k.name); err != nil {
		return fmt.Errorf("%w: %w", errForkLog, err)
	}
	k.gone = true
	k.forks.removeKept(k)
	return nil
}

// describe returns the fork as the API shows it. It does not open it.
func (k *kept) describe() forkapi.Fork {
	if w := k.world.Load(); w != nil {
		return w.describe()
	}
	d := forkapi.Fork{
		Name: k.name, Parent: k.facts.Parent, URL: k.forks.process.url + forkPath + k.name, Path: forkPath + k.name, Kept: true,
		Created: metav1.NewTime(k.facts.Created), Base: strconv.FormatUint(k.facts.Base, 10), BaseTime: k.facts.BaseTime,
	}
	select {
	case k.mu <- struct{}{}:
		defer k.mu.unlock()
		if k.err != nil {
			d.Error = k.err.Error()
		}
	default: // it is just being opened
	}
	return d
}
