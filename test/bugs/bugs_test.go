package bugs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// A scenario is what a controller has to do.
type scenario struct {
	name     string
	manifest string
	actor    func(b bug) actor
	others   []actor
	// change is what happens when the correct controller is done, and before the tool begins; nil: nothing.
	change func(ctx context.Context, c client.Client) error
	// due returns an error unless the work of two hours is done; for the tool inBubble.
	due func(ctx context.Context, c client.Client) error
}

// run returns the function that runs the controller with a bug.
func (s *scenario) run(b bug) func(ctx context.Context, env *tidemarktest.Env) {
	return run(func() []actor { return append([]actor{s.actor(b)}, s.others...) })
}

func database(b bug) actor   { return &databases{bug: b} }
func website(b bug) actor    { return &websites{bug: b} }
func pool(b bug) actor       { return &pools{bug: b} }
func backup(b bug) actor     { return &backups{bug: b} }
func credential(b bug) actor { return &credentials{bug: b} }

var (
	newDatabase = &scenario{
		name:     "a new database",
		manifest: `{apiVersion: example.com/v1, kind: Database, metadata: {name: db}, spec: {replicas: 3, storage: 1Gi}}`,
		actor:    database, others: []actor{statefulSets},
	}
	newWebsite = &scenario{
		name:     "a new website",
		manifest: websiteManifest,
		actor:    website, others: []actor{deployments, cloud},
	}
	scaledWebsite = &scenario{
		name:     "a website with an autoscaler",
		manifest: websiteManifest,
		actor:    website, others: []actor{deployments, cloud, autoscaler},
	}
	changedWebsite = &scenario{
		name:     "the new port of a website",
		manifest: websiteManifest,
		actor:    website, others: []actor{deployments, cloud},
		change: func(ctx context.Context, c client.Client) error {
			w := &Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			return c.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"port": 8080}}`)))
		},
	}
	newPool = &scenario{
		name:     "a new pool",
		manifest: `{apiVersion: example.com/v1, kind: Pool, metadata: {name: pool}, spec: {shards: 4}}`,
		actor:    pool,
	}
	newBackup = &scenario{
		name:     "a new backup",
		manifest: `{apiVersion: example.com/v1, kind: Backup, metadata: {name: backup}, spec: {parts: 3}}`,
		actor:    backup,
	}
	oldBackup = &scenario{
		name:     "a backup that is deleted",
		manifest: newBackup.manifest,
		actor:    backup, others: []actor{janitor},
	}
	expiringBackup = &scenario{
		name:     "a backup that expires",
		manifest: `{apiVersion: example.com/v1, kind: Backup, metadata: {name: backup}, spec: {parts: 1, keepSeconds: 3600}}`,
		actor:    backup,
		due: func(ctx context.Context, c client.Client) error {
			err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: "backup"}, &Backup{})
			if err == nil {
				return errors.New("the backup is still there after two hours")
			}
			return client.IgnoreNotFound(err)
		},
	}
	newCredential = &scenario{
		name:     "a new credential",
		manifest: `{apiVersion: example.com/v1, kind: Credential, metadata: {name: key}, spec: {rotation: 1}}`,
		actor:    credential, others: []actor{issuer},
	}
	rotatedCredential = &scenario{
		name:     "the rotation of a credential",
		manifest: newCredential.manifest,
		actor:    credential, others: []actor{issuer},
		change: func(ctx context.Context, c client.Client) error {
			k := &Credential{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"}}
			return c.Patch(ctx, k, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"rotation": 2}}`)))
		},
	}
)

const websiteManifest = `{apiVersion: example.com/v1, kind: Website, metadata: {name: web}, spec: {image: "web:1", port: 80, replicas: 2}}`

// A tool runs the controller of a scenario in an Env, and fails the test if it finds a bug.
type tool struct {
	name string
	try  func(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug)
}

var (
	everyPrefix = &tool{"EveryPrefix", func(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug) {
		tidemarktest.EveryPrefix(t, env, s.run(b), tidemarktest.SameEnd(), tidemarktest.NoReplacement())
	}}
	everyFault = &tool{"EveryFault", func(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug) {
		tidemarktest.EveryFault(t, env, s.run(b), tidemarktest.SameEnd(), tidemarktest.NoReplacement())
	}}
	history = &tool{"NoHotLoop, Converges", judgeHistory}
	tools   = []*tool{everyPrefix, everyFault, history} // for all scenarios

	inBubble = &tool{"time in a bubble", waitHours}
)

// waitHours runs a controller for two hours, in a bubble of testing/synctest. After about ten hours, the resync of
// the informers would wake up a controller that forgets to come back.
func waitHours(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { s.run(b)(ctx, env) })
	time.Sleep(2 * time.Hour)
	if err := s.due(ctx, clientOf(t, env)); err != nil {
		t.Errorf("%v", err)
	}
}

// maxChanges is more than any correct controller of these tests makes.
const maxChanges = 100

// judgeHistory runs a controller until it has settled, or has made more changes than it may.
func judgeHistory(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	before := len(env.Changes(t).All())
	running.Go(func() { s.run(b)(ctx, env) })
	awaitWrite(t, env, before)
	settled := make(chan struct{})
	running.Go(func() {
		defer close(settled)
		env.Settle(&recorder{name: t.Name()}) // fails if the writes go on
	})
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for done := false; !done; {
		select {
		case <-settled:
			done = true
		case <-tick.C:
			done = len(env.Changes(t).All()) > maxChanges
		}
	}
	stop()
	env.Changes(t).NoHotLoop()
	env.Changes(t).Converges()
}

// startLimit is how long a controller may take until its first write.
const startLimit = 20 * time.Second

// awaitWrite waits for the first write after a number of changes: a controller that has not begun looks
// settled.
func awaitWrite(t tidemarktest.TB, env *tidemarktest.Env, before int) {
	limit := time.After(startLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(env.Changes(t).All()) == before {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("the controller has not written within %v", startLimit)
		}
	}
}

// rows are the bugs, with the tool that finds each.
var rows = []struct {
	pattern  string
	bug      bug
	scenario *scenario
	tool     *tool
}{
	{"intermediate state", phaseBeforeWork, newDatabase, everyPrefix},
	{"intermediate state", ownerInSecondWrite, newDatabase, everyPrefix},
	{"intermediate state", countInStatus, newPool, everyPrefix},
	{"intermediate state", rotateTwice, rotatedCredential, everyPrefix},
	{"intermediate state, finalizer", finalizerFirst, oldBackup, everyPrefix},
	{"unobserved state", readyByEvent, newWebsite, everyPrefix},
	{"unobserved state", cleanupByEvent, oldBackup, everyPrefix},
	{"hot loop", heartbeatInStatus, newWebsite, history},
	{"hot loop", fightForReplicas, scaledWebsite, history},
	{"hot loop", orderChanges, newPool, history},
	{"conflict", conflictIgnored, newCredential, everyFault},
	{"error", errorSwallowed, newBackup, everyFault},
	{"error, finalizer", cleanupErrorIgnored, oldBackup, everyFault},
	{"lost answer", generatedNameRetried, newPool, everyFault},
	{"lost answer", existsIsFatal, newCredential, everyFault},
	{"expired watch", goneEndsWatch, newCredential, everyFault},
	{"time", forgottenRequeue, expiringBackup, inBubble},
}

var scenarios = []*scenario{newDatabase, newWebsite, scaledWebsite, changedWebsite, newPool, newBackup, oldBackup, newCredential, rotatedCredential}

// recorder is a test that records its failures.
type recorder struct {
	name string

	mu       sync.Mutex
	errors   []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return r.name }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool              { return len(r.failures()) > 0 }
func (r *recorder) TempDir() string           { panic("no test of this package has temporary files") }
func (r *recorder) Logf(string, ...any)       {}
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(f, a...); runtime.Goexit() }
func (r *recorder) Errorf(f string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors = append(r.errors, fmt.Sprintf(f, a...))
}

func (r *recorder) failures() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.errors
}

// limit is how many tools run at a time. They wait most of the time.
const limit = 8

var world *tidemarktest.World

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	var stop func()
	world, stop = start()
	m.Run()
	stop()
}

// start starts a server, and returns a world of it and a function that stops the server.
func start() (*tidemarktest.World, func()) {
	s := &tidemark.Server{InProcess: true}
	if err := s.Start(context.Background()); err != nil {
		panic(err)
	}
	return &tidemarktest.World{Host: s.Host(), Fixtures: definitions()}, func() {
		if err := s.Close(); err != nil {
			panic(err)
		}
	}
}

// tryInBubble is try in a bubble with a server of its own.
func tryInBubble(t *testing.T, s *scenario, b bug, with *tool) (failures []string) {
	synctest.Test(t, func(t *testing.T) {
		world, stop := start()
		defer stop()
		failures = try(world, t.Name(), s, b, with)
	})
	return failures
}

// try lets a tool try a scenario with a bug, and returns what it reports.
func try(world *tidemarktest.World, name string, s *scenario, b bug, with *tool) []string {
	r := &recorder{name: name}
	var done sync.WaitGroup
	done.Go(func() {
		env, err := world.Open(context.Background())
		if err != nil {
			r.Fatalf("%v", err)
		}
		defer env.Close()
		s.prepare(r, env)
		with.try(r, env, s, b)
	})
	done.Wait()
	return r.failures()
}

// prepare makes the state that a scenario begins with.
func (s *scenario) prepare(t tidemarktest.TB, env *tidemarktest.Env) {
	env.Apply(t, s.manifest)
	if s.change == nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var running sync.WaitGroup
	before := len(env.Changes(t).All())
	running.Go(func() { s.run("")(ctx, env) })
	awaitWrite(t, env, before)
	env.Settle(t)
	stop()
	running.Wait()
	if err := s.change(context.Background(), clientOf(t, env)); err != nil {
		t.Fatalf("%v", err)
	}
}

func clientOf(t tidemarktest.TB, env *tidemarktest.Env) client.Client {
	c, err := client.New(kube.Config(env), client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return c
}

// TestBugs: the tools find each bug.
func TestBugs(t *testing.T) {
	failures := make([][]string, len(rows))
	inParallel(len(rows), func(i int) {
		if row := rows[i]; row.tool != inBubble {
			failures[i] = try(world, fmt.Sprintf("%s/%s", t.Name(), row.bug), row.scenario, row.bug, row.tool)
		}
	})
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "bug\tpattern\ttool\truns\tthe first one")
	for i, row := range rows {
		if row.tool == inBubble {
			failures[i] = tryInBubble(t, row.scenario, row.bug, row.tool)
		}
		switch {
		case len(failures[i]) == 0:
			t.Errorf("%s does not find: %s", row.tool.name, row.bug)
		case noJudgement.MatchString(failures[i][0]):
			t.Errorf("%s cannot judge: %s: %s", row.tool.name, row.bug, failures[i][0])
		default:
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", row.bug, row.pattern, row.tool.name, len(failures[i]), disturbance(failures[i][0]))
		}
	}
	w.Flush()
	t.Logf("\n%s", &table)
}

// TestCorrect: the tools report nothing for the correct controllers.
func TestCorrect(t *testing.T) {
	inParallel(len(scenarios)*len(tools), func(i int) {
		s, with := scenarios[i/len(tools)], tools[i%len(tools)]
		for _, f := range try(world, fmt.Sprintf("%s/%s", t.Name(), s.name), s, "", with) {
			t.Errorf("%s, %s: %s", with.name, s.name, f)
		}
	})
	for _, f := range tryInBubble(t, expiringBackup, "", inBubble) {
		t.Errorf("%s, %s: %s", inBubble.name, expiringBackup.name, f)
	}
}

// inParallel calls a function for the numbers below n. More of them run at a time than with
// t.Parallel, which counts processors.
func inParallel(n int, f func(i int)) {
	slots := make(chan struct{}, limit)
	var all sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	all.Wait()
}

// noJudgement is how a search begins its message that it cannot judge a controller.
var noJudgement = regexp.MustCompile(`^tidemarktest: Every\w+: (the first run|a second run)`)

// place is where a message says what it is about.
var place = regexp.MustCompile(`^tidemark(?:test)?: (?:Every\w+: )?([^\n:]*)`)

// disturbance shortens a failure to what was done to the controller.
func disturbance(failure string) string {
	if m := place.FindStringSubmatch(failure); m != nil {
		return m[1]
	}
	line, _, _ := strings.Cut(failure, "\n")
	return line
}
