package tidemark

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Server is a Kubernetes API server. Its zero value works: in memory, on a free
// port of the loopback interface, with a certificate authority of its own. The
// fields are read by Start and must not change after it; the methods are safe for
// concurrent use. A Server must not be copied.
type Server struct {
	// Storage is where the objects are kept; nil: in memory, until Close.
	Storage Storage

	// BindAddress is the IP address to listen on; empty: 127.0.0.1. With "0.0.0.0"
	// or "::" every client that reaches this machine can connect.
	BindAddress string
	// Port to listen on; zero: a free one.
	Port int

	// TLSCertFile and TLSPrivateKeyFile hold a serving certificate (PEM, with its
	// chain) and its key; they are read again when they change. Empty: the server's
	// own authority issues one.
	TLSCertFile, TLSPrivateKeyFile string

	// TokenAuthFile lists bearer tokens as kube-apiserver's does, a line of CSV
	// each: token,user,uid,"group1,group2". It is read again when it changes.
	// Empty: only the administrator's token is known.
	TokenAuthFile string
	// ClientCAFile holds certificates (PEM) that sign those of clients, beside the
	// server's own authority. It is read again when it changes. Empty: none.
	ClientCAFile string
	// DisableAnonymous refuses requests without credentials with 401. Otherwise
	// they are the user system:anonymous, who may see the health endpoints and
	// /version.
	DisableAnonymous bool

	// ServiceAccountIssuer is the issuer of service accounts' tokens, a URL, and the
	// audience of this server; empty: https://kubernetes.default.svc.cluster.local.
	// Tokens of another issuer's name do not count.
	ServiceAccountIssuer string

	// ServiceClusterIPRange is what Services get their cluster IPs of: a CIDR, or one of
	// IPv4 and one of IPv6 with a comma between, of which the first is that of Services
	// that name no family. Empty: 10.96.0.0/12, as most clusters have it.
	ServiceClusterIPRange string
	// ServiceNodePortRange is what Services get ports on nodes of: "30000-32767", which
	// is what empty means.
	ServiceNodePortRange string

	// StorageMaxBytes bounds what the current objects take in memory, about: their bytes
	// and some hundred for each. At the bound, writes that grow objects are 507; reads,
	// deletions and other writes go on. Zero: half of what remains of the process's memory
	// limit (GOMEMLIMIT, its control groups, the machine) after History.MaxMemoryBytes, at
	// least 64 MiB. Negative: no bound.
	StorageMaxBytes int64

	// History is how much of the past stays readable.
	History History

	// FeatureGates switches features on and off, by the names that kube-apiserver has for
	// them. KnownFeatureGates lists them with their defaults; Start
	// refuses others. Nil: all defaults.
	FeatureGates map[string]bool

	// RepresentationCacheBytes is how much memory, of that for history, is for
	// compressed lists and for objects as protobuf, CBOR and rows of tables, which are made
	// once for all who ask. Zero: three quarters of History.MaxMemoryBytes, 96 MiB if that is zero
	// too.
	RepresentationCacheBytes int64

	// Controllers says which of the loops run that kube-controller-manager has for
	// other servers, as the flag --controllers does: "*" for all, "name", "-name".
	// Nil: all. docs/controllers.md lists them.
	Controllers []string
	// EventTTL is how long events stay after their last write; zero: an hour.
	EventTTL time.Duration

	// EnableAdmissionPlugins and DisableAdmissionPlugins switch parts of admission on and
	// off, by the names that they have in kube-apiserver. Of those that are on if nobody
	// says anything there, ServiceAccount is not here: it wants a ServiceAccount for each
	// Pod. docs/admission.md lists them.
	EnableAdmissionPlugins, DisableAdmissionPlugins []string

	// NoUnenforcedWarnings leaves out the warnings for objects that are stored and not
	// acted on: roles, admission webhooks and policies, flow schemas, APIServices. For
	// clients that compare answers with those of kube-apiserver.
	NoUnenforcedWarnings bool

	// Version is this server's own version, which /version shows behind that of
	// Kubernetes: "0.1.0" makes "v1.36.3+tidemark.0.1.0". Empty: that of this
	// source.
	Version string

	// Logger gets what an operator wants to know; nil: nothing is logged. No token,
	// no Secret and no request body is ever part of it.
	Logger *slog.Logger

	// now is the clock for certificates and for looking at files; nil: time.Now.
	now func() time.Time

	mu      sync.Mutex
	started bool
	running *running // set once Start has succeeded
	closed  bool
	endErr  error // of closing

	once    sync.Once     // makes failed
	failed  chan struct{} // closed when the log has failed
	failure error         // why; set before failed is closed
}

// Storage is where a server keeps its objects; datadir.Dir is one.
type Storage interface {
	// OpenLog opens the log and locks it against other processes. Start calls it
	// once; the server closes the log.
	OpenLog(ctx context.Context) (store.Log, error)
	// Dir is a directory for the server's other files (its certificate authority),
	// which the lock guards too. Empty: they are not kept.
	Dir() string
}

// History bounds how much of the past can be read: watched from, listed at an
// exact resource version, paged through. What is older is 410 Gone.
type History struct {
	// Retention is how long a replaced state stays readable, counted while the
	// server runs; zero: an hour.
	Retention time.Duration
	// MaxMemoryBytes bounds the memory for it; what does not fit is read back from
	// the storage. Zero: 128 MiB.
	MaxMemoryBytes int64
	// MaxDiskBytes bounds its size in the storage; zero: 4 GiB.
	MaxDiskBytes int64
}

var errStarted = errors.New("tidemark: a Server starts once, and not after Close")

// Start starts the server, and returns when it answers requests. The context
// bounds the start alone: the server runs until Close. A Server starts once; when
// Start fails, nothing runs on and nothing is left behind.
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

// Close stops the server: it accepts nothing more, ends watches cleanly, lets
// requests finish for a moment, syncs and closes the log, all within a second. It
// is idempotent, and does nothing for a server that was not started. The error is
// that of closing the log.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.started = true // a closed server does not start any more
	if s.running != nil && !s.closed {
		s.closed = true
		s.endErr = s.running.stop()
	}
	return s.endErr
}

// Done returns a channel that is closed when the server cannot go on, because its
// log failed; Err then says why. What was acknowledged is safe; what was not may
// be lost. The server has to be closed. Close alone does not close the channel.
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

// fail closes Done. It is called once at most.
func (s *Server) fail(err error) {
	s.Done() // there is something to close
	s.failure = err
	close(s.failed)
}

// URL returns the address of the server: "https://127.0.0.1:6443". It is empty
// before Start; while Start runs it waits for it.
func (s *Server) URL() string {
	if r := s.get(); r != nil {
		return r.url
	}
	return ""
}

// RESTConfig returns a configuration for client-go as administrator, a copy that
// the caller may change. It panics before Start has succeeded.
func (s *Server) RESTConfig() *rest.Config {
	r := s.must()
	c := r.restConfig()
	c.BearerToken = r.authority.AdminToken()
	return c
}

// RESTConfigFor returns a configuration for client-go as a user, who is known by
// a client certificate that is good for a year. It panics before Start has
// succeeded.
func (s *Server) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	r := s.must()
	cert, key, err := r.authority.IssueClient(user, groups)
	if err != nil {
		return nil, err
	}
	c := r.restConfig()
	c.CertData, c.KeyData = cert, key
	return c, nil
}

// Kubeconfig returns a kubeconfig file for the administrator: its readers may
// do everything. It panics before Start has succeeded.
func (s *Server) Kubeconfig() []byte { return s.must().kubeconfig().YAML() }

// WriteKubeconfig writes the kubeconfig for the administrator to a file, for its
// owner alone. A file that is there and was not written by tidemark is left
// alone; that is an error. It panics before Start has succeeded.
func (s *Server) WriteKubeconfig(path string) error {
	return kubeconfig.Write(path, s.must().kubeconfig())
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
