package beside

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// scenarios names, in the environment, the folder of the recorded scenarios and their runner.
const scenarios = "TIDEMARK_TEST_SCENARIOS"

// differences are the scenarios that Tidemark does not pass here, with the reasons.
var differences = map[string]string{
	"builtin-defaulting/discovery-and-leases": "a Warning says that an APIService has no effect",
	"crds/create-established":                 "in etcd a definition is created with its status, as one revision",
}

// TestRecorded: the recorded scenarios pass through Tidemark and through a kube-apiserver on the same etcd, at the same
// time.
func TestRecorded(t *testing.T) {
	folder := os.Getenv(scenarios)
	if folder == "" {
		t.Skipf("%s names no folder with recorded scenarios", scenarios)
	}
	c := newCluster(t)
	c.controllers = "-*" // the scenarios were recorded without controllers
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	runner := filepath.Join(t.TempDir(), "runner")
	build := exec.Command("go", "build", "-o", runner, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the runner: %v\n%s", err, out)
	}
	for _, s := range []*server{k, td} {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			outcomes := verify(t, runner, folder, s, "")
			for i, o := range outcomes {
				// Managed fields stand in the order of their times, which the recordings have within one second: a
				// scenario that a second ends in the middle of is in another.
				if _, differs := differences[o.Name]; !o.Passed && !(differs && s == td) {
					outcomes[i] = verify(t, runner, folder, s, "^"+regexp.QuoteMeta(o.Name)+"$")[0]
				}
			}
			passed := 0
			for _, o := range outcomes {
				_, differs := differences[o.Name]
				if o.Passed {
					passed++
				}
				if want := s == k || !differs; o.Passed != want {
					t.Errorf("%s passes: %v, want %v", o.Name, o.Passed, want)
				}
			}
			t.Logf("%d of %d scenarios pass", passed, len(outcomes))
		})
	}
}

// outcome is the result of one scenario, as the runner writes it.
type outcome struct {
	Name   string
	Passed bool
}

// verify runs the scenarios that match, at least one, through a server.
func verify(t *testing.T, runner, folder string, s *server, run string) (outcomes []outcome) {
	t.Helper()
	results := filepath.Join(t.TempDir(), "results.json")
	out, err := exec.Command(runner, "verify", "--server", s.url, "--token", token, "--insecure",
		"--scenarios", filepath.Join(folder, "scenarios"), "--run", run, "--json", results).CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Logf("%s", out)
	} else if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(results)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := json.Unmarshal(text, &outcomes); err != nil || len(outcomes) == 0 {
		t.Fatalf("no scenario matches %q: %v", run, err)
	}
	return outcomes
}
