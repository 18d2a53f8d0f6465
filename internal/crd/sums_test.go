package crd_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestSumsInRules: a rule that adds large sets or maps once for each of their items exceeds its cost, and does not take minutes.
func TestSumsInRules(t *testing.T) {
	const rule = "self.all(x, (self + self).size() > 0)"
	for name, c := range map[string]struct {
		schema func(int) any
		value  func(int) any
	}{
		"set": {list(aString, "set"), each(word)},
		"map": {list(aKV, "map", "k"), each(kv)},
	} {
		schema := c.schema(0).(tree)
		ruled := tree{"x-kubernetes-validations": []any{tree{"rule": rule}}}
		for k, v := range schema {
			ruled[k] = v
		}
		s := newCustoms(t, ruled)
		for n, refused := range map[int]bool{300: false, 2000: true} {
			_, err := s.Create(t.Context(), registry.Target{Type: s.typ, Namespace: "default"}, registry.Body{Media: wire.JSON, Bytes: custom(t, c.value(n))}, registry.WriteOptions{DryRun: []string{"All"}})
			if refused && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "cost limit")) || !refused && err != nil {
				t.Errorf("a %s of %d items: %.500v", name, n, err)
			}
		}
	}
}
