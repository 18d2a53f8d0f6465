package tidemark

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/tracing"
	"github.com/tidemark-dev/tidemark/internal/world"
)

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

// Shutdown configures Close.
type Shutdown struct {
	// Delay is how long Close waits before it does anything but making /readyz fail, so that load balancers
	// take the server out in the meantime. Requests are served as before. Zero: Close does not wait.
	Delay time.Duration
	// SendRetryAfter refuses requests that come after Delay with 429, Retry-After and the end of their
	// connection, until those that run have ended. False: connections are refused from then on.
	SendRetryAfter bool
}

// Diagnostics shows on which parts requests spend their time.
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

// Kubelets configures the connections to kubelets.
type Kubelets struct {
	// ClientCertFile and ClientKeyFile are PEM files: the certificate that the server presents to kubelets, and its key. Its
	// user needs the rights of system:kubelet-api-admin there. They are read again when they change. Both or none.
	ClientCertFile, ClientKeyFile string
	// CAFile is a PEM file with the authorities of kubelets' certificates. It is read again when it changes. Empty: the
	// certificates are not verified.
	CAFile string
	// AddressTypes are the types of addresses of a Node, the preferred one first. Nil: Hostname, InternalDNS, InternalIP,
	// ExternalDNS, ExternalIP.
	AddressTypes []string
	// Timeout limits the time to connect to a kubelet. Zero: 5 seconds.
	Timeout time.Duration
}

// Check returns an error if fields do not fit together.
func (k *Kubelets) Check() error {
	switch {
	case (k.ClientCertFile == "") != (k.ClientKeyFile == ""):
		return errors.New("kubelets: the client certificate needs a certificate and a key")
	case k.Timeout < 0:
		return fmt.Errorf("kubelets: the time to connect cannot be %v", k.Timeout)
	}
	return nil
}

// tracer returns a tracer that records spans; nil: none is recorded.
func (d *Diagnostics) tracer() trace.Tracer {
	if d.TracerProvider == nil {
		return nil
	}
	return d.TracerProvider.Tracer(tracing.Scope)
}

// The limits of Forks that are zero.
const (
	DefaultForks          = 1000
	DefaultForkBytes      = 64 << 20
	DefaultForkTotalBytes = 1 << 30
)

// Forks limits the forks of a server. The zero value has the defaults.
type Forks struct {
	// Max is how many forks exist at a time; zero: DefaultForks. Negative: none.
	Max int
	// MaxBytes limits the memory of each fork: half of it for the objects that the fork wrote, half for
	// its history, with the part that it has of its parent. Objects that it shares with its parent do not count.
	// Copies count, which a fork of a resource version has whose objects its parent has no longer in memory. Zero:
	// DefaultForkBytes.
	MaxBytes int64
	// MaxTotalBytes limits the memory of all forks together, as MaxBytes counts it. When it is used, writes that
	// grow objects in forks are refused, and so are new forks. The objects of a fork that was closed count until
	// its own forks are closed, too. Zero: DefaultForkTotalBytes.
	MaxTotalBytes int64
}

func (f *Forks) config() world.Forks {
	return world.Forks{
		Max: cmp.Or(f.Max, DefaultForks), MaxBytes: cmp.Or(f.MaxBytes, DefaultForkBytes), MaxTotalBytes: cmp.Or(f.MaxTotalBytes, DefaultForkTotalBytes),
	}
}
