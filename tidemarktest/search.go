package tidemarktest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Search runs a controller many times, each time with another disturbance, and checks how each run
// ends. The zero value has the defaults. EveryPrefix, EveryFault and EveryLag are searches.
//
// Each search gets a function that starts a controller with no memory of former runs, against the Env that
// it is given, and returns when the context ends, or before if the controller has nothing more to do.
// Several calls run at the same time. If it panics, its run fails, with the stack; a panic of another goroutine ends the process. Leader election must be off: the next leader would wait for the lease
// of the one before.
//
// A search begins with a run without a disturbance, on a copy of the Env that it gets, until the copy has
// settled as Env.Settle defines it. It waits for the first write for four seconds. A run in which the controller reads
// without writing goes on for up to three seconds, so one that is slow has its time. Each other run has a copy of its own too, and must pass the checks
// beside the first run. The Env itself does not change. The first of the other runs has no disturbance
// either. If that fails the checks, disturbances cannot be judged, and the search reports only this.
//
// A run whose checks fail goes on until there were no writes for three seconds, and is then checked again, so that a
// slow machine does not fail the test. A controller that waits longer, for example between retries, needs a
// shorter delay in tests. A run that fails while the machine is overloaded, or that does not settle in time, is
// repeated after the others, when no other run of the search is under way, and the second time counts. If half of the time
// that go test gives the test does not suffice for that, the test is skipped and says so, unless other runs fail.
type Search struct {
	// Budget limits the time in which runs begin; repetitions begin within twice that time, or later if go test's time limit
	// allows it. None begins so late that go test would end the process before its end. If the time is too short for all of
	// them, the runs that are made are spread evenly, and the test log has the number of those that were left out. The
	// test fails if there is time for none. Zero: one minute.
	Budget time.Duration
	// Parallel is how many runs happen at a time; zero: twenty for each CPU, as most of the time of a run is the
	// wait for its end. All searches of a process together have at most 32 for each CPU.
	Parallel int
}

// A Run is one run of a controller, from the state of the Env that was given to its end.
type Run struct {
	// Changes are all changes of the run in their order, with those before a crash or a restart.
	Changes []Change

	touched []*touched // by the changes
	ends    []endObject
	kept    *renderings
}

// newRun returns the run that made some changes.
func newRun(changes []Change, kept *renderings) (*Run, error) {
	r := &Run{Changes: changes, touched: touchedBy(changes), kept: kept}
	var err error
	r.ends, err = endsOf(r.touched, kept)
	return r, err
}

// A Check compares a run with a disturbance to the first run, which had none. The error says what is wrong. A search
// without checks has SameEnd.
type Check func(first, disturbed *Run) error

// SameEnd returns a Check that fails unless both runs end with the same objects. It ignores the
// same differences as Env.Golden.
func SameEnd() Check {
	return func(first, disturbed *Run) error {
		want, err := first.endBeside(disturbed)
		if err != nil {
			return err
		}
		got, err := disturbed.endBeside(first)
		if err != nil {
			return err
		}
		if diff := diffEnds(addFormer(want, got), addFormer(got, want)); diff != "" {
			return fmt.Errorf("the ends differ (- without the disturbance, + with it):\n%s", diff)
		}
		return nil
	}
}

// NoReplacement returns a Check that fails if the disturbed run deletes an object and creates it
// again, unless the first run does so with an object of that name. SameEnd does not see the
// difference, but the data of the old object is lost, such as that of a volume.
func NoReplacement() Check {
	return func(first, disturbed *Run) error {
		expected := map[string]bool{}
		for _, c := range replaced(first.Changes) {
			expected[c.id()] = true
		}
		for _, c := range replaced(disturbed.Changes) {
			if !expected[c.id()] {
				return fmt.Errorf("%s was deleted, and created again at revision %d", c.id(), c.Revision)
			}
		}
		return nil
	}
}

// replaced returns the changes that created objects which had existed before, in their order.
func replaced(changes []Change) (found []*Change) {
	existed := map[string]bool{}
	for i := range changes {
		c := &changes[i]
		if c.Before == nil && existed[c.id()] && !transient(c.Collection) {
			found = append(found, c)
		}
		existed[c.id()] = true
	}
	return found
}

// id names the object that changed, in its world.
func (c *Change) id() string { return c.Collection + " " + c.Key }

const (
	// firstQuiet is how long the first run must be quiet to have ended: all others are compared to it.
	firstQuiet = time.Second
	// wrongQuiet is how long a run must be quiet before a check that fails counts.
	wrongQuiet = 3 * time.Second
	// stopLimit is how long a controller may take to return after its context has ended.
	stopLimit = 10 * time.Second
	// progressParts is how many times a search reports its progress.
	progressParts = 10
)

const (
	// runsPerCPU is how many runs of one search happen at a time, for each CPU.
	runsPerCPU = 20
	// allRunsPerCPU is how many runs of all searches of the process happen at a time, for each CPU.
	allRunsPerCPU = 32
)

// runSlots are taken by the runs of all searches of the process. More controllers at a time would wait for each
// other, and a run whose controller waits looks as if it had ended.
var runSlots = make(chan struct{}, allRunsPerCPU*runtime.GOMAXPROCS(0))

// disturbance is how a run of a search differs from the first run.
type disturbance struct {
	// name describes it in messages: "a crash after write 2 of 3". Empty: there is no disturbance.
	name string
	// dir is the name of the directory of the dump.
	dir string
	// last is the write of the first run that came last before it; nil: none.
	last *Change
	// from is the moment of the first run that the disturbed one begins with.
	from moment
	// quiet is how long the run must be quiet to have ended; zero: settleQuiet.
	quiet time.Duration
	// start disturbs the world before the controller starts; nil: the run has only another beginning.
	start func(ctx context.Context, world *Env) (effect, error)
}

// effect is a disturbance of a world.
type effect struct {
	env *Env // of the controller
	// end ends the disturbance when the world has settled, or after lagLimit. The run then goes on until the world
	// has settled again. Nil: the disturbance does not end.
	end func(ctx context.Context) error
	// happened reports whether the disturbance happened at all; nil: it did, and end is nil.
	happened func(ctx context.Context) (bool, error)
	// met is how long the world must be quiet before end asks whether the disturbance has happened; zero: firstQuiet.
	met time.Duration
	// always checks the run also if the disturbance did not happen.
	always bool
}

// search is one call of EveryPrefix, EveryFault or EveryLag.
type search struct {
	Search
	t      TB
	name   string // of the function
	run    func(ctx context.Context, env *Env)
	checks []Check
	begin  time.Time
	calls  context.Context // ends when a webhook is called that nothing serves

	origin *Env // where the first run was
	first  *Run
	kept   renderings
	writes []int // indexes of first.Changes: the writes of clients, without Events and Leases

	missed   string    // why disturbances may not happen
	recorded []request // of the first run, if records is true
	records  bool
	doubt    bool // the first run failed while the machine was overloaded
}

// outcome is the result of a run.
type outcome struct {
	index  int
	tried  bool
	missed bool // the disturbance did not happen
	err    error
	hint   string // how to see the end
	doubt  bool   // it failed while the machine was overloaded, or was too slow
	open   bool   // it failed in doubt, and there was no time to repeat it
}

// do makes the first run, and then one with each disturbance that points returns.
func (s *search) do(env *Env, points func() []disturbance) {
	s.t.Helper()
	if len(s.checks) == 0 {
		s.checks = []Check{SameEnd()}
	}
	if s.run == nil || slices.ContainsFunc(s.checks, func(c Check) bool { return c == nil }) {
		s.t.Fatalf("tidemarktest: %s: the function, or a check, is nil", s.name)
		return
	}
	if env.via != nil {
		s.t.Fatalf("tidemarktest: %s: the Env is that of a replica, and the runs would not be: want the Env of the cluster", s.name)
		return
	}
	s.begin = time.Now()
	s.Budget, s.Parallel = cmp.Or(s.Budget, time.Minute), cmp.Or(s.Parallel, runsPerCPU*runtime.GOMAXPROCS(0))
	s.calls = env.webhook.unservedCall()
	err := s.runFirst(env)
	if s.doubt && s.calls.Err() == nil {
		s.t.Logf("tidemarktest: %s: the first run failed while the machine was overloaded, and is repeated: %v", s.name, err)
		err = s.runFirst(env)
	}
	if err == nil {
		defer s.origin.discard()
		err = context.Cause(s.calls)
	} else if unserved := context.Cause(s.calls); unserved != nil {
		err = unserved
	}
	if err != nil {
		s.t.Fatalf("tidemarktest: %s: the first run: %v", s.name, err)
		return
	}
	if verbose() {
		s.t.Logf("tidemarktest: %s: the first run has %s and took %v", s.name, count(len(s.writes), "write"), time.Since(s.begin).Round(time.Millisecond))
	}
	all := append([]disturbance{{from: moment{at: s.base()}, dir: "undisturbed"}}, points()...)
	if only := os.Getenv(onlyVariable); only != "" {
		if all = s.selectOnly(all, only); len(all) == 0 {
			return
		}
	}
	outcomes := s.runAll(all)
	if err := context.Cause(s.calls); err != nil {
		s.t.Fatalf("tidemarktest: %s: %v", s.name, err)
		return
	}
	s.repeat(all, outcomes)
	s.report(all, outcomes)
}

// base is the revision that the first run began with.
func (s *search) base() uint64 { return s.origin.world.Revision }

// runFirst runs the controller without a disturbance.
func (s *search) runFirst(env *Env) (err error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.calls, s.runLimit())
	defer cancel()
	if s.origin, err = env.forkAt(ctx, moment{}); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.doubt = ctx.Err() != nil && s.origin.session.overloaded()
			if busiest := s.origin.busiest(); busiest != "" { // it would not settle on any machine
				s.doubt, err = false, fmt.Errorf("%w%s", err, busiest)
			}
			s.origin.discard()
		}
	}()
	s.doubt = false
	if err := s.origin.record(ctx); err != nil {
		return err
	}
	r := controllerRun{env: s.origin, kept: &s.kept}
	r.start(s.run, s.origin)
	for _, quiet := range []time.Duration{firstQuiet, wrongQuiet} { // a slow machine takes longer to begin
		if s.first, err = r.end(ctx, quiet); err != nil {
			break
		}
		if s.writes = clientWrites(s.first.Changes); len(s.writes) > 0 || r.hasReturned() {
			break
		}
	}
	if err == nil && (s.records || len(s.writes) == 0) {
		s.recorded, err = s.requests(ctx)
	}
	if s.origin.webhook.refuses() { // all runs would lack the same writes, and pass
		err = errors.Join(err, errors.New(s.origin.webhook.unservedText()))
	}
	early := r.hasReturned()
	if stopped := r.stop(); err == nil || r.panicked != nil {
		err = stopped
	}
	if err != nil {
		return err
	}
	if len(s.writes) == 0 && early {
		return errors.New("the function has returned before its context ended, and the controller has not written anything: does its manager return an error?")
	}
	if len(s.writes) == 0 {
		return fmt.Errorf("the controller has not written anything within %v: %s", firstQuiet+wrongQuiet, describeRequests(s.recorded))
	}
	return nil
}

// describeRequests describes the requests of a controller that has not changed any object.
func describeRequests(all []request) string {
	writes := map[string]int{}
	for i := range all {
		if q := &all[i]; !slices.Contains([]string{"get", "list", "watch"}, q.Verb) {
			writes[q.String()]++
		}
	}
	switch {
	case len(all) == 0:
		return "it has sent no request: the function must use the Env that it is given"
	case len(writes) == 0:
		return fmt.Sprintf("it has sent %s, and no write", count(len(all), "request"))
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(writes)) {
		lines = append(lines, fmt.Sprintf("%s %s", count(writes[what], "time"), what))
	}
	return "its writes failed, or changed nothing: " + strings.Join(lines[:min(len(lines), maxListed)], ", ")
}

// clientWrites returns the indexes of the writes of clients, without Events, Leases, and the IPAddresses that the
// server creates with Services.
func clientWrites(changes []Change) []int {
	var all []int
	for i := range changes {
		if c := &changes[i]; !transient(c.Collection) && (c.Actor == nil || c.Actor.Loop == "") && !ofAllocator(c.Collection, c.Before, c.After) {
			all = append(all, i)
		}
	}
	return all
}

// requests returns the requests of the first run.
func (s *search) requests(ctx context.Context) ([]request, error) {
	s.t.Helper()
	all, missed, err := s.origin.requests(ctx)
	if missed > 0 {
		s.t.Logf("tidemarktest: %s: only the first %d requests of the first run are disturbed, and not the %d after them", s.name, len(all), missed)
	}
	return all, err
}

// runAll runs the controller with each disturbance, and returns the outcomes in their order. It begins no run after
// the one without a disturbance has failed.
func (s *search) runAll(all []disturbance) []outcome {
	s.t.Helper()
	outcomes := make([]outcome, len(all))
	until, _ := s.until()
	pending := make(chan int)
	done := make(chan outcome)
	ended := make(chan struct{})
	var workers sync.WaitGroup
	for range min(max(s.Parallel, 1), len(all)) {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for i := range pending {
				runSlots <- struct{}{}
				var o outcome
				if time.Now().Before(until) { // the wait for the others may have been long
					o = s.runWith(&all[i], false)
				}
				<-runSlots
				o.index = i
				done <- o
			}
		}()
	}
	go func() {
	feed:
		for _, i := range spread(len(all)) {
			if time.Now().After(until) {
				break
			}
			select {
			case pending <- i:
			case <-ended:
				break feed
			}
		}
		close(pending)
		workers.Wait()
		close(done)
	}()
	tried, failed := 0, 0
	for o := range done {
		if !o.tried {
			continue
		}
		outcomes[o.index] = o
		if tried++; o.err != nil {
			failed++
		}
		if o.index == 0 && o.err != nil && !o.doubt {
			close(ended)
		}
		if verbose() && tried*progressParts/len(all) != (tried-1)*progressParts/len(all) {
			s.t.Logf("tidemarktest: %s: %d of %d runs, %d failed, %v of %v", s.name, tried, len(all), failed, time.Since(s.begin).Round(100*time.Millisecond), s.Budget)
		}
	}
	return outcomes
}

// verbose reports whether go test prints the log of a test while the test runs. Otherwise it prints the log of a failed test
// alone, when its progress means nothing any more.
func verbose() bool {
	for _, name := range []string{"test.v", "ginkgo.v"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "false" {
			return true
		}
	}
	return false
}

// repeat makes the runs again whose failures are in doubt, one after the other, until there is no
// more time. A failure that is repeated counts for all runs with that failure. Repeat begins no run
// after one without a disturbance has failed. Failures that are not repeated for lack of time stay
// open.
func (s *search) repeat(all []disturbance, outcomes []outcome) {
	s.t.Helper()
	until := s.repeatUntil()
	doubts, repeated := 0, 0
	certain := map[string]bool{} // the repeated errors
	for i := range outcomes {
		o := &outcomes[i]
		if !o.doubt {
			continue
		}
		doubts++
		switch {
		case certain[o.err.Error()]:
		case i > 0 && outcomes[0].err != nil:
			*o = outcome{index: i}
		case o.open:
		case time.Now().After(until):
			o.open = true
		default:
			runSlots <- struct{}{}
			*o = s.runWith(&all[i], true)
			<-runSlots
			o.index = i
			repeated++
			if o.err != nil && !o.open {
				certain[o.err.Error()] = true
			}
		}
	}
	if doubts > 0 {
		s.t.Logf("tidemarktest: %s: %s failed while the machine was overloaded, or took too long; %d repeated", s.name, count(doubts, "run"), repeated)
	}
}

// lastBegin returns until when a run may begin that has to end before go test ends the process: a run takes settleLimit at
// most. It is false if the test has no time limit.
func (s *search) lastBegin() (time.Time, bool) {
	end, ok := deadline(s.t)
	return end.Add(-min(settleLimit+deadlineMargin, end.Sub(s.begin)/4)), ok
}

// runLimit is how long a run that begins now may take: it ends before go test ends the process.
func (s *search) runLimit() time.Duration {
	end, ok := deadline(s.t)
	if !ok {
		return settleLimit
	}
	left := time.Until(end)
	return min(settleLimit, left-min(deadlineMargin, left/5))
}

// until returns until when runs begin, and what ends then.
func (s *search) until() (time.Time, string) {
	budget := s.begin.Add(s.Budget)
	if last, ok := s.lastBegin(); ok && last.Before(budget) {
		return last, "the time of go test -timeout"
	}
	return budget, fmt.Sprintf("the budget of %v", s.Budget)
}

// repeatUntil returns until when repetitions begin: twice the budget, or half of the time until the test must end if that is
// later.
func (s *search) repeatUntil() time.Time {
	until := s.begin.Add(2 * s.Budget)
	last, ok := s.lastBegin()
	if !ok {
		return until
	}
	end, _ := deadline(s.t)
	if half := s.begin.Add(end.Sub(s.begin) / 2); half.After(until) {
		until = half
	}
	if last.Before(until) {
		return last
	}
	return until
}

// spread returns the numbers below n in an order whose first numbers are spread evenly, however many they are: 0,
// then the multiples of a large power of two, of half of it, and so on.
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

// runWith runs the controller with a disturbance, or does so again.
func (s *search) runWith(d *disturbance, again bool) (o outcome) {
	o.tried = true
	limit := s.runLimit()
	ctx, cancel := context.WithTimeout(s.calls, limit)
	defer cancel()
	var world *Env
	if world, o.err = s.origin.forkAt(ctx, d.from); o.err != nil {
		return o
	}
	r := controllerRun{env: world, kept: &s.kept}
	for _, c := range s.first.Changes {
		if c.Revision <= d.from.at {
			r.before = append(r.before, c)
		}
	}
	o.missed, o.err = s.judge(ctx, &r, d)
	if o.err != nil {
		var status *StatusError
		unsettled := errors.As(o.err, &status) && status.Code == 504
		late := unsettled || errors.Is(o.err, context.DeadlineExceeded)
		o.open = late && limit < settleLimit // go test would have ended it
		o.doubt = late || o.open || world.session.overloaded()
	}
	if panicked := r.failed(); panicked != nil {
		o.missed, o.err, o.doubt, o.open = false, panicked, false, false
	}
	if o.err != nil && (again || !o.doubt) {
		o.hint = s.dump(world, d)
	}
	if stopped := r.stop(); o.err == nil && stopped != nil {
		o.missed, o.err, o.hint = false, stopped, s.repeatCommand(d.dir)
	}
	if closed := world.discard(); o.err == nil {
		o.err = closed
	}
	return o
}

// judge starts a controller with a disturbance, waits for its end, and checks it. The caller stops the
// controller.
func (s *search) judge(ctx context.Context, r *controllerRun, d *disturbance) (missed bool, err error) {
	e := effect{env: r.env}
	if d.start != nil {
		if e, err = d.start(ctx, r.env); err != nil {
			return false, err
		}
	}
	r.start(s.run, e.env)
	if e.end != nil {
		if err := r.meet(ctx, e.happened, cmp.Or(e.met, firstQuiet)); err != nil {
			return false, err
		}
		if err := e.end(ctx); err != nil {
			return false, err
		}
	}
	for _, quiet := range []time.Duration{cmp.Or(d.quiet, settleQuiet), wrongQuiet} {
		var end *Run
		if end, err = r.end(ctx, quiet); err != nil {
			return false, err
		}
		if e.happened != nil {
			happened, err := e.happened(ctx)
			if err != nil {
				return false, err
			}
			if missed = !happened; missed && !e.always {
				continue
			}
		}
		if err = s.check(end); err == nil {
			break
		}
	}
	if missed && !e.always {
		return true, nil
	}
	return missed && err == nil, err
}

// meet waits until the world has settled, for lagLimit at most. A controller that has not met the disturbance by then may
// be slow to begin: it has as much time as in the first run.
func (r *controllerRun) meet(ctx context.Context, happened func(ctx context.Context) (bool, error), quiet time.Duration) error {
	for waited := time.Duration(0); waited < firstQuiet+wrongQuiet; waited += quiet {
		lag, cancel := context.WithTimeout(ctx, lagLimit)
		_, _ = r.env.settle(lag, quiet) // an error is the limit, or is repeated
		cancel()
		if met, err := happened(ctx); met || err != nil {
			return err
		}
	}
	return nil
}

func (s *search) check(r *Run) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("a check has panicked: %v\n%s", value, panicStack())
		}
	}()
	for _, check := range s.checks {
		if err := check(s.first, r); err != nil {
			return err
		}
	}
	return nil
}

// report fails the test for the outcomes with errors, once for those with the same error, since one bug has many. The
// shortest error comes first, and those that contain it have one line.
func (s *search) report(all []disturbance, outcomes []outcome) {
	s.t.Helper()
	left, failed, open := 0, 0, 0
	var missed []string
	same := map[string][]int{} // the outcomes with an error
	var ways []string          // the errors, in the order of their first outcomes
	for i, o := range outcomes {
		switch d := &all[i]; {
		case !o.tried:
			left++
		case o.open:
			open++
		case o.err == nil && o.missed:
			missed = append(missed, d.name)
		case o.err == nil:
		case d.name == "":
			s.t.Errorf("tidemarktest: %s: a second run without a disturbance fails, so disturbances cannot be judged: %v%s%s", s.name, o.err, o.hint, s.leader())
			return
		default:
			failed++
			text := o.err.Error()
			if same[text] == nil {
				ways = append(ways, text)
			}
			same[text] = append(same[text], i)
		}
	}
	for i, w := range smallestFirst(ways) {
		text := describeSame(all, outcomes, same[w.text])
		if i == 0 {
			text += s.leader()
		}
		if w.of != "" {
			text = fmt.Sprintf("%s: the error of %q, and %s more", all[same[w.text][0]].name, all[same[w.of][0]].name, count(w.more, "line"))
			if n := len(same[w.text]) - 1; n > 0 {
				text += fmt.Sprintf("; the same with %s", count(n, "other run"))
			}
			first := same[w.text][0]
			text += cmp.Or(outcomes[first].hint, s.repeatCommand(all[first].dir))
		}
		s.t.Errorf("tidemarktest: %s: %s", s.name, text)
	}
	if failed > 1 {
		s.t.Logf("tidemarktest: %s: %d of %d runs failed, in %s", s.name, failed, len(all)-left, count(len(ways), "way"))
	}
	if len(missed) > 0 {
		s.t.Logf("tidemarktest: %s: %d of %d disturbances did not happen, because %s:%s", s.name, len(missed), len(all)-1, s.missed, listNames(missed))
	}
	if open > 0 {
		text := fmt.Sprintf("tidemarktest: %s: %d of %d runs failed while the machine was overloaded, or were too slow, and there was no time to repeat them: "+
			"they prove nothing. Set a larger Search.Budget or -timeout, or run fewer tests at a time", s.name, open, len(all))
		if skipping, ok := s.t.(interface{ Skip(...any) }); ok && failed == 0 && !s.t.Failed() {
			defer skipping.Skip(text) // it ends the goroutine
		} else {
			s.t.Errorf("%s", text)
		}
	}
	if _, time := s.until(); left >= len(all)-1 && len(all) > 1 {
		s.t.Errorf("tidemarktest: %s: %s ended before a run with a disturbance began: set a larger Search.Budget or -timeout", s.name, time)
	} else if left > 0 {
		s.t.Logf("tidemarktest: %s: %s ended before %d of %d runs began; Search.Budget and -timeout set more", s.name, time, left, len(all))
	}
}

// leader returns the line of a failure that names a Lease which the first run has held; empty: there is none.
func (s *search) leader() string {
	for i := range s.first.Changes {
		c := &s.first.Changes[i]
		if c.Collection != "leases.coordination.k8s.io" || c.After == nil || c.Actor != nil && c.Actor.Loop != "" {
			continue
		}
		var lease struct {
			Spec struct{ HolderIdentity string }
		}
		if json.Unmarshal(c.After, &lease) == nil && lease.Spec.HolderIdentity != "" {
			return fmt.Sprintf("\n  the first run held %s, and each other controller waits until that expires: leader election must be off", c.id())
		}
	}
	return ""
}

// way is an error of runs. If it has all lines of an error that is reported before, of is that one, and more is how many
// lines it has beside them.
type way struct {
	text, of string
	more     int
}

// smallestFirst orders errors by their length: the shortest one is the easiest to understand, and often a part of others.
func smallestFirst(texts []string) []way {
	texts = slices.Clone(texts)
	slices.SortStableFunc(texts, func(a, b string) int { return cmp.Compare(strings.Count(a, "\n"), strings.Count(b, "\n")) })
	var all []way
	for i, text := range texts {
		w := way{text: text}
		lines := lineSet(text)
		for _, former := range texts[:i] {
			if part := lineSet(former); contains(lines, part) {
				w.of, w.more = former, len(lines)-len(part)
				break
			}
		}
		all = append(all, w)
	}
	return all
}

func lineSet(text string) map[string]bool {
	lines := map[string]bool{}
	for line := range strings.SplitSeq(text, "\n") {
		lines[line] = true
	}
	return lines
}

// contains reports whether lines has all of some lines.
func contains(lines, part map[string]bool) bool {
	for line := range part {
		if !lines[line] {
			return false
		}
	}
	return true
}

// maxListed limits the disturbances that a failure lists beside the first one.
const maxListed = 10

// describeSame describes some disturbances that had the same error: the first one in full, the others by their names.
func describeSame(all []disturbance, outcomes []outcome, same []int) string {
	d, o := &all[same[0]], &outcomes[same[0]]
	var b strings.Builder
	b.WriteString(d.name + ":\n")
	if d.last != nil {
		b.WriteString(describe([]Change{*d.last}))
	}
	b.WriteString(o.err.Error() + o.hint)
	if more := same[1:]; len(more) > 0 {
		var names []string
		for _, i := range more {
			names = append(names, all[i].name)
		}
		fmt.Fprintf(&b, "\n  the same error with %d more:%s", len(more), listNames(names))
	}
	return b.String()
}

// listNames lists the first names of disturbances, a line each.
func listNames(names []string) string {
	var b strings.Builder
	for _, name := range names[:min(len(names), maxListed)] {
		b.WriteString("\n    " + name)
	}
	if n := len(names) - maxListed; n > 0 {
		fmt.Fprintf(&b, "\n    and %d more", n)
	}
	return b.String()
}

// dump saves the state and the history of a run that failed if TIDEMARK_DUMP names a directory. It returns how to
// open them.
func (s *search) dump(world *Env, d *disturbance) string {
	root := os.Getenv("TIDEMARK_DUMP")
	if root == "" {
		return s.repeatCommand(d.dir)
	}
	dir := newDumpDir(root, s.t.Name(), d.dir)
	past := response{s.origin, fmt.Sprintf("history?after=%d&upTo=%d", s.base(), cmp.Or(d.from.since, d.from.at))}
	revision, err := world.dumpTo(dir, past)
	if err != nil {
		return fmt.Sprintf("\n  its state and history cannot be saved: %v", err)
	}
	return fmt.Sprintf("\n  its state and history are in %s; to open the state: %s", dir, world.session.openCommand(dir, revision)) + s.repeatCommand(d.dir)
}

// controllerRun is a controller that runs in a world.
type controllerRun struct {
	env    *Env
	kept   *renderings
	before []Change // the world's history before its fork

	cancel   context.CancelFunc
	returned chan struct{}
	panicked error // the function has panicked; set before returned is closed
}

// start runs a controller that sees the world as env.
func (r *controllerRun) start(run func(ctx context.Context, env *Env), env *Env) {
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.returned = make(chan struct{})
	go func() {
		defer close(r.returned)
		defer func() {
			if value := recover(); value != nil {
				r.panicked = fmt.Errorf("the function has panicked: %v\n%s", value, panicStack())
			}
		}()
		run(ctx, env)
	}()
}

// maxStack limits the functions of a stack.
const maxStack = 32

// panicStack returns the functions that were running when the panic began which a deferred function recovers from: the
// innermost first, without addresses, so that the same panic of several runs has the same text.
func panicStack() string {
	var b strings.Builder
	pcs := make([]uintptr, maxStack)
	pcs = pcs[:runtime.Callers(3, pcs)] // behind Callers, this function and the deferred one
	for frames := runtime.CallersFrames(pcs); ; {
		f, more := frames.Next()
		if strings.HasPrefix(f.Function, testModule+".(*controllerRun).start") || f.Function == testModule+".(*search).check" {
			break
		}
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") {
			fmt.Fprintf(&b, "  %s\n    %s:%d\n", f.Function, f.File, f.Line)
		}
		if !more {
			break
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// failed returns the error of a controller that has panicked, if it has by now.
func (r *controllerRun) failed() error {
	if r.cancel != nil && r.hasReturned() {
		return r.panicked
	}
	return nil
}

// end waits until the world has settled, and returns the run until then.
func (r *controllerRun) end(ctx context.Context, quiet time.Duration) (*Run, error) {
	revision, err := r.env.settleIdle(ctx, quiet)
	if err != nil {
		return nil, err
	}
	changes, err := r.env.history(ctx, r.env.world.Revision, revision)
	if err != nil {
		return nil, err
	}
	return newRun(append(r.before[:len(r.before):len(r.before)], changes...), r.kept)
}

// hasReturned reports whether a controller that was started has ended by itself.
func (r *controllerRun) hasReturned() bool {
	select {
	case <-r.returned:
		return true
	default:
		return false
	}
}

// stop ends the controller, if it was started.
func (r *controllerRun) stop() error {
	if r.cancel == nil {
		return nil
	}
	r.cancel()
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-r.returned:
		return r.panicked
	case <-timer.C:
		return fmt.Errorf("the controller has not returned %v after the end of its context", stopLimit)
	}
}
