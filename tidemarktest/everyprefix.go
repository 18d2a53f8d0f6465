package tidemarktest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A Search runs a controller many times, each time with another disturbance, and judges the ends. The
// zero value has the defaults.
type Search struct {
	// Budget is how long new runs begin. The test log has how many runs were left out. Zero: one minute.
	Budget time.Duration
	// Parallel is how many runs happen at a time; zero: eight for each CPU, as most of the time of a run is the
	// wait for its end.
	Parallel int
}

// A Run is one run of a controller, from the state of the Env that was given to its end.
type Run struct {
	// Changes are all changes until the end, in their order: also those before a crash.
	Changes []Change

	ends []endObject
}

// A Check judges a run with a disturbance beside the first run, which had none.
type Check func(first, disturbed *Run) error

// SameEnd returns the Check that the objects are the same at the end of both runs, without what
// differs from run to run: see Env.Golden.
func SameEnd() Check {
	return func(first, disturbed *Run) error {
		if diff := diffEnds(first.ends, disturbed.ends); diff != "" {
			return fmt.Errorf("the ends differ (- without the crash, + with it):\n%s", diff)
		}
		return nil
	}
}

const (
	// firstQuiet is how long the first run must be quiet to have ended: all others are compared to it.
	firstQuiet = time.Second
	// wrongQuiet is how long a run must be quiet before a check that fails counts.
	wrongQuiet = 3 * time.Second
	// stopLimit is how long a controller may take to return after its context has ended.
	stopLimit = 10 * time.Second
	// progressParts is how often a search reports its progress.
	progressParts = 10
)

// EveryPrefix calls Search.EveryPrefix with the defaults.
func EveryPrefix(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	Search{}.EveryPrefix(t, env, run, checks...)
}

// EveryPrefix proves that a controller can crash after each of its writes. It runs the controller on a
// copy of env until the copy has settled, as Env.Settle defines it. Then, for each write of a client in
// that run, it makes a copy of the state right after the write, and runs the controller anew on it
// until it has settled. A run in which the controller reads without writing goes on for up to three seconds, so
// one that is slow has its time. Each run must pass the checks. The Env itself does not change.
//
// The function run starts a controller with no memory of former runs, against the Env that it is given,
// and returns when the context ends, or before if it has nothing more to do. Several calls run at the
// same time. Leader election must be off: the next leader would wait for the lease of the one that crashed.
// Writes of Events and Leases are no points of a crash.
//
// A run whose checks fail gets three more seconds without writes before that counts, so a slow machine is
// no alarm. A controller that waits longer, for example between retries, needs a shorter delay in tests.
func (s Search) EveryPrefix(t TB, env *Env, run func(ctx context.Context, env *Env), checks ...Check) {
	t.Helper()
	begin := time.Now()
	p := &prefixes{Search: s, t: t, run: run, checks: checks, begin: begin}
	p.Budget, p.Parallel = cmp.Or(s.Budget, time.Minute), cmp.Or(s.Parallel, 8*runtime.GOMAXPROCS(0))
	if err := p.runFirst(env); err != nil {
		t.Fatalf("tidemarktest: EveryPrefix: the first run: %v", err)
		return
	}
	defer p.origin.discard()
	t.Logf("tidemarktest: EveryPrefix: the first run has %d writes and took %v", len(p.writes), time.Since(begin).Round(time.Millisecond))
	p.report(p.runAll())
}

// prefixes is one call of EveryPrefix.
type prefixes struct {
	Search
	t      TB
	run    func(ctx context.Context, env *Env)
	checks []Check
	begin  time.Time

	origin *Env // where the first run was
	first  *Run
	writes []Change // of clients in the first run
	kept   renderings
}

// runFirst runs the controller without a disturbance.
func (p *prefixes) runFirst(env *Env) error {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	var err error
	if p.origin, err = env.forkAt(ctx, 0); err != nil {
		return err
	}
	r := controllerRun{env: p.origin, kept: &p.kept}
	r.start(p.run)
	if p.first, err = r.end(ctx, firstQuiet); err == nil {
		err = r.stop()
	}
	if err != nil {
		r.stop()
		p.origin.discard()
		return err
	}
	for _, c := range p.first.Changes {
		if !transient(c.Collection) && (c.Actor == nil || c.Actor.Loop == "") {
			p.writes = append(p.writes, c)
		}
	}
	if len(p.writes) == 0 {
		p.origin.discard()
		return fmt.Errorf("the controller has not written anything within %v", firstQuiet)
	}
	return nil
}

// outcome is that of the run after a number of writes.
type outcome struct {
	writes int
	tried  bool
	err    error
}

// runAll runs the controller after each number of writes, zero too, and returns the outcomes in this
// order.
func (p *prefixes) runAll() []outcome {
	outcomes := make([]outcome, len(p.writes)+1)
	pending := make(chan int)
	done := make(chan outcome)
	var workers sync.WaitGroup
	for range min(p.Parallel, len(outcomes)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for writes := range pending {
				done <- outcome{writes, true, p.runAfter(writes)}
			}
		}()
	}
	go func() {
		for _, writes := range spread(len(outcomes)) {
			if time.Since(p.begin) > p.Budget {
				break
			}
			pending <- writes
		}
		close(pending)
		workers.Wait()
		close(done)
	}()
	tried, failed := 0, 0
	for o := range done {
		outcomes[o.writes] = o
		if tried++; o.err != nil {
			failed++
		}
		if tried*progressParts/len(outcomes) != (tried-1)*progressParts/len(outcomes) {
			p.t.Logf("tidemarktest: EveryPrefix: %d of %d runs, %d failed, %v of %v", tried, len(outcomes), failed, time.Since(p.begin).Round(100*time.Millisecond), p.Budget)
		}
	}
	return outcomes
}

// spread returns the numbers below n in an order in which each beginning covers them evenly: 0, then
// the multiples of a large power of two, and so on.
func spread(n int) []int {
	step := 1
	for step < n {
		step *= 2
	}
	order := []int{0}
	for ; step > 0; step /= 2 {
		for i := step; i < n; i += 2 * step {
			order = append(order, i)
		}
	}
	return order[:min(n, len(order))]
}

// runAfter runs the controller on a copy of the first run after a number of its writes.
func (p *prefixes) runAfter(writes int) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	at := p.revision(writes)
	env, err := p.origin.forkAt(ctx, at)
	if err != nil {
		return err
	}
	r := controllerRun{env: env, kept: &p.kept}
	for _, c := range p.first.Changes {
		if c.Revision <= at {
			r.before = append(r.before, c)
		}
	}
	r.start(p.run)
	for _, quiet := range []time.Duration{settleQuiet, wrongQuiet} {
		var end *Run
		if end, err = r.end(ctx, quiet); err != nil {
			break
		}
		if err = p.check(end); err == nil {
			break
		}
	}
	if err != nil {
		p.dump(env, writes)
	}
	if stopped := r.stop(); err == nil {
		err = stopped
	}
	if closed := env.discard(); err == nil {
		err = closed
	}
	return err
}

// revision is the one after a number of writes of the first run.
func (p *prefixes) revision(writes int) uint64 {
	if writes == 0 {
		return p.origin.world.Revision
	}
	return p.writes[writes-1].Revision
}

func (p *prefixes) check(r *Run) error {
	for _, check := range p.checks {
		if err := check(p.first, r); err != nil {
			return err
		}
	}
	return nil
}

// report fails the test for the outcomes with errors, in the order of the writes.
func (p *prefixes) report(outcomes []outcome) {
	p.t.Helper()
	left := 0
	for _, o := range outcomes {
		switch {
		case !o.tried:
			left++
		case o.err == nil:
		case o.writes == 0:
			p.t.Errorf("tidemarktest: EveryPrefix: a second run without a crash fails, so crashes cannot be judged: %v%s", o.err, p.hint(0))
			return
		default:
			last := p.writes[o.writes-1]
			p.t.Errorf("tidemarktest: EveryPrefix: a crash at revision %d, after write %d of %d:\n%s%v%s", last.Revision, o.writes, len(p.writes), describe([]Change{last}), o.err, p.hint(o.writes))
		}
	}
	if left > 0 {
		p.t.Logf("tidemarktest: EveryPrefix: the budget of %v ended before %d of %d runs; Search.Budget is larger on demand", p.Budget, left, len(outcomes))
	}
}

// hint says how to see the end of a run that failed.
func (p *prefixes) hint(writes int) string {
	dir := p.dir("DIR", writes)
	if root := os.Getenv("TIDEMARK_DUMP"); root != "" {
		return fmt.Sprintf("\n  its state and history after the crash are in %s", p.dir(root, writes))
	}
	test, _, _ := strings.Cut(p.t.Name(), "/")
	return fmt.Sprintf("\n  to have its state and history in %s: TIDEMARK_DUMP=DIR go test -run '^%s$'", dir, test)
}

func (p *prefixes) dir(root string, writes int) string {
	return filepath.Join(root, fileName(p.t.Name()), fmt.Sprintf("crash-after-write-%d", writes))
}

// dump keeps the end of a run that failed if TIDEMARK_DUMP names a directory.
func (p *prefixes) dump(env *Env, writes int) {
	root := os.Getenv("TIDEMARK_DUMP")
	if root == "" {
		return
	}
	dir := p.dir(root, writes)
	err := os.MkdirAll(dir, 0o777)
	if err == nil {
		err = env.save("state", filepath.Join(dir, "state.yaml"))
	}
	if err == nil {
		err = env.save("history", filepath.Join(dir, "history.jsonl"))
	}
	if err != nil {
		p.t.Logf("tidemarktest: the dump: %v", err)
	}
}

// controllerRun is a controller that runs in a world.
type controllerRun struct {
	env    *Env
	before []Change // the world's history before its fork
	kept   *renderings

	cancel   context.CancelFunc
	returned chan struct{}
}

func (r *controllerRun) start(run func(ctx context.Context, env *Env)) {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.returned = make(chan struct{})
	go func() {
		defer close(r.returned)
		run(ctx, r.env)
	}()
}

// end waits until the world has settled, and returns what has happened until then.
func (r *controllerRun) end(ctx context.Context, quiet time.Duration) (*Run, error) {
	revision, err := r.env.settleIdle(ctx, quiet)
	if err != nil {
		return nil, err
	}
	changes, err := r.env.history(ctx, r.env.world.Revision, revision)
	if err != nil {
		return nil, err
	}
	run := &Run{Changes: append(r.before[:len(r.before):len(r.before)], changes...)}
	run.ends, err = ends(run.Changes, r.kept)
	return run, err
}

// stop ends the controller. It can be called twice.
func (r *controllerRun) stop() error {
	r.cancel()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-r.returned:
		return nil
	case <-timer.C:
		return fmt.Errorf("the controller does not return after its context has ended (%v)", stopLimit)
	}
}
