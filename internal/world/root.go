package world

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/peers"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/statusapi"
)

// openRoot opens the parts of the root world on its store. If it fails, the caller stops it.
func (s *Server) openRoot(ctx context.Context) (err error) {
	p, w := s.process, s.root
	w.custom = crd.NewSet(w.store, p.kinds(w.kubernetes), p.logOf(logCustomResources))
	w.tokens = accounts(w.store, p.keys, w.now)
	w.rbac = rbac.New(w.store)
	w.metrics = admission.NewMetrics()
	if err := w.open(); err != nil {
		return err
	}
	if p.storage.Shared != nil {
		if err := s.compare(ctx); err != nil {
			return err
		}
	}
	if p.makesFirst() {
		if err := s.createFirst(ctx); err != nil {
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
	if w.aggregator, err = w.newAggregator(); err != nil {
		return err
	}
	w.store.SetQuota(p.Memory.quota()) // the default objects exist, whatever the quota
	if w.loops, err = w.startLoops(); err != nil {
		return err
	}
	w.started.Store(w.loops)
	w.aggregator.Recheck()                       // this server writes the conditions, perhaps
	if w.source != nil && p.storage.Log == nil { // clients begin with the same state in each run
		if err := w.loops.Settled(ctx); err != nil {
			return err
		}
	}
	w.handler = httpapi.New(s.rootAPI())
	w.direct = p.newDirect(s.forks.route, w.drain)
	s.background.Go(func() { w.handler.Run(p.ending) })
	s.background.Go(s.forks.sweepKept)
	if p.makesFirst() {
		s.background.Go(s.keepFirst)
	}
	return s.startBackups(ctx)
}

// rootAPI returns the configuration of the HTTP handler of the root world, which has the parts that
// exist once in a process.
func (s *Server) rootAPI() httpapi.Config {
	p, w := s.process, s.root
	c := w.api()
	c.Checks = slices.Concat(c.Checks, w.loopChecks())
	c.Mounts = []httpapi.Mount{
		{Path: forksPath, BodyBytes: maxForkRequest, Handler: http.HandlerFunc(s.forks.serveForks)},
		{Path: backupPath, Timeout: p.backupTime(), Handler: http.HandlerFunc(s.serveBackup)},
		{Path: statusapi.Path, Handler: http.HandlerFunc(s.serveStatus)},
	}
	c.Mounts = append(c.Mounts, w.replication()...)
	c.Exposed = []exposition.Source{exposition.Func(s.expose), w.store, w.Exposed()}
	if w.aggregator != nil {
		c.Exposed = append(c.Exposed, w.aggregator)
	}
	c.Collectors = slices.Concat(p.collectors, w.metrics.Collectors(), w.webhooks.Collectors(), []prometheus.Collector{w.durations}, w.authorizer.Collectors())
	return c
}

// Exposed returns the metrics of the world with many series.
func (w *World) Exposed() exposition.Source {
	return &exposed{store: w.store, custom: w.custom, loops: w.loops}
}

// compare returns an error if the server must not run beside those that share its storage, or follow the one that it
// follows. It sets peers of the root world.
func (s *Server) compare(ctx context.Context) error {
	p, w := s.process, s.root
	facts, err := p.facts()
	if err != nil {
		return err
	}
	if p.follows() {
		return s.checkFollowed(ctx, facts)
	}
	facts = append(facts, peers.Fact{Name: "encryption-configuration", Current: func() string { return cmp.Or(p.encrypted.ConfigHash(), "none") }, Advisory: true,
		What:   "another configuration of encryption at rest",
		Remedy: "what one of them encrypts, the other may not be able to read, and it writes other values; when a change of the configuration is complete, give all servers the same --encryption-provider-config"})
	w.peers = peers.New(peers.Config{
		Startup:  startup.Config{Registry: w.verbs, Catalog: builtin.For(w.kubernetes), Address: p.reachedAt(), Shared: true, Now: w.now},
		Identity: p.identity, Facts: facts, Fail: p.Failure.Fail, Now: w.now, Log: p.logOf(logStore),
	})
	return w.peers.Check(ctx)
}

// createFirst creates the objects that every server has.
func (s *Server) createFirst(ctx context.Context) error {
	clients, err := s.process.clientsData()
	if err != nil {
		return err
	}
	return startup.Ensure(ctx, startup.Config{
		Registry: s.root.verbs, Catalog: builtin.For(s.root.kubernetes), Enabled: s.root.kubernetes.Enabled, Clients: clients,
		Ranges: s.root.addresses.Ranges(), First: s.root.addresses.First(), Address: s.process.reachedAt(), Now: s.root.now, Shared: s.process.storage.Shared != nil,
	})
}

// firstPause is the pause between two looks for the objects that every server has.
const firstPause = time.Minute

// keepFirst creates these objects again if another program has deleted them from the log, until the server ends. No client
// can delete the namespaces default and kube-system, so their absence is the sign. While they are there, changes of the
// other objects are the administrator's.
func (s *Server) keepFirst() {
	ticker := time.NewTicker(firstPause)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-s.process.ending.Done():
			return
		}
		now := s.root.store.Any()
		if now.Get("namespaces", metav1.NamespaceDefault) != nil && now.Get("namespaces", metav1.NamespaceSystem) != nil {
			continue
		}
		switch err := s.createFirst(s.process.ending); {
		case s.process.ending.Err() != nil:
		case err != nil:
			s.process.note(true, "the namespaces of the system were deleted from the log, and cannot be created again", "err", err)
		default:
			s.process.note(true, "the namespaces of the system were deleted from the log; they and the other objects that every server has are there again")
		}
	}
}
