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
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/assets"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/etcdstub"
	"github.com/tidemark-dev/tidemark/internal/admission"
)

// The names under which this program stands in for another one, as busybox does. A test harness
// starts them from its folder of assets.
const (
	asAPIServer = "kube-apiserver"
	asEtcd      = "etcd"
)

// controllersVariable selects the controllers of a server that runs as kube-apiserver, like
// --controllers of serve.
const controllersVariable = "TIDEMARK_CONTROLLERS"

// exitWithParentVariable ends a program with the process that started it, like --exit-with-parent of
// serve. That is not the default: some harnesses start the programs and exit.
const exitWithParentVariable = "TIDEMARK_EXIT_WITH_PARENT"

// changesVariable serves the history of objects, like --serve-changes of serve. It is off by default: clients see
// the same groups from Tidemark and from kube-apiserver.
const changesVariable = "TIDEMARK_SERVE_CHANGES"

// apiServerControllers are the controllers whose work kube-apiserver and etcd do. Without a
// kube-controller-manager, there are no others.
var apiServerControllers = []string{"event-ttl", "service-ip-repair"}

// etcdWait is how long a kube-apiserver waits for etcd to listen.
const etcdWait = 20 * time.Second

// apiServer is a server that runs as kube-apiserver.
type apiServer struct {
	serve       serveFlags
	certDir     string
	etcdServers []string
	etcdFlags   []string // further flags of etcd, by name; without effect with a stub
	admission   []string // --admission-control
	gates       anyGates
	version     string
	ignored     []*ignoredFlag
}

// runAPIServer runs the server with the command line of a kube-apiserver, and returns the exit code.
// As there, each error is exitFailed.
func runAPIServer(args []string, stdout, stderr io.Writer) int {
	a := new(apiServer)
	flags := a.flags()
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, "Tidemark %s serves the API of Kubernetes as a kube-apiserver.\n\nUsage:\n  kube-apiserver [flags]\n\nFlags:\n%s", ownVersion(), flags.FlagUsages())
		return exitOK
	case err == nil && a.version != "false":
		fmt.Fprintf(stdout, "Kubernetes %s\n", readVersion().Kubernetes)
		return exitOK
	case err == nil && flags.NArg() > 0:
		err = fmt.Errorf("%q does not take any arguments, got %q", asAPIServer, flags.Args())
	case err == nil:
		err = a.run(flags, os.Getenv, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "Error: %s\n", oneLine(err))
		return exitFailed
	}
	return exitOK
}

// flags returns the flags of kube-apiserver. Those that serve has too are serve's, with the defaults
// of kube-apiserver.
func (a *apiServer) flags() *pflag.FlagSet {
	f := &a.serve
	f.maxMemory, f.maxDisk, f.forkBytes, f.forkTotalBytes = defaultMaxMemory, defaultMaxDisk, tidemark.DefaultForkBytes, tidemark.DefaultForkTotalBytes
	served := new(cobra.Command)
	f.register(served)
	others := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.etcd.register(others)
	others.VisitAll(func(one *pflag.Flag) { a.etcdFlags = append(a.etcdFlags, one.Name) })
	served.Flags().AddFlagSet(others)
	f.inMemory = true

	flags := pflag.NewFlagSet(asAPIServer, pflag.ContinueOnError)
	flags.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	flags.Usage = func() {} // runAPIServer prints it
	flags.StringVar(&a.certDir, "cert-dir", "", "directory with apiserver.crt and apiserver.key, the serving certificate unless --tls-cert-file is given; created with a self-signed pair if there is none (default: the certificate is issued in memory)")
	flags.StringSliceVar(&a.etcdServers, "etcd-servers", nil, "URLs of the members of an etcd cluster that keeps the objects; required. If the stand-in that tidemark envtest-assets writes responds in its place, Tidemark keeps its objects in memory")
	flags.StringSliceVar(&a.admission, "admission-control", nil, "the only admission plugins to enable; empty: none. It excludes --enable-admission-plugins and --disable-admission-plugins (default: those of kube-apiserver)")
	flags.Var(&a.gates, "feature-gates", gatesUsage())
	flags.Bool("allow-privileged", false, "accepted; privileged containers are always allowed")
	flags.StringVar(&a.version, "version", "false", "print the version of Kubernetes and exit")
	flags.Lookup("version").NoOptDefVal = "true"
	for _, row := range apiServerFlags() {
		switch one := served.Flags().Lookup(row.name); {
		case flags.Lookup(row.name) != nil: // above
		case one != nil:
			flags.AddFlag(one)
		default:
			i := &ignoredFlag{row: row}
			a.ignored = append(a.ignored, i)
			flags.AddFlag(&pflag.Flag{Name: row.name, Value: i, DefValue: row.value, NoOptDefVal: row.alone, Usage: "accepted; has no effect"})
		}
	}
	for name, value := range map[string]string{"bind-address": "0.0.0.0", "service-cluster-ip-range": "10.0.0.0/24", "profiling": "true"} {
		one := flags.Lookup(name)
		if err := one.Value.Set(value); err != nil {
			panic(fmt.Sprintf("the default of --%s: %v", name, err))
		}
		one.DefValue = value
	}
	flags.Lookup("authorization-mode").DefValue = "AlwaysAllow"
	return flags
}

// run runs the server until a signal arrives.
func (a *apiServer) run(flags *pflag.FlagSet, getenv func(string) string, stderr io.Writer) error {
	f := &a.serve
	f.server.Logger = f.logging.logger(stderr)
	if len(a.etcdServers) == 0 {
		return errors.New("--etcd-servers must be specified")
	}
	if err := cmp.Or(a.complete(flags, getenv), a.chooseAdmission(flags), f.checkOIDC(flags), f.check(flags.Changed)); err != nil {
		return err
	}
	if err := a.useCertDir(); err != nil {
		return err
	}
	boundGarbage()
	ctx, stop, err := untilStopped(getenv)
	if err != nil {
		return err
	}
	defer stop()
	real, err := a.findEtcd(ctx)
	if err == nil && real {
		err = a.useEtcd(flags.Changed)
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.warn(flags)
	return a.serveUntil(ctx)
}

// complete adds the defaults of kube-apiserver that serve does not have.
func (a *apiServer) complete(flags *pflag.FlagSet, getenv func(string) string) (err error) {
	f, s := &a.serve, &a.serve.server
	f.gates = a.gates.gates
	if !flags.Changed("emulated-version") {
		s.KubernetesVersion = besideProgram(assets.VersionFile)
	}
	f.controllers = apiServerControllers
	if chosen := getenv(controllersVariable); chosen != "" {
		f.controllers = strings.Split(chosen, ",")
	}
	if !flags.Changed("authorization-mode") && !flags.Changed("authorization-config") {
		s.Authorization.Modes = []string{"AlwaysAllow"}
	}
	f.changes, err = boolVariable(getenv, changesVariable)
	return err
}

// boolVariable reports whether an environment variable is true. An unset or empty one is false.
func boolVariable(getenv func(string) string, name string) (bool, error) {
	text := getenv(name)
	if text == "" {
		return false, nil
	}
	set, err := strconv.ParseBool(text)
	if err != nil {
		return false, fmt.Errorf("%s=%q: want true or false", name, text)
	}
	return set, nil
}

// besideProgram returns the contents of a file in the directory of this program, without white space; empty if there is no
// such file. envtest-assets writes it.
func besideProgram(name string) string {
	self, err := os.Executable()
	if err != nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(self), name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// chooseAdmission enables and disables admission plugins. ServiceAccount is on by default in kube-apiserver.
func (a *apiServer) chooseAdmission(flags *pflag.FlagSet) error {
	s := &a.serve.server
	if !flags.Changed("admission-control") {
		const accounts = "ServiceAccount"
		if !slices.Contains(s.Admission.Disable, accounts) && !slices.Contains(s.Admission.Enable, accounts) {
			s.Admission.Enable = append(s.Admission.Enable, accounts)
		}
		return nil
	}
	if flags.Changed("enable-admission-plugins") || flags.Changed("disable-admission-plugins") {
		return errors.New("--admission-control excludes --enable-admission-plugins and --disable-admission-plugins")
	}
	if _, err := admission.Choose(a.admission, nil); err != nil {
		return fmt.Errorf("--admission-control: %w", err)
	}
	byDefault, _ := admission.Modes()
	s.Admission.Enable = a.admission
	for name := range strings.SplitSeq(byDefault, ", ") {
		if !slices.Contains(a.admission, name) {
			s.Admission.Disable = append(s.Admission.Disable, name)
		}
	}
	return nil
}

// useCertDir chooses the serving certificate in --cert-dir, and makes one if there is none.
func (a *apiServer) useCertDir() error {
	s := &a.serve.server
	if a.certDir == "" || s.TLS.CertFile != "" {
		return nil
	}
	s.TLS.CertFile, s.TLS.KeyFile = filepath.Join(a.certDir, "apiserver.crt"), filepath.Join(a.certDir, "apiserver.key")
	_, noCert := os.Stat(s.TLS.CertFile)
	_, noKey := os.Stat(s.TLS.KeyFile)
	if noCert == nil || noKey == nil {
		return nil
	}
	names := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"}
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, names)
	if err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return errors.Join(cert.WriteCert(s.TLS.CertFile, certificate), os.WriteFile(s.TLS.KeyFile, key, 0o600))
}

// warn logs a warning for each given flag that has no effect.
func (a *apiServer) warn(flags *pflag.FlagSet) {
	log := a.serve.server.Logger
	for _, i := range a.ignored {
		if flags.Changed(i.row.name) && i.last != "" {
			log.Warn("the flag has no effect", "flag", "--"+i.row.name)
		}
	}
	for _, name := range a.etcdFlags {
		if f := flags.Lookup(name); a.serve.inMemory && name != "etcd-servers" && f.Changed && f.Value.String() != "" {
			log.Warn("the flag has no effect", "flag", "--"+name)
		}
	}
}

// findEtcd waits until one of --etcd-servers responds. It reports whether that is a real etcd, and not a stub.
func (a *apiServer) findEtcd(ctx context.Context) (real bool, err error) {
	if slices.ContainsFunc(a.etcdServers, func(s string) bool { return strings.Contains(s, "@") }) { // it may have a password
		return false, errors.New("--etcd-servers: a URL has a user: leave it out, etcd takes the name of a user from the client certificate")
	}
	a.serve.etcd.complete(a.etcdServers)
	ctx, cancel := context.WithTimeout(ctx, etcdWait)
	defer cancel()
	type response struct {
		url string
		err error
	}
	responses := make(chan response, len(a.etcdServers))
	for _, url := range a.etcdServers {
		go func() { responses <- response{url, etcdstub.Check(ctx, url)} }()
	}
	for range a.etcdServers {
		got := <-responses
		if errors.Is(got.err, etcdstub.ErrOther) {
			return true, nil // the other members may be down
		}
		if got.err != nil {
			err = fmt.Errorf("--etcd-servers: %s does not respond: %w", got.url, got.err)
		}
	}
	return false, err
}

// useEtcd keeps the objects in etcd. Keys that a server would otherwise generate for itself are
// required, as for kube-apiserver: the servers must agree.
func (a *apiServer) useEtcd(changed func(string) bool) error {
	f := &a.serve
	switch {
	case f.server.Authentication.ServiceAccounts.SigningKeyFile == "":
		return errors.New("--service-account-signing-key-file is required with etcd: all servers need the same key")
	case !changed("service-account-issuer"): // as kube-apiserver, which has no default
		return errors.New("--service-account-issuer is required with etcd: all servers need the same one")
	}
	f.inMemory, f.etcd.cluster.Servers = false, a.etcdServers
	if err := f.etcd.check(f, changed); err != nil {
		return err
	}
	f.etcd.cluster.Logger = f.server.Logger
	f.server.Storage = &f.etcd.cluster
	return nil
}

// untilStopped returns a context that a signal ends, and the end of the parent if the environment asks
// for that.
func untilStopped(getenv func(string) string) (ctx context.Context, stop func(), err error) {
	withParent, err := boolVariable(getenv, exitWithParentVariable)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop = untilSignal(context.Background(), exitFailed)
	if withParent {
		ctx = untilParentEnds(ctx)
	}
	return ctx, stop, nil
}

// serveUntil serves until the context ends.
func (a *apiServer) serveUntil(ctx context.Context) (err error) {
	begin := time.Now()
	s := &a.serve.server
	closeTracing, err := a.serve.openTracing(ctx)
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
	kept := "in memory"
	if a.serve.etcd.on() {
		kept = "in etcd"
	}
	s.Logger.Info("Tidemark serves as kube-apiserver, "+kept, "version", ownVersion(), "address", s.URL(),
		"controllers", strings.Join(a.serve.controllers, ","), "started", time.Since(begin).Round(time.Millisecond))
	defer time.AfterFunc(startSettles, debug.FreeOSMemory).Stop()
	return a.serve.wait(ctx, nil)
}

// runEtcd stands in for etcd, and returns the exit code.
func runEtcd(args []string, stdout, stderr io.Writer) int {
	ctx, stop, err := untilStopped(os.Getenv)
	if err == nil {
		defer stop()
		err = etcdstub.Run(ctx, args, stdout, stderr)
	}
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(stderr, "Error: %s\n", oneLine(err))
	if errors.Is(err, etcdstub.ErrUsage) {
		return exitUsage
	}
	return exitFailed
}
