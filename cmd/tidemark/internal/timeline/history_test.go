package timeline_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/timeline"
	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/serverclient"
)

// fakeServer is an environment whose server sends the responses of a handler.
func fakeServer(t *testing.T, serve http.HandlerFunc) (e *timeline.Env, out, errs *strings.Builder) {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	out, errs = &strings.Builder{}, &strings.Builder{}
	return &timeline.Env{
		Server: &serverclient.Client{HTTP: s.Client(), URL: s.URL}, Namespace: "default", Out: out, Progress: progress.Progress{W: errs},
		Now: time.Date(2026, 11, 30, 11, 0, 0, 0, time.UTC),
	}, out, errs
}

func change(revision, resource, name string, c changes.Change) changes.Change {
	c.Revision, c.Resource, c.Name, c.Time = revision, resource, name, time.Date(2026, 11, 30, 10, 42, 7, 0, time.UTC)
	c.Complete()
	return c
}

// writeChanges sends a list of changes.
func writeChanges(w http.ResponseWriter, revision string, all ...changes.Change) {
	if all == nil {
		all = []changes.Change{}
	}
	_ = json.NewEncoder(w).Encode(changes.ChangeList{Kind: changes.ListKind, APIVersion: changes.APIVersion, Metadata: changes.ListMetadata{ResourceVersion: revision}, Items: all})
}

// TestFoldedRows: on a terminal, no line is longer than it, unless a word is, and no name is cut.
func TestFoldedRows(t *testing.T) {
	t.Parallel()
	const controller = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
	all := []changes.Change{
		change("81236", "deployments.apps", "web", changes.Change{Namespace: "shop", Verb: "patch", Subresource: "scale", User: "balancer", UserAgent: "kubectl/v1", Fields: []changes.Field{{Path: "spec.replicas", From: json.RawMessage("8"), To: json.RawMessage("3")}}}),
		change("81235", "clusterroles.rbac.authorization.k8s.io", "system:controller:horizontal-pod-autoscaler", changes.Change{Verb: "update", User: controller, UserAgent: "kube-controller-manager/v1", Fields: []changes.Field{
			{Path: "spec.template.spec.containers[name=app].image", From: json.RawMessage(`"registry.example.com/web:v1"`), To: json.RawMessage(`"registry.example.com/web:v2"`)},
			{Path: "spec.paused", To: json.RawMessage("true")},
		}}),
	}
	for _, width := range []int{0, 80, 100, 400} {
		e, out, errs := fakeServer(t, func(w http.ResponseWriter, _ *http.Request) { writeChanges(w, "81236", all...) })
		e.Width = width
		if err := e.History(t.Context(), nil, timeline.HistoryOptions{All: true}); err != nil || errs.Len() > 0 {
			t.Fatal(err, errs)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if one := width == 0 || width == 400; one != (len(lines) == 3) {
			t.Errorf("%d columns: %d lines\n%s", width, len(lines), out)
		}
		for _, line := range lines {
			if width > 0 && len(line) > width && strings.Contains(strings.TrimSpace(line), " ") {
				t.Errorf("%d columns: a line has %d\n%s", width, len(line), line)
			}
		}
		for _, word := range []string{"81236", "10:42:07", "patch/scale", "shop", "deployments.apps/web", "balancer via kubectl", "spec.replicas 8 -> 3",
			"clusterroles.rbac.authorization.k8s.io/system:controller:horizontal-pod-autoscaler", controller, "spec.template.spec.containers[name=app].image"} {
			if !strings.Contains(out.String(), word) {
				t.Errorf("%d columns: %s is cut:\n%s", width, word, out)
			}
		}
	}
}
