package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// parsed returns serve with values of three sources.
func parsed(t *testing.T, args []string, variables map[string]string, file string) (*serveFlags, func(name string) string, error) {
	t.Helper()
	if file != "" {
		path := filepath.Join(t.TempDir(), "tidemark.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--config="+path)
	}
	f := new(serveFlags)
	c := newServeFor(f)
	if err := c.Flags().Parse(args); err != nil {
		t.Fatal(err)
	}
	err := f.complete(c.Flags(), func(name string) (string, bool) { v, ok := variables[name]; return v, ok })
	return f, func(name string) string { return c.Flags().Lookup(name).Value.String() }, err
}

func TestSources(t *testing.T) {
	const file = `
secure-port: 7001
history-retention: 2h
history-max-bytes: 3Gi
controllers: ["*", -garbage-collector]
tls-san: [a.example.com, "192.0.2.1"]
feature-gates: {CBORServingAndStorage: true}
vmodule: {requests: 4, store: 2}
at: 9007199254740993
in-memory: true
`
	_, value, err := parsed(t, []string{"--history-retention=3h"}, map[string]string{
		"TIDEMARK_HISTORY_RETENTION": "4h", "TIDEMARK_HISTORY_MAX_BYTES": "4Gi", "TIDEMARK_DATA_DIR": "/env", "TIDEMARK_V": "2", "TIDEMARK_EVENT_TTL": "",
	}, file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"history-retention": "3h0m0s",        // the command line
		"history-max-bytes": "4Gi", "v": "2", // the environment
		"data-dir": "/env", "in-memory": "false", // alternatives: the environment counts
		"secure-port": "7001", "controllers": "[*,-garbage-collector]", "tls-san": "[a.example.com,192.0.2.1]", // the file
		"feature-gates": "CBORServingAndStorage=true", "vmodule": "requests=4,store=2", "at": "9007199254740993",
		"event-ttl": "1h0m0s", // none
	} {
		if got := value(name); got != want {
			t.Errorf("--%s is %s, want %s", name, got, want)
		}
	}
}

// TestDisabledAlternative: a source that does not select memory does not hide the directory that a later one names.
func TestDisabledAlternative(t *testing.T) {
	for _, test := range []struct {
		args      []string
		variables map[string]string
		file      string
	}{
		{nil, map[string]string{"TIDEMARK_IN_MEMORY": "false"}, "data-dir: /file"},
		{[]string{"--in-memory=false"}, nil, "data-dir: /file"},
		{[]string{"--in-memory=false"}, map[string]string{"TIDEMARK_DATA_DIR": "/file"}, "v: 1"},
	} {
		if _, value, err := parsed(t, test.args, test.variables, test.file); err != nil || value("data-dir") != "/file" {
			t.Errorf("%v %v %s: --data-dir is %q, %v", test.args, test.variables, test.file, value("data-dir"), err)
		}
	}
}

func TestWrongSources(t *testing.T) {
	for file, want := range map[string]string{
		"secureport: 1":      "secureport: there is no such flag: did you mean secure-port?",
		"nothing: 1":         "nothing: there is no such flag",
		"config: x":          "config: there is no such flag for a file",
		"just text":          "want YAML with the names of flags",
		"secure-port: many":  "secure-port: ",
		"secure-port: [[1]]": "secure-port: want a string, a number or a boolean",
		"tls-san:":           "tls-san: there is no value",
		"v: 1\nv: 2":         `.yaml: line 2: key "v" already set`,
		"v: 1\n  w: [":       ".yaml: line 2: mapping values are not allowed",
		"- v":                "want YAML with the names of flags",
		"#" + strings.Repeat("x", maxConfigBytes): "the file has more than 1048576 bytes",
	} {
		if _, _, err := parsed(t, nil, nil, file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q: %v, want %q", file, err, want)
		}
	}
	if _, _, err := parsed(t, []string{"--config=/does/not/exist"}, nil, ""); err == nil || err.Error() != "--config=/does/not/exist: no such file or directory" {
		t.Errorf("%v", err)
	}
	if _, _, err := parsed(t, nil, map[string]string{"TIDEMARK_SECURE_PORT": "many"}, ""); err == nil || !strings.Contains(err.Error(), `TIDEMARK_SECURE_PORT="many"`) {
		t.Errorf("%v", err)
	}
}

func TestDryRun(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "tidemark.yaml")
	for _, test := range []struct {
		file, args string
		code       int
		want       string
	}{
		{file: "data-dir: " + dir + "/data\nsecure-port: 7002\naudit-policy-file: " + dir + "/policy.yaml\naudit-log-path: " + dir + "/audit.log", want: "The configuration is valid.\n  address  127.0.0.1:7002\n  data     " + dir + "/data\n"},
		{file: "shutdown-delay-duration: 1h", want: "The configuration is valid."}, // at once
		{file: "audit-policy-file: " + dir + "/missing.yaml\naudit-log-path: " + dir + "/audit.log", code: exitFailed, want: "missing.yaml"},
		{file: "audit-policy-file: " + dir + "/policy.yaml\naudit-log-path: " + dir + "/none/audit.log", code: exitFailed, want: "--audit-log-path=" + dir + "/none/audit.log: there is no such directory"},
		{file: "token-auth-file: " + dir + "/none.csv", code: exitFailed, want: "none.csv"},
		{file: "advertise-address: 0.0.0.0", code: exitUsage, want: "the advertised address"},
		{file: "history-retention: -1s", code: exitUsage, want: "--history-retention=-1s: want a duration above zero"},
	} {
		if err := os.WriteFile(config, []byte(test.file), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var stdout, stderr strings.Builder
		code := run([]string{"serve", "--dry-run", "--config=" + config}, &stdout, &stderr)
		if text := stdout.String() + stderr.String(); code != test.code || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %s, want %d and %q", test.file, code, text, test.code, test.want)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(left) != 2 {
		t.Errorf("a dry-run left files: %v", left)
	}
}

// TestConfigReload: log levels of a changed file are in effect without a restart, unless another source has them. The log
// names flags that need one. A file that cannot be read changes nothing.
func TestConfigReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tidemark.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, fixed := range []bool{false, true} {
		write("in-memory: true\nsecure-port: 7001\n")
		args := []string{"--config=" + path}
		if fixed {
			args = append(args, "-v=2", "--in-memory")
		}
		f := new(serveFlags)
		c := newServeFor(f)
		if err := c.Flags().Parse(args); err != nil {
			t.Fatal(err)
		}
		if err := f.complete(c.Flags(), func(string) (string, bool) { return "", false }); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		f.server.Logger = f.logging.logger(&out)
		requests := f.server.Logger.With("component", "requests")
		last := new(configFile)
		try := func(text string, v int, restart string) {
			t.Helper()
			write(text)
			out.Reset()
			now, err := f.readAgain()
			if err != nil {
				t.Fatal(err)
			}
			last = f.use(now, last)
			if restart != "" && !strings.Contains(out.String(), restart) || restart == "" && out.Len() > 0 {
				t.Errorf("%q logs %s, want %s", text, out.String(), restart)
			}
			if fixed {
				v = 2
			}
			for level := range 6 {
				if got := requests.Enabled(t.Context(), slog.Level(-level)); got != (level <= v) {
					t.Errorf("%q: level %d is on: %v", text, level, got)
				}
			}
		}
		try("in-memory: true\nsecure-port: 7001\n", 0, "")
		try("in-memory: true\nsecure-port: 7001\nv: 4\n", 4, "")
		try("in-memory: true\nsecure-port: 7002\nv: 3\ndata-dir: /x\n", 3, map[bool]string{false: "data-dir, secure-port", true: "flags=secure-port"}[fixed])
		try("in-memory: true\nv: 3\n", 3, map[bool]string{false: "flags=secure-port"}[fixed]) // otherwise logged before
		try("in-memory: true\nsecure-port: 7001\n", 0, "")
		for text, want := range map[string]string{
			"v: 1\nnothing: 1": "nothing: there is no such flag", "v: many": "v: ", "v: -1": "--v=-1: want 0 or more", "vmodule: x": "want a component",
		} {
			if fixed && strings.HasPrefix(text, "v: ") && !strings.Contains(text, "nothing") {
				continue // the file's value does not count
			}
			write(text)
			if _, err := f.readAgain(); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		}
	}
}

// TestErrorNamesSource: an error about a value of the file or of the environment names where it comes from.
func TestErrorNamesSource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tidemark.yaml")
	if err := os.WriteFile(path, []byte("controllers: [nothing]\nin-memory: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := " (--controllers is from the key controllers in " + path + ")\n"
	for _, test := range []struct {
		args      []string
		variables map[string]string
		want      string
	}{
		{[]string{"--config=" + path}, nil, file},
		{[]string{"--config=" + path, "--dry-run"}, nil, file},
		{[]string{"--in-memory"}, map[string]string{"TIDEMARK_CONTROLLERS": "nothing"}, " (--controllers is from TIDEMARK_CONTROLLERS)\n"},
		{[]string{"--config=" + path}, map[string]string{"TIDEMARK_CONTROLLERS": "*", "TIDEMARK_ETCD_SERVERS": "http://127.0.0.1:1"}, "--in-memory is from the key in-memory in " + path},
		{[]string{"--in-memory", "--controllers=nothing"}, nil, ""},
	} {
		for name, value := range test.variables {
			t.Setenv(name, value)
		}
		code, _, errs := command(append([]string{"serve"}, test.args...)...)
		if code != exitUsage || !strings.Contains(errs, test.want) || test.want == "" && strings.Contains(errs, " is from ") {
			t.Errorf("%v %v: %d %q, want %q", test.args, test.variables, code, errs, test.want)
		}
		for name := range test.variables {
			t.Setenv(name, "")
		}
	}
}

// TestDryRunPlace: a dry-run prints the address of the server and the place of its objects, and checks that a directory has the state
// of --at.
func TestDryRunPlace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	s := &tidemark.Server{Storage: &datadir.Dir{Path: dir}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	head := s.Root().Revision()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_DATA_HOME", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	kubeconfig := filepath.Join(dir, "kubeconfig")
	for args, want := range map[string]struct {
		code int
		text string
	}{
		"--secure-port=0 --in-memory":          {exitOK, "  address  127.0.0.1, a free port\n  data     memory\n"},
		"--etcd-servers=http://127.0.0.1:2379": {exitOK, "  data     etcd at http://127.0.0.1:2379\n"},
		"--etcd-servers=":                      {exitUsage, "--etcd-servers has no URL"},
		"--follow=":                            {exitUsage, "--follow has no URL"},
		"--at=1":                               {exitFailed, "no such file"},
		"--backup-schedule=@daily --backup-dir=s3://":                                                                      {exitFailed, "is not the name of a bucket"},
		"--backup-schedule=@daily --backup-dir=s3://bucket":                                                                {exitFailed, "no credentials for the bucket"},
		"--backup-schedule=@daily --backup-dir=s3://bucket --follow=https://127.0.0.1:1 --follow-kubeconfig=" + kubeconfig: {exitOK, "a copy of"},
		fmt.Sprintf("--at=%d --data-dir=%s", head+1000, dir):                                                               {exitFailed, "is not stored"},
		fmt.Sprintf("--at=%d --data-dir=%s", head, dir):                                                                    {exitOK, fmt.Sprintf("  data     %s at resource version %d\n", dir, head)},
		fmt.Sprintf("--at=%d --data-dir=%s/none", head, dir):                                                               {exitFailed, "no such file"},
	} {
		code, stdout, stderr := command(append([]string{"serve", "--dry-run"}, strings.Fields(args)...)...)
		if text := stdout + stderr; code != want.code || !strings.Contains(text, want.text) {
			t.Errorf("%s: %d %s, want %d and %q", args, code, text, want.code, want.text)
		}
	}
}

// TestMisspelt: a variable that is nearly that of a flag is named. One of Kubernetes for a Service is not.
func TestMisspelt(t *testing.T) {
	got := misspelt(newServe().Flags(), []string{
		"TIDEMARK_DATADIR=/x", "TIDEMARK_AUTHORISATION_MODE=RBAC", "TIDEMARK_DATA_DIR=/y", "TIDEMARK_EVENTTTL=", "TIDEMARK_PORT=tcp://10.0.0.1:443",
		"TIDEMARK_SERVICE_HOST=10.0.0.1", "TIDEMARK_PORT_443_TCP_ADDR=10.0.0.1", "TIDEMARK_DUMP=x", "OTHER=1",
	})
	if len(got) != 2 || !strings.Contains(got[0], "TIDEMARK_AUTHORISATION_MODE belongs to no flag: did you mean TIDEMARK_AUTHORIZATION_MODE?") || !strings.Contains(got[1], "TIDEMARK_DATA_DIR?") {
		t.Errorf("%q", got)
	}
}

// TestDurations checks that each source of flags describes the form of a duration.
func TestDurations(t *testing.T) {
	const want = "want a duration, such as 90s, 10m or 24h: how long old resource versions"
	if code, _, errs := command("serve", "--history-retention=1day"); code != exitUsage || !strings.Contains(errs, "--history-retention=1day: "+want) {
		t.Errorf("the flag: %d %s", code, errs)
	}
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte("history-retention: 1day"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := command("serve", "--dry-run", "--config="+file); code != exitUsage || !strings.Contains(errs, "history-retention: 1day: "+want) {
		t.Errorf("the file: %d %s", code, errs)
	}
	t.Setenv("TIDEMARK_HISTORY_RETENTION", "1day")
	if code, _, errs := command("serve", "--dry-run"); code != exitUsage || !strings.Contains(errs, `TIDEMARK_HISTORY_RETENTION="1day": `+want) {
		t.Errorf("the variable: %d %s", code, errs)
	}
}
