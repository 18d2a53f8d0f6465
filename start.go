package tidemark

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/autobackup"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/inprocess"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
)

// running is what a server that runs has once: the listener, the certificates, the configuration. Each
// World has the rest.
type running struct {
	configuration checked
	listeners     []net.Listener // the first one is that of Listen.Address; nil: InProcess
	url           string
	// serverName is what clients check the certificate against; empty: the host of
	// url.
	serverName     string
	authority      *pki.Authority
	keys           *satoken.Authority // of service account tokens; worlds use it with their objects
	authentication authentication
	issuers        *issuers.Issuers   // nil: none are configured
	sealed         *encryption.Active // of the root world
	storage        storage.Opened     // zero: the objects are in memory
	identity       string             // among the servers on storage.Shared; empty: there are no others
	audit          *audit.Auditor     // nil: requests are not recorded
	serving        *serving.Server    // nil: InProcess
	// certificates returns the serving certificates; nil: InProcess.
	certificates func() []*tls.Certificate
	leaving      sync.Once
	publisher    publisher
	root         *World
	backups      *autobackup.Loop // nil: there is no schedule
	started      time.Time
	forks        forks
	aggregated   controller.Aggregated // of all worlds
	control      *inprocess.Server     // of Host
	leases       control.Leases

	collectors      []prometheus.Collector // of authentication
	handshakeErrors atomic.Int64           // of TLS
}

// loopbackName is the TLS server name that selects the server's own certificate if the user
// configured another one, so that the kubeconfig works with any certificate.
const loopbackName = "apiserver-loopback-client"

// start implements Start. It checks first what is cheap to check: the configuration, the
// address, the lock of the data directory.
func (s *Server) start(ctx context.Context) (_ *running, err error) {
	r := &running{started: time.Now().UTC()}
	r.forks.budget = store.NewBudget(cmp.Or(s.Forks.MaxTotalBytes, DefaultForkTotalBytes))
	r.forks.openings = make(slots, keptOpenings)
	if s.Clock != nil {
		s.now = s.Clock.Now
	}
	if r.configuration, err = s.check(); err != nil {
		return nil, err
	}
	r.url = "https://" + inProcessHost
	if !s.InProcess {
		if r.listeners, err = s.Listen.listen(ctx); err != nil {
			return nil, err
		}
		r.url, r.serverName = s.address(r.listeners[0])
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.stop())
		}
	}()
	if r.audit, err = s.openAudit(s.logOf(logAudit)); err != nil {
		return nil, err
	}
	objects, err := s.openStore(ctx, r)
	if err != nil {
		return nil, err
	}
	r.root = &World{server: s, running: r, seed: seed{number: s.Seed}, issued: []*authn.Issued{{}}, store: objects, clock: s.Clock, now: s.now}
	if r.authority, err = s.openAuthority(r, objects); err != nil {
		return nil, err
	}
	if r.keys, err = s.openTokens(r.pkiDir(), s.logOf(logAuthentication)); err != nil {
		return nil, err
	}
	if err := s.openAuthentication(r); err != nil {
		return nil, err
	}
	if err := r.root.openRoot(ctx); err != nil {
		return nil, err
	}
	r.loadKept(r.storage.Forks)
	r.control = s.newControl(r)
	s.followAuthority(r)
	if !s.InProcess {
		if err := s.serve(r); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// serve serves the listeners.
func (s *Server) serve(r *running) error {
	certificate, all, err := s.certificate(r.authority, s.logOf(logCertificates))
	if err != nil {
		return err
	}
	r.certificates = all
	var refuse func() // nil: connections are refused
	if s.Shutdown.SendRetryAfter {
		refuse = r.root.handler.Refuse
	}
	r.serving = serving.New(serving.Config{
		Listeners: r.listeners, Handler: http.HandlerFunc(r.route), Drain: r.root.handler.Drain, Refuse: refuse, GetCertificate: certificate,
		MinVersion: s.TLS.minVersion(), CipherSuites: s.TLS.CipherSuites,
		Limits:          connectionLimits(httpapi.DefaultLimits),
		Memory:          processMemory(debug.SetMemoryLimit(-1), os.ReadFile),
		HandshakeFailed: func() { r.handshakeErrors.Add(1) }, Log: s.logOf(logConnections),
	})
	r.serving.Start()
	return nil
}

// stop stops the parts in reverse order: requests first, so that none meets a closed store. Parts that
// do not exist yet are skipped.
func (r *running) stop() error {
	r.leases.Stop()
	if r.root != nil {
		r.root.endCalls()
	}
	r.forks.refuse()
	r.endRequests()
	r.closeIssuers()
	r.publisher.stop()
	err := errors.Join(r.forks.close(), r.closeAudit())
	if r.root != nil {
		err = errors.Join(err, r.root.stop())
	}
	return err
}

// endRequests ends all requests, over connections and in the process, within a second.
func (r *running) endRequests() {
	var direct sync.WaitGroup
	defer direct.Wait()
	if r.root != nil && r.root.direct != nil {
		direct.Go(r.root.direct.Stop)
	}
	if r.control != nil {
		direct.Go(r.control.Stop)
	}
	switch {
	case r.serving != nil:
		r.serving.Stop()
	default:
		closeAll(r.listeners)
	}
}

// checked is the configuration that start needs after it was checked.
type checked struct {
	plugins       admission.Plugins
	access        *config.Source
	configuration admission.Configuration
	services      addresses.Config
}

// check checks what can be checked without opening anything but files of the configuration.
func (s *Server) check() (c checked, err error) {
	if err := errors.Join(s.checkInProcess(), s.checkLoops()); err != nil {
		return c, err
	}
	if err := errors.Join(s.Listen.Check(), s.TLS.Check()); err != nil {
		return c, err
	}
	if s.At != 0 && s.Storage == nil {
		return c, errNoStateAt
	}
	if err := s.checkBackups(); err != nil {
		return c, err
	}
	if err := s.Authentication.Check(); err != nil {
		return c, fmt.Errorf("authentication: %w", err)
	}
	if err := s.Fairness.Check(); err != nil {
		return c, err
	}
	if c.plugins, err = admission.Choose(s.Admission.Enable, s.Admission.Disable); err != nil {
		return c, err
	}
	if c.access, err = s.Authorization.source(); err != nil {
		return c, err
	}
	if c.configuration, err = admission.ReadConfiguration(s.Admission.ConfigFile, c.plugins); err != nil {
		return c, err
	}
	if err := s.checkFeatureGates(); err != nil {
		return c, fmt.Errorf("feature gates: %w", err)
	}
	s.TLS.warn(s.logOf(logCertificates))
	c.services, err = s.Services.config()
	return c, err
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

// packed are the collections whose large objects the stores hold compressed.
var packed = map[string]bool{crd.Collection: true}

// openStore opens the log, and the store on it.
func (s *Server) openStore(ctx context.Context, r *running) (*store.Store, error) {
	set, err := s.encryption(ctx)
	if err != nil {
		return nil, err
	}
	r.sealed = encryption.NewActive(set)
	if err := s.openStorage(ctx, r); err != nil {
		r.sealed.Close()
		return nil, err
	}
	if r.storage.Shared != nil {
		return s.openShared(ctx, r)
	}
	log := r.storage.Log
	if log == nil {
		log = &memlog.Log{Start: s.firstRevision()}
	}
	sealed := encryption.Wrap(log, r.sealed)
	sealed.StandIns = s.standIns()
	o := store.Options{
		Log:       sealed,
		Sealing:   sealed,
		Now:       s.now,
		Retention: s.History.Retention,
		MaxMemory: s.Memory.MaxHistoryBytes,
		MaxDisk:   s.History.MaxDiskBytes,
		Note:      s.note,
		OnFatal:   s.fail,
		Packed:    packed,
	}
	if s.At != 0 { // nothing is compacted
		o.Retention, o.MaxDisk = math.MaxInt64, math.MaxInt64
	}
	objects, err := store.Open(ctx, o)
	if unread := sealed.Unread(); err == nil && unread != nil {
		s.note(true, "requests for some objects fail", "err", unread)
	}
	if err == nil && s.At != 0 {
		r.storage = storage.Opened{}
		return s.stateAt(ctx, objects)
	}
	if err == nil && s.Encryption.AutomaticReload {
		r.sealed.Follow(s.encryptionConfig())
	}
	return objects, err
}

// openStorage opens Storage, if there is one.
func (s *Server) openStorage(ctx context.Context, r *running) error {
	if s.Storage == nil {
		return nil
	}
	opened, err := s.Storage.Open(ctx, storage.Options{Encryption: r.sealed, StandIns: s.standIns()})
	if err != nil {
		return err
	}
	r.storage = *opened
	if err := errors.Join(s.checkAt(opened), s.checkBackupSource(opened)); err != nil {
		if opened.Shared != nil {
			return errors.Join(err, opened.Shared.Close())
		}
		return errors.Join(err, opened.Log.Close())
	}
	return nil
}

// checkAt checks that a storage has states of earlier resource versions, if the server begins with one.
func (s *Server) checkAt(o *storage.Opened) error {
	if s.At != 0 && o.Shared != nil {
		return errNoStateAt
	}
	return nil
}

var errNoStateAt = errors.New("a resource version to begin with needs a Storage that has its state: a data directory")

// stateAt returns a store in memory that begins with the state of another one at the resource version At. It
// closes the other one.
func (s *Server) stateAt(ctx context.Context, stored *store.Store) (*store.Store, error) {
	floor, head := stored.Bounds()
	state, err := stored.StateAt(ctx, store.Revision(s.At), nil)
	if err != nil {
		err = fmt.Errorf("the state at resource version %d is not stored; the history has those from %d to %d: %w", s.At, floor, head, err)
		return nil, errors.Join(err, stored.Close())
	}
	then, err := stored.Fork(state, store.Options{
		Log: memlog.From(state), Retention: s.History.Retention, MaxMemory: s.Memory.MaxHistoryBytes, Packed: packed, Now: s.now,
		Note: s.note, OnFatal: s.fail,
	})
	return then, errors.Join(err, stored.Close())
}

// note logs messages of the store.
func (s *Server) note(warning bool, message string, pairs ...any) {
	level := slog.LevelInfo
	if warning {
		level = slog.LevelWarn
	}
	s.logOf(logStore).Log(context.Background(), level, message, pairs...)
}

// openAuthority must be called after openStore, which locks the data directory.
func (s *Server) openAuthority(r *running, objects *store.Store) (*pki.Authority, error) {
	hosts := append([]string{s.Listen.address(), loopbackName}, s.TLS.Names...)
	for _, a := range s.Listen.MoreAddresses {
		if _, socket := socketPath(a); !socket {
			hosts = append(hosts, a)
		}
	}
	if s.Listen.AdvertiseAddress != "" {
		hosts = append(hosts, s.Listen.AdvertiseAddress)
	}
	for _, ip := range addresses.First(r.configuration.services.Ranges) {
		hosts = append(hosts, ip.String())
	}
	hosts = append(hosts, serviceAddresses(objects)...)
	c := pki.Config{Dir: r.pkiDir(), Hosts: hosts, Now: s.now, Log: s.logOf(logCertificates)}
	if s.InProcess { // otherwise clients would trust a key that can be guessed
		c.Random = r.root.seed.source(forKeys)
	}
	return pki.Open(c)
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

// keepsAuthority reports whether others may rely on the server's own certificate authority. One that shares
// its objects, and keeps no files, makes a new authority at each start.
func (r *running) keepsAuthority() bool { return r.storage.Shared == nil || r.pkiDir() != "" }

// pkiDir is the directory of keys; empty: they are not kept.
func (r *running) pkiDir() string {
	if r.storage.Dir == "" {
		return ""
	}
	return filepath.Join(r.storage.Dir, "pki")
}

// follows reports whether the server follows another one.
func (r *running) follows() bool { return r.storage.Followed != nil }

// transportUsed returns how many bytes wait for clients of HTTP/2 connections.
func (r *running) transportUsed() int64 {
	if r.serving == nil {
		return 0
	}
	return r.serving.TransportUsed()
}
