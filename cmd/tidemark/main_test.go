package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/clientconfig"
)

// asCommand makes this test binary be tidemark.
const asCommand = "TIDEMARK_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command runs a command line in this process.
func command(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

func TestVersion(t *testing.T) {
	code, out, _ := command("version", "-o", "json")
	var v versionInfo
	if err := json.Unmarshal([]byte(out), &v); err != nil || code != exitOK {
		t.Fatalf("%d %v\n%s", code, err, out)
	}
	if v.GitVersion != "v1.37.2+tidemark."+v.Version || v.Kubernetes != "v1.37.2" || v.GoVersion == "" {
		t.Errorf("%+v", v)
	}
	for arg, want := range map[string]string{"version": "tidemark " + v.Version + ", serving", "--version": "tidemark version " + v.Version} {
		if code, out, _ := command(arg); code != exitOK || !strings.HasPrefix(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %d %q", arg, code, out)
		}
	}
}

// wrongLines cannot be understood, with words of the reason.
var wrongLines = map[string]string{
	"nonsense":                                                 "nonsense",
	"serve --nonsense":                                         "unknown flag: --nonsense",
	"serve nonsense":                                           "nonsense",
	"serve --secure-port=http":                                 "http",
	"serve --secure-port=70000":                                "70000",
	"serve --history-max-bytes=much":                           "128Mi",
	"serve --history-retention=0s":                             "above zero",
	"serve --tls-cert-file=x":                                  "--tls-private-key-file",
	"serve --tls-sni-cert-key=x":                               "CERTFILE,KEYFILE",
	"serve --tls-min-version=1.2":                              "VersionTLS12",
	"serve --tls-cipher-suites=RC4":                            "cipher suite RC4 not supported",
	"serve --encryption-provider-config-automatic-reload=true": "must be set with --encryption-provider-config",
	"serve --in-memory --data-dir=x":                           "exclude",
	"serve . --data-dir=x":                                     "excludes --data-dir",
	"serve --in-memory .":                                      "excludes --data-dir and --in-memory",
	"serve --follow=https://h":                                 "--follow-kubeconfig",
	"serve --follow-kubeconfig=x":                              "--follow-kubeconfig is for --follow",
	"serve --follow=http://h:1 --follow-kubeconfig=x":          "want https://host:port",
	"serve --follow=https://h --follow-kubeconfig=x --etcd-readycheck-timeout=-1s": "--etcd-readycheck-timeout want values above zero",
	"serve --follow=https://h --follow-kubeconfig=x --in-memory":                   "--follow and --in-memory",
	"serve --follow=https://h --follow-kubeconfig=x --at=1":                        "--follow and --at",
	"serve --follow=https://h --follow-kubeconfig=x --controllers=*":               "the server that is followed runs the controllers",
	"serve --follow=https://h --follow-kubeconfig=x --accept-data-loss":            "remove a damaged copy",
	"serve --follow=https://h --follow-kubeconfig=x --etcd-servers=http://h:1":     "--follow and --etcd-servers",
	"serve --in-memory --at=1":               "--at is for a directory",
	"serve --at=0":                           "above zero",
	"serve --at=1 --accept-data-loss":        "exclude each other",
	"serve --bind-address=127.0.0.1,unix:":   `"unix:", has no path`,
	"serve --bind-address=::1,127.0.0.1,::1": `"::1", is there twice`,
	"serve --bind-address=nowhere":           `"nowhere", is not an IP address`,
	"serve --controllers=":                   "-* none",

	"serve --enable-priority-and-fairness=perhaps":                       "perhaps",
	"serve --max-requests-inflight=-1":                                   "--max-requests-inflight can not be negative value",
	"serve --max-mutating-requests-inflight=-1":                          "--max-mutating-requests-inflight can not be negative value",
	"serve --max-requests-inflight=0 --max-mutating-requests-inflight=0": "must add up to something positive",
	"serve --enable-admission-plugins=Nothing":                           `--enable-admission-plugins: the plugin "Nothing" is unknown`,
	"serve --disable-admission-plugins=Nothing":                          `--disable-admission-plugins: the plugin "Nothing" is unknown`,
	"serve --play=fast":                                                  "no speed such as",
	"serve --from=1":                                                     "give --play",
	"serve --serve-changes=perhaps":                                      "perhaps",
	"serve --enable-aggregator-routing=perhaps":                          "perhaps",
	"serve --aggregator-reject-forwarding-redirect=no":                   "no",
	"serve --proxy-client-cert-file=x":                                   "--proxy-client-cert-file, --proxy-client-key-file",
	"serve --proxy-client-key-file=x":                                    "--proxy-client-cert-file, --proxy-client-key-file",
	"serve --kubelet-client-certificate=x":                               "needs a certificate and a key",
	"serve --kubelet-client-key=x":                                       "needs a certificate and a key",
	"serve --kubelet-timeout=soon":                                       "soon",
	"serve --emulated-version=1.12":                                      "emulation version 1.12 is not between [1.33, 1.37]",
	"serve --emulated-version=1.36 --min-compatibility-version=1.37":     "minCompatibilityVersion version 1.37 is not between [1.34, 1.36]",
	"serve --emulated-version=1.36 --feature-gates=HPAGeneration=true":   "feature is PreAlpha at emulated version 1.36",
	"serve --feature-gates=AllAlpha=true":                                "depends on features that are disabled: [GenericWorkload]",
	"envtest-assets x --kubernetes-version=2.0":                          "could not parse",
	"api-diff 1.36":                                            "TO",
	"api-diff 1.36 1.99":                                       "1.99 is not between",
	"api-diff 1.36 1.37 -o yaml":                               "yaml",
	"serve --feature-gates=Nope=true":                          "gates with an effect: AllAlpha, AllBeta, AllowUnsafeMalformedObjectDeletion, CBORServingAndStorage",
	"serve --feature-gates=CBORServingAndStorage":              "CBORServingAndStorage=true or",
	"serve --feature-gates=CBORServingAndStorage=maybe":        "want true or false",
	"serve --service-cluster-ip-range=10.96.0.0":               "want one as 10.96.0.0/12",
	"serve --service-cluster-ip-range=10.96.0.1/12":            "did you mean 10.96.0.0/12?",
	"serve --service-cluster-ip-range=10.96.0.0/31":            "too small",
	"serve --service-cluster-ip-range=10.0.0.0/16,10.1.0.0/16": "one of IPv4 and one of IPv6",
	"serve --service-node-port-range=many":                     "30000-32767",
	"serve --service-node-port-range=40000-30000":              "30000-32767",
	"serve --service-account-issuer=https://[":                 `issuer "https://[" of service account tokens`,
	"serve --service-account-max-token-expiration=30m":         "want an hour to 2^32 seconds",
	"serve --service-account-extend-token-expiration=perhaps":  "perhaps",
	"serve --service-account-jwks-uri=http://x":                "not an https URL",
	"serve --service-account-lookup=perhaps":                   "perhaps",
	"serve --enable-bootstrap-token-auth=perhaps":              "perhaps",
	"serve --authentication-token-webhook-version=v2":          "want v1 or v1beta1",
	"serve --authentication-token-webhook-cache-ttl=perhaps":   "perhaps",
	"serve --api-audiences=,":                                  "audience of the server is empty",
	"serve --requestheader-allowed-names=,":                    "empty value",
	"serve --requestheader-username-headers=,":                 "empty value",
	"serve --requestheader-uid-headers=X-Uid":                  "X-Remote-Uid",
	"serve --requestheader-group-headers=,":                    "empty value",
	"serve --requestheader-extra-headers-prefix=,":             "empty value",
	"serve --authorization-mode=rbac":                          `--authorization-mode=rbac is not a valid mode: want some of `,
	"serve --authorization-mode=RBAC --authorization-config=x": "--authorization-config can not be specified",
	"serve --authorization-policy-file=x":                      "without --authorization-mode=ABAC",
	"serve --authorization-webhook-config-file=x":              "without --authorization-mode=Webhook",
	"serve --authorization-webhook-version=v2":                 `unsupported webhook authorizer version "v2"`,
	"serve --authorization-webhook-cache-authorized-ttl=long":  "long",
	"serve --authorization-webhook-cache-unauthorized-ttl=1":   "want a duration, such as 90s",
	"serve --at=yesterday":                                     `--at=yesterday: "yesterday" is no instant`,
	"serve --port=abc":                                         "port=abc: want a whole number: ",
	"serve --port=99999999999999999999":                        "want a smaller number",
	"fork --at=yesterday":                                      `"yesterday" is no instant`,
	"fork --list --keep":                                       "exclude each other",
	"serve --max-forks=-1":                                     "--max-forks is negative",
	"serve --max-forks=many":                                   "many",
	"serve --fork-max-bytes=0":                                 "--fork-max-bytes",
	"serve --fork-max-total-bytes=0":                           "--fork-max-total-bytes",
	"serve --control=10.0.0.1:80":                              "loopback",
	"serve --control=127.0.0.1:80":                             "--control-token-file",
	"serve --control-token-file=x":                             "over TCP",
	"serve --exit-idle=1s":                                     "--control",
	"serve --exit-idle=-1s":                                    "0 or more",
	"serve --ready-fd=0":                                       "1 or more",
	"serve --ready-fd=77":                                      "not an open file descriptor",
	"serve --exit-with-parent=perhaps":                         "perhaps",
	"serve --data-dir-permissions=all":                         "owner or group",
	"serve --v=-1":                                             "--v=-1",
	"serve --vmodule=requests":                                 "such as requests=4",
	"serve --logging-format=xml":                               "want text or json",
	"serve --trace-slow=-1s":                                   "--trace-slow is negative",
	"serve --advertise-address=0.0.0.0":                        "not the IP address of a machine",
	"serve --tls-san=a_b":                                      "neither a DNS name nor an IP address",
	"serve --config=/nowhere":                                  "--config=/nowhere: no such file",
	"serve --tracing-config-file=/nowhere.yaml":                "--tracing-config-file: open /nowhere.yaml",
	"serve --dry-run=perhaps":                                  "perhaps",
	"serve --profiling=perhaps":                                "perhaps",
	"serve --in-memory=perhaps":                                "perhaps",
	"serve --anonymous-auth=perhaps":                           "perhaps",
	"serve --warn-unenforced=perhaps":                          "perhaps",
	"serve --accept-data-loss=perhaps":                         "perhaps",
	"serve --storage-max-bytes=0":                              "must be greater than zero",
	"serve --history-retention=long":                           "long",
	"serve --history-max-disk-bytes=-1":                        "above zero",
	"serve --representation-cache-bytes=1Ti":                   "--history-max-bytes=128Mi",
	"serve --shutdown-delay-duration=-1s":                      "want 0 or more",
	"serve --shutdown-send-retry-after=perhaps":                "perhaps",
	"serve --event-ttl=0s":                                     "--event-ttl",
	"serve --controllers=nothing":                              "nothing",

	"serve --audit-log-maxage=-1":                                                     "can't be a negative number",
	"serve --audit-log-maxbackup=-1":                                                  "can't be a negative number",
	"serve --audit-log-maxsize=-1":                                                    "can't be a negative number",
	"serve --audit-log-compress=perhaps":                                              "perhaps",
	"serve --audit-log-path=- --audit-log-format=xml":                                 "invalid audit log format xml",
	"serve --audit-log-version=audit.k8s.io/v2":                                       "invalid group version",
	"serve --audit-log-path=- --audit-log-mode=never":                                 "invalid audit log mode never",
	"serve --audit-log-path=- --audit-log-mode=batch --audit-log-batch-buffer-size=0": "invalid audit batch log buffer size",
	"serve --audit-log-path=- --audit-log-mode=batch --audit-log-batch-max-size=0":    "invalid audit batch log max batch size",
	"serve --audit-log-batch-max-wait=long":                                           "long",
	"serve --audit-log-batch-throttle-enable=perhaps":                                 "perhaps",
	"serve --audit-log-path=- --audit-log-mode=batch --audit-log-batch-throttle-enable --audit-log-batch-throttle-qps=-1":                                    "invalid audit batch log throttle QPS",
	"serve --audit-log-path=- --audit-log-mode=batch --audit-log-batch-throttle-enable --audit-log-batch-throttle-qps=1 --audit-log-batch-throttle-burst=-1": "invalid audit batch log throttle burst",
	"serve --audit-log-truncate-enabled=perhaps":                                     "perhaps",
	"serve --audit-log-path=- --audit-log-truncate-max-batch-size=1":                 "must be greater than max event size",
	"serve --audit-log-path=- --audit-log-truncate-max-event-size=0":                 "invalid audit truncate log max event size",
	"serve --audit-webhook-initial-backoff=long":                                     "long",
	"serve --audit-webhook-batch-initial-backoff=long":                               "long",
	"serve --audit-webhook-version=v1":                                               "invalid group version",
	"serve --audit-webhook-config-file=x --audit-webhook-mode=never":                 "invalid audit webhook mode never",
	"serve --audit-webhook-config-file=x --audit-webhook-batch-buffer-size=0":        "invalid audit batch webhook buffer size",
	"serve --audit-webhook-config-file=x --audit-webhook-batch-max-size=0":           "invalid audit batch webhook max batch size",
	"serve --audit-webhook-batch-max-wait=long":                                      "long",
	"serve --audit-webhook-batch-throttle-enable=perhaps":                            "perhaps",
	"serve --audit-webhook-config-file=x --audit-webhook-batch-throttle-qps=0":       "invalid audit batch webhook throttle QPS",
	"serve --audit-webhook-config-file=x --audit-webhook-batch-throttle-burst=0":     "invalid audit batch webhook throttle burst",
	"serve --audit-webhook-truncate-enabled=perhaps":                                 "perhaps",
	"serve --audit-webhook-config-file=x --audit-webhook-truncate-max-batch-size=1":  "must be greater than max event size",
	"serve --audit-webhook-config-file=x --audit-webhook-truncate-max-event-size=0":  "invalid audit truncate webhook max event size",
	"serve --authentication-config=x --oidc-issuer-url=https://x":                    "authentication-config file and oidc-* flags are mutually exclusive",
	"serve --authentication-config=/nowhere --anonymous-auth":                        `failed to load authentication configuration from file "/nowhere"`,
	"serve --oidc-issuer-url=https://x":                                              "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
	"serve --oidc-client-id=x":                                                       "specified together",
	"serve --oidc-ca-file=x":                                                         "specified together",
	"serve --oidc-username-claim=sub":                                                "specified together",
	"serve --oidc-username-prefix=-":                                                 "specified together",
	"serve --oidc-groups-claim=groups":                                               "specified together",
	"serve --oidc-groups-prefix=x":                                                   "specified together",
	"serve --oidc-required-claim=x":                                                  "malformed pair, expect string=string",
	"serve --oidc-required-claim=x=y":                                                "specified together",
	"serve --oidc-issuer-url=https://x --oidc-client-id=x --oidc-signing-algs=HS256": `oidc: unsupported signing alg: "HS256"`,

	"serve --etcd-servers=ftp://127.0.0.1:2379":                         "want http://host:port or https://host:port",
	"serve --etcd-servers=127.0.0.1":                                    `"http://127.0.0.1" has no port`,
	"serve --etcd-servers=a --etcd-cafile=/nowhere":                     `"https://a" has no port`,
	"serve --etcd-servers=http://user:password@a:1":                     "a URL of a member has a user",
	"serve --etcd-prefix=/other":                                        "--etcd-prefix is for etcd, and --etcd-servers is missing",
	"serve --etcd-cafile=/nowhere":                                      "--etcd-cafile is for etcd",
	"serve --etcd-certfile=/nowhere":                                    "--etcd-certfile is for etcd",
	"serve --etcd-keyfile=/nowhere":                                     "--etcd-keyfile is for etcd",
	"serve --etcd-servers=http://127.0.0.1":                             "has no port",
	"serve --etcd-servers=http://a:1,https://b:1":                       "want one of them",
	"serve --etcd-servers=http://a:1 --in-memory":                       "exclude each other",
	"serve --etcd-servers=http://a:1 --history-max-disk-bytes=1Gi":      "etcd keeps the history",
	"serve --etcd-servers=http://a:1 --at=1":                            "--at is for a data directory",
	"serve --etcd-servers=https://a:1 --etcd-cafile=/nowhere":           "open /nowhere",
	"serve --etcd-servers=https://a:1 --etcd-certfile=x":                "its file and that of its key",
	"serve --etcd-servers=https://a:1 --etcd-keyfile=x":                 "its file and that of its key",
	"serve --etcd-servers=http://a:1 --etcd-compaction-interval=-1s":    "above zero",
	"serve --etcd-servers=http://a:1 --etcd-db-metric-poll-interval=0s": "above zero",
	"serve --etcd-servers=http://a:1 --lease-reuse-duration-seconds=0":  "above zero",
	"serve --etcd-servers=http://a:1 --etcd-healthcheck-timeout=0s":     "above zero",
	"serve --etcd-servers=http://a:1 --etcd-readycheck-timeout=-1s":     "above zero",
	"serve --etcd-servers=http://a:1 --etcd-cafile=/nowhere":            "want https",
	"serve --etcd-servers=http://a:1 --etcd-certfile=x":                 "want https",
	"serve --etcd-servers=http://a:1 --etcd-keyfile=x":                  "want https",
	"serve --etcd-count-metric-poll-period=long":                        "long",
	"serve --etcd-healthcheck-timeout=long":                             "long",
	"serve --etcd-readycheck-timeout=long":                              "long",
	"serve --etcd-servers-overrides=/events#http://a:1":                 "one clock",

	"fork foo":          `"foo": tidemark fork has no arguments: --name has the name of a new fork`,
	"version x":         `"x": tidemark version has no arguments`,
	"backup":            "FILE is missing: tidemark backup FILE",
	"serve a b":         `"b" is one argument too many: tidemark serve [DIR]`,
	"status a b":        `"b" is one argument too many: tidemark status [DIR]`,
	"backup a b":        `"b" is one argument too many: tidemark backup FILE`,
	"backup restore":    "FILE is missing: tidemark backup restore FILE DIR",
	"backup restore a":  "DIR is missing: tidemark backup restore FILE DIR",
	"restore":           "RESOURCE/NAME is missing",
	"restore a":         "--at is missing",
	"check":             "DIR is missing: tidemark check DIR",
	"completion foo":    `"foo" is not a shell with completion: want one of bash, fish, powershell, zsh`,
	"completion --bash": "unknown flag: --bash",

	"cluster":                               "DIR is missing: tidemark cluster DIR",
	"cluster --secure-port=70000 x":         "--secure-port=70000 is no port",
	"cluster --kwok-nodes=-1 x":             "want 0 to 10000",
	"cluster --kwok-config= x":              "--kwok-config is empty",
	"cluster --kwok-config=/nonexistent x":  "--kwok-config: ",
	"cluster --component-flag=etcd:--v=4 x": "want COMPONENT:--FLAG=VALUE, such as kube-scheduler:--v=4",

	"envtest-assets":                        "DIR is missing: tidemark envtest-assets DIR",
	"bench ratios":                          "LIST.tsv is missing: tidemark bench ratios LIST.tsv",
	"envtest-assets --archive x":            "--archive needs --url",
	"envtest-assets --url=https://x x":      "--url is for --archive",
	"envtest-assets --platform=linux x":     "want OS/ARCH",
	"envtest-assets --platform=plan9/386 x": "--platform=plan9/386 needs --program",

	"serve --backup-schedule=never --backup-dir=x":                                   "want five fields",
	"serve --backup-dir=x":                                                           "is for --backup-schedule",
	"serve --backup-schedule=@daily --backup-dir=x --in-memory":                      "--backup-schedule is for a data directory",
	"serve --backup-schedule=@daily --backup-dir=x --etcd-servers=http://a:1":        "--backup-schedule is for a data directory",
	"serve --backup-schedule=@daily --backup-dir=x --at=1":                           "--backup-schedule is for the newest state",
	"serve --backup-schedule=@daily --backup-dir=x --backup-retention=-1":            "want 0 for no limit",
	"serve --backup-schedule=@daily --backup-dir=x --backup-retention-age=-1h":       "want 0 for no limit",
	"serve --backup-schedule=@daily --backup-dir=x --backup-s3-endpoint=https://s3":  "are for --backup-dir=s3",
	"serve --backup-schedule=@daily --backup-dir=x --backup-s3-region=eu-central-1":  "are for --backup-dir=s3",
	"serve --backup-schedule=@daily --backup-dir=x --backup-s3-ca-file=ca.crt":       "are for --backup-dir=s3",
	"serve --backup-schedule=@daily --backup-dir=x --backup-s3-credentials-file=aws": "are for --backup-dir=s3",

	"serv":               `unknown command "serv" for "tidemark"`,
	"version -o yaml":    "yaml",
	"version --nonsense": "--nonsense",
}

// TestUsage checks that an invalid command line exits with code 2, and one line with the reason.
func TestUsage(t *testing.T) {
	for line, want := range wrongLines {
		refused(t, line, want)
	}
}

// TestFlagSuggestions: for a misspelt flag, similar ones are on lines of their own.
func TestFlagSuggestions(t *testing.T) {
	for line, want := range map[string]string{
		"serve --datadir=x":                  "\nDid you mean this?\n  --data-dir\n",
		"serve --data_dir=x":                 "\nDid you mean this?\n  --data-dir\n",
		"serve --feature-gate=x":             "\nDid you mean this?\n  --feature-gates\n",
		"serve --admission-control-config=x": "\nDid you mean this?\n  --admission-control-config-file\n",
		"serve --x":                          "",
		"serve -x":                           "",
		"backup restore --keep-histroy a b":  "\nDid you mean this?\n  --keep-history\n",
	} {
		code, _, stderr := command(strings.Fields(line)...)
		if code != exitUsage || !strings.Contains(stderr, want) || want == "" && strings.Contains(stderr, "Did you mean") {
			t.Errorf("%s: %d\n%s", line, code, stderr)
		}
	}
}

// takesAnything are the flags that have no wrong value to be found before the start: a
// file that is not there is no mistake of the command line.
var takesAnything = []string{
	"admission-control-config-file",
	"audit-log-path",
	"audit-policy-file",
	"audit-webhook-config-file",
	"authentication-token-webhook-config-file",
	"client-ca-file",
	"data-dir",
	"encryption-provider-config",
	"etcd-prefix",
	"help",
	"kubeconfig-out",
	"kubelet-certificate-authority",
	"kubelet-preferred-address-types",
	"requestheader-client-ca-file",
	"service-account-key-file",
	"service-account-signing-key-file",
	"tls-private-key-file",
	"token-auth-file",
}

// TestEveryFlagIsChecked: TestUsage has a wrong value of each flag of serve.
func TestEveryFlagIsChecked(t *testing.T) {
	newServe().Flags().VisitAll(func(f *pflag.Flag) {
		tried := slices.Contains(takesAnything, f.Name)
		for line := range wrongLines {
			tried = tried || strings.Contains(line, "--"+f.Name+"=")
		}
		if !tried {
			t.Errorf("no test has a wrong value of --%s", f.Name)
		}
	})
}

// refused runs a line that cannot be understood.
func refused(t *testing.T, line, want string) {
	t.Helper()
	code, _, stderr := command(strings.Fields(line)...)
	first, _, _ := strings.Cut(stderr, "\n")
	if code != exitUsage || !strings.HasPrefix(first, "Error: ") || !strings.Contains(first, want) {
		t.Errorf("%s: %d\n%s", line, code, stderr)
	}
}

// TestFailedStart checks that a server that cannot start exits with code 1, and one line.
func TestFailedStart(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	foreign := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(foreign, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		fmt.Sprintf("port %d of 127.0.0.1 is taken", port): {fmt.Sprintf("--secure-port=%d", port)},
		foreign:      {"--secure-port=0", "--kubeconfig-out=" + foreign},
		"absent.csv": {"--secure-port=0", "--token-auth-file=absent.csv"},
		"--encryption-provider-config=absent.yaml: no such file": {"--secure-port=0", "--encryption-provider-config=absent.yaml"},
	} {
		code, stdout, stderr := command(append([]string{"serve", "--in-memory"}, args...)...)
		last := lastLine(stderr)
		if code != exitFailed || !strings.HasPrefix(last, "Error: ") || !strings.Contains(last, want) || stdout != "" {
			t.Errorf("%v: %d\n%s%s", args, code, stdout, stderr)
		}
	}
}

func lastLine(text string) string {
	text = strings.TrimSuffix(text, "\n")
	return text[strings.LastIndex(text, "\n")+1:]
}

// TestHelp: every flag of serve is explained, and every example can be parsed.
func TestHelp(t *testing.T) {
	code, out, _ := command("serve", "--help")
	if code != exitOK {
		t.Fatalf("exit code %d", code)
	}
	serve := newServe()
	serve.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Usage == "" || !strings.Contains(out, "--"+f.Name) {
			t.Errorf("--%s is not explained", f.Name)
		}
	})
	examples := 0
	for line := range strings.Lines(serve.Example) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == "tidemark" {
			examples++
			if err := newServe().ParseFlags(words[2:]); err != nil {
				t.Errorf("%s: %v", strings.TrimSpace(line), err)
			}
		}
	}
	if examples == 0 {
		t.Error("there are no examples")
	}
}

// TestDefaults: the flags have the names and defaults of kube-apiserver.
func TestDefaults(t *testing.T) {
	flags := newServe().Flags()
	for name, want := range map[string]string{
		"bind-address": "127.0.0.1", "secure-port": "6443", "anonymous-auth": "true", "warn-unenforced": "true",
		"history-retention": "1h0m0s", "history-max-bytes": "128Mi", "history-max-disk-bytes": "4Gi",
	} {
		if got := flags.Lookup(name).DefValue; got != want {
			t.Errorf("--%s is %s by default, want %s", name, got, want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	variables := map[string]string{"TIDEMARK_DATA_DIR": "/from/env", "TIDEMARK_HISTORY_MAX_BYTES": "1Gi", "TIDEMARK_SECURE_PORT": "1", "TIDEMARK_IN_MEMORY": "", "TIDEMARK_CONTROLLERS": "*,-job"}
	lookup := func(name string) (string, bool) { v, ok := variables[name]; return v, ok }
	flags := newServe().Flags()
	if err := flags.Parse([]string{"--history-max-bytes=2Gi"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnvironment(flags, lookup); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"data-dir": "/from/env", "history-max-bytes": "2Gi", "secure-port": "1", "in-memory": "false", "controllers": "[*,-job]"} {
		if got := flags.Lookup(name).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", name, got, want)
		}
	}
	variables["TIDEMARK_HISTORY_RETENTION"] = "long"
	if err := fromEnvironment(flags, lookup); err == nil || !strings.Contains(err.Error(), "TIDEMARK_HISTORY_RETENTION") {
		t.Errorf("a wrong value: %v", err)
	}
}

func TestDataHome(t *testing.T) {
	home := func() (string, error) { return "/home/u", nil }
	for xdg, want := range map[string]string{"": "/home/u/.local/share", "/data": "/data", "relative": "/home/u/.local/share"} {
		got, err := clientconfig.DataHome(func(name string) string {
			if name == "XDG_DATA_HOME" {
				return xdg
			}
			return ""
		}, home)
		if err != nil || filepath.ToSlash(got) != want {
			t.Errorf("with XDG_DATA_HOME=%q: %q, %v; want %q", xdg, got, err, want)
		}
	}
}

func TestShellQuote(t *testing.T) {
	for word, want := range map[string]string{
		"/a/b-c.d": "/a/b-c.d", "/a b": "'/a b'", "/it's": `'/it'\''s'`, "$HOME": "'$HOME'", "": "''",
	} {
		if got := shellQuote(word); got != want {
			t.Errorf("%q: %s, want %s", word, got, want)
		}
	}
}

func TestOneLine(t *testing.T) {
	failed, other := errors.New("the log failed"), errors.New("the lock")
	if got, want := oneLine(errors.Join(failed, failed, other)), "the log failed; the lock"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
