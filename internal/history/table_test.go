package history_test

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/changes"
	"github.com/tidemark-dev/tidemark/internal/history"
)

// TestSummary: a table shows values, but none of the data of a Secret, nor the annotation that repeats it.
func TestSummary(t *testing.T) {
	field := func(path string) []changes.Field {
		return []changes.Field{{Path: path, From: json.RawMessage(`"b2xk"`), To: json.RawMessage(`"bmV3"`)}}
	}
	for _, c := range []struct{ resource, path, want string }{
		{"configmaps", "data.key", "data.key b2xk -> bmV3"},
		{"secrets", "data.key", "data.key *** -> ***"},
		{"secrets", `data["a.b"]`, `data["a.b"] *** -> ***`},
		{"secrets", `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"]`, `metadata.annotations["kubectl.kubernetes.io/last-applied-configuration"] *** -> ***`},
		{"secrets", "metadata.labels.app", "metadata.labels.app b2xk -> bmV3"},
		{"secrets", "type", "type b2xk -> bmV3"},
	} {
		if got := history.Summary(&changes.Change{Resource: c.resource, Fields: field(c.path)}); got != c.want {
			t.Errorf("%s %s: got %q, want %q", c.resource, c.path, got, c.want)
		}
	}
}

// TestRow: the columns are those of the command history.
func TestRow(t *testing.T) {
	c := changes.Change{
		Revision: "7", Verb: "patch", Subresource: "scale", User: "alice", UserAgent: "kubectl/v1", Resource: "deployments.apps", Namespace: "shop", Name: "web",
		Fields: []changes.Field{{Path: "spec.paused", To: json.RawMessage("true")}, {Path: "spec.replicas", From: json.RawMessage("8")}},
	}
	row, err := history.Row(&c, metav1.IncludeNone)
	want := []any{"7", "-", "patch/scale", "deployments.apps/web", "alice via kubectl", "spec.paused added true, spec.replicas removed 8"}
	if err != nil || !reflect.DeepEqual(row.Cells, want) || len(row.Cells) != len(history.Columns) {
		t.Errorf("got %q, want %q, %v", row.Cells, want, err)
	}
	c.Fields = append([]changes.Field{{Path: "metadata.deletionGracePeriodSeconds", To: json.RawMessage("0")}, {Path: "metadata.deletionTimestamp", To: json.RawMessage(`"2026-11-30T10:42:07Z"`)}}, c.Fields[0])
	if got, want := history.Summary(&c), "deletion began, spec.paused added true"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if row, _ = history.Row(&changes.Change{Revision: "8", Resource: "pods", Name: "p"}, metav1.IncludeNone); !reflect.DeepEqual(row.Cells, []any{"8", "-", "-", "pods/p", "unknown", "-"}) {
		t.Errorf("a change without details: %q", row.Cells)
	}
}
