package timeline_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// TestWatchAgain: a watch goes on after the last revision when the server is there again, and ends when changes are missing.
func TestWatchAgain(t *testing.T) {
	t.Parallel()
	settings := func(revision string) changes.Change {
		return change(revision, "configmaps", "settings", changes.Change{Namespace: "default", Verb: "update", User: "alice"})
	}
	const gone = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","reason":"Expired","code":410}}`
	event := func(revision string) string {
		text, err := json.Marshal(settings(revision))
		if err != nil {
			t.Fatal(err)
		}
		return `{"type":"ADDED","object":` + string(text) + "}\n"
	}
	for _, test := range []struct {
		name    string
		watches []string // responses; a number is a code, and a cut ends the connection
		newest  string
		want    string // revisions
		after   string // of the watches
		err     string
	}{
		{"restart", []string{event("6") + "cut", "503", "cut", event("7"), event("8"), gone}, "9", "6 7 8", "5 6 6 6 7 8", "no longer has the changes after revision 8, so some are missing here; it begins at 1"},
		{"another history", []string{event("6"), "503", event("3")}, "3", "6", "5 6 6", "the server has another history now: its newest revision is 3, and the last one seen is 6"},
		{"no rights any more", []string{event("6"), "403"}, "6", "6", "5 6", "forbidden"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var after []string
			isListed := false
			e, out, errs := fakeServer(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Path == "/at/1/api":
				case r.URL.Query().Get("watch") == "":
					newest := "5"
					if isListed {
						newest = test.newest
					}
					isListed = true
					writeChanges(w, newest)
				default:
					response := test.watches[len(after)]
					after = append(after, r.URL.Query().Get("resourceVersion"))
					if response, isCut := strings.CutSuffix(response, "cut"); isCut {
						_, _ = io.WriteString(w, response)
						if response != "" {
							w.(http.Flusher).Flush()
						}
						panic(http.ErrAbortHandler)
					}
					if code, err := strconv.Atoi(response); err == nil {
						w.WriteHeader(code)
						_, _ = fmt.Fprintf(w, `{"kind":"Status","message":"%s","code":%d}`, strings.ToLower(http.StatusText(code)), code)
						return
					}
					_, _ = io.WriteString(w, response)
				}
			})
			err := e.History(t.Context(), nil, timeline.HistoryOptions{Watch: true, Output: "json"})
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("got the error %v, want %s", err, test.err)
			}
			var seen []string
			for d := json.NewDecoder(strings.NewReader(out.String())); d.More(); {
				var c changes.Change
				if err := d.Decode(&c); err != nil {
					t.Fatal(err)
				}
				seen = append(seen, c.Revision)
			}
			if got := strings.Join(seen, " "); got != test.want {
				t.Errorf("got the revisions %s, want %s", got, test.want)
			}
			if got := strings.Join(after, " "); got != test.after {
				t.Errorf("watched after the revisions %s, want %s", got, test.after)
			}
			if test.name == "restart" && (!strings.Contains(errs.String(), "to go on after revision 6") || strings.Count(errs.String(), "Connected again: going on after revision 6.\n") != 1) {
				t.Errorf("it says %q", errs)
			}
		})
	}
}
