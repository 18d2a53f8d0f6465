package apply_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/apply"
)

// TestConfigure merges apply configurations into a Pod: lists by their keys, maps by member, and
// nothing is removed.
func TestConfigure(t *testing.T) {
	s, err := apply.Builtin(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"1"},"name":"p"},"spec":{"containers":[{"image":"i","name":"c"}]}}`
	for _, row := range []struct{ configuration, want, refused string }{
		{`{"metadata":{"labels":{"b":"2"}}}`, strings.Replace(pod, `{"a":"1"}`, `{"a":"1","b":"2"}`, 1), ""},
		{`{"metadata":{"labels":{"a":"2"}}}`, strings.Replace(pod, `{"a":"1"}`, `{"a":"2"}`, 1), ""},
		{`{}`, pod, ""},
		{`{"spec":{"containers":[{"name":"c","workingDir":"/w"},{"name":"d"}]}}`,
			strings.Replace(pod, `"name":"c"}`, `"name":"c","workingDir":"/w"},{"name":"d"}`, 1), ""},
		{`{"spec":{"containers":[{"name":"c","args":["a"]}]}}`, "", "may not mutate atomic arrays, maps or structs: .spec.containers[0].args"},
		{`{"spec":{"nodeSelector":{"a":"b"},"containers":[{"name":"c","args":["a"]}]}}`, "", "structs: .spec.containers[0].args, .spec.nodeSelector"},
		{`{"spec":{"other":1}}`, "", "failed to convert patch object to typed object: .spec.other: field not declared in schema"},
		{`{"spec":[]}`, "", "failed to convert patch object to typed object: .spec: expected map, got "},
	} {
		live := tree(t, pod)
		got, err := s.Configure(live, tree(t, row.configuration))
		if row.refused != "" {
			if err == nil || !strings.Contains(err.Error(), row.refused) {
				t.Errorf("%s: %v, want %s", row.configuration, err, row.refused)
			}
			continue
		}
		if text, _ := json.Marshal(got); err != nil || string(text) != row.want {
			t.Errorf("%s: %s, %v, want %s", row.configuration, text, err, row.want)
		}
		if text, _ := json.Marshal(live); string(text) != pod {
			t.Errorf("%s changed the object: %s", row.configuration, text)
		}
	}
}

func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}
