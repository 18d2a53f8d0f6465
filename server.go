package tidemark

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/tracing"
)

// Server is a Kubernetes API server. Its zero value works: in memory, on a free
// port of the loopback interface, with a certificate authority of its own. The
// fields are read by Start and must not change after it; the methods are safe for
// concurrent use. A Server must not be copied.
type Server struct {
	// Storage is where the objects are kept: a *datadir.Dir, or an *etcdstore.Cluster or a *follower.Copy, which share
	// them with other servers. Nil: in memory until Close.
	Storage Storage

	// InProcess starts no listener: there are no sockets, and the only clients are those of the
	// process, with the configurations that RESTConfig and RESTConfigFor return. With Storage nil,
	// such a server works in a bubble of testing/synctest if it is started, used and closed in it.
	// BindAddress, MoreAddresses, Port and the certificates of TLS must be unset.
	InProcess bool
	// BindAddress is the IP address to listen on; empty: 127.0.0.1. With "0.0.0.0"
	// or "::" every client that reaches this machine can connect.
	BindAddress string
	// MoreAddresses are further addresses to listen on: IP addresses, with the same port, and paths of unix sockets
	// after "unix:". Clients of a socket speak TLS and authenticate as others do; only the user of the server can
	// connect to it. The limits for connections hold for all addresses together.
	MoreAddresses []string
	// Port to listen on; zero: a free one.
	Port int
	// AdvertiseAddress is the IP address at which other machines reach the server: that of the endpoints of the
	// Service "kubernetes" and of kubeconfigs. Empty: BindAddress, or if that is all addresses, the first address
	// of the machine for endpoints, and a loopback address for kubeconfigs.
	AdvertiseAddress string
	// CertificateNames are names and IP addresses at which clients reach the server, for its own certificate, in
	// addition to localhost, the names and addresses of the Service "kubernetes", BindAddress, MoreAddresses and
	// AdvertiseAddress. An existing certificate without them is issued again. With TLSCertFile they have no effect.
	CertificateNames []string

	// TLSCertFile and TLSPrivateKeyFile hold a serving certificate (PEM, with its
	// chain) and its key; they are read again when they change. Empty: the server's
	// own certificate authority issues one.
	TLSCertFile, TLSPrivateKeyFile string
	// TLS has certificates for single names, and the versions and cipher suites.
	TLS TLS

	// TokenAuthFile lists bearer tokens in the format of kube-apiserver, a line of CSV
	// each: token,user,uid,"group1,group2". It is read again when it changes.
	// Empty: only the administrator's token is valid.
	TokenAuthFile string
	// ClientCAFile holds the certificates (PEM) of certificate authorities that sign client
	// certificates, in addition to the server's own. It is read again when it changes. Empty:
	// none.
	ClientCAFile string
	// DisableAnonymous refuses requests without credentials with 401. Otherwise
	// their user is system:anonymous, who may read the health endpoints and
	// /version.
	DisableAnonymous bool

	// Audit configures the audit log. The zero value records nothing.
	Audit Audit
	// Authentication has further options of authentication.
	Authentication Authentication
	// Authorization configures who may do what.
	Authorization Authorization

	// ServiceClusterIPRange is the range of cluster IPs: a CIDR, or an IPv4 and an IPv6 CIDR
	// separated by a comma. Services that name no IP family use the first one. Empty:
	// 10.96.0.0/12, as in most clusters.
	ServiceClusterIPRange string
	// ServiceNodePortRange is the range of node ports; empty: "30000-32767".
	ServiceNodePortRange string

	// StorageMaxBytes limits the memory that the current objects use, approximately: their
	// bytes and a few hundred for each. At the limit, the server answers writes that grow
	// objects with 507; reads, deletions and other writes succeed. Zero: half of what remains of
	// the process's memory limit (GOMEMLIMIT, its control groups, the machine) after
	// History.MaxMemoryBytes, at least 64 MiB. Negative: no limit.
	StorageMaxBytes int64

	// History limits the history that stays readable.
	History History

	// Backups makes backups on a schedule. The zero value makes none.
	Backups Backups

	// Encryption encrypts objects at rest. The zero value encrypts none.
	Encryption Encryption

	// FeatureGates enables and disables features, by their names in kube-apiserver.
	// KnownFeatureGates lists them with their defaults; Start refuses others. Nil: all
	// defaults.
	FeatureGates map[string]bool

	// RepresentationCacheBytes limits the cache of representations that clients share:
	// compressed lists, and objects as protobuf, CBOR and table rows. It is a part of the memory for
	// history. Zero: three quarters of History.MaxMemoryBytes, 96 MiB if that is zero too.
	RepresentationCacheBytes int64

	// Controllers selects the controllers that run in the server, like the flag
	// --controllers: "*" for all, "name", "-name". Nil: all. docs/controllers.md lists
	// them.
	Controllers []string
	// EventTTL is how long Events are kept after their last write; zero: an hour.
	EventTTL time.Duration

	// EnableAdmissionPlugins and DisableAdmissionPlugins change the default set of admission
	// plugins, by their names in kube-apiserver. Unlike there, ServiceAccount is not in the
	// default set: it requires a ServiceAccount for each Pod. docs/admission.md lists them.
	EnableAdmissionPlugins, DisableAdmissionPlugins []string
	// AdmissionConfigFile is a file with an AdmissionConfiguration of
	// apiserver.config.k8s.io/v1, which has the configurations of plugins; empty: they have
	// none. It is read once.
	AdmissionConfigFile string

	// Fairness limits the requests that execute at once. The zero value has the defaults of
	// kube-apiserver.
	Fairness Fairness

	// Forks limits the forks of the server's worlds.
	Forks Forks

	// NoUnenforcedWarnings omits the warnings about objects that the server stores and does
	// not act on: APIServices with a Service. It is for clients that compare answers with
	// those of kube-apiserver.
	NoUnenforcedWarnings bool

	// At is a resource version. The server then begins with the state that Storage, a *datadir.Dir, had at it, and keeps all
	// changes in memory: Storage is closed when Start returns, and is not written to if it is opened read-only. Objects
	// that every server has are not created, and Controllers that are nil are none but those that cannot be switched
	// off. Zero: the newest state of Storage, which the server changes.
	At uint64

	// ShutdownDelay is how long Close waits before it does anything but making /readyz fail, so that load balancers
	// take the server out in the meantime. Requests are served as before. Zero: Close does not wait.
	ShutdownDelay time.Duration
	// ShutdownSendRetryAfter answers requests that come after ShutdownDelay with 429, Retry-After and the end of their
	// connection, until those that run have ended. Otherwise connections are refused from then on.
	ShutdownSendRetryAfter bool

	// Version is the server's own version, which /version shows after the version of
	// Kubernetes: "0.1.0" makes "v1.36.3+tidemark.0.1.0". Empty: the version of this
	// source.
	Version string

	// Logger receives the log; nil: nothing is logged. The log never contains tokens,
	// Secrets or request bodies.
	//
	// Requests that failed or were slow have the level -2, all others Debug. Each part of the server has a value of
	// the attribute "component", one of LogComponents.
	Logger *slog.Logger

	// SlowRequest is the time from which on a request is logged at the level Info, with the time of its parts.
	// Watches are never slow. Zero: requests of more than half a second are logged at level -2.
	SlowRequest time.Duration

	// TracerProvider records a span for each request, with children for its parts: authorization, the queue,
	// admission, calls of webhooks, the log. Its sampler decides which requests; clients in the groups
	// system:masters and system:monitoring select theirs by the header traceparent. Webhooks get the header
	// traceparent. The caller shuts the provider down, after Close. Nil: there are no spans.
	TracerProvider trace.TracerProvider

	// Profiling serves profiles of the process at /debug/pprof/ to those who may get these paths: with RBAC,
	// administrators, and others by the nonResourceURLs of a role. They show the program's functions, and no objects.
	Profiling bool

	// Clock is the clock for points in time: timestamps, the validity of certificates and tokens, the
	// expiry of Events and of certificate requests, the lease of a kube-controller-manager. Nil: the
	// clock of package time. Timeouts, pauses and the age of history are durations, and do not
	// follow it.
	Clock *Clock
	// Seed selects the UIDs, generated names, addresses, audit IDs and first resource version of a server in
	// memory, for tests; with InProcess, also the certificate of its authority. Zero: they are random. With a seed,
	// the controllers do one thing at a time, in an order that depends on the objects alone, and Start returns when
	// they have nothing left to do.
	//
	// In a bubble of testing/synctest, two runs then have the same history, byte for byte, if the client waits with
	// synctest.Wait after each write. Tokens of service accounts stay random, also those in Secrets. UIDs can be
	// predicted, and with InProcess the key of the authority.
	Seed uint64

	// now is the wall clock, for certificates, tokens and reloaded files; nil: time.Now.
	now func() time.Time
	// backupTime is how long a backup may take; zero: the constant of this name.
	backupTime time.Duration

	mu      sync.Mutex
	started bool
	running *running // set once Start has succeeded
	closed  bool
	endErr  error // of closing

	once    sync.Once     // makes failed
	failing sync.Once     // closes failed
	failed  chan struct{} // closed when the log has failed
	failure error         // why; set before failed is closed
}

// Clock is a clock that tests move with Advance. Its zero value runs with the clock of package time.
type Clock = clock.Clock

// Storage is where a server keeps its objects: a *datadir.Dir, an *etcdstore.Cluster or a *follower.Copy. Only this module
// can implement it, because its method has types of internal packages. Other programs can wrap one of these.
type Storage interface {
	// Open opens the log, and locks it against other processes. Start calls it once; the server closes the log.
	Open(ctx context.Context, o storage.Options) (*storage.Opened, error)
}

// History limits how much history clients can read: watch from, list at an exact resource
// version, page through. The server answers requests for older versions with 410 Gone.
type History struct {
	// Retention is how long a replaced state stays readable, counted while the
	// server runs; zero: an hour.
	Retention time.Duration
	// MaxMemoryBytes limits the memory for history; the rest is read from the storage.
	// Zero: 128 MiB.
	MaxMemoryBytes int64
	// MaxDiskBytes limits the size of history in the storage; zero: 4 GiB. All kept forks together have as much again.
	MaxDiskBytes int64
}

// Fairness limits the requests that execute at once. docs/fairness.md describes it.
type Fairness struct {
	// Disabled refuses requests beyond the limits at once, whatever FlowSchemas and
	// PriorityLevelConfigurations say. Otherwise these decide which requests wait.
	Disabled bool
	// MaxRequests and MaxMutatingRequests limit the reads and the writes that execute at once. Unless
	// Disabled, their sum is the number of seats that the priority levels share. Zero: 400 and 200.
	// Negative: no limit if Disabled, otherwise no seats.
	MaxRequests, MaxMutatingRequests int
}

// check returns an error if the limits leave no seats.
func (f *Fairness) check() error {
	if f.Disabled || max(f.MaxRequests, 0)+max(f.MaxMutatingRequests, 0) > 0 || f.MaxRequests == 0 || f.MaxMutatingRequests == 0 {
		return nil
	}
	return errors.New("fairness: no seats are left: want a limit above zero for reads or for writes")
}

var errStarted = errors.New("tidemark: a Server starts once, and not after Close")

// Start starts the server, and returns when it answers requests. The context
// limits the start alone: the server runs until Close. A Server starts once. If
// Start fails, no goroutine, file lock or listener remains.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started {
		return errStarted
	}
	s.started = true
	r, err := s.start(ctx)
	if err != nil {
		return err
	}
	s.running = r
	return nil
}

// Close stops the server: it accepts no more requests, ends watches cleanly, lets
// requests finish for a moment, syncs and closes the log, all within a second. On etcd it may take two seconds
// longer, to leave a copy of the objects for the next start. If an audit
// webhook does not answer, it waits up to five seconds longer for the last events to be sent. It
// is idempotent, and does nothing for a server that was not started. It returns the error
// of closing the log. With ShutdownDelay, all this begins after the delay.
func (s *Server) Close() error {
	if r := s.get(); r != nil && s.ShutdownDelay > 0 {
		r.leaving.Do(func() { s.leave(r) })
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true // a closed server does not start any more
	if s.running != nil && !s.closed {
		s.closed = true
		s.endErr = s.running.stop()
	}
	return s.endErr
}

// leave makes the server unready for ShutdownDelay. A server whose log has failed has nothing to wait for.
func (s *Server) leave(r *running) {
	s.logOf(logConnections).Info("the server will stop", "after", s.ShutdownDelay)
	r.root.handler.Leave()
	timer := time.NewTimer(s.ShutdownDelay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.Done():
	}
}

// Done returns a channel that is closed when the server cannot continue because its
// log failed, or because it differs from the server that it follows; Err then returns the reason. Acknowledged writes are safe; others may
// be lost. The caller has to call Close. Close alone does not close the channel.
func (s *Server) Done() <-chan struct{} {
	s.once.Do(func() { s.failed = make(chan struct{}) })
	return s.failed
}

// Err returns why Done is closed, nil before.
func (s *Server) Err() error {
	select {
	case <-s.Done():
		return s.failure
	default:
		return nil
	}
}

// fail closes Done. The first error counts.
func (s *Server) fail(err error) {
	s.failing.Do(func() {
		s.Done() // there is something to close
		s.failure = err
		close(s.failed)
	})
}

// URL returns the address of the server: "https://127.0.0.1:6443". With InProcess, it is a name that
// only the transports of the server know. It is empty before Start; while Start runs it waits for it.
func (s *Server) URL() string {
	if r := s.get(); r != nil {
		return r.url
	}
	return ""
}

// Root returns the world of the server's own storage. It panics before Start has succeeded.
func (s *Server) Root() *World { return s.must().root }

// RESTConfig returns a configuration for client-go as administrator, a copy that the caller may
// change. With InProcess, it is World.InProcessConfig. It panics before Start has succeeded.
func (s *Server) RESTConfig() *rest.Config { return s.Root().RESTConfig() }

// RESTConfigFor returns a configuration for client-go as a user. It has a client certificate that is
// valid for a year. With InProcess, it is World.InProcessConfigFor. It panics before Start has
// succeeded.
func (s *Server) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	return s.Root().RESTConfigFor(user, groups...)
}

// Kubeconfig returns a kubeconfig file with the administrator's credentials. It panics before Start
// has succeeded. With InProcess, no client can use it.
func (s *Server) Kubeconfig() []byte { return s.Root().Kubeconfig() }

// WriteKubeconfig writes the administrator's kubeconfig to a file that only its owner can
// read. It returns an error if the file exists and was not written by tidemark. While the
// server runs, it writes the file again when its certificate authority is renewed, unless the
// file was removed. It panics before Start has succeeded.
func (s *Server) WriteKubeconfig(path string) error {
	r := s.must()
	if s.InProcess {
		return errors.New("tidemark: a server in process has no kubeconfig: no other process reaches it")
	}
	if err := kubeconfig.Write(path, r.root.kubeconfig()); err != nil {
		return err
	}
	return r.publisher.add(path)
}

func (s *Server) get() *running {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

func (s *Server) must() *running {
	r := s.get()
	if r == nil {
		panic("tidemark: the server has not started")
	}
	return r
}

// tracer returns what records spans; nil: nothing does.
func (s *Server) tracer() trace.Tracer {
	if s.TracerProvider == nil {
		return nil
	}
	return s.TracerProvider.Tracer(tracing.Scope)
}
