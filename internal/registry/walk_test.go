package registry

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// FuzzWalk compares the functions of walk.go with encoding/json. They find the same members with
// the same values in valid text, and read nothing beyond the end of any text.
func FuzzWalk(f *testing.F) {
	f.Add(`{"metadata":{"name":"a","labels":{"x":"y","q\"\\":"1\u0041"}},"n":[1,{"a":[]}],"b":true,"z":null}`)
	f.Add(`{"a":"\\","b":"]}"}`)
	f.Add(`{"a`)
	f.Add(`[1,2`)
	f.Fuzz(func(t *testing.T, text string) {
		got := map[string]string{}
		order := 0
		eachMember([]byte(text), func(key, value []byte) bool {
			order++
			got[unquote(key)] = string(value)
			for _, name := range []string{"name", "a", "x"} {
				if found := find([]byte(text), string(key), name); string(found) != string(member(member([]byte(text), string(key)), name)) {
					t.Fatalf("%q: %s in %q is %q in one go", text, name, key, found)
				}
			}
			return order < 1000
		})
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || want == nil || !jsonKeysPlain(text) {
			return
		}
		if len(got) != len(want) {
			t.Fatalf("%q: found %v, want %v", text, got, want)
		}
		for key, value := range want {
			if strings.TrimSpace(string(value)) != got[key] {
				t.Fatalf("%q: %q is %q, want %q", text, key, got[key], value)
			}
		}
	})
}

// jsonKeysPlain leaves out text whose invalid UTF-8 encoding/json replaces.
func jsonKeysPlain(text string) bool {
	return strings.ToValidUTF8(text, "") == text && !strings.Contains(text, `\u`)
}

func TestWithoutManaged(t *testing.T) {
	for text, want := range map[string]string{
		`{"metadata":{"name":"a","managedFields":[{"x":"]}"}]},"spec":1}`:                               `{"metadata":{"name":"a"},"spec":1}`,
		`{"metadata":{"name":"a","managedFields":[],"z":1}}`:                                            `{"metadata":{"name":"a","z":1}}`,
		`{"metadata":{"managedFields":[{}],"name":"a"}}`:                                                "",
		`{"metadata":{"name":"a", "managedFields":[{}]}}`:                                               "",
		`{"metadata":{"name":"a"},"spec":{"metadata":{"name":"a","managedFields":[{}]}}}`:               "",
		`{"spec":{"a":1,"managedFields":[{}]},"metadata":{"a":"\"managedFields\":[]"}}`:                 "",
		`{"spec":{"metadata":{"x":1,"managedFields":[1]}},"metadata":{"name":"a","managedFields":[2]}}`: `{"spec":{"metadata":{"x":1,"managedFields":[1]}},"metadata":{"name":"a"}}`,
	} {
		if want == "" {
			want = text
		}
		if got := withoutManaged([]byte(text), locateManaged([]byte(text))); string(got) != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func object(key, value string) *store.Object {
	return &store.Object{Key: key, Held: []byte(value), Modified: 1}
}

func typeOf(t testing.TB, group, plural string) *resource.Type {
	t.Helper()
	typ := builtin.Catalog().Lookup(group, "v1", plural)
	if typ == nil {
		t.Fatal("no such kind: " + plural)
	}
	return typ
}

func TestSelectors(t *testing.T) {
	pods := typeOf(t, "", "pods")
	objects := []*store.Object{
		object("a/p1", `{"metadata":{"name":"p1","labels":{"app":"x","tier":"1"}},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}`),
		object("a/p2", `{"metadata":{"name":"p2","labels":{"app":"y"}},"spec":{"restartPolicy":"Never"},"status":{"phase":"Pending"}}`),
		object("b/p1", `{"metadata":{"name":"p1"},"status":{}}`),
		object("b-c/p3", `{"metadata":{"name":"p3","labels":{"app":"x"}}}`),
	}
	rows := []struct {
		namespace, labels, fields string
		want                      string
	}{
		{"", "", "", "a/p1 a/p2 b/p1 b-c/p3"},
		{"a", "", "", "a/p1 a/p2"},
		{"b", "", "", "b/p1"},
		{"", "app=x", "", "a/p1 b-c/p3"},
		{"", "app in (x,y),tier notin (1)", "", "a/p2 b-c/p3"},
		{"", "!app", "", "b/p1"},
		{"", "app!=x", "", "a/p2 b/p1"},
		{"", "", "metadata.name=p1", "a/p1 b/p1"},
		{"a", "", "metadata.name=p1", "a/p1"},
		{"", "", "metadata.name=p1,metadata.namespace=b", "b/p1"},
		{"", "", "metadata.namespace=b", "b/p1"},
		{"a", "", "metadata.namespace=b", ""},
		{"", "", "metadata.name=p1,metadata.name=p2", ""},
		{"", "", "metadata.name!=p1", "a/p2 b-c/p3"},
		{"", "", "metadata.namespace!=a", "b/p1 b-c/p3"},
		{"", "", "metadata.name=", ""},
		{"", "", "metadata.name=a/p1", ""},
		{"", "", "spec.nodeName=n1", "a/p1"},
		{"", "", "spec.nodeName=", "a/p2 b/p1 b-c/p3"},
		{"", "", "status.phase!=Running", "a/p2 b/p1 b-c/p3"},
		{"", "app=x", "spec.nodeName=n1", "a/p1"},
	}
	for _, row := range rows {
		o := &metainternal.ListOptions{}
		var err error
		if o.LabelSelector, err = labels.Parse(row.labels); err != nil {
			t.Fatal(err)
		}
		o.FieldSelector = fields.ParseSelectorOrDie(row.fields)
		s, err := newSelector(context.Background(), Target{Type: pods, Namespace: row.namespace}, o)
		if err != nil {
			t.Errorf("%+v: %v", row, err)
			continue
		}
		var got []string
		for _, object := range objects {
			if s.matches(object) {
				got = append(got, object.Key)
			}
			if s.matches(object) && !strings.HasPrefix(object.Key, s.watchPrefix()) {
				t.Errorf("%+v: %s matches, but a cursor would not wake for it", row, object.Key)
			}
		}
		if strings.Join(got, " ") != row.want {
			t.Errorf("%+v: got %v", row, got)
		}
	}
}

func TestSelectorErrors(t *testing.T) {
	for field, want := range map[string]string{
		"spec.foo=x": `"spec.foo" is not a known field selector`,
	} {
		_, err := newSelector(context.Background(), Target{Type: typeOf(t, "", "configmaps")}, &metainternal.ListOptions{FieldSelector: fields.ParseSelectorOrDie(field)})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := newSelector(context.Background(), Target{Type: typeOf(t, "", "pods")}, &metainternal.ListOptions{FieldSelector: fields.ParseSelectorOrDie("spec.foo=x")})
	if err == nil || !strings.Contains(err.Error(), "field label not supported: spec.foo") {
		t.Errorf("an unknown field of pods: %v", err)
	}
}

// TestFieldsOfAllKinds checks that each selectable field of an empty object has its default.
func TestFieldsOfAllKinds(t *testing.T) {
	for _, g := range builtin.Catalog().Groups() {
		for _, v := range g.Versions {
			for _, typ := range v.Types {
				a, err := selectableOf(context.Background(), typ, object("x", `{"metadata":{"name":"x"}}`), true)
				if err != nil {
					t.Fatal(err)
				}
				for i, f := range typ.Display.Fields {
					if a.values[i] != f.Default {
						t.Errorf("%s %s of an empty object is %q, want %q", typ.Resource, f.Name, a.values[i], f.Default)
					}
				}
			}
		}
	}
}

func TestNoAllocationPerObject(t *testing.T) {
	s, err := newSelector(context.Background(), Target{Type: typeOf(t, "", "pods"), Namespace: "a"}, &metainternal.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{"app": "x"})})
	if err != nil {
		t.Fatal(err)
	}
	o := object("a/p1", `{"metadata":{"name":"p1","labels":{"app":"x"}}}`)
	s.matches(o) // fills the memo
	if n := testing.AllocsPerRun(100, func() { s.matches(o) }); n > 0 {
		t.Errorf("selecting allocates %v times per object", n)
	}
	all := &selector{prefix: "a/"}
	if n := testing.AllocsPerRun(100, func() { all.matches(o) }); n > 0 {
		t.Errorf("no selector allocates %v times per object", n)
	}
}

func TestGenerateName(t *testing.T) {
	long := strings.Repeat("x", 100)
	for range 50 {
		name := new(Registry).withSuffix(long)
		if len(name) != 63 || !strings.HasPrefix(name, strings.Repeat("x", 58)) {
			t.Fatalf("%q has %d characters", name, len(name))
		}
		if i := slices.IndexFunc([]byte(name[58:]), func(b byte) bool { return !strings.ContainsRune("bcdfghjklmnpqrstvwxz2456789", rune(b)) }); i >= 0 {
			t.Fatalf("%q ends with a character that is not wanted", name)
		}
	}
}
