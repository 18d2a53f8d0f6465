package tidemark

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/admission/webhook"
	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/openapi"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/virtual"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// running is a server that runs.
type running struct {
	url string
	// serverName is what clients check the certificate against; empty: the host of
	// url.
	serverName string
	authority  *pki.Authority
	tokens     *satoken.Authority
	sealed     *encryption.Log
	issuers    *issuers.Issuers // nil: none are configured
	store      *store.Store
	serving    *serving.Server
	loops      *controller.Loops
	addresses  *addresses.Allocator
	plugins    admission.Plugins
	quotas     *quota.Ledger
	custom     *crd.Set
	webhooks   *webhook.Webhooks
	naming     *crd.Naming
	authorizer *config.Authorizer
	audit      *audit.Auditor // nil: requests are not recorded
	rbac       *rbac.Authorizer
	publisher  publisher

	lending     sync.WaitGroup // of seats among priority levels, until stopLending is called
	stopLending context.CancelFunc

	collectors      []prometheus.Collector // of authentication and admission
	handshakeErrors atomic.Int64           // of TLS
}

// loopbackName is the TLS server name that selects the server's own certificate if the user
// configured another one, so that the kubeconfig works with any certificate.
const loopbackName = "apiserver-loopback-client"

// start implements Start. It checks first what is cheap to check: the configuration, the
// address, the lock of the data directory.
func (s *Server) start(ctx context.Context) (_ *running, err error) {
	log := s.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c, err := s.check(log)
	if err != nil {
		return nil, err
	}
	listener, err := s.listen(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			listener.Close()
		}
	}()
	r := &running{plugins: c.plugins}
	r.url, r.serverName = s.address(listener)
	if r.audit, err = s.openAudit(log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.closeAudit())
		}
	}()

	if err = s.openStore(ctx, r); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.store.Close()
		}
	}()
	if r.authority, err = s.openAuthority(log, c.services.Ranges, r.store); err != nil {
		return nil, err
	}
	certificate, err := s.certificate(r.authority, log)
	if err != nil {
		return nil, err
	}
	catalog := builtin.Catalog()
	r.custom = crd.NewSet(r.store, catalog, log)
	r.naming = crd.NewNaming(r.custom, s.now)
	if r.tokens, err = s.openTokens(r.store, catalog, log); err != nil {
		return nil, err
	}
	if r.issuers, err = s.openIssuers(r, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.closeIssuers()
		}
	}()
	credentials, err := s.credentials(r, log)
	if err != nil {
		return nil, err
	}
	if r.authorizer, err = s.authorization(r, c.access, log); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.authorizer.Close()
		}
	}()
	c.services.Store, c.services.Type = r.store, catalog.Lookup("networking.k8s.io", "v1", "ipaddresses")
	if r.addresses, err = addresses.New(c.services); err != nil {
		return nil, err
	}
	r.quotas = &quota.Ledger{Quotas: catalog.Lookup("", "v1", "resourcequotas"), Uncharged: !r.plugins.On("ResourceQuota"), Now: s.now}
	verbs := s.verbs(r, credentials, c.configuration)
	if err := s.createFirst(ctx, r, verbs, reached(listener)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.store.SetQuota(s.storageQuota()) // what every server has is there, whatever the quota
	if r.loops, err = s.startLoops(r, verbs, log); err != nil {
		return nil, err
	}
	s.followAuthority(r, verbs, log)
	handler := httpapi.New(s.api(r, verbs, r.custom.Catalog, credentials, log))
	lending, stop := context.WithCancel(context.Background())
	r.stopLending = stop
	r.lending.Go(func() { handler.Run(lending) })
	r.serving = serving.New(serving.Config{
		Listener: listener, Handler: handler, Drain: handler.Drain, GetCertificate: certificate,
		MinVersion: s.TLS.minVersion(), CipherSuites: s.TLS.CipherSuites,
		Limits:          connectionLimits(httpapi.DefaultLimits),
		HandshakeFailed: func() { r.handshakeErrors.Add(1) }, Log: log,
	})
	r.serving.Start()
	return r, nil
}

// checked is the configuration that start needs after it was checked.
type checked struct {
	plugins       admission.Plugins
	access        *config.Source
	configuration admission.Configuration
	services      addresses.Config
}

// check checks what can be checked without opening anything but files of the configuration.
func (s *Server) check(log *slog.Logger) (c checked, err error) {
	if err := s.checkLoops(); err != nil {
		return c, err
	}
	if err := s.Authentication.Check(); err != nil {
		return c, fmt.Errorf("authentication: %w", err)
	}
	if err := s.Fairness.check(); err != nil {
		return c, err
	}
	if c.plugins, err = admission.Choose(s.EnableAdmissionPlugins, s.DisableAdmissionPlugins); err != nil {
		return c, err
	}
	if c.access, err = s.Authorization.source(); err != nil {
		return c, err
	}
	if c.configuration, err = admission.ReadConfiguration(s.AdmissionConfigFile, c.plugins); err != nil {
		return c, err
	}
	if err := s.checkFeatureGates(); err != nil {
		return c, fmt.Errorf("feature gates: %w", err)
	}
	if err := s.checkTLS(log); err != nil {
		return c, err
	}
	c.services, err = addresses.Parse(s.ServiceClusterIPRange, s.ServiceNodePortRange)
	return c, err
}

// verbs returns the verbs with admission and the resources that are not stored.
func (s *Server) verbs(r *running, credentials *authn.Credentials, configuration admission.Configuration) *registry.Registry {
	metrics := admission.NewMetrics()
	r.webhooks = s.webhooks(r, configuration, metrics.Conditions)
	r.collectors = append(r.collectors, slices.Concat(metrics.Collectors(), r.webhooks.Collectors())...)
	verbs := &registry.Registry{
		Store: r.store,
		Plugins: admission.Chain(admission.Config{
			Store: r.store, Enabled: r.plugins, Quotas: r.quotas, Addresses: r.addresses, Names: r.naming, NoWarnings: s.NoUnenforcedWarnings,
			Authz: r.authorizer, RBAC: r.rbac, Catalog: r.custom.Catalog, Configuration: configuration, Now: s.now,
			Metrics: metrics, Webhooks: r.webhooks,
		}),
		Virtual: virtual.New(virtual.Config{
			Catalog: r.custom.Catalog, Review: credentials.Review, Authz: r.authorizer, Rules: r.authorizer, Tokens: r.tokens, Now: s.now,
		}),
	}
	admission.ApplyNamespaceRules(verbs, r.plugins, r.custom.Catalog().Lookup("", "v1", "namespaces"))
	return verbs
}

// webhooks returns the admission webhooks. Both kinds share connections unless they have credentials
// of their own.
func (s *Server) webhooks(r *running, c admission.Configuration, conditions *match.Metrics) *webhook.Webhooks {
	services := remote.Services(r.store)
	all := webhook.Config{
		Mutating: remote.NewConnections(services, c.MutatingUsers), Authz: r.authorizer, Conditions: conditions, Audited: r.audit != nil, Log: s.Logger,
	}
	if all.Validating = all.Mutating; c.MutatingUsers != c.ValidatingUsers {
		all.Validating = remote.NewConnections(services, c.ValidatingUsers)
	}
	return webhook.New(all)
}

// connectionLimits are the limits that the listener enforces.
func connectionLimits(l httpapi.Limits) serving.Limits {
	return serving.Limits{
		HeaderBytes: l.HeaderBytes, ReadHeaderTimeout: l.ReadHeaderTimeout, IdleTimeout: l.IdleTimeout,
		WriteTimeout: l.WriteTimeout, Streams: l.StreamsPerConn, UploadBytes: l.UploadBytesPerConn,
	}
}

// checkLoops checks the configuration of the controllers.
func (s *Server) checkLoops() error {
	if err := controller.Check(s.Controllers); err != nil {
		return err
	}
	if s.EventTTL < 0 {
		return fmt.Errorf("events cannot stay for %v", s.EventTTL)
	}
	return nil
}

func (s *Server) startLoops(r *running, verbs *registry.Registry, log *slog.Logger) (*controller.Loops, error) {
	flows, err := startup.NewFlows(startup.Config{Registry: verbs, Catalog: builtin.Catalog(), Now: s.now})
	if err != nil {
		return nil, err
	}
	return controller.Start(controller.Config{
		Registry: verbs, Flows: flows, Catalog: r.custom.Catalog, Definitions: r.custom, Naming: r.naming, Enabled: s.Controllers, EventTTL: s.EventTTL,
		RootCA: r.authority.CertificatePEM, Token: r.storedToken, Quotas: r.quotas, Log: log,
		Addresses: &addresses.Repair{Registry: verbs, Type: r.custom.Catalog().Lookup("networking.k8s.io", "v1", "ipaddresses")},
	})
}

// stop stops the parts in reverse order: requests first, so that none meets a closed store.
func (r *running) stop() error {
	r.custom.Close()
	r.serving.Stop()
	r.stopLending()
	r.lending.Wait()
	r.closeIssuers()
	r.authorizer.Close()
	r.publisher.stop()
	r.loops.Stop()
	r.webhooks.Close()
	r.addresses.Close()
	return errors.Join(r.closeAudit(), r.store.Close())
}

// listen opens the port first: clients that connect early wait instead of being refused.
func (s *Server) listen(ctx context.Context) (net.Listener, error) {
	if s.Port < 0 || s.Port > 65535 {
		return nil, fmt.Errorf("the port %d is not one: want 1 to 65535, or 0 for a free one", s.Port)
	}
	host := s.bindAddress()
	if net.ParseIP(host) == nil {
		return nil, fmt.Errorf("the address to listen on, %q, is not an IP address", host)
	}
	address := net.JoinHostPort(host, strconv.Itoa(s.Port))
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("port %d of %s is taken by another process: stop it, or choose another port (0 picks a free one)", s.Port, host)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w", address, err)
	}
	return l, nil
}

func (s *Server) bindAddress() string {
	if s.BindAddress == "" {
		return "127.0.0.1"
	}
	return s.BindAddress
}

// address returns the URL for clients on this machine, and the name that they
// check the certificate against.
func (s *Server) address(l net.Listener) (url, serverName string) {
	a := l.Addr().(*net.TCPAddr)
	host := a.IP.String()
	switch {
	case a.IP.IsUnspecified() && net.ParseIP(s.bindAddress()).To4() != nil:
		host = "127.0.0.1"
	case a.IP.IsUnspecified():
		host = "::1"
	}
	if s.ownCertificates() {
		serverName = loopbackName
	}
	return "https://" + net.JoinHostPort(host, strconv.Itoa(a.Port)), serverName
}

// openStore opens the log, and the store on it.
func (s *Server) openStore(ctx context.Context, r *running) error {
	set, err := s.encryption(ctx)
	if err != nil {
		return err
	}
	var log store.Log = memlog.New()
	if s.Storage != nil {
		if log, err = s.Storage.OpenLog(ctx); err != nil {
			set.Close()
			return err
		}
	}
	r.sealed = encryption.Wrap(log, set)
	r.store, err = store.Open(ctx, store.Options{
		Log:       r.sealed,
		Sealing:   r.sealed,
		Retention: s.History.Retention,
		MaxMemory: s.History.MaxMemoryBytes,
		MaxDisk:   s.History.MaxDiskBytes,
		Note:      s.note,
		OnFatal:   s.fail,
		Packed:    map[string]bool{crd.Collection: true},
	})
	if err == nil && s.Encryption.AutomaticReload {
		r.sealed.Follow(s.encryptionConfig())
	}
	return err
}

// note logs messages of the store.
func (s *Server) note(warning bool, message string, pairs ...any) {
	switch {
	case s.Logger == nil:
	case warning:
		s.Logger.Warn(message, pairs...)
	default:
		s.Logger.Info(message, pairs...)
	}
}

// openAuthority must be called after openStore, which locks the data directory.
func (s *Server) openAuthority(log *slog.Logger, ranges []netip.Prefix, objects *store.Store) (*pki.Authority, error) {
	hosts := []string{s.bindAddress(), loopbackName}
	for _, ip := range addresses.First(ranges) {
		hosts = append(hosts, ip.String())
	}
	hosts = append(hosts, serviceAddresses(objects)...)
	return pki.Open(pki.Config{Dir: s.pkiDir(), Hosts: hosts, Now: s.now, Log: log})
}

// serviceAddresses returns the cluster IPs of the stored Service `kubernetes`. It keeps them when
// the range of Services changes.
func serviceAddresses(objects *store.Store) []string {
	o := objects.Any().Get("services", "default/kubernetes")
	if o == nil {
		return nil
	}
	service, err := registry.Decode[corev1.Service](o)
	if err != nil { // clients cannot read it either
		return nil
	}
	return service.Spec.ClusterIPs
}

// pkiDir is the directory of keys; empty: they are not kept.
func (s *Server) pkiDir() string {
	if s.Storage == nil || s.Storage.Dir() == "" {
		return ""
	}
	return filepath.Join(s.Storage.Dir(), "pki")
}

// createFirst creates the objects that every server has.
func (s *Server) createFirst(ctx context.Context, r *running, verbs *registry.Registry, at netip.AddrPort) error {
	clients, err := s.clientsData(r.authority)
	if err != nil {
		return err
	}
	return startup.Ensure(ctx, startup.Config{
		Registry: verbs, Catalog: builtin.Catalog(), Clients: clients,
		Ranges: r.addresses.Ranges(), First: r.addresses.First(), Address: at, Now: s.now,
	})
}

// reached returns where other machines reach a listener: its address, or, if it listens on all
// addresses, the first one that is not of this machine alone. Only the port is valid when there
// is none.
func reached(l net.Listener) netip.AddrPort {
	a := l.Addr().(*net.TCPAddr).AddrPort()
	if !a.Addr().IsUnspecified() {
		return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return netip.AddrPortFrom(netip.Addr{}, a.Port())
	}
	for _, i := range all {
		n, ok := i.(*net.IPNet)
		if !ok || !n.IP.IsGlobalUnicast() {
			continue
		}
		if ip, ok := netip.AddrFromSlice(n.IP); ok && (ip.Unmap().Is4() || a.Addr().Is6()) {
			return netip.AddrPortFrom(ip.Unmap(), a.Port())
		}
	}
	return netip.AddrPortFrom(netip.Addr{}, a.Port())
}

// api returns the configuration of the HTTP handler.
func (s *Server) api(r *running, verbs *registry.Registry, catalog func() *resource.Catalog, credentials authn.Authenticator, log *slog.Logger) httpapi.Config {
	own := s.Version
	if own == "" {
		own = release
	}
	version := gitVersion(own)
	revision, at := commit()
	var spec http.Handler = openapi.New(catalog, version, s.enabled(cborGate))
	return httpapi.Config{
		Registry:            verbs,
		Catalog:             catalog,
		Authn:               credentials,
		Authz:               r.authorizer,
		Audit:               r.audit,
		Media:               wire.Served{CBOR: s.enabled(cborGate)},
		OpenAPI:             spec,
		Pages:               s.issuerPages(r),
		Version:             version,
		Commit:              revision,
		BuildDate:           at,
		Checks:              slices.Concat(s.checks(), s.encryptionChecks(r), r.storageChecks(), r.loopChecks()),
		Metrics:             r.metrics,
		Collectors:          slices.Concat(r.collectors, r.authorizer.Collectors()),
		Now:                 s.now,
		RepresentationBytes: s.representationBytes(),
		NoFairness:          s.Fairness.Disabled,
		Limits:              httpapi.Limits{InFlight: s.Fairness.MaxRequests, MutatingInFlight: s.Fairness.MaxMutatingRequests},
		Log:                 log,
	}
}

// representationBytes is the limit of the representation cache.
func (s *Server) representationBytes() int64 {
	return cmp.Or(s.RepresentationCacheBytes, s.History.MaxMemoryBytes/4*3) // zero: the handler's own defaults
}

func (r *running) restConfig() *rest.Config {
	return &rest.Config{
		Host:            r.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: r.authority.CertificatePEM(), ServerName: r.serverName},
		// The default of client-go, 5 requests per second, is meant for shared clusters.
		QPS: 1000, Burst: 2000,
	}
}

func (r *running) kubeconfig() kubeconfig.Config {
	return kubeconfig.Config{Server: r.url, CA: r.authority.CertificatePEM(), TLSServerName: r.serverName, Token: r.authority.AdminToken()}
}
