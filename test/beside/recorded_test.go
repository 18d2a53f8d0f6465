package beside

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/scenarios"
)

// scenarioFolder names, in the environment, the folder of the recorded scenarios and their runner.
const scenarioFolder = "TIDEMARK_TEST_SCENARIOS"

// differences are the scenarios that Tidemark does not pass here, with the reasons.
var differences = map[string]string{
	"crds/create-established": "in etcd a definition is created with its status, as one revision",
}

// TestRecorded: the recorded scenarios pass through Tidemark and through a kube-apiserver on the same etcd, at the same
// time.
func TestRecorded(t *testing.T) {
	tier.Full(t)
	folder := os.Getenv(scenarioFolder)
	if folder == "" {
		t.Skipf("%s names no folder with recorded scenarios", scenarioFolder)
	}
	c := newCluster(t)
	c.controllers = "-*" // the scenarios were recorded without controllers
	k, td := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2")
	runner, err := scenarios.Build(folder, "v1.37", t.TempDir())
	c.must(err)
	verify := func(t *testing.T, s *server, run string) []scenarios.Outcome {
		t.Helper()
		var out strings.Builder
		outcomes, err := runner.Verify(s.url, token, run, &out)
		if err != nil || len(outcomes) == 0 {
			t.Fatalf("no outcome of %q: %v\n%s", run, err, &out)
		}
		t.Logf("%s", &out)
		return outcomes
	}
	for _, s := range []*server{k, td} {
		t.Run(s.kind, func(t *testing.T) {
			t.Parallel()
			outcomes := verify(t, s, "")
			for i, o := range outcomes {
				// Managed fields are in the order of their times, which the recordings have within one second: a
				// scenario that a second ends in the middle of is in another.
				if _, differs := differences[o.Name]; !o.Passed && !(differs && s == td) {
					outcomes[i] = verify(t, s, "^"+regexp.QuoteMeta(o.Name)+"$")[0]
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
