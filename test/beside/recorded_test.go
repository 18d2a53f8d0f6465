package beside

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
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
			results := filepath.Join(t.TempDir(), "results.json")
			out, err := exec.Command(runner, "verify", "--server", s.url, "--token", token, "--insecure",
				"--scenarios", filepath.Join(folder, "scenarios"), "--json", results).CombinedOutput()
			if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			text, err := os.ReadFile(results)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			var outcomes []struct {
				Name   string
				Passed bool
			}
			if err := json.Unmarshal(text, &outcomes); err != nil {
				t.Fatal(err)
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
			if t.Logf("%d of %d scenarios pass", passed, len(outcomes)); passed == 0 || t.Failed() {
				t.Errorf("%s", out)
			}
		})
	}
}
