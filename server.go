package tidemark

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tidemark-dev/tidemark/internal/world"
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
	// AtTime is At as a time: the server begins with the newest state that is not after it. Zero: At counts.
	AtTime time.Time
	// Play plays the changes that followed At, as if they happened now, so many times as fast as they were made. It begins
	// when the server serves requests; without At and AtTime, with the oldest state that Storage has. Clients cannot write.
	// Zero: nothing is played.
	Play float64
	// ReadOnly serves Storage, a *datadir.Dir that is opened read-only, with its whole history, and changes nothing: objects
	// that every server has are not created, no controllers run, and requests that are no reads are refused. False: the
	// server changes its Storage.
	ReadOnly bool
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
	// Authorization configures the authorizers. Zero: RBAC, and the Node authorizer for nodes.
	Authorization Authorization
	// Audit configures the audit log. Zero: nothing is recorded.
	Audit Audit
	// Fairness limits the requests that execute at once. Zero: the defaults of kube-apiserver.
	Fairness Fairness
	// Kubelets configures the connections to nodes: logs, exec, attach, port-forward and the proxy of nodes. Zero: without a
	// certificate, to kubelets that are not verified.
	Kubelets Kubelets

	// Aggregation configures the requests to extension API servers. Zero: the server makes its client certificate
	// itself.
	Aggregation Aggregation
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
	// KubernetesVersion is the minor version of Kubernetes whose kinds, fields, roles and defaults of feature gates the
	// server has: "1.36". The words of validation stay those of the newest one. Versions from 1.33 on are known. Empty: the
	// newest.
	KubernetesVersion string
	// MinCompatibilityVersion is the oldest minor version of the other servers of the cluster, on which few defaults of
	// feature gates depend. Empty: the one before KubernetesVersion.
	MinCompatibilityVersion string
	// FeatureGates enables and disables features of KubernetesVersion, by their names in kube-apiserver. Gates decide about
	// kinds, fields and their defaults, and some about the handling of requests: CBORServingAndStorage, which affects
	// serving alone, and AllowUnsafeMalformedObjectDeletion, among others. AllAlpha and AllBeta stand for all gates of a
	// stage that are not named. Start refuses names that Kubernetes does not have. Nil: all defaults.
	FeatureGates map[string]bool
	// NoChanges: the history of objects is not served as the resource changes of the group tidemark.dev, and discovery has
	// the groups of kube-apiserver alone. Reads below /at/ are served.
	NoChanges bool

	// Shutdown configures how Close ends the server. Zero: at once.
	Shutdown Shutdown
	// Logger receives the log; nil: nothing is logged. The log never contains tokens,
	// Secrets or request bodies.
	//
	// Requests that failed or were slow have the level -2, all others Debug. Each part of the server has a value of
	// the attribute "component", such as "requests" or "controllers".
	Logger *slog.Logger
	// Diagnostics shows on which parts requests spend their time. Zero: only in the log.
	Diagnostics Diagnostics
	// Version is the server's own version, which /version shows after the version of
	// Kubernetes: "0.1.0" makes "v1.37.2+tidemark.0.1.0". Empty: the version of this
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
	// dialNodes connects to nodes and Pods; nil: over the network.
	dialNodes func(ctx context.Context, network, address string) (net.Conn, error)

	failure world.Failure

	mu      sync.Mutex
	started bool
	running *world.Server // set once Start has succeeded
	root    *World        // of running
	closed  bool
	endErr  error // of closing
}
