package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/dump"
	"github.com/tidemark-dev/tidemark/internal/features"
	"github.com/tidemark-dev/tidemark/internal/kubeversion"
)

// serveFlags are the flags of serve.
type serveFlags struct {
	server        tidemark.Server
	dataDir       string
	isDump        bool   // dataDir is the dump of a failed test
	permissions   string // of dataDir
	inMemory      bool
	acceptLoss    bool
	kubeconfigOut string
	anonymous     bool

	webhookTTLs     webhookTTLs
	warnUnenforced  bool
	changes         bool
	at, from        string
	play            playSpeed
	rejectRedirects bool
	maxMemory       byteSize // of history
	maxDisk         byteSize // of history
	representations byteSize // zero: not given
	maxStorage      byteSize // zero: not given

	etcd           etcdFlags
	follow         followFlags
	control        controlFlags
	controllers    []string
	fairness       fairnessFlags
	backups        backupScheduleFlags
	forks          int
	forkBytes      byteSize
	forkTotalBytes byteSize
	audit          auditFlags
	gates          gates
	logging        logging
	tracing        tracingFlags
	config         string
	sourced        sourced
	dryRun         bool

	extendTokens bool
	lookupTokens bool
	tokenTTL     time.Duration // of the token webhook
}

const (
	defaultPort      = 6443
	defaultRetention = time.Hour
	defaultEventTTL  = time.Hour

	defaultAuditBackoff = 10 * time.Second
	defaultAuditWait    = 30 * time.Second

	defaultMaxMemory = 128 << 20
	defaultMaxDisk   = 4 << 30
)

const serveLong = `Serve runs the API server until SIGINT or SIGTERM. It then ends watches, completes
requests, syncs its log, and exits with 0 within a second, or within three with objects in
etcd. A second signal stops it
immediately.

The first start creates everything in the data directory: a certificate authority, a
serving certificate, an administrator's token, and a kubeconfig with that token.
Certificates are renewed while the server runs. The files of --tls-cert-file,
--tls-private-key-file, --client-ca-file and --token-auth-file are read again when they
change. So is the file of --config: its v and vmodule take effect at once, its other keys at the
next start.

DIR is a data directory that exists, as with --data-dir, or the directory of a failed test
that TIDEMARK_DUMP has kept. With --at, and with the directory of a test, the server shows
a historical state. Nothing is written to the directory: changes stay in memory. The
controllers do not run, unless --controllers is given.

Each flag can be given as an environment variable, --data-dir as TIDEMARK_DATA_DIR, or in
the file of --config, whose keys are the names of flags. The command line counts before
the environment, and the environment before the file. With --dry-run the command checks
all of it and does not serve.`

const serveExample = `  # Objects in the user's data directory, listening on 127.0.0.1:6443
  tidemark serve

  # A temporary server: in memory, on a free port
  tidemark serve --in-memory --secure-port=0 --kubeconfig-out=./kubeconfig

  # For other machines: on all interfaces, with your own certificate
  tidemark serve --bind-address=0.0.0.0 --tls-cert-file=server.crt --tls-private-key-file=server.key

  # Users with bearer tokens; a line of the file is  token,user,uid,"group1,group2"
  tidemark serve --token-auth-file=tokens.csv

  # For a test in any language: the line of JSON on the standard output has the address
  tidemark serve --in-memory --port=0 --ready-fd=1 --exit-with-parent --control=./control.sock

  # Without garbage collection
  tidemark serve --controllers='*,-garbage-collector'

  # Pods get ServiceAccounts and tokens, as in a cluster
  tidemark serve --enable-admission-plugins=ServiceAccount

  # The state at a resource version: of a data directory, of a failed test
  tidemark serve ./data --at 1234
  tidemark serve ./dump/TestScale --at 1234

  # From a file, and what it would do
  tidemark serve --config=tidemark.yaml
  tidemark serve --config=tidemark.yaml --dry-run

  # Six hours of history, in at most 20 GiB on disk
  tidemark serve --history-retention=6h --history-max-disk-bytes=20Gi`

func newServe() *cobra.Command { return newServeFor(new(serveFlags)) }

// newServeFor returns the command with its flags in f.
func newServeFor(f *serveFlags) *cobra.Command {
	*f = serveFlags{maxMemory: defaultMaxMemory, maxDisk: defaultMaxDisk, forkBytes: tidemark.DefaultForkBytes, forkTotalBytes: tidemark.DefaultForkTotalBytes}
	c := &cobra.Command{
		Use:     "serve [DIR]",
		Short:   "Run the API server",
		Long:    serveLong,
		Example: serveExample,
		Args:    atMostOne("[DIR]"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.takeDir(args, c.Flags()); err != nil {
				return usageError{err}
			}
			if err := f.complete(c.Flags(), os.LookupEnv); err != nil {
				return usageError{err}
			}
			if err := f.checkAll(c.Flags()); err != nil {
				return usageError{f.sourced.explain(err)}
			}
			for _, message := range misspelt(c.Flags(), os.Environ()) {
				fmt.Fprintf(c.ErrOrStderr(), "Warning: %s\n", message)
			}
			if f.dryRun {
				return f.sourced.explain(f.tryOut(c.Context(), c.OutOrStdout(), c.ErrOrStderr()))
			}
			return f.sourced.explain(f.serve(c.Context(), c.OutOrStdout(), c.ErrOrStderr()))
		},
	}
	f.register(c)
	inGroup(c.Flags(), "Objects in etcd", func() { f.etcd.register(c.Flags()) })
	inGroup(c.Flags(), "Objects of another server", func() { f.follow.register(c.Flags()) })
	return c
}

func (f *serveFlags) register(c *cobra.Command) {
	s, flags := &f.server, c.Flags()
	flags.SortFlags = false
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "port" {
			name = "secure-port"
		}
		return pflag.NormalizedName(name)
	})
	f.registerPlace(flags)
	inGroup(flags, "Certificates", func() { f.registerTLS(flags) })
	inGroup(flags, "Authentication", func() {
		f.registerAuthentication(flags)
		f.registerOIDC(flags)
	})
	inGroup(flags, "Authorization", func() { f.registerAuthorization(flags) })
	inGroup(flags, "Audit log", func() { f.registerAudit(flags) })
	inGroup(flags, "Extension API servers", func() { f.registerAggregation(flags) })
	inGroup(flags, "Encryption at rest", func() { f.registerEncryption(flags) })
	f.registerObjects(flags)
	inGroup(flags, "Backups on a schedule", func() { f.backups.register(flags) })
	inGroup(flags, "Priority and fairness", func() { f.registerFairness(flags) })
	inGroup(flags, "Kubelets", func() { f.registerKubelets(flags) })
	inGroup(flags, "Forks", func() { f.registerForks(flags) })
	inGroup(flags, "Programs that start the server", func() { f.control.register(flags) })
	inGroup(flags, "Stop", func() {
		flags.DurationVar(&s.Shutdown.Delay, "shutdown-delay-duration", 0, "how long to go on serving after SIGTERM or SIGINT with a failing /readyz, so that load balancers take the server out first")
		flags.BoolVar(&s.Shutdown.SendRetryAfter, "shutdown-send-retry-after", false, "after that delay, refuse new requests with 429, Retry-After and the end of their connection until those that run have ended, instead of refusing connections")
	})
	inGroup(flags, "Logs, traces and profiles", func() {
		f.logging.register(flags, s)
		f.tracing.register(flags)
		flags.BoolVar(&s.Diagnostics.Profiling, "profiling", false, "serve profiles of the process at /debug/pprof/ to those who have the right to get these paths")
	})
	inGroup(flags, "Configuration", func() {
		flags.StringVar(&f.config, "config", "", "file of YAML with values of flags: keys are their names, and flags that can be repeated have lists")
		flags.BoolVar(&f.dryRun, "dry-run", false, "check the flags and the files that they name, and exit with 0 if a server can start with them; the data directory and the port stay as they are")
	})
	c.SetUsageFunc(groupedUsage)
	f.completeValues(c)
}

// registerPlace registers the flags of where the server is, and where its data is.
func (f *serveFlags) registerPlace(flags *pflag.FlagSet) {
	s := &f.server
	inGroup(flags, "Addresses", func() {
		s.Listen.Address = "127.0.0.1"
		flags.Var((*bindAddresses)(&s.Listen), "bind-address", "IP address to listen on; 0.0.0.0 or :: is all interfaces. Further ones follow after commas: IP addresses, with the same port, and unix:PATH for a socket")
		flags.StringVar(&s.Listen.AdvertiseAddress, "advertise-address", "", "IP address at which other machines reach the server, for the endpoints of the Service kubernetes and for the kubeconfig (default: --bind-address, or the first address of the machine for endpoints and 127.0.0.1 for the kubeconfig)")
		flags.IntVar(&s.Listen.Port, "secure-port", defaultPort, "port to listen on; 0 picks a free one (--port is the same)")
		flags.StringVar(&f.kubeconfigOut, "kubeconfig-out", "", "file to write the administrator's kubeconfig to; a file that tidemark did not write is never overwritten (default: kubeconfig in the data directory)")
	})
	inGroup(flags, "Data", func() {
		flags.StringVar(&f.dataDir, "data-dir", "", "directory for objects, certificates and the kubeconfig; created if it does not exist (default $XDG_DATA_HOME/tidemark, or ~/.local/share/tidemark)")
		flags.StringVar(&f.permissions, "data-dir-permissions", "owner", "who may have access to the data directory: owner, or group for a directory of another owner that is shared with its group, such as a volume with an fsGroup")
		flags.StringVar(&f.at, "at", "", "state to begin with: a resource version, a time (RFC 3339, 10:42, yesterday 10:42) or how long ago (-10m); changes are kept in memory, and the data directory stays as it is (default: the newest state)")
		flags.Var(&f.play, "play", "play the changes of the directory as if they happened now, so many times as fast as they were made (10x); clients cannot write")
		flags.StringVar(&f.from, "from", "", "state to begin with --play, as for --at (default: the oldest)")
		flags.BoolVar(&f.inMemory, "in-memory", false, "keep objects in memory only: they are lost when the server stops")
		flags.BoolVar(&f.acceptLoss, "accept-data-loss", false, "start even if the log has lost acknowledged writes: keep the longest consistent prefix and log what is dropped")
	})
	inGroup(flags, "Storage and history", func() {
		flags.Var(&f.maxStorage, "storage-max-bytes", "memory for current objects; at the limit, writes that grow them are refused with 507 (default: half of what remains of the process's memory limit after --history-max-bytes, at least 64Mi)")
		flags.DurationVar(&s.History.Retention, "history-retention", defaultRetention, "how long old resource versions can be read and watched from")
		flags.Var(&f.maxMemory, "history-max-bytes", "memory for history; older history is read from disk")
		flags.Var(&f.maxDisk, "history-max-disk-bytes", "disk space for history; beyond it, the oldest history is deleted")
		flags.Var(&f.representations, "representation-cache-bytes", "memory for compressed lists and for objects as protobuf, CBOR and table rows, taken from --history-max-bytes (default: three quarters of it)")
	})
}

// registerObjects registers the flags of admission and of the handling of objects.
func (f *serveFlags) registerObjects(flags *pflag.FlagSet) {
	s := &f.server
	inGroup(flags, "Admission", func() {
		byDefault, optional := admission.Modes()
		flags.StringSliceVar(&s.Admission.Enable, "enable-admission-plugins", nil, "admission plugins to enable in addition to the default ones: "+optional)
		flags.StringSliceVar(&s.Admission.Disable, "disable-admission-plugins", nil, "admission plugins to disable; enabled by default: "+byDefault)
		flags.StringVar(&s.Admission.ConfigFile, "admission-control-config-file", "", "file with the configurations of admission plugins, an AdmissionConfiguration of apiserver.config.k8s.io/v1")
		flags.BoolVar(&f.warnUnenforced, "warn-unenforced", true, "add a Warning header when a client writes an object that this server stores but does not enforce: APIServices with a Service, in forks")
	})
	inGroup(flags, "Controllers", func() {
		flags.StringSliceVar(&f.controllers, "controllers", []string{"*"}, "controllers to run: * is all, NAME adds one, -NAME removes one, -* is none; known: "+strings.Join(controller.Names(), ", "))
		flags.DurationVar(&s.EventTTL, "event-ttl", defaultEventTTL, "how long to keep events after their last write")
	})
	inGroup(flags, "Services", func() {
		flags.StringVar(&s.Services.ClusterIPRange, "service-cluster-ip-range", "10.96.0.0/12", "CIDR for the cluster IPs of Services; for dual stack, an IPv4 and an IPv6 CIDR separated by a comma")
		flags.StringVar(&s.Services.NodePortRange, "service-node-port-range", "30000-32767", "range for the node ports of Services")
	})
	inGroup(flags, "Features", func() {
		flags.StringVar(&s.KubernetesVersion, "emulated-version", "", fmt.Sprintf("minor version of Kubernetes whose kinds, fields, roles and defaults of feature gates the server has: 1.%d to 1.%d (default 1.%[2]d); the words of validation stay those of 1.%[2]d", features.Oldest, kubeversion.Current.Minor))
		flags.StringVar(&s.MinCompatibilityVersion, "min-compatibility-version", "", "oldest minor version of the other servers of the cluster, on which few defaults of feature gates depend (default: the one before --emulated-version)")
		flags.Var(&f.gates, "feature-gates", gatesUsage())
		flags.BoolVar(&f.changes, "serve-changes", true, "serve the history of objects as the resource changes of the group tidemark.dev; without it, discovery has the groups of kube-apiserver alone")
	})
}

// checkAll checks the values of all flags, and copies them to the server.
func (f *serveFlags) checkAll(flags *pflag.FlagSet) error {
	if err := f.checkOIDC(flags); err != nil {
		return err
	}
	if err := f.check(flags.Changed); err != nil {
		return err
	}
	return errors.Join(f.etcd.check(f, flags.Changed), f.follow.check(f, flags.Changed))
}

// check reports invalid combinations of flags, and copies values to the server.
func (f *serveFlags) check(changed func(string) bool) error {
	s := &f.server
	if err := f.checkPast(changed); err != nil {
		return err
	}
	if err := f.checkControllers(); err != nil {
		return err
	}
	if _, err := admission.Choose(s.Admission.Enable, s.Admission.Disable); err != nil {
		return err
	}
	if err := f.checkPlace(); err != nil {
		return err
	}
	for _, check := range []func() error{
		f.checkVersion, s.Authentication.Check, f.checkAggregation, f.checkAudit, f.checkFairness, s.Kubelets.Check, f.checkForks,
		func() error { return f.backups.check(f) },
		func() error { return f.logging.check(s) }, f.tracing.check, func() error { return f.checkAuthorization(changed) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	f.apply(changed)
	if _, err := groupAccess(f.permissions); err != nil {
		return err
	}
	if err := f.checkData(changed); err != nil {
		return err
	}
	switch {
	case s.Shutdown.Delay < 0:
		return fmt.Errorf("--shutdown-delay-duration=%v: want 0 or more", s.Shutdown.Delay)
	case s.EventTTL <= 0:
		return errors.New("--event-ttl wants a value above zero")
	}
	return errors.Join(f.checkTLS(), f.checkEncryption(), f.control.check())
}

// apply gives the server the values of flags that are not its fields.
func (f *serveFlags) apply(changed func(string) bool) {
	s := &f.server
	s.Authentication.DisableAnonymous = !f.anonymous
	s.Authentication.ServiceAccounts.NoExtendedExpiration = !f.extendTokens
	s.Authentication.ServiceAccounts.NoLookup = !f.lookupTokens
	s.Authentication.Webhook.CacheTTL = cmp.Or(f.tokenTTL, -1)
	s.Admission.NoUnenforcedWarnings = !f.warnUnenforced
	s.NoChanges = !f.changes
	s.FeatureGates = f.gates
	if !f.past() || changed("controllers") {
		s.Controllers = f.controllers
	}
	s.Memory.MaxHistoryBytes, s.History.MaxDiskBytes = int64(f.maxMemory), int64(f.maxDisk)
	s.Memory.MaxObjectBytes = int64(f.maxStorage)
	s.Memory.MaxRepresentationBytes = int64(f.representations)
}

// checkVersion checks the version of Kubernetes and the feature gates.
func (f *serveFlags) checkVersion() error {
	_, err := features.Resolve(features.Choice{Emulated: f.server.KubernetesVersion, MinCompatible: f.server.MinCompatibilityVersion, Gates: f.gates})
	if err != nil {
		return fmt.Errorf("--emulated-version, --min-compatibility-version, --feature-gates: %w", err)
	}
	return nil
}

func (f *serveFlags) checkControllers() error {
	if len(f.controllers) == 0 || len(f.controllers) == 1 && f.controllers[0] == "" {
		return errors.New("--controllers is empty: * runs all of them, -* none")
	}
	if err := controller.Check(f.controllers); err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	return nil
}

// checkPlace checks the addresses of the server and of Services.
func (f *serveFlags) checkPlace() error {
	s := &f.server
	bound, advertised := tidemark.Listen{Address: s.Listen.Address, MoreAddresses: s.Listen.MoreAddresses}, tidemark.Listen{AdvertiseAddress: s.Listen.AdvertiseAddress}
	if err := bound.Check(); err != nil {
		return fmt.Errorf("--bind-address: %w", err)
	}
	if err := advertised.Check(); err != nil {
		return fmt.Errorf("--advertise-address: %w", err)
	}
	if err := (&tidemark.TLS{Names: s.TLS.Names}).Check(); err != nil {
		return fmt.Errorf("--tls-san: %w", err)
	}
	if err := s.Services.Check(); err != nil {
		return fmt.Errorf("--service-cluster-ip-range, --service-node-port-range: %w", err)
	}
	if s.Listen.Port < 0 || s.Listen.Port > 65535 {
		return fmt.Errorf("--secure-port=%d is no port: want 1 to 65535, or 0 for a free one", s.Listen.Port)
	}
	return nil
}

// checkData checks where the objects are, and how much of them is kept.
func (f *serveFlags) checkData(changed func(string) bool) error {
	s := &f.server
	switch {
	case f.inMemory && changed("data-dir") && f.dataDir != "":
		return errors.New("--in-memory and --data-dir exclude each other")
	case f.inMemory && f.past():
		return errors.New("--in-memory has no states of then: --at is for a directory")
	case f.past() && f.acceptLoss:
		return errors.New("--at and --accept-data-loss exclude each other: nothing is written to the directory")
	case f.inMemory && f.acceptLoss:
		return errors.New("--in-memory has no data to lose: --accept-data-loss is for a data directory")
	case s.History.Retention <= 0:
		return fmt.Errorf("--history-retention=%s: want a duration above zero", s.History.Retention)
	case f.maxMemory <= 0:
		return fmt.Errorf("--history-max-bytes=%s: want a size above zero", f.maxMemory.String())
	case f.maxDisk <= 0:
		return fmt.Errorf("--history-max-disk-bytes=%s: want a size above zero", f.maxDisk.String())
	case f.maxStorage < 0 || changed("storage-max-bytes") && f.maxStorage == 0:
		return fmt.Errorf("--storage-max-bytes=%s: must be greater than zero", f.maxStorage.String())
	case f.representations < 0 || f.representations > f.maxMemory:
		return fmt.Errorf("--representation-cache-bytes=%s wants a part of --history-max-bytes=%s", f.representations.String(), f.maxMemory.String())
	}
	return nil
}

// serve runs the server until a signal arrives or its log fails.
func (f *serveFlags) serve(parent context.Context, stdout, stderr io.Writer) (err error) {
	begin := time.Now()
	boundGarbage()
	ctx, stop := untilSignal(parent, exitFailed)
	defer stop()
	if f.control.exitWithParent {
		ctx = untilParentEnds(ctx)
	}

	s := &f.server
	s.Logger = f.logging.logger(stderr)
	switch {
	case f.etcd.on():
		s.Storage, err = f.etcd.open(f)
	case f.follow.on():
		s.Storage, err = f.follow.open(f)
	default:
		s.Storage, err = f.storage(ctx)
	}
	if err != nil {
		return err
	}
	closeTracing, err := f.openTracing(ctx)
	if err != nil {
		return err
	}
	defer closeTracing()
	if err := s.Start(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // interrupted during the start
		}
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := f.followConfig(ctx); err != nil {
		return err
	}
	path, remove, err := f.writeKubeconfig()
	if err != nil {
		return err
	}
	defer remove()
	api, err := f.control.startControl(s)
	if err != nil {
		return err
	}
	defer api.stop()
	var idle <-chan struct{} // nil: never
	if f.control.exitIdle > 0 {
		idle = s.Control().Idle(f.control.exitIdle)
	}
	if f.control.readyFD == 1 {
		stdout = stderr
	}
	f.announce(stdout, path, api, time.Since(begin))
	notifyReady()
	if f.control.readyFD > 0 {
		if err := f.control.announceReady(f.ready(path, api)); err != nil {
			return err
		}
	}
	defer time.AfterFunc(startSettles, debug.FreeOSMemory).Stop()

	return f.wait(ctx, idle)
}

// takeDir takes the argument of the command. It takes precedence over the environment and the file of
// --config, but not over flags.
func (f *serveFlags) takeDir(args []string, flags *pflag.FlagSet) error {
	if len(args) == 0 {
		return nil
	}
	if flags.Changed("data-dir") || flags.Changed("in-memory") {
		return fmt.Errorf("%s: a directory excludes --data-dir and --in-memory", args[0])
	}
	if info, err := os.Stat(args[0]); err != nil || !info.IsDir() {
		return fmt.Errorf("%s is not a directory: --data-dir makes a new one", args[0])
	}
	f.dataDir, f.inMemory, f.isDump = args[0], false, dump.Is(args[0])
	flags.Lookup("data-dir").Changed = true
	return nil
}

// past reports whether the server starts with a historical state, and keeps changes in memory.
func (f *serveFlags) past() bool {
	return f.server.At != 0 || !f.server.AtTime.IsZero() || f.server.Play > 0 || f.isDump
}

// pastOf describes the state before the start.
func (f *serveFlags) pastOf() string {
	switch s := &f.server; {
	case s.At != 0:
		return fmt.Sprintf("%s at resource version %d", f.dataDir, s.At)
	case !s.AtTime.IsZero():
		return f.dataDir + " at " + s.AtTime.Format(time.RFC3339)
	}
	return f.dataDir + " from the beginning of its history"
}

// checkPast reads --at, --play and --from.
func (f *serveFlags) checkPast(changed func(string) bool) error {
	s, name, text := &f.server, "at", f.at
	s.Play = float64(f.play)
	switch {
	case changed("at") && s.Play > 0:
		return errors.New("--at and --play exclude each other: --from is where --play begins")
	case f.isDump && s.Play > 0:
		return fmt.Errorf("%s is the dump of a test, whose changes cannot be played: --at opens the state at any revision of %s", f.dataDir, dump.HistoryFile)
	case changed("from") && s.Play == 0:
		return errors.New("--from is where --play begins: give --play, too")
	case changed("from"):
		name, text = "from", f.from
	case !changed("at"):
		return nil
	}
	i, err := changes.ParseInstant(text, time.Now())
	switch {
	case err != nil:
		return fmt.Errorf("--%s=%s: %w", name, text, err)
	case i.Now:
		return fmt.Errorf("--%s=%s: that is the newest state: leave the flag out", name, text)
	}
	if f.isDump && !i.Time.IsZero() {
		return fmt.Errorf("--at=%s: the dump of a test is opened at a resource version, not at a time: take one of the changes in %s", text, dump.HistoryFile)
	}
	s.At, s.AtTime = i.Revision, i.Time
	return nil
}

// playSpeed is the value of --play: 10x.
type playSpeed float64

// String implements pflag.Value.
func (p *playSpeed) String() string {
	if *p == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*p), 'g', -1, 64) + "x"
}

// Type implements pflag.Value.
func (p *playSpeed) Type() string { return "speed" }

// Set implements pflag.Value.
func (p *playSpeed) Set(text string) error {
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || !(n > 0) || n > 1e9 {
		return fmt.Errorf("%q is no speed such as 1x, 10x or 0.5x", text)
	}
	*p = playSpeed(n)
	return nil
}

// storage returns where the objects are; nil: in memory alone.
func (f *serveFlags) storage(ctx context.Context) (tidemark.Storage, error) {
	s := &f.server
	if f.inMemory {
		return nil, nil
	}
	path, err := f.dataPath()
	if err != nil {
		return nil, err
	}
	f.dataDir = path
	if f.isDump {
		d, err := dump.Open(ctx, path, s.At)
		if err != nil {
			return nil, err
		}
		s.At = d.Revision()
		return d, nil
	}
	return &datadir.Dir{Path: path, GroupAccess: f.permissions == "group", AcceptDataLoss: f.acceptLoss, ReadOnly: f.past(), Logger: s.Logger}, nil
}

// wait returns when the context ends, idle is closed, or the server cannot go on.
func (f *serveFlags) wait(ctx context.Context, idle <-chan struct{}) error {
	s := &f.server
	select {
	case <-ctx.Done():
		s.Logger.Info("stopping")
		return nil
	case <-idle:
		s.Logger.Info("stopping: no client of the control API needs the server")
		return nil
	case <-s.Done():
		return fmt.Errorf("the server cannot go on: %w", s.Err())
	}
}

// dataPath is the absolute path of the data directory.
func (f *serveFlags) dataPath() (string, error) {
	if f.dataDir != "" {
		return filepath.Abs(f.dataDir)
	}
	home, err := clientconfig.DataHome(os.Getenv, os.UserHomeDir)
	if err != nil {
		return "", fmt.Errorf("there is no place for the data: %w; name one with --data-dir, or choose --in-memory", err)
	}
	return filepath.Join(home, "tidemark"), nil
}

// writeKubeconfig writes the kubeconfig and returns its path. The path is empty if no
// file was requested and no temporary directory can be created. remove deletes a
// kubeconfig in a temporary directory.
func (f *serveFlags) writeKubeconfig() (path string, remove func(), err error) {
	remove = func() {}
	switch {
	case f.kubeconfigOut != "":
		if path, err = filepath.Abs(f.kubeconfigOut); err != nil {
			return "", nil, err
		}
	case f.inMemory || f.past():
		dir, err := temporaryDir()
		if err != nil { // an image from scratch has none, and the server needs no file
			f.server.Logger.Warn("there is no kubeconfig: no temporary directory can be made; name a file with --kubeconfig-out, or set TMPDIR", "err", err)
			return "", remove, nil
		}
		path, remove = filepath.Join(dir, datadir.KubeconfigFile), func() { os.RemoveAll(dir) }
	default:
		path = filepath.Join(f.dataDir, datadir.KubeconfigFile)
	}
	if err := f.server.WriteKubeconfig(path); err != nil {
		remove()
		return "", nil, fmt.Errorf("the kubeconfig cannot be written: %w", err)
	}
	return path, remove, nil
}

// temporaryDir creates a directory for the user alone, on a memory file system if there
// is one.
func temporaryDir() (string, error) {
	const pattern = "tidemark-*"
	if runtimeDir := os.Getenv("XDG_RUNTIME_DIR"); runtimeDir != "" {
		if dir, err := os.MkdirTemp(runtimeDir, pattern); err == nil {
			return dir, nil
		}
	}
	return os.MkdirTemp("", pattern)
}

// ready returns the line of --ready-fd.
func (f *serveFlags) ready(kubeconfig string, api *controlServer) ready {
	r := ready{URL: f.server.URL(), Kubeconfig: kubeconfig, PID: os.Getpid(), Version: ownVersion()}
	if api != nil {
		r.Control = api.address
	}
	if r.Control != "" && f.control.tokenFile != "" {
		if path, err := filepath.Abs(f.control.tokenFile); err == nil {
			r.ControlTokenFile = path
		}
	}
	return r
}

// announce prints the address, the data directory, and how to connect.
func (f *serveFlags) announce(w io.Writer, kubeconfig string, api *controlServer, took time.Duration) {
	data, address := f.dataDir, strings.Join(append([]string{f.server.URL()}, moreURLs(&f.server)...), "\n           ")
	switch {
	case f.inMemory:
		data = "memory, gone when the server stops"
	case f.etcd.on():
		data = "etcd at " + strings.Join(f.etcd.cluster.Servers, ", ")
	case f.follow.on():
		data += ", a copy of " + f.follow.url
	case f.server.Play > 0:
		data += fmt.Sprintf(" from resource version %d on, read-only", f.server.Root().Revision())
	case f.past():
		data += fmt.Sprintf(" at resource version %d, where its history begins; changes are gone when the server stops", f.server.Root().Revision())
	}
	use := "    export KUBECONFIG=" + shellQuote(kubeconfig)
	if kubeconfig == "" {
		use = "No kubeconfig was written: give --kubeconfig-out=FILE to have one."
	}
	if api != nil {
		data += "\n  control  " + api.address
	}
	fmt.Fprintf(w, `Tidemark %s serves the Kubernetes API
  address  %s
  data     %s

%s

Ready in %d ms. Ctrl-C stops it.
`, ownVersion(), address, data, use, took.Milliseconds())
}
