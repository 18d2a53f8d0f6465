package tidemark

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/tracing"
)

// Server is a Kubernetes API server. Its zero value works: in memory, on a free
// port of the loopback interface, with a certificate authority of its own. The
// fields are read by Start and must not change after it; the methods are safe for
// concurrent use. A Server must not be copied.
//
// Fields that belong together are a group, a struct of its own. Groups whose values can contradict each other have a
// method Check, which Start calls too: a program that reads its own configuration learns of errors before it starts.
type Server struct {
	// Storage is where the objects are kept: a *datadir.Dir, or an *etcdstore.Cluster or a *follower.Copy, which share
	// them with other servers. Nil: in memory until Close.
	Storage Storage
	// At is a resource version. The server then begins with the state that Storage, a *datadir.Dir, had at it, and keeps all
	// changes in memory: Storage is closed when Start returns, and is not written to if it is opened read-only. Objects
	// that every server has are not created, and Controllers that are nil are none but those that cannot be switched
	// off. Zero: the newest state of Storage, which the server changes.
	At uint64
	// History limits the history that stays readable. Zero: an hour.
	History History
	// Memory limits the memory of objects and of their history. Zero: limits that follow from the memory of the process.
	Memory Memory
	// Encryption encrypts objects at rest. Zero: none are encrypted.
	Encryption Encryption
	// Backups makes backups on a schedule. Zero: none are made.
	Backups Backups
	// Forks limits the forks of the server's worlds. Zero: 1000 forks, of 64 MiB each and 1 GiB together.
	Forks Forks

	// InProcess starts no listener: there are no sockets, and the only clients are those of the
	// process, with the configurations that RESTConfig and RESTConfigFor return. With Storage nil,
	// such a server works in a bubble of testing/synctest if it is started, used and closed in it.
	// Listen must have no address and no port to listen on, and TLS no certificates. False: the server listens.
	InProcess bool
	// Listen has the addresses of the server. Zero: a free port of 127.0.0.1.
	Listen Listen
	// TLS has the certificates, and the versions and cipher suites of TLS. Zero: the server's own certificate authority
	// issues a certificate.
	TLS TLS

	// Authentication has the credentials that the server accepts. Zero: those of its administrator, client certificates
	// of its own certificate authority, and tokens of service accounts. Other clients are anonymous.
	Authentication Authentication
	// Authorization configures who may do what. Zero: RBAC, and nodes what concerns them.
	Authorization Authorization
	// Audit configures the audit log. Zero: nothing is recorded.
	Audit Audit
	// Fairness limits the requests that execute at once. Zero: the defaults of kube-apiserver.
	Fairness Fairness

	// Admission chooses the admission plugins. Zero: those that docs/admission.md lists as default.
	Admission Admission
	// Services has the ranges of the addresses and ports of Services. Zero: those of most clusters.
	Services Services
	// Controllers selects the controllers that run in the server, like the flag
	// --controllers: "*" for all, "name", "-name". Nil: all. docs/controllers.md lists
	// them.
	Controllers []string
	// EventTTL is how long Events are kept after their last write; zero: an hour.
	EventTTL time.Duration
	// FeatureGates enables and disables features, by their names in kube-apiserver.
	// KnownFeatureGates lists them with their defaults; Start refuses others. Nil: all
	// defaults.
	FeatureGates map[string]bool

	// Shutdown configures how Close ends the server. Zero: at once.
	Shutdown Shutdown
	// Logger receives the log; nil: nothing is logged. The log never contains tokens,
	// Secrets or request bodies.
	//
	// Requests that failed or were slow have the level -2, all others Debug. Each part of the server has a value of
	// the attribute "component", one of LogComponents.
	Logger *slog.Logger
	// Diagnostics shows what requests spend their time on. Zero: nothing but the log does.
	Diagnostics Diagnostics
	// Version is the server's own version, which /version shows after the version of
	// Kubernetes: "0.1.0" makes "v1.36.3+tidemark.0.1.0". Empty: the version of this
	// source.
	Version string

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
	// MaxDiskBytes limits the size of history in the storage; zero: 4 GiB. All kept forks together have as much again.
	// Etcd keeps its history until its compaction, whatever the limit.
	MaxDiskBytes int64
}

// Memory limits the memory of a server, about. Forks have limits of their own: see Forks.
type Memory struct {
	// MaxObjectBytes limits the memory that the current objects use: their bytes and a few hundred for each. At the
	// limit, the server answers writes that grow objects with 507; reads, deletions and other writes succeed. Zero: half
	// of what remains of the process's memory limit (GOMEMLIMIT, its control groups, the machine) after MaxHistoryBytes,
	// at least 64 MiB. Negative: no limit.
	MaxObjectBytes int64
	// MaxHistoryBytes limits the memory for history; the rest is read from the storage. Zero: 128 MiB.
	MaxHistoryBytes int64
	// MaxRepresentationBytes limits the cache of representations that clients share:
	// compressed lists, and objects as protobuf, CBOR and table rows. It is a part of the memory for
	// history. Zero: three quarters of MaxHistoryBytes, 96 MiB if that is zero too.
	MaxRepresentationBytes int64
}

// Admission chooses and configures the admission plugins, by their names in kube-apiserver.
type Admission struct {
	// Enable and Disable change the default set of plugins. Unlike in kube-apiserver, ServiceAccount is not in the
	// default set: it requires a ServiceAccount for each Pod. docs/admission.md lists them. Nil: the default set.
	Enable, Disable []string
	// ConfigFile is a file with an AdmissionConfiguration of apiserver.config.k8s.io/v1, which has the configurations of
	// plugins. It is read once. Empty: they have none.
	ConfigFile string
	// NoUnenforcedWarnings omits the warnings about objects that the server stores and does
	// not act on: APIServices with a Service. It is for clients that compare responses with
	// those of kube-apiserver.
	NoUnenforcedWarnings bool
}

// Services has the ranges of the addresses and ports of Services.
type Services struct {
	// ClusterIPRange is the range of cluster IPs: a CIDR, or an IPv4 and an IPv6 CIDR
	// separated by a comma. Services that name no IP family use the first one. Empty:
	// 10.96.0.0/12, as in most clusters.
	ClusterIPRange string
	// NodePortRange is the range of node ports; empty: "30000-32767".
	NodePortRange string
}

// Check returns an error if a range is not valid.
func (s *Services) Check() error {
	_, err := s.config()
	return err
}

func (s *Services) config() (addresses.Config, error) {
	return addresses.Parse(s.ClusterIPRange, s.NodePortRange)
}

// Shutdown configures what Close does.
type Shutdown struct {
	// Delay is how long Close waits before it does anything but making /readyz fail, so that load balancers
	// take the server out in the meantime. Requests are served as before. Zero: Close does not wait.
	Delay time.Duration
	// SendRetryAfter answers requests that come after Delay with 429, Retry-After and the end of their
	// connection, until those that run have ended. False: connections are refused from then on.
	SendRetryAfter bool
}

// Diagnostics shows what requests spend their time on.
type Diagnostics struct {
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

// Check returns an error if the limits leave no seats.
func (f *Fairness) Check() error {
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
// of closing the log. With Shutdown.Delay, all this begins after the delay.
func (s *Server) Close() error {
	if r := s.get(); r != nil && s.Shutdown.Delay > 0 {
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

// leave makes the server unready for Shutdown.Delay. A server whose log has failed has nothing to wait for.
func (s *Server) leave(r *running) {
	s.logOf(logConnections).Info("the server will stop", "after", s.Shutdown.Delay)
	r.root.handler.Leave()
	timer := time.NewTimer(s.Shutdown.Delay)
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
	if s.Diagnostics.TracerProvider == nil {
		return nil
	}
	return s.Diagnostics.TracerProvider.Tracer(tracing.Scope)
}
