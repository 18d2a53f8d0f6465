package apply

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/testkinds"
)

// TestLargeInputs checks that the CPU time grows in proportion to the size of a body, for any
// content.
func TestLargeInputs(t *testing.T) {
	maps, err := Builtin(schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	pods, err := Builtin(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	configMap := func(prefix string, n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"%s%07d":"v"`, prefix, i)
		}
		return []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{` + strings.TrimPrefix(b.String(), ",") + `}}`)
	}
	pod := func(prefix string, n int) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,{"name":"%s%07d","image":"i"}`, prefix, i)
		}
		return []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"x"},"spec":{"containers":[` + strings.TrimPrefix(b.String(), ",") + `]}}`)
	}
	var many strings.Builder
	for i := range 5_000 {
		fmt.Fprintf(&many, `,{"manager":"m%d","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a%07d":{}}}}`, i, i)
	}
	w := Write{Manager: "m", Time: time.Unix(1e9, 0)}
	for _, c := range []struct {
		name   string
		s      *Schema
		object func(string, int) []byte
		n      int
		before string
	}{
		{"members", maps, configMap, 30_000, ""},
		{"elements", pods, pod, 15_000, ""},
		{"managers", maps, configMap, 5_000, "[" + strings.TrimPrefix(many.String(), ",") + "]"},
	} {
		start := testkinds.CPUTime()
		step := func(what string) {
			if d := testkinds.CPUTime() - start; d > 20*time.Second {
				t.Errorf("%s: %s took %v", c.name, what, d)
			} else {
				t.Logf("%s: %s took %v", c.name, what, d)
			}
			start = testkinds.CPUTime()
		}
		a, b := c.object("a", c.n), c.object("b", c.n)
		before := []byte(c.before)
		if len(before) == 0 {
			if before, err = c.s.Update(nil, nil, a, w); err != nil || before == nil {
				t.Fatal(err)
			}
			step("create")
		}
		if _, err = c.s.Update(before, a, b, w); err != nil {
			t.Fatal(err)
		}
		step("update")
		next, managed, err := c.s.Apply(before, a, b, w, true)
		if err != nil {
			t.Fatal(err)
		}
		step("apply")
		if _, _, err = c.s.Apply(managed, next, c.object("c", c.n/2), w, true); err != nil {
			t.Fatal(err)
		}
		step("apply of other fields")
	}
}
