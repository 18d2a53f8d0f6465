package world

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tidemark-dev/tidemark/backups"
	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/audit"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/authn/webhook"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/clock"
	"github.com/tidemark-dev/tidemark/internal/cron"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/serving"
	"github.com/tidemark-dev/tidemark/internal/storage"
)

// Config is the configuration of a server: tidemark.Server, validated and in the types of the
// parts. tidemark.Server documents the fields without a comment.
type Config struct {
	Storage Storage // nil: the objects are in memory
	At      uint64
	AtTime  time.Time
	Play    float64
	// ReadOnly: the storage is only read.
	ReadOnly bool
	History  History
	Memory   Memory
	// Encryption reads the configuration of encryption at rest.
	Encryption Encryption
	Backups    Backups
	Forks      Forks

	InProcess bool
	Listen    Listen
	TLS       TLS

	Authentication Authentication
	Authorization  *config.Source
	PolicyFile     string // of the authorizer ABAC
	Audit          Audit
	Fairness       Fairness
	Kubelets       Kubelets

	Aggregation          Aggregation
	Plugins              admission.Plugins
	Admission            admission.Configuration
	NoUnenforcedWarnings bool
	Services             addresses.Config
	Controllers          []string
	EventTTL             time.Duration
	// Kubernetes is the version of Kubernetes with its feature gates; nil: the newest with all defaults.
	Kubernetes *features.Profile
	// DialNodes connects to nodes and Pods, for tests; nil: over the network.
	DialNodes func(ctx context.Context, network, address string) (net.Conn, error)
	// NoChanges: the group tidemark.dev is not served.
	NoChanges bool

	Shutdown    Shutdown
	Logger      *slog.Logger // nil: nothing is logged
	SlowRequest time.Duration
	Tracer      trace.Tracer // nil: nothing records spans
	Profiling   bool
	Version     Version

	Clock *clock.Clock
	Seed  uint64
	// Now is the wall clock, for certificates, tokens and reloaded files; nil: time.Now.
	Now func() time.Time
	// BackupTime is how long a backup may take.
	BackupTime time.Duration

	// Failure gets the reason when the server cannot go on.
	Failure *Failure
}

// Storage is tidemark.Storage.
type Storage interface {
	Open(context.Context, storage.Options) (*storage.Opened, error)
}

// History is tidemark.History, and Memory tidemark.Memory.
type (
	History struct {
		Retention    time.Duration
		MaxDiskBytes int64
	}
	Memory struct {
		MaxObjectBytes, MaxHistoryBytes, MaxRepresentationBytes int64
	}
)

// Encryption is tidemark.Encryption.
type Encryption struct {
	ProviderConfigFile string
	AutomaticReload    bool
}

// Backups is tidemark.Backups with its schedule read.
type Backups struct {
	Schedule *cron.Schedule // nil: there is none
	Text     string         // of the schedule
	Place    backups.Place
	Keep     int // zero: all
	MaxAge   time.Duration
}

// Forks is tidemark.Forks with the defaults.
type Forks struct {
	Max                     int
	MaxBytes, MaxTotalBytes int64
}

// Listen is tidemark.Listen with the defaults.
type Listen struct {
	// Addresses are IP addresses and, after "unix:", paths of sockets. The first one is an IP address.
	Addresses []string
	Port      int
	Advertise string // an IP address; empty: that of the first listener
}

// TLS is tidemark.TLS with the defaults.
type TLS struct {
	CertFile, KeyFile string
	Names             []string
	SNI               []serving.Pair
	MinVersion        uint16
	CipherSuites      []uint16
}

// own reports whether the user configured a serving certificate. Then clients on
// this machine select the server's own certificate by a name.
func (t *TLS) own() bool { return t.CertFile != "" || len(t.SNI) > 0 }

// Authentication is tidemark.Authentication in the terms of the authenticators. Their clocks and logs are not set.
type Authentication struct {
	TokenFile, ClientCAFile string
	// AlwaysAllow: an authorizer allows everything, also to requests without credentials.
	DisableAnonymous, AlwaysAllow bool
	BootstrapTokens               bool
	Tokens                        satoken.Config // of service accounts
	JWKSURI                       string
	ProxyCAFile                   string // empty: there are no front proxies
	Proxy                         authn.Proxy
	Issuers                       *issuers.Config // nil: there are none
	Webhook                       *webhook.Config // nil: there is none
}

// Audit is tidemark.Audit with the defaults.
type Audit struct {
	PolicyFile string
	Log        *audit.LogConfig     // nil: there is none
	Webhook    *audit.WebhookConfig // nil: there is none
}

// Fairness is tidemark.Fairness.
type Fairness struct {
	Disabled                         bool
	MaxRequests, MaxMutatingRequests int
}

// Kubelets is tidemark.Kubelets.
type Kubelets struct {
	ClientCertFile, ClientKeyFile, CAFile string
	AddressTypes                          []string
	Timeout                               time.Duration
}

// Shutdown is tidemark.Shutdown.
type Shutdown struct {
	Delay          time.Duration
	SendRetryAfter bool
}

// Version is the versions for /version.
type Version struct {
	Own, Git, Kubernetes string // "0.1.0", "v1.37.2+tidemark.0.1.0", "v1.37.2"
	Commit, BuildDate    string // empty: not known
}

// Failure is why a server cannot go on. Its zero value is a server that can. It is safe for concurrent use.
type Failure struct {
	once   sync.Once // makes failed
	first  sync.Once // closes failed
	failed chan struct{}
	err    error // set before failed is closed
}

// Done returns a channel that is closed when the server cannot go on.
func (f *Failure) Done() <-chan struct{} {
	f.once.Do(func() { f.failed = make(chan struct{}) })
	return f.failed
}

// Err returns why Done is closed, nil before.
func (f *Failure) Err() error {
	select {
	case <-f.Done():
		return f.err
	default:
		return nil
	}
}

// Fail closes Done. The first error counts.
func (f *Failure) Fail(err error) {
	f.first.Do(func() {
		f.Done() // there is something to close
		f.err = err
		close(f.failed)
	})
}

// clientQPS and clientBurst are the rates of clients. The default of client-go, 5 requests per second,
// is meant for shared clusters.
const clientQPS, clientBurst = 1000, 2000
