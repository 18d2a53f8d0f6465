package tidemark

import (
	"cmp"
	"context"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/admission/webhook"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/fault"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/openapi"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/statusapi"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/virtual"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// World is a state of its own in a server: objects and their history, custom resources,
// permissions, controllers. Each server has a root world; Fork makes others. All methods are safe for
// concurrent use.
type World struct {
	server  *Server
	running *running
	fork    *fork // nil: a root world
	seed    seed
	clock   *Clock           // Server.Clock, or that of the fork; nil: the world follows the clock of package time
	now     func() time.Time // of clock; nil: time.Now

	// use opens the parts below, once.
	use func() error

	store      *store.Store
	custom     *crd.Set
	naming     *crd.Naming
	tokens     *satoken.Authority
	issued     []*authn.Issued // the tokens of users that the control API added: first those of this world, then those of its parents
	rbac       *rbac.Authorizer
	authorizer *config.Authorizer
	// credentials authenticates the requests.
	credentials *authn.Credentials
	addresses   *addresses.Allocator
	quotas      *quota.Ledger
	metrics     *admission.Metrics // of the root world
	durations   *admission.Durations
	webhooks    *webhook.Webhooks
	verbs       *registry.Registry
	peers       *peers.Peers // nil: no other server uses the log
	loops       *controller.Loops
	openAPI     *openapi.Source
	source      func([]byte) // of random values; nil: there is no seed
	handler     *httpapi.Handler
	direct      *inprocess.Server
	faults      fault.Set
	replicas    replicas

	background     sync.WaitGroup  // goroutines of a root world, until ending is done
	ending         context.Context // nil: openRoot was not called
	stopBackground context.CancelFunc
}

// openRoot opens the parts of a root world on its store. If it fails, the caller calls stop.
func (w *World) openRoot(ctx context.Context) (err error) {
	s, r := w.server, w.running
	w.use = func() error { return nil }
	w.ending, w.stopBackground = context.WithCancel(context.Background())
	w.custom = crd.NewSet(w.store, builtin.Catalog(), s.logOf(logCustomResources))
	w.tokens = w.accounts(r.keys)
	w.rbac = rbac.New(w.store)
	w.metrics = admission.NewMetrics()
	if err := w.open(); err != nil {
		return err
	}
	if r.storage.Shared != nil {
		if err := w.compare(ctx); err != nil {
			return err
		}
	}
	if s.At == 0 && !r.follows() { // otherwise the state stays as it was
		if err := w.createFirst(ctx); err != nil {
			return err
		}
	}
	if w.peers != nil {
		if err := w.peers.Join(ctx); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	w.store.SetQuota(s.storageQuota()) // what every server has is there, whatever the quota
	if w.loops, err = w.startLoops(); err != nil {
		return err
	}
	if w.source != nil && r.storage.Log == nil { // clients begin with the same state in each run
		if err := w.loops.Settled(ctx); err != nil {
			return err
		}
	}
	c := w.api()
	c.Checks = slices.Concat(c.Checks, w.loopChecks())
	c.Mounts = []httpapi.Mount{
		{Path: forksPath, BodyBytes: maxForkRequest, Handler: http.HandlerFunc(r.serveForks)},
		{Path: backupPath, Timeout: cmp.Or(s.backupTime, backupTime), Handler: http.HandlerFunc(r.serveBackup)},
		{Path: statusapi.Path, Handler: http.HandlerFunc(r.serveStatus)},
	}
	c.Mounts = append(c.Mounts, w.replication()...)
	c.Metrics = w.allMetrics
	c.Exposed = []exposition.Source{w.store, &exposed{w: w}}
	c.Collectors = slices.Concat(r.collectors, w.metrics.Collectors(), w.webhooks.Collectors(), []prometheus.Collector{w.durations}, w.authorizer.Collectors())
	w.handler = httpapi.New(c)
	w.direct = w.newDirect(r.route)
	w.background.Go(func() { w.handler.Run(w.ending) })
	w.background.Go(w.sweepKept)
	if s.At == 0 && !r.follows() {
		w.background.Go(w.keepFirst)
	}
	return w.startBackups(ctx)
}

// open opens the parts that all worlds open alike.
func (w *World) open() (err error) {
	s, r := w.server, w.running
	catalog := builtin.Catalog()
	w.naming = crd.NewNaming(w.custom, w.now, definitionsQuota(debug.SetMemoryLimit(-1), os.ReadFile))
	if w.authorizer, err = s.authorization(w, r.configuration.access, s.logOf(logAuthorization)); err != nil {
		return err
	}
	services := r.configuration.services
	w.source = w.seed.source(forObjects)
	services.Random = w.source
	services.Store, services.Type = w.store, catalog.Lookup("networking.k8s.io", "v1", "ipaddresses")
	if w.addresses, err = addresses.New(services); err != nil {
		return err
	}
	w.quotas = &quota.Ledger{
		Quotas: catalog.Lookup("", "v1", "resourcequotas"), Uncharged: !r.configuration.plugins.On("ResourceQuota"), Now: w.now,
	}
	w.credentials = w.authenticator()
	w.verbs = w.newVerbs()
	return nil
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
	w.closeReplicas()
	if w.stopBackground != nil {
		w.stopBackground()
		w.background.Wait()
	}
	if w.authorizer != nil {
		w.authorizer.Close()
	}
	if w.loops != nil {
		w.loops.Stop()
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
	keep := w.running.storage.Keep
	if keep == nil || w.fork != nil || w.direct == nil || w.server.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), copyTime)
	defer cancel()
	if err := keep(ctx, w.store.Any()); err != nil {
		w.server.logOf(logStore).Info("the next start reads all objects from etcd", "err", err)
	}
}

// Name returns the name of a fork; empty: the world is the root world of the server.
func (w *World) Name() string {
	if w.fork == nil {
		return ""
	}
	return w.fork.name
}

// URL returns the address of the world: "https://127.0.0.1:6443" of a root world,
// "https://127.0.0.1:6443/fork/try" of a fork.
func (w *World) URL() string { return w.running.url + w.prefix() }

// advertisedURL is URL for clients on other machines, too.
func (w *World) advertisedURL() string {
	if w.server.Listen.AdvertiseAddress == "" || w.running.listeners == nil {
		return w.URL()
	}
	return "https://" + w.running.reachedAt().String() + w.prefix()
}

// prefix is the beginning of the paths of the world; empty: a root world.
func (w *World) prefix() string {
	if w.fork == nil {
		return ""
	}
	return forkPath + w.fork.name
}

// Handler returns the API of the world, with authentication. The paths of its requests begin with /api
// or the like, also in a fork.
func (w *World) Handler() http.Handler {
	if w.fork == nil {
		return w.handler
	}
	return http.HandlerFunc(w.serve)
}

// Revision returns the newest revision of the world: the resourceVersion of a list made now.
func (w *World) Revision() uint64 { return uint64(w.store.Any().Revision()) }

// RESTConfig returns a configuration for client-go as administrator, a copy that the caller may
// change. It is InProcessConfig if the server does not listen.
func (w *World) RESTConfig() *rest.Config {
	if w.server.InProcess {
		return w.InProcessConfig()
	}
	c := w.restConfig()
	c.BearerToken = w.running.authority.AdminToken()
	return c
}

// RESTConfigFor returns a configuration for client-go as a user. It has a client certificate that is
// valid for a year, in all worlds of the server. It is InProcessConfigFor if the server does not listen.
func (w *World) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	if w.server.InProcess {
		return w.InProcessConfigFor(user, groups...)
	}
	cert, key, err := w.running.authority.IssueClient(user, groups)
	if err != nil {
		return nil, err
	}
	c := w.restConfig()
	c.CertData, c.KeyData = cert, key
	return c, nil
}

// Clock is the clock of the world, which Advance moves: that of the server if Server.Clock is set, otherwise one of
// the fork alone. What follows it is what follows Server.Clock, but certificates, which follow the clock of the server.
// Nil: the root world of a server without a Clock, and a kept fork, follow the clock of package time.
func (w *World) Clock() *Clock { return w.clock }

// Kubeconfig returns a kubeconfig file with the administrator's credentials.
func (w *World) Kubeconfig() []byte { return w.kubeconfig().YAML() }

// newVerbs returns the verbs with admission and the resources that are not stored.
func (w *World) newVerbs() *registry.Registry {
	s, c := w.server, &w.running.configuration
	w.webhooks = w.newWebhooks(w.metrics.Conditions)
	chain := admission.Chain(admission.Config{
		Store: w.store, Enabled: c.plugins, Quotas: w.quotas, Addresses: w.addresses, Names: w.naming, NoWarnings: s.Admission.NoUnenforcedWarnings,
		Authz: w.access(), RBAC: w.rbac, Catalog: w.custom.Catalog, Configuration: c.configuration, Now: w.now,
		Metrics: w.metrics, Webhooks: w.webhooks,
	})
	if w.durations == nil {
		w.durations = admission.NewDurations(chain)
	}
	verbs := &registry.Registry{
		Store: w.store, Plugins: chain, Observe: w.durations.Observe, Now: w.now, Random: w.source, Sequential: w.source != nil, UnsafeDeletion: s.enabled(unsafeDeletionGate),
		Virtual: virtual.New(virtual.Config{
			Catalog: w.custom.Catalog, Review: w.credentials.Review, Authz: w.access(), Rules: w.authorizer, Tokens: w.tokens, Now: w.now,
		}),
	}
	admission.ApplyNamespaceRules(verbs, c.plugins, w.custom.Catalog().Lookup("", "v1", "namespaces"))
	return verbs
}

// newWebhooks returns the admission webhooks. Both kinds share connections unless they have credentials
// of their own.
func (w *World) newWebhooks(conditions *match.Metrics) *webhook.Webhooks {
	c, services := &w.running.configuration.configuration, remote.Services(w.store)
	all := webhook.Config{
		Mutating: remote.NewConnections(services, c.MutatingUsers), Authz: w.access(), Conditions: conditions,
		Audited: w.running.audit != nil, Log: w.server.logOf(logWebhooks),
	}
	if all.Validating = all.Mutating; c.MutatingUsers != c.ValidatingUsers {
		all.Validating = remote.NewConnections(services, c.ValidatingUsers)
	}
	return webhook.New(all)
}

// startLoops starts the controllers.
func (w *World) startLoops() (*controller.Loops, error) {
	s, enabled := w.server, w.running.controllers()
	if w.fork != nil {
		enabled = w.fork.controllers
	}
	flows, err := startup.NewFlows(startup.Config{Registry: w.verbs, Catalog: builtin.Catalog(), Now: w.now})
	if err != nil {
		return nil, err
	}
	sign := w.running.authority.Sign
	if w.fork != nil { // the certificate would be valid in the server too, whose users have not approved it
		sign = nil
	}
	return controller.Start(controller.Config{
		Sign:     sign,
		Registry: w.verbs, Flows: flows, Catalog: w.custom.Catalog, Definitions: w.custom, Naming: w.naming, Enabled: enabled, EventTTL: s.EventTTL,
		RootCA: w.running.authority.CertificatePEM, Token: w.storedToken, Quotas: w.quotas, Aggregated: &w.running.aggregated, Log: w.server.logOf(logControllers),
		Now: w.now, Clock: w.clock, Identity: w.identity(),
		Addresses: &addresses.Repair{Registry: w.verbs, Type: w.custom.Catalog().Lookup("networking.k8s.io", "v1", "ipaddresses")},
	})
}

// identity is the name of the server among those whose loops may work on the world; empty: there are no
// others.
func (w *World) identity() string {
	if w.fork != nil {
		return ""
	}
	return w.running.identity
}

// controllers selects the controllers of worlds that do not select any themselves.
func (r *running) controllers() []string {
	s := r.root.server
	if s.Controllers == nil && s.At != 0 {
		return []string{"-*"}
	}
	if r.follows() {
		return []string{"-*"}
	}
	if r.storage.Shared != nil { // the events have leases
		all := slices.Clone(s.Controllers)
		if len(all) == 0 {
			all = []string{"*"}
		}
		return append(all, "-event-ttl")
	}
	return s.Controllers
}

// createFirst creates the objects that every server has.
func (w *World) createFirst(ctx context.Context) error {
	clients, err := w.server.clientsData(w.running)
	if err != nil {
		return err
	}
	return startup.Ensure(ctx, startup.Config{
		Registry: w.verbs, Catalog: builtin.Catalog(), Clients: clients,
		Ranges: w.addresses.Ranges(), First: w.addresses.First(), Address: w.running.reachedAt(), Now: w.now, Shared: w.running.storage.Shared != nil,
	})
}

// firstPause is the pause between two looks for the objects that every server has.
const firstPause = time.Minute

// keepFirst creates these objects again if another program has deleted them from the log, until the server ends. No client
// can delete the namespaces default and kube-system, so their absence is the sign. While they are there, changes of the
// other objects are the administrator's.
func (w *World) keepFirst() {
	ticker := time.NewTicker(firstPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-w.ending.Done():
			return
		}
		now := w.store.Any()
		if now.Get("namespaces", metav1.NamespaceDefault) != nil && now.Get("namespaces", metav1.NamespaceSystem) != nil {
			continue
		}
		switch err := w.createFirst(w.ending); {
		case w.ending.Err() != nil:
		case err != nil:
			w.server.note(true, "the namespaces of the system were deleted from the log, and cannot be created again", "err", err)
		default:
			w.server.note(true, "the namespaces of the system were deleted from the log; they and the other objects that every server has are there again")
		}
	}
}

// api returns the configuration of the HTTP handler.
func (w *World) api() httpapi.Config {
	s, r := w.server, w.running
	version := gitVersion(s.version())
	revision, at := commit()
	if w.openAPI == nil {
		if root := r.root; root != nil && root.openAPI != nil {
			w.openAPI = root.openAPI.Fork(w.custom.Catalog)
		} else {
			w.openAPI = openapi.New(w.custom.Catalog, version, s.enabled(cborGate))
		}
	}
	return httpapi.Config{
		Prefix:              w.prefix(),
		Registry:            w.verbs,
		Catalog:             w.custom.Catalog,
		Authn:               w.credentials,
		Authz:               w.access(),
		Audit:               r.audit,
		Media:               wire.Served{CBOR: s.enabled(cborGate)},
		OpenAPI:             w.openAPI,
		Pages:               s.issuerPages(w),
		Missing:             w.missing,
		Version:             version,
		Commit:              revision,
		BuildDate:           at,
		Checks:              slices.Concat(s.checks(r), s.encryptionChecks(r), w.storageChecks(), []httpapi.Check{s.certificateCheck(r)}),
		Now:                 w.now,
		Random:              w.seed.source(forAudit),
		RepresentationBytes: s.representationBytes(),
		NoFairness:          s.Fairness.Disabled,
		Faults:              &w.faults,
		Behind:              w.behind(),
		Limits:              httpapi.Limits{InFlight: s.Fairness.MaxRequests, MutatingInFlight: s.Fairness.MaxMutatingRequests},
		Log:                 s.logOf(logRequests),
		Tracer:              s.tracer(),
		Profiling:           s.Diagnostics.Profiling,
		SlowRequest:         s.Diagnostics.SlowRequest,
	}
}

// representationBytes is the limit of the representation cache.
func (s *Server) representationBytes() int64 {
	return cmp.Or(s.Memory.MaxRepresentationBytes, s.Memory.MaxHistoryBytes/4*3) // zero: the handler's own defaults
}

// clientQPS and clientBurst are the rates of clients. The default of client-go, 5 requests per second,
// is meant for shared clusters.
const clientQPS, clientBurst = 1000, 2000

func (w *World) restConfig() *rest.Config {
	return &rest.Config{
		Host:            w.URL(),
		TLSClientConfig: rest.TLSClientConfig{CAData: w.running.authority.CertificatePEM(), ServerName: w.running.serverName},
		QPS:             clientQPS, Burst: clientBurst,
	}
}

func (w *World) kubeconfig() kubeconfig.Config {
	r := w.running
	return kubeconfig.Config{Server: w.advertisedURL(), CA: r.authority.CertificatePEM(), TLSServerName: r.serverName, Token: r.authority.AdminToken()}
}
