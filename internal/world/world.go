package world

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/admission/webhook"
	"github.com/tidemark-dev/tidemark/internal/aggregation"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/openapi"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/virtual"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// World is a state of its own in a server: a store, and the parts that work on it. See tidemark.World.
type World struct {
	process *process
	root    *World // of the server; the world itself if it is that
	fork    *fork  // nil: the root world

	// use opens the parts below, once.
	use func() error

	// kubernetes is the version of Kubernetes: that of the server, or the one that was chosen for the fork or for its parent.
	kubernetes *features.Profile
	store      *store.Store
	chance
	rights
	plugins
	custom  *crd.Set
	verbs   *registry.Registry
	peers   *peers.Peers // nil: no other server uses the log
	loops   *controller.Loops
	openAPI *openapi.Source
	// aggregator knows the extension servers; nil: the world is a fork, or is not open.
	aggregator *aggregation.Aggregator
	// started are the loops, once they run.
	started  atomic.Pointer[controller.Loops]
	handler  *httpapi.Handler
	direct   *inprocess.Server
	faults   fault.Set
	replicas replicas
	// missing returns the error of a path that nothing is served at; nil: the usual one.
	missing func(path string) error
}

// chance is the source of time and random values of a world.
type chance struct {
	seed   seed
	source func([]byte)     // of random values; nil: there is no seed
	clock  *clock.Clock     // Config.Clock, or that of the fork; nil: the world follows the clock of package time
	now    func() time.Time // of clock; nil: time.Now
}

// rights are the permissions in a world.
type rights struct {
	issued     []*authn.Issued // the tokens of users that the control API added: first those of this world, then those of its parents
	tokens     *satoken.Authority
	rbac       *rbac.Authorizer
	authorizer *config.Authorizer
	// access authorizes the requests: authorizer, or the result of restrict.
	access   authz.Authorizer
	restrict func(authz.Authorizer) authz.Authorizer // nil: access is authorizer
	// credentials authenticates the requests.
	credentials *authn.Credentials
}

// plugins are the dependencies of the admission plugins of a world.
type plugins struct {
	naming    *crd.Naming
	addresses *addresses.Allocator
	quotas    *quota.Ledger
	metrics   *admission.Metrics // of the root world
	durations *admission.Durations
	webhooks  *webhook.Webhooks
}

// fork is the additional state of a World that is a fork.
type fork struct {
	name        string
	parent      string              // the name of the parent; empty: a root world
	ancestor    weak.Pointer[World] // the parent, which a fork may outlive and does not keep in memory
	controllers []string
	base        store.Revision // of the parent's state
	baseTime    time.Time      // of the change with this revision; zero: unknown
	created     time.Time
	kept        *keptFacts  // the fork's fork.json; nil: it is in memory alone
	broken      func(error) // is called when the log of the fork has failed; nil: nothing is
	// past: the fork, or one that it was forked from, began with an older state than the newest.
	past bool
	// adapts: the state is that of another version of Kubernetes.
	adapts bool
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

// forkPath is the beginning of the paths of forks.
const forkPath = "/fork/"

// Name returns the name of a fork; empty: the world is the root world of the server.
func (w *World) Name() string {
	if w.fork == nil {
		return ""
	}
	return w.fork.name
}

// URL returns the address of the world.
func (w *World) URL() string { return w.process.url + w.prefix() }

// prefix is the beginning of the paths of the world; empty: a root world.
func (w *World) prefix() string {
	if w.fork == nil {
		return ""
	}
	return forkPath + w.fork.name
}

// Store returns the store of the world.
func (w *World) Store() *store.Store { return w.store }

// Revision returns the newest revision of the world.
func (w *World) Revision() uint64 { return uint64(w.store.Any().Revision()) }

// Clock is the clock of the world; nil: that of package time.
func (w *World) Clock() *clock.Clock { return w.clock }

// open opens the parts that all worlds open alike.
func (w *World) open() (err error) {
	p := w.process
	catalog := builtin.For(w.kubernetes)
	w.naming = crd.NewNaming(w.custom, w.now, definitionsQuota(debug.SetMemoryLimit(-1), os.ReadFile))
	if w.authorizer, err = p.authorization(w.store, w.rbac); err != nil {
		return err
	}
	if w.access = w.authorizer; w.restrict != nil {
		w.access = w.restrict(w.authorizer)
	}
	services := p.Services
	w.source = w.seed.source(forObjects)
	services.Random = w.source
	services.Store, services.Type = w.store, catalog.Lookup("networking.k8s.io", "v1", "ipaddresses")
	if w.addresses, err = addresses.New(services); err != nil {
		return err
	}
	w.quotas = &quota.Ledger{
		Quotas: catalog.Lookup("", "v1", "resourcequotas"), Uncharged: !p.Plugins.On("ResourceQuota"), Now: w.now,
	}
	w.credentials = w.authenticator()
	w.verbs = w.newVerbs()
	return nil
}

// authenticator returns the authenticator of the world. A fork knows the users of its parents.
func (w *World) authenticator() *authn.Credentials {
	a, own := &w.process.authentication, []authn.Tokens{w.tokens}
	if w.process.Authentication.BootstrapTokens {
		secret := func(name string) *corev1.Secret { return systemSecret(w.store, name) }
		own = append(own, a.forServer(&authn.BootstrapTokens{Secret: secret, Now: w.now}))
	}
	return a.with(w.issued, own...)
}

// newVerbs returns the verbs with admission and the resources that are not stored.
func (w *World) newVerbs() *registry.Registry {
	p := w.process
	w.webhooks = w.newWebhooks(w.metrics.Conditions)
	chain := admission.Chain(admission.Config{
		Store: w.store, Enabled: p.Plugins, Quotas: w.quotas, Addresses: w.addresses, Names: w.naming, NoWarnings: p.NoUnenforcedWarnings || w.fork == nil && !p.past(),
		Authz: w.access, RBAC: w.rbac, Catalog: w.custom.Catalog, Configuration: p.Admission, Now: w.now,
		Metrics: w.metrics, Webhooks: w.webhooks,
	})
	if w.durations == nil {
		w.durations = admission.NewDurations(chain)
	}
	verbs := &registry.Registry{
		Store: w.store, Plugins: chain, Observe: w.durations.Observe, Now: w.now, Random: w.source, Sequential: w.source != nil, UnsafeDeletion: w.kubernetes.Enabled(features.UnsafeDeletion),
		Virtual: virtual.New(virtual.Config{
			Catalog: w.custom.Catalog, Review: w.credentials.Review, Authz: w.access, Rules: w.authorizer, Tokens: w.tokens, Now: w.now,
		}),
	}
	admission.ApplyNamespaceRules(verbs, p.Plugins, w.custom.Catalog().Lookup("", "v1", "namespaces"))
	return verbs
}

// newWebhooks returns the admission webhooks. Both kinds share connections unless they have credentials
// of their own.
func (w *World) newWebhooks(conditions *match.Metrics) *webhook.Webhooks {
	p := w.process
	c, services := &p.Admission, remote.Services(w.store)
	all := webhook.Config{
		Mutating: remote.NewConnections(services, c.MutatingUsers), Authz: w.access, Conditions: conditions,
		MutatingFiles: c.Manifests[manifest.MutatingWebhooks], ValidatingFiles: c.Manifests[manifest.ValidatingWebhooks],
		Reviews: !w.kubernetes.Enabled(features.ExcludedReviews), Audited: p.audit != nil, Log: p.logOf(logWebhooks),
	}
	if all.Validating = all.Mutating; c.MutatingUsers != c.ValidatingUsers {
		all.Validating = remote.NewConnections(services, c.ValidatingUsers)
	}
	return webhook.New(all)
}

// startLoops starts the controllers.
func (w *World) startLoops() (*controller.Loops, error) {
	p := w.process
	enabled, sign, identity := p.controllers(), p.authority.Sign, p.identity
	if w.fork != nil {
		// A certificate would be valid in the server too, whose users have not approved it. No other server has the fork.
		enabled, sign, identity = w.fork.controllers, nil, ""
	}
	flows, err := startup.NewFlows(startup.Config{Registry: w.verbs, Catalog: builtin.For(w.kubernetes), Now: w.now})
	if err != nil {
		return nil, err
	}
	c := controller.Config{
		Sign:     sign,
		Registry: w.verbs, Flows: flows, Catalog: w.custom.Catalog, Definitions: w.custom, Naming: w.naming, Enabled: enabled, EventTTL: p.EventTTL,
		RootCA: p.authority.CertificatePEM, Token: w.storedToken, Quotas: w.quotas, Aggregated: &p.aggregated, Extensions: w.aggregator, Log: p.logOf(logControllers),
		Now: w.now, Clock: w.clock, Identity: identity,
		Addresses: &addresses.Repair{Registry: w.verbs, Type: w.custom.Catalog().Lookup("networking.k8s.io", "v1", "ipaddresses")},
	}
	if p.ReadOnly || p.Play > 0 { // not even the loops that cannot be switched off
		c.Definitions, c.Flows = nil, nil
	}
	return controller.Start(c)
}

// storedToken makes a token for a Secret.
func (w *World) storedToken(namespace, secret, account, uid string) (string, error) {
	return w.tokens.IssueStored(namespace, secret, satoken.Ref{Name: account, UID: uid})
}

// api returns the configuration of the HTTP handler.
func (w *World) api() httpapi.Config {
	p := w.process
	if w.openAPI == nil {
		if w.root != w && w.root.openAPI != nil && w.root.kubernetes == w.kubernetes {
			w.openAPI = w.root.openAPI.Fork(w.custom.Catalog)
		} else {
			w.openAPI = openapi.New(w.custom.Catalog, p.Version.Git, w.kubernetes.Enabled(features.CBOR))
		}
	}
	c := httpapi.Config{
		Prefix:       w.prefix(),
		Registry:     w.verbs,
		Catalog:      w.custom.Catalog,
		Authn:        w.credentials,
		Authz:        w.access,
		Audit:        p.audit,
		Media:        wire.Served{CBOR: w.kubernetes.Enabled(features.CBOR), Unmanaged: w.kubernetes.Enabled(features.UnmanagedResponses)},
		PlainStreams: !w.kubernetes.Enabled(features.StreamCompression),
		ShardedLists: w.kubernetes.Enabled(features.ShardedLists),
		Aggregation:  w.aggregator,
		OpenAPI:      w.withExtensions(w.openAPI),
		ReadOnly:     p.ReadOnly || p.Play > 0,
		Past:         w.custom.Past,
		PastType:     w.custom.PastType,
		PastOpenAPI: func(c *resource.Catalog) http.Handler {
			if c == w.custom.Catalog() { // its documents are there
				return w.openAPI
			}
			return w.openAPI.Fork(func() *resource.Catalog { return c })
		},
		Pages:               p.issuerPages(w.tokens, w.URL()),
		Missing:             w.missingAt,
		Version:             p.Version.Git,
		Kubernetes:          w.kubernetes.Versions,
		Commit:              p.Version.Commit,
		BuildDate:           p.Version.BuildDate,
		Checks:              slices.Concat(p.checks(), p.encryptionChecks(), storageChecks(w.store), []httpapi.Check{p.certificateCheck()}),
		Now:                 w.now,
		Random:              w.seed.source(forAudit),
		RepresentationBytes: cmp.Or(p.Memory.MaxRepresentationBytes, p.Memory.MaxHistoryBytes/4*3), // zero: the handler's own defaults
		NoFairness:          p.Fairness.Disabled,
		Faults:              &w.faults,
		Limits:              httpapi.Limits{InFlight: p.Fairness.MaxRequests, MutatingInFlight: p.Fairness.MaxMutatingRequests, Connections: maxDialled()},
		Log:                 p.logOf(logRequests),
		Tracer:              p.Tracer,
		Profiling:           p.Profiling,
		SlowRequest:         p.SlowRequest,
	}
	if w.fork == nil { // an administrator of a fork has rights that he may not have to the nodes, which are the same
		if !p.past() && !p.ReadOnly { // the addresses of the past may be those of other machines now
			c.Connections = p.connections
		}
		a := &p.Authentication.Proxy
		c.UserHeaders, c.UserHeaderPrefixes = slices.Concat(a.UsernameHeaders, a.UIDHeaders, a.GroupHeaders), a.ExtraPrefixes
		c.Behind = p.behind()
	}
	return c
}

// missingAt returns the error of a path of the world that nothing is served at.
func (w *World) missingAt(path string) error {
	if rest, ok := strings.CutPrefix(path, replicaPath); ok {
		name, _, _ := strings.Cut(rest, "/")
		return apierrors.NewNotFound(schema.GroupResource{Resource: "replicas"}, name)
	}
	if w.missing == nil {
		return nil
	}
	return w.missing(path)
}

// endCalls ends the calls of conversion webhooks, which requests wait for.
func (w *World) endCalls() {
	if w.custom != nil {
		w.custom.Close()
	}
}

// drain ends watches, if any request has opened the world.
func (w *World) drain() {
	if w.handler != nil {
		w.handler.Drain()
	}
}

// stop stops the parts in reverse order. No request is under way. Parts that do not exist yet are
// skipped.
func (w *World) stop() error {
	w.endCalls()
	w.replicas.close()
	if w.authorizer != nil {
		w.authorizer.Close()
	}
	if w.loops != nil {
		w.loops.Stop()
	}
	if w.aggregator != nil {
		w.aggregator.Close()
	}
	if w.peers != nil {
		w.peers.Leave()
	}
	if w.webhooks != nil {
		w.webhooks.Close()
	}
	if w.addresses != nil {
		w.addresses.Close()
	}
	w.leaveCopy()
	return w.store.Close()
}

// copyTime is how long a server that stops may write the copy of its objects for the next start.
const copyTime = 2 * time.Second

// leaveCopy leaves a copy of the objects for the next start, if the storage has a place for it.
func (w *World) leaveCopy() {
	keep := w.process.storage.Keep
	if keep == nil || w.fork != nil || w.direct == nil || w.process.Failure.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), copyTime)
	defer cancel()
	if err := keep(ctx, w.store.Any()); err != nil {
		w.process.logOf(logStore).Info("the next start reads all objects from etcd", "err", err)
	}
}
