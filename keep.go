package tidemark

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// MaxKeptForks is how many forks a server keeps. Each has a log of its own, with files and memory.
const MaxKeptForks = 16

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

// keptFacts are what fork.json has: docs/formats/data-directory.md.
type keptFacts struct {
	// Parent is the name of the parent; empty: a root world.
	Parent string `json:"parent,omitempty"`
	// Base is the resource version of the parent that the fork began with.
	Base uint64 `json:"base"`
	// BaseTime is when the change with the revision Base was made; zero: unknown, or an earlier version made the fork.
	BaseTime time.Time `json:"baseTime,omitzero"`
	Created  time.Time `json:"created"`
	// Controllers selects the controllers; null: those of the server.
	Controllers []string `json:"controllers"`
	// Past: see fork.past. Nil: an earlier version made the fork, and did not record it.
	Past *bool `json:"past"`
	// Tokens are the identities of the forks whose tokens are valid, satoken.Authority.Forks.
	Tokens []string `json:"tokens"`
}

// read reads a fork.json. After an error the facts are zero.
func (f *keptFacts) read(text []byte) error {
	err := json.Unmarshal(text, f)
	if err == nil && (f.Base == 0 || len(f.Tokens) == 0) { // without an identity, it would issue the tokens of the server
		err = errors.New("base or tokens is missing")
	}
	if err != nil {
		*f = keptFacts{}
	}
	return err
}

// kept is a fork that is kept, whether it is open or not.
type kept struct {
	running *running
	name    string
	facts   keptFacts
	issued  []*authn.Issued // World.issued
	// own authenticates clients by the tokens that the fork has issued. It does not read the objects of the fork.
	own   *authn.Credentials
	world atomic.Pointer[World]
	// held: a Go program or the control API has the world, so it stays open even if no request uses it.
	held atomic.Bool

	mu     slots     // one, held while the fork is made, opened, closed or deleted
	gone   bool      // it was deleted
	failed time.Time // of the last try to open it
	err    error     // why that failed; nil: it did not
}

// newKept returns a kept fork that is not open. parents are the tokens of World.issued of its parents.
func (r *running) newKept(name string, facts keptFacts, parents []*authn.Issued) *kept {
	issued := append([]*authn.Issued{new(authn.Issued)}, parents...)
	a := &r.authentication
	return &kept{
		running: r, name: name, facts: facts, issued: issued, mu: make(slots, 1),
		own: &authn.Credentials{
			Audiences: a.base.Audiences, Now: a.base.Now,
			Tokens: []authn.Tokens{a.forServer(issued[0]), r.keys.ForkAs(facts.Tokens).Signatures()},
		},
	}
}

// past reports whether requests also require the current right on the server. It is true for a fork that an earlier version
// made, because it is not known whether that fork began with an old state.
func (f *keptFacts) past() bool { return f.Past == nil || *f.Past }

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

// loadKept finds the kept forks of the storage. It opens none.
func (r *running) loadKept(logs store.ForkLogs) {
	if logs == nil {
		return
	}
	r.forks.logs = logs
	all, err := logs.List()
	if err != nil {
		r.root.server.logOf(logForks).Error("the kept forks cannot be listed", "err", err)
		return
	}
	for name, facts := range all {
		if len(validation.IsDNS1123Label(name)) > 0 {
			r.root.server.logOf(logForks).Warn("a directory among the kept forks is ignored: its name is not one of a fork", "name", name)
			continue
		}
		var read keptFacts
		err := read.read(facts)
		k := r.newKept(name, read, r.root.issued)
		if err != nil {
			k.err = fmt.Errorf("its description is damaged: %w", err)
			r.root.server.logOf(logForks).Error("a kept fork cannot be used", "fork", name, "err", k.err)
		} else if read.Past == nil {
			r.root.server.logOf(logForks).Warn("an earlier version made a kept fork: each request to it also needs the right on the server; a fork that is made again has permissions of its own", "fork", name)
		}
		r.forks.keep(k)
	}
}

// keep makes a kept fork, and opens it. The options were checked.
func (w *World) keep(ctx context.Context, o ForkOptions) (*World, error) {
	r := w.running
	switch {
	case r.forks.logs == nil:
		return nil, ErrForkNotKept
	case o.Since != 0:
		return nil, errors.New("a kept fork begins without the history of its parent: Since must be zero")
	case o.Seed != 0:
		return nil, errors.New("a kept fork has no seed: after a restart, its UIDs would be repeated")
	}
	account, err := w.server.account(r)
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
	past := w.forksPast(&o, state)
	k := r.newKept(o.Name, keptFacts{
		Parent: w.Name(), Base: uint64(state.Revision()), BaseTime: state.Time(), Created: w.server.clock(), Controllers: o.Controllers,
		Tokens: w.tokens.Fork().Forks(), Past: &past,
	}, w.issued)
	k.mu.lock()
	defer k.mu.unlock()
	if err := r.forks.addKept(k, w.server.Forks.Max); err != nil {
		return nil, err
	}
	if err = k.write(ctx, state); err == nil {
		account.Close() // the store has its own
		if err = k.open(); err == nil {
			return k.world.Load(), nil
		}
		err = errors.Join(err, r.forks.logs.Delete(k.name))
	}
	k.gone = true
	r.forks.removeKept(k)
	return nil, err
}

// write writes the log of the fork: a copy of the state that it begins with. Writes to the parent go on
// meanwhile. The caller holds mu.
func (k *kept) write(ctx context.Context, state *store.State) error {
	facts, err := json.Marshal(&k.facts)
	if err != nil {
		return err
	}
	set, err := k.running.root.server.encryption(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errForkLog, err)
	}
	defer set.Close()
	begin := store.Beginning{Revision: state.Revision(), Time: state.Time()}
	begin.Objects, begin.Err = set.Seal(state.All())
	if err := k.running.forks.logs.Create(ctx, k.name, facts, begin); err != nil {
		return fmt.Errorf("%w: %w", errForkLog, err)
	}
	return nil
}

// account opens an account for a fork.
func (s *Server) account(r *running) (*store.Account, error) {
	bytes := cmp.Or(s.Forks.MaxBytes, DefaultForkBytes)
	account, err := r.forks.budget.Open(bytes - bytes/2)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrForkMemory, err)
	}
	return account, nil
}

// use returns the open world. It opens it if it is not. Nil without an error: the fork was deleted. The context ends
// the wait alone: an opening that has begun goes on.
func (k *kept) use(ctx context.Context) (*World, error) {
	if w := k.world.Load(); w != nil {
		return w, nil
	}
	f := &k.running.forks
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
	case k.err != nil && k.running.root.server.clock().Sub(k.failed) < retryKept:
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

// forRequest opens the world for a request that admits allows. Nil: it has written an error.
func (k *kept) forRequest(rw http.ResponseWriter, q *http.Request) *World {
	ctx, cancel := context.WithTimeout(q.Context(), keptWait)
	defer cancel()
	w, err := k.use(ctx)
	if err != nil || w == nil {
		noWorld(rw, k.name, err)
		return nil
	}
	return w
}

// admits reports whether a request may open the fork, or wait until it is open. The roles of the fork are among its objects,
// which are not read yet. So a request is admitted if the fork has issued its token, or if its user may POST the path of the
// fork below /forks on the server, as roles for making forks allow. The error is that of authz.Undecided.
func (k *kept) admits(q *http.Request) (bool, error) {
	if user, _ := k.own.Authenticate(q); user != nil {
		return true, nil
	}
	root := k.running.root
	user, err := root.credentials.Authenticate(without(q, forkPath+k.name))
	if err != nil {
		root.server.logOf(logForks).Debug("authentication failed", "fork", k.name, "err", err)
	}
	if user == nil || user.IsAnonymous() {
		return false, nil
	}
	ok, _, err := authz.Allowed(q.Context(), root.authorizer, &authz.Attributes{User: user, Verb: "post", Path: forksPath + "/" + k.name})
	if err != nil {
		root.server.logOf(logForks).Debug("authorization failed", "fork", k.name, "err", err)
	}
	return ok, err
}

// open opens the world, and remembers why it cannot be opened. The caller holds mu.
func (k *kept) open() error {
	// A request that goes away does not end what others wait for.
	w, err := k.openWorld(context.Background())
	if errors.Is(err, ErrForkMemory) { // a deletion of another fork may help at once
		return fmt.Errorf("the kept fork %s cannot be opened: %w", k.name, err)
	}
	if err != nil {
		k.err, k.failed = fmt.Errorf("the kept fork %s cannot be opened: %w", k.name, err), k.running.root.server.clock()
		k.running.root.server.logOf(logForks).Error("a kept fork cannot be opened", "fork", k.name, "err", err)
		return k.err
	}
	k.err = nil
	k.world.Store(w)
	return nil
}

func (k *kept) openWorld(ctx context.Context) (_ *World, err error) {
	r, s := k.running, k.running.root.server
	account, err := s.account(r)
	if err != nil {
		return nil, err
	}
	set, err := s.encryption(ctx)
	if err != nil {
		account.Close()
		return nil, err
	}
	log, err := r.forks.logs.Open(ctx, k.name)
	if err != nil {
		account.Close()
		set.Close()
		return nil, err
	}
	controllers := k.facts.Controllers
	if controllers == nil {
		controllers = r.controllers()
	}
	w := &World{server: s, running: r, issued: k.issued, clock: s.Clock, now: s.now, fork: &fork{
		name: k.name, parent: k.facts.Parent, controllers: controllers, base: store.Revision(k.facts.Base), baseTime: k.facts.BaseTime, created: k.facts.Created, kept: k, past: k.facts.past(), lastUse: time.Now(),
	}}
	w.use, w.direct = w.openOnce, w.newDirect(w.serve)
	ready := make(chan struct{})
	defer close(ready)
	note := func(warning bool, message string, pairs ...any) {
		s.note(warning, message, append(pairs, "fork", k.name)...)
	}
	sealed, bytes := encryption.Wrap(log, encryption.NewActive(set)), cmp.Or(s.Forks.MaxBytes, DefaultForkBytes)
	sealed.StandIns = s.standIns()
	w.store, err = store.Open(ctx, store.Options{
		Log: sealed, Sealing: sealed, Retention: s.History.Retention, MaxMemory: bytes / 2, MaxDisk: r.forks.diskShare(s.History.MaxDiskBytes), Packed: packed,
		Now: s.now, Note: note, Account: account, OnFatal: w.broken, Base: w.fork.base, OnDivergence: func() { <-ready; w.diverged() },
	})
	if err != nil {
		account.Close()
		w.direct.Stop()
		return nil, err
	}
	w.store.SetQuota(bytes - bytes/2)
	w.custom = crd.NewSet(w.store, builtin.Catalog(), s.logOf(logCustomResources))
	w.tokens, w.rbac = w.accounts(r.keys.ForkAs(k.facts.Tokens)), rbac.New(w.store)
	if err := w.use(); err != nil {
		return nil, errors.Join(err, w.end())
	}
	if s.Encryption.AutomaticReload {
		sealed.Follow(s.encryptionConfig())
	}
	return w, nil
}

// sweepKept closes kept forks that no request uses, until the server ends.
func (w *World) sweepKept() {
	ticker := time.NewTicker(keptSweep)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.running.forks.closeIdle(keptIdle)
		case <-w.ending.Done():
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
			w.server.logOf(logForks).Warn("a kept fork was not closed cleanly", "fork", k.name, "err", err)
		}
	}
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
	k.running.forks.ending.Go(func() {
		k.mu.lock()
		defer k.mu.unlock()
		k.err, k.failed = fmt.Errorf("the log of the kept fork %s failed: %w", k.name, err), k.running.root.server.clock()
		_ = k.closeLocked(w) // with the same error
	})
}

// delete closes the fork, and removes what is kept of it.
func (k *kept) delete() error {
	k.mu.lock()
	defer k.mu.unlock()
	if k.gone {
		return nil
	}
	if err := k.closeLocked(k.world.Load()); err != nil {
		k.running.root.server.logOf(logForks).Warn("a fork was not closed cleanly", "fork", k.name, "err", err)
	}
	if err := k.running.forks.logs.Delete(k.name); err != nil {
		return fmt.Errorf("%w: %w", errForkLog, err)
	}
	k.gone = true
	k.running.forks.removeKept(k)
	return nil
}

// describe returns what clients see of the fork. It does not open it.
func (k *kept) describe() forkapi.Fork {
	if w := k.world.Load(); w != nil {
		return w.describe()
	}
	d := forkapi.Fork{
		Name: k.name, Parent: k.facts.Parent, URL: k.running.url + forkPath + k.name, Path: forkPath + k.name, Kept: true,
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
