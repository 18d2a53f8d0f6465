package tidemark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/forkapi"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// The limits of Forks that are zero.
const (
	DefaultForks          = 1000
	DefaultForkBytes      = 64 << 20
	DefaultForkTotalBytes = 1 << 30
)

// Forks limits the forks of a server. The zero value has the defaults.
type Forks struct {
	// Max is how many forks exist at a time; zero: DefaultForks. Negative: none.
	Max int
	// MaxBytes limits the memory of each fork: half of it for the objects that the fork wrote, half for
	// its history, with the part that it has of its parent. Objects that it shares with its parent do not count.
	// Copies count, which a fork of a resource version has whose objects its parent has no longer in memory. Zero:
	// DefaultForkBytes.
	MaxBytes int64
	// MaxTotalBytes limits the memory of all forks together, as MaxBytes counts it. When it is used, writes that
	// grow objects in forks are refused, and so are new forks. The objects of a fork that was closed count until
	// its own forks are closed, too. Zero: DefaultForkTotalBytes.
	MaxTotalBytes int64
}

// ForkOptions configures a fork. The zero value is a fork of the newest state with a generated name.
type ForkOptions struct {
	// Name is the name of the fork, a DNS label, which its URL ends with. The name "root" is taken.
	// Empty: a name is generated.
	Name string
	// At is the resource version of the state that the fork begins with, in the history of its parent;
	// zero: the newest.
	At uint64
	// Since is the resource version that the history of the fork reaches back to: the changes after it, up to
	// At, are those of the parent, with their resource versions. Watches, exact lists and replicas from Since on
	// work in the fork, also when the parent no longer has that history. The changes count in Forks.MaxBytes.
	// Zero: the history begins with the state of the fork.
	Since uint64
	// Controllers selects the controllers, as Server.Controllers does. Nil: those of the server.
	Controllers []string
	// Seed selects the UIDs, generated names and addresses that are made in the fork, as Server.Seed does. It does
	// not depend on the name, nor on the seed of the server. Zero: the seed of the world that is forked, if it has
	// one, together with the name.
	Seed uint64
	// Keep keeps the fork in the storage of the server: it is there after a restart, with all that was written to
	// it. The fork then has a copy of all objects, which counts in Forks.MaxBytes, so that it takes time in
	// proportion to them. Since and Seed must be zero. A server has MaxKeptForks of them at most.
	Keep bool
}

// Errors of World.Fork.
var (
	// ErrForkExists is returned if there is a fork with the name.
	ErrForkExists = errors.New("a fork with this name exists")
	// ErrTooManyForks is returned if there are Forks.Max forks.
	ErrTooManyForks = errors.New("there are as many forks as the server may have")
	// ErrForkMemory is returned if the forks of the server take Forks.MaxTotalBytes, or would with what the fork
	// begins with, or if a fork would begin with copies of more old objects than its memory has room for.
	ErrForkMemory = errors.New("there is no memory for the fork")
	// ErrForkHistory is returned if the changes after ForkOptions.Since take more than half of Forks.MaxBytes.
	ErrForkHistory = store.ErrTooMuchHistory
	// ErrForkNotKept is returned for ForkOptions.Keep by a server without a data directory to write to.
	ErrForkNotKept = errors.New("the fork cannot be kept: the server has no data directory of its own: its objects are in memory only, in etcd, or a copy of those of another server")
	// ErrTooManyKept is returned if there are MaxKeptForks kept forks.
	ErrTooManyKept = fmt.Errorf("there are %d kept forks, which is as many as a server may have: delete one", MaxKeptForks)
	// ErrNoFork is returned if there is no fork with the name.
	ErrNoFork = errors.New("there is no fork with this name")
	// ErrForkClosed is returned for a world that was closed.
	ErrForkClosed = errors.New("the world was closed")
)

// errKeptBusy is returned if keptWaiting requests wait for kept forks to be opened.
var errKeptBusy = errors.New("too many requests wait for kept forks to be opened, please try again later")

// errForkLog is returned if the storage failed to make or remove a kept fork.
var errForkLog = errors.New("the storage of the fork")

// forkPath is the beginning of the paths of forks.
const forkPath = "/fork/"

// closeWait is how long Close waits for requests.
const closeWait = time.Second

// fork is what a World has in addition if it is a fork.
type fork struct {
	name        string
	parent      string              // the name of the parent; empty: a root world
	ancestor    weak.Pointer[World] // the parent, which a fork may outlive and does not keep in memory
	controllers []string
	base        store.Revision // of the parent's state
	baseTime    time.Time      // of the change with this revision; zero: unknown
	created     time.Time
	kept        *kept // nil: the fork is in memory alone
	// past: the fork, or one that it was forked from, began with an older state than the newest.
	past bool
	// credentials are set when the fork is opened.
	credentials serverTokens

	once sync.Once // opens the world, or closes it before
	err  error

	mu             sync.Mutex
	begun, started bool          // the start of the controllers, which the first write or Settle begins
	closed         bool          // no request begins any more
	active         int           // requests under way
	lastUse        time.Time     // when the last request ended, or the fork was opened
	adminToken     string        // that the control API returns; empty: it has not
	idle           chan struct{} // closed when closed is true and active is zero; nil: Close does not wait
	loops          sync.WaitGroup
}

// forks are the forks of a server, by their names.
type forks struct {
	budget   *store.Budget
	logs     store.ForkLogs // nil: forks cannot be kept
	openings slots          // of kept forks
	waiting  atomic.Int64   // requests for kept forks that are not open
	ending   sync.WaitGroup // of kept forks whose logs failed

	mu     sync.Mutex
	all    map[string]*World // in memory alone
	kept   map[string]*kept
	closed bool
}

// Fork makes a world that begins with a state of this one, and then has changes, custom resources,
// permissions and controllers of its own. It shares the objects of the state, so that it takes the same
// time and memory however many there are. It is in memory, until its Close or that of the server, or kept
// (see ForkOptions.Keep). Its resource versions continue above that of the state. Older ones are answered with 410, with
// ForkOptions.Since those below it.
//
// The controllers start with the first write, or with Settle. Tokens that the world accepts are valid in the fork, but not
// the other way around.
//
// The errors are ErrForkExists, ErrTooManyForks, ErrForkHistory, ErrForkMemory, ErrForkClosed, ErrForkNotKept,
// ErrTooManyKept, those of the storage of a kept fork, errors for an invalid name, unknown controllers or a Since after At, and those of reading an old resource version.
func (w *World) Fork(ctx context.Context, o ForkOptions) (*World, error) {
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
		f, err := w.keep(ctx, o)
		if err == nil {
			f.hold()
		}
		return f, err
	}
	if o.Controllers == nil {
		o.Controllers = w.running.controllers()
	}
	bytes := cmp.Or(w.server.Forks.MaxBytes, DefaultForkBytes)
	account, err := w.server.account(w.running)
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
	f := &World{server: w.server, running: w.running, seed: w.seed.fork(o.Seed, o.Name), fork: &fork{
		name: o.Name, parent: w.Name(), ancestor: weak.Make(w), controllers: o.Controllers, base: state.Revision(), baseTime: state.Time(), created: w.server.clock(),
		past: w.forksPast(&o, state),
	}}
	if f.clock = w.server.Clock; f.clock == nil {
		f.clock = w.clock.Fork()
	}
	f.now = f.clock.Now
	f.issued = append([]*authn.Issued{new(authn.Issued)}, w.issued...)
	f.use, f.direct = f.openOnce, f.newDirect(f.serve)
	f.store, err = w.store.Fork(state, store.Options{
		Log: memlog.FromHistory(state, since, changes), Retention: w.server.History.Retention, MaxMemory: bytes / 2, Packed: packed, Now: f.now,
		Note: w.server.note, Account: account, OnFatal: f.broken, OnDivergence: f.diverged,
	})
	if errors.Is(err, store.ErrClosed) {
		return nil, ErrForkClosed
	}
	if err != nil {
		return nil, err
	}
	f.store.SetQuota(bytes - bytes/2)
	f.custom, f.tokens, f.rbac = w.custom.Fork(f.store), f.accounts(w.tokens.Fork()), w.rbac.Fork(f.store)
	if err = w.running.forks.add(f, w.server.Forks.Max); err != nil {
		f.endCalls()
		return nil, errors.Join(err, f.store.Close())
	}
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

// beginning returns the state that a fork begins with, and the changes after a revision that led to it. They
// take most bytes in history at most. What the fork has alone counts in the account.
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

// clock returns the time of the server.
func (s *Server) clock() time.Time {
	if s.now != nil {
		return s.now()
	}
	return time.Now()
}

// openOnce opens the parts of a fork: with its first request, or with its first fork.
func (w *World) openOnce() error {
	w.fork.once.Do(func() { w.fork.err = w.openFork() })
	return w.fork.err
}

// openFork opens the parts of a fork that its first request needs. They share with those of the root world
// what the server has once, such as seats, and hold nothing of the parent.
func (w *World) openFork() error {
	root := w.running.root
	w.metrics, w.durations = root.metrics, root.durations
	if err := w.open(); err != nil {
		return err
	}
	var err error
	if w.fork.credentials, err = w.serverTokens(); err != nil {
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
	c.RepresentationBytes = cmp.Or(w.server.Forks.MaxBytes, DefaultForkBytes) / 4
	w.handler = root.handler.Fork(c)
	return nil
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
		w.server.logOf(logForks).Error("the controllers of a fork do not run", "fork", f.name, "err", err)
	}
}

// broken is called if the log of a fork failed. The fork ends, the server goes on.
func (w *World) broken(err error) {
	w.server.logOf(logForks).Error("the log of a fork failed", "fork", w.fork.name, "err", err)
	if k := w.fork.kept; k != nil {
		k.broken(w, err)
	}
}

// serve answers a request to a fork.
func (w *World) serve(rw http.ResponseWriter, r *http.Request) {
	if !w.fork.begin() {
		if w.fork.kept != nil { // perhaps because no request used it: the next one opens it again
			rw.Header().Set("Retry-After", "1")
			fail(rw, http.StatusServiceUnavailable, "the fork is being closed, please try again")
			return
		}
		noFork(rw, w.fork.name)
		return
	}
	defer w.fork.end()
	if err := w.use(); err != nil {
		w.server.logOf(logForks).Error("a fork cannot be opened", "fork", w.fork.name, "err", err)
		fail(rw, http.StatusInternalServerError, "the fork cannot be opened")
		return
	}
	w.answer(rw, r)
}

// begin counts a request, unless the fork is closed.
func (f *fork) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.active++
	return true
}

func (f *fork) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lastUse = time.Now()
	if f.active--; f.active == 0 && f.idle != nil {
		close(f.idle)
		f.idle = nil
	}
}

// unused reports whether there has been no request for a time.
func (f *fork) unused(d time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.active == 0 && time.Since(f.lastUse) >= d
}

// Close ends a fork: it ends watches cleanly, lets requests finish for a moment, and frees the memory. Its
// own forks go on. It is idempotent. A kept fork stays in the storage, and the next request opens it again; see
// Delete. A root world is closed with its server; for it, Close does nothing.
func (w *World) Close() error {
	switch {
	case w.fork == nil:
		return nil
	case w.fork.kept != nil:
		return w.fork.kept.close(w)
	}
	w.running.forks.remove(w)
	return w.end()
}

// Delete closes a fork, and removes what is kept of it. For a root world it does nothing.
func (w *World) Delete() error {
	if w.fork == nil || w.fork.kept == nil {
		return w.Close()
	}
	return w.fork.kept.delete()
}

// Fork returns the fork with the name. It opens a kept one that is not in use; the error may be that of its log.
// If there is none, the error is ErrNoFork. It panics before Start has succeeded.
func (s *Server) Fork(name string) (*World, error) {
	w, err := s.must().forks.find(context.Background(), name)
	if err == nil && w == nil {
		return nil, ErrNoFork
	}
	if err == nil {
		w.hold()
	}
	return w, err
}

// hold keeps a kept fork open until Close, also if no request uses it.
func (w *World) hold() {
	if w.fork != nil && w.fork.kept != nil {
		w.fork.kept.held.Store(true)
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

// add adds a fork, unless there are most forks already. A most of zero is the default, a negative one
// refuses all forks.
func (f *forks) add(w *World, most int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return ErrForkClosed
	case f.taken(w.fork.name):
		return ErrForkExists
	case f.full(most):
		return ErrTooManyForks
	}
	if f.all == nil {
		f.all = map[string]*World{}
	}
	f.all[w.fork.name] = w
	return nil
}

// taken reports whether there is a fork with the name. The caller holds mu.
func (f *forks) taken(name string) bool {
	return f.all[name] != nil || f.kept[name] != nil || name == control.Root
}

// full reports whether there are most forks. The caller holds mu.
func (f *forks) full(most int) bool {
	return len(f.all)+len(f.kept) >= max(0, cmp.Or(most, DefaultForks))
}

// addKept is add for a kept fork.
func (f *forks) addKept(k *kept, most int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.closed:
		return ErrForkClosed
	case f.taken(k.name):
		return ErrForkExists
	case f.full(most):
		return ErrTooManyForks
	case len(f.kept) >= MaxKeptForks:
		return ErrTooManyKept
	}
	f.keepLocked(k)
	return nil
}

// keep adds a kept fork of the storage, beyond all limits.
func (f *forks) keep(k *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepLocked(k)
}

func (f *forks) keepLocked(k *kept) {
	if f.kept == nil {
		f.kept = map[string]*kept{}
	}
	f.kept[k.name] = k
}

func (f *forks) removeKept(k *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept[k.name] == k {
		delete(f.kept, k.name)
	}
}

// get returns a fork, both nil if there is none.
func (f *forks) get(name string) (*World, *kept) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[name], f.kept[name]
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
		return true, w.Close()
	}
	return false, nil
}

func (f *forks) remove(w *World) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[w.fork.name] == w {
		delete(f.all, w.fork.name)
	}
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

// refused reports whether the server stops.
func (f *forks) refused() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// refuse refuses new forks.
func (f *forks) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// close closes all forks. There are no requests any more. Those that are kept stay in the storage.
func (f *forks) close() error {
	f.mu.Lock()
	worlds, kept := slices.Collect(maps.Values(f.all)), slices.Collect(maps.Values(f.kept))
	f.mu.Unlock()
	var errs []error
	for _, w := range worlds {
		errs = append(errs, w.Close())
	}
	for _, k := range kept {
		k.mu.lock() // waits until it is open, if a request opens it
		errs = append(errs, k.closeLocked(k.world.Load()))
		k.mu.unlock()
	}
	f.ending.Wait()
	return errors.Join(errs...)
}
