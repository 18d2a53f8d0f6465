package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestLooseNames sends names of kinds that accept almost any name. Names that cannot be stored are
// refused like any other wrong name, also in a dry-run. Accepted names can be read and deleted.
func TestLooseNames(t *testing.T) {
	s := newServer(t, store.Options{})
	target := registry.Target{Type: kind(t, "rbac.authorization.k8s.io", "v1", "clusterroles")}
	rows := []struct{ member, name, field, wrong string }{
		{"name", "a\x00b", "metadata.name", `Invalid value: "a\x00b": may not contain a zero byte`},
		{"name", "\x00", "metadata.name", "may not contain a zero byte"},
		{"generateName", "a\x00", "metadata.generateName", "may not contain a zero byte"},
		{"name", strings.Repeat("n", 1025), "metadata.name", "must be no more than 1024 bytes"},
		{"name", strings.Repeat("é", 513), "metadata.name", "must be no more than 1024 bytes"},
		{"generateName", strings.Repeat("n", 1<<20), "metadata.generateName", "must be no more than 1024 bytes"},
		{"name", "a/b", "metadata.name", "may not contain '/'"},
		{"name", "a%b", "metadata.name", "may not contain '%'"},
		{"name", "..", "metadata.name", "may not be '..'"},

		{"name", strings.Repeat("n", 1024), "", ""},
		{"name", strings.Repeat("é", 512), "", ""},
		{"name", "system:a b:*\x01\x7f\n", "", ""},
		{"generateName", strings.Repeat("é", 100), "", ""}, // cut within a letter
		{"generateName", "a" + strings.Repeat("é", 100), "", ""},
	}
	for _, row := range rows {
		text, err := json.Marshal(map[string]any{"metadata": map[string]string{row.member: row.name}})
		if err != nil {
			t.Fatal(err)
		}
		for _, dryRun := range [][]string{{"All"}, nil} {
			o, err := s.Create(context.Background(), target, body(string(text)), registry.WriteOptions{DryRun: dryRun})
			what := fmt.Sprintf("%s %.20q, dry-run %v", row.member, row.name, dryRun)
			if row.wrong != "" {
				if err == nil {
					t.Errorf("%s: it was stored", what)
					continue
				}
				got := statusOf(t, err)
				if got.Code != 422 || got.Reason != metav1.StatusReasonInvalid || !strings.Contains(got.Message, row.wrong) || got.Details.Causes[0].Field != row.field {
					t.Errorf("%s: %d %s %.300s", what, got.Code, got.Reason, got.Message)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %.300s", what, err)
				continue
			}
			name := meta(t, o.Stored).Name
			if !utf8.ValidString(name) || row.member == "name" && name != row.name {
				t.Errorf("%s: it is shown as %q", what, name)
			}
			if dryRun != nil {
				continue
			}
			found := target
			found.Name = name
			if _, err := s.Get(context.Background(), found, ""); err != nil {
				t.Errorf("%s: get: %.300s", what, err)
			}
			if _, err := s.Delete(context.Background(), found, &metav1.DeleteOptions{}, nil); err != nil {
				t.Errorf("%s: delete: %.300s", what, err)
			}
		}
	}
}
