package conformance

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// editor returns a config that is limited to the permissions of an editor of one namespace.
func editor(config *rest.Config, namespace string) *rest.Config {
	forbidden := says(always, http.StatusForbidden, `{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden","message":"not in your role"}`)
	return behind(config, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		inside := strings.Contains(req.URL.Path, "/namespaces/"+namespace+"/") && !strings.Contains(req.URL.Path, "roles")
		if verbOf(req) != "" && !inside {
			return forbidden(req, next)
		}
		return next.RoundTrip(req)
	})
}

// TestRights checks that a user who may edit in one namespace gets a result that names the skipped
// checks, and no false report of objects left behind.
func TestRights(t *testing.T) { synctest.Test(t, testRights) }

func testRights(t *testing.T) {
	config := serve(t)
	o := Options{Areas: []string{"verbs", "versions", "sweep", "watch"}, Seed: testrand.New(t).Uint64()}
	if _, err := Run(t.Context(), editor(config, "default"), o, progress.Progress{}); err == nil || !strings.Contains(err.Error(), "--namespace") {
		t.Errorf("without a namespace: %v", err)
	}
	o.Namespace = "kube-public"
	if _, err := Run(t.Context(), editor(config, "default"), o, progress.Progress{}); err == nil || !strings.Contains(err.Error(), "the right to edit") {
		t.Errorf("in a namespace of others: %v", err)
	}
	o.Namespace = "default"
	report, err := Run(t.Context(), editor(config, "default"), o, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range report.Forbidden() {
		if ids = append(ids, r.ID); r.Outcome != Skipped || r.Bad() {
			t.Errorf("%s for the lack of a right: %s", r.ID, r.Outcome)
		}
	}
	for _, want := range []string{"verbs.collections", "watch.namespace", "sweep.custom", "sweep.types.nodes/v1", "sweep.types.roles.rbac.authorization.k8s.io/v1"} {
		if !slices.Contains(ids, want) {
			t.Errorf("%s is not said to be forbidden", want)
		}
	}
	for _, r := range report.Results {
		if want, listed := lacking[r.ID]; !r.NoRight && r.Outcome != Passed && (!listed || r.Outcome != want) {
			t.Errorf("%s: %s %s", r.ID, r.Outcome, r.Message)
		}
	}
	var table bytes.Buffer
	if err := report.WriteTable(&table); err != nil || !strings.Contains(table.String(), "forbidden to this user:\n  verbs.collections\n") {
		t.Errorf("%v: the table does not tell what was forbidden:\n%s", err, &table)
	}
	if len(report.Left) > 0 || !report.Ran() {
		t.Errorf("left behind: %v", report.Left)
	}
}

// TestBroken: a check that breaks has failed; the others run, and all is removed.
func TestBroken(t *testing.T) { synctest.Test(t, testBroken) }

func testBroken(t *testing.T) {
	config := serve(t)
	once := from(40, on("update"))
	report, err := Run(t.Context(), behind(config, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if once(req) {
			panic("a mistake")
		}
		return next.RoundTrip(req)
	}), Options{Areas: []string{"versions", "get", "consistency"}, Namespace: "default"}, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	broken, passed := 0, 0
	for _, r := range report.Results {
		switch {
		case strings.Contains(r.Message, "the check itself broke, which is a mistake of this program: a mistake\n") && r.Outcome == Failed:
			broken++
		case r.Outcome == Passed:
			passed++
		default:
			t.Errorf("%s: %s %s", r.ID, r.Outcome, r.Message)
		}
	}
	if broken == 0 || passed == 0 || len(report.Left) > 0 {
		t.Errorf("%d broke, %d passed, left behind: %v", broken, passed, report.Left)
	}
	if left := leftIn(t, config); left > 0 {
		t.Errorf("%d objects are left behind", left)
	}
}
