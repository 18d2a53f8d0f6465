// Package controller has the control loops that a single API server needs: in a cluster of
// kube-apiserver they are those of kube-controller-manager, and etcd's leases.
//
// # How a loop works
//
// One reader reads the store's changes of all collections, in order (store.Feed), and passes each
// to the loops. From the change alone a loop determines which objects it may have to change, and
// queues their names. Workers of the queue then read the current object, and write with the verbs
// of the registry, as any client does.
//
//	commit -> feed -> reader: observe(change) -> queue -> worker: sync(object) -> registry
//
// A sync is level-triggered: it depends on the current state, not on the change. A second sync, or
// a needless one, does nothing. So no state is kept across a restart: a loop starts with all
// objects (begin), and completes unfinished work. A reader that falls behind the history starts
// again in the same way.
//
// Loops read the store's own state, which is never behind the observed changes. There is no cache
// in addition to it. An idle loop costs memory only: it has no ticking timer, and no goroutine but
// the reader's.
package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	extension "github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Config configures the loops.
type Config struct {
	Registry *registry.Registry
	// Catalog returns the types that are served now; they may change while the loops run.
	Catalog func() *resource.Catalog
	// Definitions are the custom resources, and Naming accepts their names; nil: there are
	// none.
	Definitions *crd.Set
	Naming      *crd.Naming
	// Enabled selects the loops as the flag --controllers does: "*" for all, "name",
	// "-name". Nil: all.
	Enabled []string
	// EventTTL is how long events live after their last write; zero: DefaultEventTTL.
	EventTTL time.Duration
	// RootCA returns the certificates (PEM) by which clients verify the server. Nil, or an
	// empty result: no ConfigMap kube-root-ca.crt is created.
	RootCA func() []byte
	// Token makes the token of a ServiceAccount that a Secret holds. Nil: Secrets get none.
	Token func(namespace, secret, account, uid string) (string, error)
	// Sign issues a certificate (PEM) of the server's authority for a public key. The certificate is valid for life at
	// most. Nil: approved CertificateSigningRequests get no certificates.
	Sign func(template *x509.Certificate, public any, life time.Duration) ([]byte, error)
	// Addresses repairs the IPAddresses of Services; nil: they are not repaired.
	Addresses *addresses.Repair
	// Flows maintains FlowSchemas and PriorityLevelConfigurations; nil: they are not maintained.
	Flows *startup.Flows
	// Aggregated is shared by worlds whose states are forks of each other; nil: it is not shared.
	Aggregated *Aggregated
	// Quotas counts the resources that ResourceQuotas limit; nil: they are not counted.
	Quotas *quota.Ledger
	// Extensions has the objects of extension servers; nil: there are none.
	Extensions *extension.Aggregator
	// Identity is the name of this server among those that share the log: the loops of one of them
	// work. Empty: there are no others.
	Identity string
	// Now is the wall clock; nil: that of Clock.
	Now func() time.Time
	// Clock has the timers that wait for points in time. Nil: those of package time.
	Clock *clock.Clock
	Log   *slog.Logger
}

// DefaultEventTTL is that of kube-apiserver.
const DefaultEventTTL = time.Hour

// manager is the field manager of the writes of the loops, which is that of
// kube-controller-manager's loops.
const manager = "kube-controller-manager"

// loop is one of the loops. Only the reader calls begin and observe, which must not block.
// Workers call sync concurrently.
type loop interface {
	// begin queues the work for a state. The changes after that state follow.
	begin(s *store.State)
	// observe receives a change.
	observe(c *store.CollectionChange)
	// sync reconciles an object. After an error it is called again later.
	sync(ctx context.Context, i item) error
}

// row is an entry of the table below.
type row struct {
	name string
	// account is the ServiceAccount in kube-system that kube-controller-manager's loop has. Webhooks
	// and policies see the loop's writes as those of it. Empty: they do not see them, since
	// kube-apiserver does this work below admission, or the server cannot do without it.
	account string
	// width is how many objects are synced at once.
	width int
	// yields: the loop pauses while a kube-controller-manager runs.
	yields bool
	// always: the loop cannot be switched off. needs reports whether there is something for it to
	// do; nil for the others.
	always bool
	needs  func(c *Config) bool
	make   func(l *Loops, q *queue) loop
}

// rows are all loops. The names are those of kube-controller-manager, without
// "-controller".
var rows = []row{
	{name: "namespace", account: "namespace-controller", width: 8, yields: true, make: newNamespaces},
	{name: "garbage-collector", account: "generic-garbage-collector", width: 32, yields: true, make: newGarbage},
	{name: "event-ttl", width: 16, make: newEvents},
	{name: "serviceaccount", account: "service-account-controller", width: 8, yields: true, make: newAccounts},
	{name: "serviceaccount-token", account: "tokens-controller", width: 4, yields: true, make: newTokens},
	{name: "root-ca-certificate-publisher", account: "root-ca-cert-publisher", width: 8, yields: true, make: newRootCA},
	{name: "persistentvolumeclaim-protection", account: "pvc-protection-controller", width: 4, yields: true, make: newClaims},
	{name: "persistentvolume-protection", account: "pv-protection-controller", width: 4, yields: true, make: newVolumes},
	{name: "volumeattributesclass-protection", account: "volumeattributesclass-protection-controller", width: 4, yields: true, make: newClasses},
	{name: "certificatesigningrequest-signing", account: "certificate-controller", width: 4, yields: true, make: newSigner},
	{name: "certificatesigningrequest-cleaner", account: "certificate-controller", width: 4, yields: true, make: newRequests},
	{name: "clusterrole-aggregation", account: "clusterrole-aggregation-controller", width: 4, yields: true, make: newAggregation},
	{name: "customresourcedefinition", width: 4, always: true, needs: func(c *Config) bool { return c.Definitions != nil }, make: newDefinitions},
	{name: "apiservice-registration", width: 4, always: true, needs: func(c *Config) bool { return c.Definitions != nil }, make: newAPIServices},
	{name: "priority-and-fairness", width: 4, always: true, needs: func(c *Config) bool { return c.Flows != nil }, make: newFlows},
	{name: "resourcequota", account: "resourcequota-controller", width: 4, yields: true, make: newQuotas},
	{name: "validatingadmissionpolicy-status", account: "validatingadmissionpolicy-status-controller", width: 2, yields: true, make: newTypeChecking},
	{name: "service-cidr", account: "service-cidrs-controller", width: 4, yields: true, make: newCIDRs},
	{name: "service-ip-repair", width: 4, make: newServiceAddresses},
}

// Names returns the names of the loops that can be switched off.
func Names() []string {
	var names []string
	for i := range rows {
		if !rows[i].always {
			names = append(names, rows[i].name)
		}
	}
	return names
}

// Check returns an error for invalid words of Config.Enabled.
func Check(enabled []string) error {
	some := false
	for _, word := range enabled {
		name := strings.TrimPrefix(word, "-")
		some = some || name == word || word == "-*"
		if name != "*" && !slices.Contains(Names(), bare(name)) {
			return fmt.Errorf("there is no controller %q: want *, -* or some of %s, each with a - before it to switch it off", name, strings.Join(Names(), ", "))
		}
	}
	if len(enabled) > 0 && !some {
		return fmt.Errorf("%q says only which controllers not to run: put a * before it", strings.Join(enabled, ","))
	}
	return nil
}

// bare removes the suffix that kube-controller-manager adds to its names.
func bare(name string) string { return strings.TrimSuffix(name, "-controller") }

// runs reports whether a loop is switched on. A word with its name takes precedence over
// "*".
func runs(enabled []string, name string) bool {
	on := enabled == nil
	for _, word := range enabled {
		on = on || word == "*"
	}
	for _, word := range enabled {
		if bare(strings.TrimPrefix(word, "-")) == name {
			on = !strings.HasPrefix(word, "-")
		}
	}
	return on
}

// Loops are the loops of a server. Their methods are safe for concurrent use.
type Loops struct {
	c        Config
	store    *store.Store
	running  []*running
	yielding *yielding
	kinds    atomic.Pointer[kinds]
	rootCA   *perNamespace // nil: switched off
	tokens   *tokens       // nil: switched off

	stop context.CancelFunc
	done sync.WaitGroup
	// kicked wakes the reader if it syncs the items itself.
	kicked chan struct{}
	// anew has the reader begin again.
	anew     chan struct{}
	election *election // nil: there are no other servers
	standby  atomic.Bool

	failed   atomic.Pointer[error] // why the reader cannot read, for now
	position atomic.Uint64         // how far the reader has read, a store.Revision
	settling settling
}

// running is a loop that is switched on.
type running struct {
	row
	queue *queue
	loop  loop
}

// Start starts the loops and returns at once. Their first look at the stored objects runs
// in the background.
func Start(c Config) (*Loops, error) {
	if err := Check(c.Enabled); err != nil {
		return nil, err
	}
	if c.EventTTL == 0 {
		c.EventTTL = DefaultEventTTL
	}
	if c.Now == nil {
		c.Now = c.Clock.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	l := &Loops{c: c, store: c.Registry.Store, kicked: make(chan struct{}, 1), anew: make(chan struct{}, 1)}
	l.yielding = newYielding(l)
	for _, r := range rows {
		if r.always && r.needs(&c) || !r.always && runs(c.Enabled, r.name) {
			l.running = append(l.running, l.prepare(r))
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	if c.Identity != "" {
		l.election = newElection(l)
		l.standby.Store(true)
		for _, r := range l.running {
			r.queue.halt(true)
		}
		l.done.Go(func() { l.election.run(ctx) })
	}
	l.done.Go(func() { l.read(ctx) })
	return l, nil
}

func (l *Loops) prepare(r row) *running {
	made := &running{row: r}
	made.queue = newQueue(r.name, r.width, func(ctx context.Context, i item) error { return made.loop.sync(ctx, i) }, l.c.Log)
	made.queue.idle = l.settling.announce
	made.queue.ctx = registry.WithLoop(made.queue.ctx, r.name)
	if l.c.Registry.Sequential {
		made.queue.kick = l.kick
	}
	if r.account != "" {
		made.queue.ctx = registry.As(made.queue.ctx, account(r.account))
	}
	made.loop = r.make(l, made.queue)
	return made
}

// account returns the user of a ServiceAccount in kube-system.
func account(name string) *authn.User {
	return &authn.User{
		Name:   "system:serviceaccount:kube-system:" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:kube-system", authn.Authenticated},
	}
}

// Stop ends the loops, and waits for the work in progress.
func (l *Loops) Stop() {
	l.stop()
	if l.c.Registry.Sequential {
		for _, r := range l.running {
			r.queue.end() // the reader may wait in a sync
		}
	}
	l.done.Wait()
	l.yielding.stop()
	for _, r := range l.running {
		r.queue.close()
	}
}

// read follows the store until the context ends or the store is closed.
func (l *Loops) read(ctx context.Context) {
	for ctx.Err() == nil {
		err := l.follow(ctx)
		var expired *store.ExpiredError
		switch {
		case ctx.Err() != nil, errors.Is(err, store.ErrClosed):
			return
		case errors.Is(err, errAnew):
		case errors.As(err, &expired):
			l.c.Log.Info("the controllers were slower than the history is long, and begin again", "err", err)
		default: // reading back from the log failed, or there were too many who do
			l.failed.Store(&err)
			l.c.Log.Warn("the controllers cannot read the history, and begin again", "err", err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// maxChanges is how many changes are read from the history at a time.
const maxChanges = 64

// follow starts the loops from a state, and passes them each change after it.
func (l *Loops) follow(ctx context.Context) error {
	feed, err := l.begin()
	if err != nil {
		return err
	}
	defer feed.Close()
	buf := make([]store.CollectionChange, maxChanges)
	for {
		more, err := l.advance(ctx, feed, buf)
		if err != nil {
			return err
		}
		if more {
			continue
		}
		l.settling.announce()
		select {
		case <-feed.Ready():
		case <-l.kicked:
		case <-l.anew:
			return errAnew
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// errAnew means that this server was elected as the leader.
var errAnew = errors.New("the loops begin to work")

// begin starts the loops from a state, and returns the feed of the changes after it.
func (l *Loops) begin() (*store.Feed, error) {
	defer l.c.Registry.Turn()()
	s := l.store.Any()
	feed, err := l.store.Feed(s.Revision())
	if err != nil {
		return nil, err
	}
	l.yielding.begin(s)
	for _, r := range l.running {
		r.loop.begin(s)
	}
	l.position.Store(uint64(s.Revision()))
	l.failed.Store(nil)
	return feed, nil
}

// advance passes the next changes to the loops, up to the length of buf. If there are none and the registry is
// sequential, it syncs one item: so the order of all syncs follows from the changes. It reports whether there was
// anything to do.
func (l *Loops) advance(ctx context.Context, feed *store.Feed, buf []store.CollectionChange) (more bool, err error) {
	defer l.c.Registry.Turn()()
	n, err := feed.TryNext(ctx, buf)
	if err != nil {
		return false, err
	}
	for i := range buf[:n] {
		l.yielding.observe(&buf[i])
		l.election.observe(&buf[i])
		for _, r := range l.running {
			r.loop.observe(&buf[i])
		}
	}
	clear(buf[:n]) // do not retain objects that the history drops
	l.position.Store(uint64(feed.Revision()))
	return n > 0 || l.c.Registry.Sequential && l.step(), nil
}

// step syncs one item of the first queue that has one, and reports whether there was one.
func (l *Loops) step() bool {
	return slices.ContainsFunc(l.running, func(r *running) bool { return r.queue.step() })
}

// kick wakes the reader.
func (l *Loops) kick() {
	select {
	case l.kicked <- struct{}{}:
	default:
	}
}

func (l *Loops) now() time.Time { return l.c.Now() }

// addAt queues an item at a point in time, unless it is queued earlier.
func (l *Loops) addAt(q *queue, i item, at time.Time) {
	if l.c.Clock == nil {
		q.addAfter(i, at.Sub(l.now()), false)
		return
	}
	q.addAt(l.c.Clock, i, at)
}

// Metrics are the metrics of a loop.
type Metrics struct {
	Name string
	// Depth is the number of items, including those that wait after failures. Adds counts
	// all that were ever queued.
	Depth, Adds func() float64
	// Retries counts the items that failed and were queued again.
	Retries func() float64
	// Unfinished is for how long the work on items has been under way, of all together, in seconds; Longest is the
	// longest one.
	Unfinished, Longest func() float64
	// Waits and Works are how long items waited, and how long the work on them took.
	Waits, Works *exposition.Histogram
	// Paused is 1 while a kube-controller-manager does the work, or another server.
	Paused func() float64
}

// Metrics returns the metrics of the loops that are switched on.
func (l *Loops) Metrics() []Metrics {
	all := make([]Metrics, len(l.running))
	for i, r := range l.running {
		q := r.queue
		locked := func(read func() float64) func() float64 {
			return func() float64 {
				q.mu.Lock()
				defer q.mu.Unlock()
				return read()
			}
		}
		all[i] = Metrics{
			Name:    r.name,
			Depth:   locked(func() float64 { return float64(len(q.due) + len(q.working) + q.counted) }),
			Adds:    locked(func() float64 { return float64(q.adds) }),
			Retries: locked(func() float64 { return float64(q.errors) }),
			Unfinished: locked(func() (all float64) {
				for _, began := range q.began {
					all += time.Since(began).Seconds()
				}
				return all
			}),
			Longest: locked(func() (longest float64) {
				for _, began := range q.began {
					longest = max(longest, time.Since(began).Seconds())
				}
				return longest
			}),
			Waits: q.waits, Works: q.works,
			Paused: locked(func() float64 {
				if q.paused || q.halted {
					return 1
				}
				return 0
			}),
		}
	}
	return all
}

// Err returns why the loops cannot see the changes; nil while they can.
func (l *Loops) Err() error {
	if err := l.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// Standby reports whether the loops pause because this server is not the leader, and whether another server is. There is no
// leader if the Lease was not renewed for electionDuration.
func (l *Loops) Standby() (paused, led bool) {
	if !l.standby.Load() {
		return false, false
	}
	lease := leaseOf(l.store.Any().Get(electionKey.collection, electionKey.key))
	if lease == nil || lease.Spec.RenewTime == nil || l.now().Sub(lease.Spec.RenewTime.Time) > electionDuration {
		return true, false
	}
	return true, holder(lease) != ""
}

// Revision returns how far the loops have read the store.
func (l *Loops) Revision() store.Revision { return store.Revision(l.position.Load()) }
