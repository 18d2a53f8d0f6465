package bugs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// A scenario is the task of a controller.
type scenario struct {
	name     string
	manifest string
	actor    func(b bug) actor
	others   []actor
	// change is called before the tool begins, when the correct controller has made changed Ready;
	// nil: nothing.
	change  func(ctx context.Context, c client.Client) error
	changed reference
	// due returns an error unless the work of two hours is done; for the tool inBubble.
	due func(ctx context.Context, c client.Client) error
}

// reference is a custom resource of the namespace default.
type reference struct{ kind, name string }

// ready reports whether the phase of a custom resource is Ready.
func (r reference) ready(ctx context.Context, c client.Client) bool {
	var o unstructured.Unstructured
	o.SetGroupVersionKind(group.WithKind(r.kind))
	if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: r.name}, &o); err != nil {
		return false
	}
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase == "Ready"
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
	// The controller was stopped when it had deleted the volume and not yet removed the finalizer.
	newInstallation = &scenario{
		name:     "a database that is deleted and installed again",
		manifest: `{apiVersion: v1, kind: ConfigMap, metadata: {name: db}, data: {storage: 1Gi}}`,
		actor:    database, others: []actor{statefulSets, installer},
		changed: reference{"Database", "db"},
		change: func(ctx context.Context, c client.Client) error {
			old := metav1.ObjectMeta{Namespace: "default", Name: "db"}
			if err := c.Delete(ctx, &Database{ObjectMeta: old}); err != nil {
				return err
			}
			old.Name = volumeName(&Database{ObjectMeta: old})
			return c.Delete(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: old})
		},
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
		changed: reference{"Website", "web"},
		change: func(ctx context.Context, c client.Client) error {
			w := &Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			return c.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"port": 8080}}`)))
		},
	}
	restartedWebsite = &scenario{
		name:     "a website that is restarted with a new image",
		manifest: `{apiVersion: example.com/v1, kind: Website, metadata: {name: web, annotations: {example.com/restart: wanted}}, spec: {image: "web:1", port: 80, replicas: 2}}`,
		actor:    website, others: []actor{deployments, cloud, restarter},
		changed: reference{"Website", "web"},
		change: func(ctx context.Context, c client.Client) error {
			w := &Website{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
			return c.Patch(ctx, w, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"image": "web:2"}}`)))
		},
	}
	newPool = &scenario{
		name:     "a new pool",
		manifest: `{apiVersion: example.com/v1, kind: Pool, metadata: {name: pool}, spec: {shards: 4}}`,
		actor:    pool,
	}
	grownPool = &scenario{
		name:     "a pool that grows",
		manifest: `{apiVersion: example.com/v1, kind: Pool, metadata: {name: pool}, spec: {shards: 2}}`,
		actor:    pool, others: []actor{grower},
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
		changed: reference{"Credential", "key"},
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
	everyLag = &tool{"EveryLag", func(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug) {
		tidemarktest.EveryLag(t, env, s.run(b), tidemarktest.SameEnd(), tidemarktest.NoReplacement())
	}}
	history  = &tool{"NoHotLoop, Converges", judgeHistory}
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

// quietTimes is how often a controller must have settled: one that is slow looks settled for a moment.
const quietTimes = 3

// judgeHistory runs a controller until it has settled, or has made more changes than it may.
func judgeHistory(t tidemarktest.TB, env *tidemarktest.Env, s *scenario, b bug) {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	before := env.Changes(t).All()
	running.Go(func() { s.run(b)(ctx, env) })
	await(t, "the first write", func() bool { return len(env.Changes(t).All()) > len(before) })
	settled := make(chan struct{})
	running.Go(func() {
		defer close(settled)
		for range quietTimes {
			env.Settle(&recorder{name: t.Name()}) // fails if the writes go on
		}
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
	// Changes of the preparation do not count.
	changes := env.Changes(t).Where(func(c tidemarktest.Change) bool { return c.Revision > before[len(before)-1].Revision })
	changes.NoHotLoop()
	changes.Converges()
}

// awaitLimit is how long a controller may take until it does something.
const awaitLimit = 2 * time.Minute

// await waits until a controller has done something: one that has not begun looks settled.
func await(t tidemarktest.TB, what string, done func() bool) {
	limit := time.After(awaitLimit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("there is no sign of %s within %v", what, awaitLimit)
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
	{"conflict", conflictIgnored, newBackup, everyFault},
	{"error", errorSwallowed, newBackup, everyFault},
	{"error", serviceErrorLogged, newWebsite, everyFault},
	{"error, finalizer", cleanupErrorIgnored, oldBackup, everyFault},
	{"lost response", generatedNameRetried, newPool, everyFault},
	{"lost response", existsIsFatal, newCredential, everyFault},
	{"expired watch", goneEndsWatch, newCredential, everyFault},
	{"stale state", volumeByName, newInstallation, everyLag},
	{"stale state", scaleDownFromCache, grownPool, everyLag},
	{"stale state", blindUpdate, restartedWebsite, everyLag},
	{"time", forgottenRequeue, expiringBackup, inBubble},
}

// correct are the tools that try the correct controllers, with their scenarios. EveryFault takes the most time, so
// it has only those that introduce a controller or are in rows.
var correct = []struct {
	tool      *tool
	scenarios []*scenario
}{
	{everyFault, []*scenario{newDatabase, newWebsite, newPool, newBackup, oldBackup, newCredential}},
	{everyLag, scenarios},
	{everyPrefix, scenarios},
	{history, scenarios},
	{inBubble, []*scenario{expiringBackup}},
}

var scenarios = []*scenario{
	newDatabase, newInstallation, newWebsite, scaledWebsite, changedWebsite, restartedWebsite, newPool, grownPool, newBackup, oldBackup,
	newCredential, rotatedCredential,
}

// recorder is a test that records its failures.
type recorder struct {
	name string

	mu       sync.Mutex
	errors   []string
	logs     []string
	cleanups []func()
}

func (r *recorder) Helper()                   {}
func (r *recorder) Name() string              { return r.name }
func (r *recorder) Cleanup(f func())          { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Failed() bool              { return len(r.failures()) > 0 }
func (r *recorder) TempDir() string           { panic("no test of this package has temporary files") }
func (r *recorder) Fatalf(f string, a ...any) { r.Errorf(fatal+f, a...); runtime.Goexit() }
func (r *recorder) Logf(f string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(f, a...))
}
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

// slots limits how many tools run at a time. They wait most of the time, but a machine that is too busy looks
// like a controller that has stopped.
var slots = make(chan struct{}, 10)

var world *tidemarktest.World

func TestMain(m *testing.M) {
	// A streaming list begins with the newest state: with it, no informer would begin with the old state of a replica
	// of EveryLag. client-go reads the variable once, when it is first needed.
	os.Setenv("KUBE_FEATURE_WatchListClient", "false")
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

// A trial is a tool that tries a scenario with a bug, or without one.
type trial struct {
	scenario *scenario
	bug      bug
	tool     *tool
}

// tryAll makes trials side by side, those in bubbles one after the other. It returns the reports of
// the tools.
func tryAll(t *testing.T, trials []trial) []*recorder {
	reports := make([]*recorder, len(trials))
	var all sync.WaitGroup
	for i, x := range trials {
		if x.tool == inBubble {
			synctest.Test(t, func(t *testing.T) {
				world, stop := start() // the bubble has a server of its own
				defer stop()
				reports[i] = try(world, t.Name(), x)
			})
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			reports[i] = try(world, t.Name(), x)
		})
	}
	all.Wait()
	return reports
}

// try makes a trial, and returns the report of the tool.
func try(world *tidemarktest.World, name string, x trial) *recorder {
	r := &recorder{name: name}
	var done sync.WaitGroup
	done.Go(func() {
		env, err := world.Open(context.Background())
		if err != nil {
			r.Fatalf("%v", err)
		}
		defer env.Close()
		x.scenario.prepare(r, env)
		x.tool.try(r, env, x.scenario, x.bug)
	})
	done.Wait()
	return r
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
	running.Go(func() { s.run("")(ctx, env) })
	c := clientOf(t, env)
	await(t, s.changed.name+" is ready", func() bool { return s.changed.ready(ctx, c) })
	env.Settle(t)
	stop()
	running.Wait()
	if err := s.change(context.Background(), c); err != nil {
		t.Fatalf("%v", err)
	}
	env.Settle(t)
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
	tier.Full(t)
	t.Parallel()
	var trials []trial
	for _, row := range rows {
		trials = append(trials, trial{row.scenario, row.bug, row.tool})
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "bug\tpattern\ttool\tfailures\tthe first one")
	for i, report := range tryAll(t, trials) {
		failures := report.failures()
		switch row := rows[i]; {
		case len(failures) == 0:
			t.Errorf("%s does not find: %s\n%s", row.tool.name, row.bug, strings.Join(report.logs, "\n"))
		case noJudgement.MatchString(failures[0]):
			t.Errorf("%s cannot judge: %s: %s", row.tool.name, row.bug, failures[0])
		default:
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\n", row.bug, row.pattern, row.tool.name, len(failures), disturbance(failures[0]))
		}
	}
	w.Flush()
	t.Logf("\n%s", &table)
}

// TestCorrect: the tools report nothing for the correct controllers.
func TestCorrect(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	var trials []trial
	for _, c := range correct {
		for _, s := range c.scenarios {
			trials = append(trials, trial{s, "", c.tool})
		}
	}
	for i, report := range tryAll(t, trials) {
		for _, f := range report.failures() {
			t.Errorf("%s, %s: %s", trials[i].tool.name, trials[i].scenario.name, f)
		}
	}
}

// fatal begins the messages of recorder.Fatalf.
const fatal = "fatal: "

// noJudgement matches the messages of tools that cannot judge a controller.
var noJudgement = regexp.MustCompile("^" + fatal + "|^tidemarktest: Every\\w+: a second run")

// place matches the part of a message that names the disturbance.
var place = regexp.MustCompile(`^tidemark(?:test)?: (?:Every\w+: )?([^\n:]*)`)

// disturbance shortens a failure to its disturbance of the controller.
func disturbance(failure string) string {
	if m := place.FindStringSubmatch(failure); m != nil {
		return m[1]
	}
	line, _, _ := strings.Cut(failure, "\n")
	return line
}
