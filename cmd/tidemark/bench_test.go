package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/bench"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestBench measures a server, and compares the report that was written.
func TestBench(t *testing.T) {
	s := &tidemark.Server{}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := t.TempDir()
	config, out := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "out.json")
	if err := os.WriteFile(config, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command("bench", "get", "list-selector", "--kubeconfig="+config, "--rounds=2", "--duration=10ms", "--objects=10", "--max-ops=20", "--out="+out)
	if code != exitOK || !strings.Contains(stdout, "list-selector") || !strings.Contains(stderr, "get on tidemark: ") {
		t.Fatalf("%d\n%s%s", code, stdout, stderr)
	}
	report, err := bench.ReadReport(out)
	if err != nil || len(report.Servers) != 1 || len(report.Servers[0].Results) != 2 || len(report.Command) == 0 {
		t.Fatalf("%v %+v", err, report)
	}
	if code, stdout, stderr := command("bench", "compare", out, out); code != exitOK || !strings.Contains(stdout, "rate ratio") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	for want, args := range map[string][]string{
		"only one server": {"bench", "compare", out},
		"not a report":    {"bench", "compare", config},
		"absent.json":     {"bench", "compare", "absent.json", out},
		"not-there":       {"bench", "get", "--kubeconfig=" + filepath.Join(dir, "not-there")},
		`"elsewhere"`:     {"bench", "get", "--kubeconfig=" + config, "--context=elsewhere"},
		"process 4194":    {"bench", "get", "--kubeconfig=" + config, "--pid=4194999"}, // above the kernel's limit
	} {
		if code, _, stderr := command(args...); code != exitFailed || !strings.Contains(lastLine(stderr), want) {
			t.Errorf("%v: %d\n%s, want %q", args, code, stderr, want)
		}
	}
}

func TestBenchList(t *testing.T) {
	code, out, _ := command("bench", "list")
	for _, s := range bench.Scenarios() {
		if code != exitOK || !strings.Contains(out, "\n"+s.Name+" ") || s.Measures == "" || s.Loop == "" {
			t.Errorf("%d: %+v is not explained:\n%s", code, s, out)
		}
	}
}

func TestBenchUsage(t *testing.T) {
	for line, want := range map[string]string{
		"bench nonsense":                                             `"nonsense"`,
		"bench --rounds=1000":                                        "want 1 to 100",
		"bench --output=yaml":                                        "yaml",
		"bench --equal-bytes":                                        "--against-kubeconfig",
		"bench --against-pid=1":                                      "--against-kubeconfig",
		"bench start --start-command=tidemark":                       "--kubeconfig",
		"bench outage --repair-command=true":                         "--outage-command",
		"bench --against-etcd-metrics=a":                             "--against-kubeconfig",
		"bench --against-kubeconfig=a --against-repair-command=true": "--against-outage-command",
		"bench compare":                                              "arg",
		"bench --nonsense":                                           "--nonsense",
	} {
		refused(t, line, want)
	}
}

// TestBenchHelp: every flag is explained.
func TestBenchHelp(t *testing.T) {
	code, out, _ := command("bench", "--help")
	newBench().Flags().VisitAll(func(f *pflag.Flag) {
		if code != exitOK || f.Usage == "" || !strings.Contains(out, "--"+f.Name) {
			t.Errorf("--%s is not explained", f.Name)
		}
	})
}

// TestBenchFlood runs the scenario whose load comes from a process of its own: this test binary.
func TestBenchFlood(t *testing.T) {
	tier.Full(t) // the process has niceness 19, and a busy machine does not run it for seconds
	t.Setenv(asCommand, "1")
	s := &tidemark.Server{}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(config, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command("bench", "overload", "--kubeconfig="+config, "--rounds=1", "--duration=10ms", "--max-ops=40", "--objects=10", "--clients=3", "-o=json")
	if code != exitOK {
		t.Fatalf("%d\n%s\n%s", code, stdout, stderr)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Servers[0].Results {
		switch {
		case r.Name == "overload/list" && (!strings.HasSuffix(r.Loop, "in a process of niceness 19") || r.Rounds[0].OwnCPU == nil):
			t.Errorf("%+v", r)
		case r.Name == "overload/write" && r.Rounds[0].Extra["p99TimesAlone"] == 0:
			t.Errorf("%+v", r)
		}
	}
}
