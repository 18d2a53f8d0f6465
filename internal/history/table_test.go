package history_test

import (
	"encoding/json"
	"testing"

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
