package etcdstub

import (
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// The flags of etcd 3.6, whose names and forms harnesses rely on. Only those of parse have an effect
// here.
const (
	switches = `auto-tls client-cert-auth discovery-insecure-skip-tls-verify discovery-insecure-transport
enable-distributed-tracing enable-grpc-gateway enable-log-rotation enable-pprof
experimental-compact-hash-check-enabled experimental-enable-distributed-tracing
experimental-enable-lease-checkpoint experimental-enable-lease-checkpoint-persist
experimental-initial-corrupt-check experimental-memory-mlock experimental-peer-skip-client-san-verification
experimental-stop-grpc-service-on-defrag experimental-txn-mode-write-with-shared-buffer force-new-cluster
initial-election-tick-advance memory-mlock peer-auto-tls peer-client-cert-auth
peer-skip-client-san-verification pre-vote socket-reuse-address socket-reuse-port strict-reconfig-check
unsafe-no-fsync`

	values = `advertise-client-urls auth-token auth-token-ttl auto-compaction-mode auto-compaction-retention
backend-batch-interval backend-batch-limit backend-bbolt-freelist-type bcrypt-cost
bootstrap-defrag-threshold-megabytes cert-file cipher-suites client-cert-allowed-hostname client-cert-file
client-crl-file client-key-file compact-hash-check-time compaction-batch-limit compaction-sleep-interval
corrupt-check-time cors data-dir discovery discovery-cacert discovery-cert discovery-dial-timeout
discovery-endpoints discovery-fallback discovery-keepalive-time discovery-keepalive-timeout discovery-key
discovery-password discovery-proxy discovery-request-timeout discovery-srv discovery-srv-name discovery-token
discovery-user distributed-tracing-address distributed-tracing-instance-id distributed-tracing-sampling-rate
distributed-tracing-service-name downgrade-check-time election-timeout
experimental-bootstrap-defrag-threshold-megabytes experimental-compact-hash-check-time
experimental-compaction-batch-limit experimental-compaction-sleep-interval experimental-corrupt-check-time
experimental-distributed-tracing-address experimental-distributed-tracing-instance-id
experimental-distributed-tracing-sampling-rate experimental-distributed-tracing-service-name
experimental-downgrade-check-time experimental-snapshot-catchup-entries experimental-warning-apply-duration
experimental-warning-unary-request-duration experimental-watch-progress-notify-interval feature-gates
grpc-keepalive-interval grpc-keepalive-min-time grpc-keepalive-timeout heartbeat-interval host-whitelist
initial-advertise-peer-urls initial-cluster initial-cluster-state initial-cluster-token key-file
listen-client-http-urls listen-client-urls listen-metrics-urls listen-peer-urls log-format log-level
log-outputs log-rotation-config-json logger max-concurrent-streams max-learners max-request-bytes
max-snapshots max-txn-ops max-wals metrics name peer-cert-allowed-cn peer-cert-allowed-hostname peer-cert-file
peer-client-cert-file peer-client-key-file peer-crl-file peer-key-file peer-trusted-ca-file
quota-backend-bytes raft-read-timeout raft-write-timeout self-signed-cert-validity snapshot-catchup-entries
snapshot-count tls-max-version tls-min-version trusted-ca-file v2-deprecation wal-dir warning-apply-duration
warning-unary-request-duration watch-progress-notify-interval`
)

// options are the flags that have an effect.
type options struct {
	clients urls // to listen on
	others  urls // to listen on in addition
	version bool
}

// urls collects URLs, separated by commas or in repeated flags.
type urls []string

// String implements flag.Value.
func (u *urls) String() string { return strings.Join(*u, ",") }

// Set implements flag.Value.
func (u *urls) Set(text string) error {
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			*u = append(*u, one)
		}
	}
	return nil
}

// parse reads a command line of etcd: one or two dashes, values after = or a space, repeated flags.
func parse(args []string, usage io.Writer) (*options, error) {
	o := new(options)
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() { help(usage) }
	flags.Var(&o.clients, "listen-client-urls", "")
	flags.Var(&o.others, "listen-client-http-urls", "")
	flags.Var(&o.others, "listen-metrics-urls", "")
	flags.BoolVar(&o.version, "version", false, "")
	for _, name := range strings.Fields(switches) {
		flags.Bool(name, false, "")
	}
	for _, name := range strings.Fields(values) {
		if flags.Lookup(name) == nil {
			flags.Var(new(urls), name, "") // any text
		}
	}
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if len(o.clients) == 0 {
		o.clients = urls{"http://localhost:2379"}
	}
	return o, nil
}

// help lists the flags a line each: harnesses look in the text for the names of flags.
func help(w io.Writer) {
	fmt.Fprint(w, "This program stands in for etcd beside Tidemark's kube-apiserver, which keeps its objects itself.\n"+
		"It accepts the flags of etcd 3.6. Only those of URLs to listen on for clients have an effect.\n\n"+
		"Usage:\n\n  etcd [flags]\n  etcd --version\n\nFlags:\n")
	on := strings.Fields(switches)
	all := slices.Concat(on, strings.Fields(values))
	slices.Sort(all)
	for _, name := range all {
		if slices.Contains(on, name) {
			fmt.Fprintf(w, "  --%s\n", name)
		} else {
			fmt.Fprintf(w, "  --%s VALUE\n", name)
		}
	}
}
