package etcdvalue_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/etcdvalue"
)

// TestDocument: the table of docs/formats/etcd.md has a row for each built-in collection.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/formats/etcd.md")
	if err != nil {
		t.Fatal(err)
	}
	all := etcdvalue.Builtins()
	slices.SortFunc(all, func(a, b etcdvalue.Storage) int { return cmp.Compare(a.Path, b.Path) })
	var want []string
	for _, s := range all {
		key, form := "NAME", "protobuf"
		if s.Namespaced {
			key = "NAMESPACE/NAME"
		}
		if !s.Protobuf {
			form = "JSON"
		}
		want = append(want, fmt.Sprintf("| `%s` | `%s/%s` | %s %s | %s |", s.Collection, s.Path, key, s.Kind.GroupVersion(), s.Kind.Kind, form))
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "| `") && strings.Count(line, "|") == 5 && strings.Contains(line, "/NAME`") {
			got = append(got, line)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("the table should be:\n%s", strings.Join(want, "\n"))
	}
}
