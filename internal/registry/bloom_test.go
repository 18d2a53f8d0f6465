package registry_test

import (
	"fmt"
	"slices"
	"testing"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestSelectorsAmongMany checks that selectors select the matching objects, with and without cached
// labels, also in another version of the same objects.
func TestSelectorsAmongMany(t *testing.T) {
	s := newServer(t, store.Options{})
	all := map[string]labels.Set{}
	for i := range 400 {
		name, set := fmt.Sprintf("p%03d", i), labels.Set{"a": fmt.Sprint(i % 7), "b": fmt.Sprint(i % 50)}
		if i%3 == 0 {
			set["c"] = ""
		}
		all[name] = set
		s.create("pods", "default", fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"a":%q,"b":%q%s}},"spec":{"nodeName":"n%d","containers":[{"name":"c","image":"i"}]}}`,
			name, set["a"], set["b"], map[bool]string{true: `,"c":""`}[i%3 == 0], i%20))
	}
	names := func(o *metainternal.ListOptions) []string {
		t.Helper()
		l, err := s.List(t.Context(), s.target("pods", "default", ""), o)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var got []string
		for o, err := range l.Items {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, meta(t, o).Name)
		}
		return got
	}
	for range 2 {
		for _, text := range []string{"a=1", "a==1,b=8", "a in (1)", "a in (1,2)", "a!=1", "a notin (1,2)", "a", "!a", "c", "!c", "c=", "b=49", "b=50", "x=1", "a=1,x!=2"} {
			selector, err := labels.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for name, set := range all {
				if selector.Matches(set) {
					want = append(want, name)
				}
			}
			slices.Sort(want)
			if got := names(&metainternal.ListOptions{LabelSelector: selector}); !slices.Equal(got, want) {
				t.Errorf("%s: %d objects, want %d", text, len(got), len(want))
			}
		}
		for text, want := range map[string]int{"spec.nodeName=n3": 20, "spec.nodeName!=n3": 380, "spec.nodeName=n3,status.phase=Running": 0, "spec.nodeName=": 0, "metadata.name=p003,spec.nodeName=n3": 1} {
			selector, err := fields.ParseSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			if got := names(&metainternal.ListOptions{FieldSelector: selector}); len(got) != want {
				t.Errorf("%s: %d objects, want %d", text, len(got), want)
			}
		}
	}

	// Events are selected by other fields in their two versions.
	core := registry.Target{Type: kind(t, "", "v1", "events"), Namespace: "default"}
	other := registry.Target{Type: kind(t, "events.k8s.io", "v1", "events"), Namespace: "default"}
	s.create("events", "default", `{"metadata":{"name":"e"},"involvedObject":{"kind":"Pod","name":"p","namespace":"default"},"reason":"Started"}`)
	for range 2 {
		for target, text := range map[registry.Target]string{core: "involvedObject.kind=Pod", other: "regarding.kind=Pod"} {
			selector := fields.ParseSelectorOrDie(text)
			l, err := s.List(t.Context(), target, &metainternal.ListOptions{FieldSelector: selector})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for range l.Items {
				n++
			}
			if l.Close(); n != 1 {
				t.Errorf("%s %s: %d events", target.Type.Group, text, n)
			}
		}
	}
}
