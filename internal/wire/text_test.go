package wire

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/resource"
)

var deployments = &resource.Type{Names: resource.Names{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment"}}

// plain is the list as a client gets it by default.
func plain(meta ListMeta, items []string) string {
	f := ListOf(deployments, meta)
	b := f.AppendHead(nil)
	b = append(b, strings.Join(items, ",")...)
	return string(append(b, ListTail...))
}

func text(t *testing.T, media MediaType, meta ListMeta, items []string) string {
	t.Helper()
	l := ListText{Media: media, Frame: ListOf(deployments, meta)}
	b, err := l.Head(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		var err error
		if b, err = l.Item(b, []byte(item)); err != nil {
			t.Fatal(err)
		}
	}
	b, err = l.Tail(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestListHead(t *testing.T) {
	remaining := int64(7)
	got := plain(ListMeta{Revision: 12, Continue: "abc", Remaining: &remaining}, nil)
	want := `{"kind":"DeploymentList","apiVersion":"apps/v1","metadata":{"resourceVersion":"12","continue":"abc","remainingItemCount":7},"items":[]}` + "\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestListTextIsTheSameList(t *testing.T) {
	remaining := int64(3)
	items := []string{
		`{"metadata":{"name":"a"},"spec":{"n":1,"empty":{},"none":[],"list":[1,[2,3],{"x":null}]}}`,
		`{"metadata":{"name":"b"},"data":{"block":"one\n\n  two\n","colon":"a: b","long":"` + strings.Repeat("words of some length ", 20) + `","lead":"  x\ny","true":"true"}}`,
		`{}`,
	}
	for n := range len(items) + 1 {
		for _, meta := range []ListMeta{{Revision: 5}, {Revision: 5, Continue: "tok", Remaining: &remaining}} {
			want := plain(meta, items[:n])
			indented, err := Indent([]byte(want))
			if err != nil {
				t.Fatal(err)
			}
			if got := text(t, JSON, meta, items[:n]); got != string(indented) {
				t.Errorf("%d items, indented:\n%s\nwant\n%s", n, got, indented)
			}
			var fromYAML, fromJSON any
			out := text(t, YAML, meta, items[:n])
			if err := yaml.Unmarshal([]byte(out), &fromYAML); err != nil {
				t.Fatalf("%d items: %v\n%s", n, err, out)
			}
			if err := json.Unmarshal([]byte(want), &fromJSON); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(fromYAML, fromJSON) {
				t.Errorf("%d items: YAML\n%s\nis not\n%s", n, out, want)
			}
		}
	}
}

func TestYAMLIsAsKubernetesWritesIt(t *testing.T) {
	got := text(t, YAML, ListMeta{Revision: 432}, []string{`{"metadata":{"name":"a"},"data":{"k":"<v>"}}`})
	want := `apiVersion: apps/v1
items:
- data:
    k: <v>
  metadata:
    name: a
kind: DeploymentList
metadata:
  resourceVersion: "432"
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got, want := text(t, YAML, ListMeta{Revision: 1}, nil), "apiVersion: apps/v1\nitems: []\nkind: DeploymentList\nmetadata:\n  resourceVersion: \"1\"\n"; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestEvents(t *testing.T) {
	got := string(AppendEvent(nil, "ADDED", []byte(`{"kind":"Deployment"}`)))
	if want := `{"type":"ADDED","object":{"kind":"Deployment"}}` + "\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for end, want := range map[bool]string{
		false: `{"resourceVersion":"9"}`,
		true:  `{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}`,
	} {
		got := string(AppendBookmark(nil, deployments, 9, end))
		want = fmt.Sprintf(`{"kind":"Deployment","apiVersion":"apps/v1","metadata":%s}`, want)
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestManyDuplicates refuses more duplicate keys in YAML than an author overlooks: the complaints would be megabytes.
func TestManyDuplicates(t *testing.T) {
	text := func(n int) []byte { return []byte("a: {k: v" + strings.Repeat(",k", n) + "}\n") }
	if _, strict, err := fromYAML(text(10)); err != nil || len(strict) != 1 || strings.Count(strict[0], "already set") != 10 {
		t.Errorf("10 duplicates: %q, %v", strict, err)
	}
	if _, strict, err := fromYAML(text(maxDuplicates + 1)); err == nil || err.Error() != "it has more than 1000 duplicate keys" {
		t.Errorf("too many: %.100q, %v", strict, err)
	}
}

// TestManyAliases refuses aliases that are short but many, before the parser sees them.
func TestManyAliases(t *testing.T) {
	for _, before := range []string{"", " ", "\n", "\u0085", "\u2028", "\u2029"} {
		text := "a: [&a x" + strings.Repeat(","+before+"*a", maxAliases+1) + "]\n"
		if _, err := FromYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), "more than 20000 aliases") {
			t.Errorf("after %q: got %v", before, err)
		}
		if _, _, err := fromYAML([]byte(text)); err == nil || !strings.Contains(err.Error(), "more than 20000 aliases") {
			t.Errorf("after %q: got %v", before, err)
		}
	}
	if n := countAliases([]byte("a: *a\n- *b\n{c: *c,*d}\n*e a**b* 2 * 3 [*f]\n")); n != 6 {
		t.Errorf("%d aliases", n)
	}
	if _, err := FromYAML([]byte("a: &a x\nb: *a\nc: \"" + strings.Repeat("* * a*b ** ", 30_000) + "\"\n")); err != nil {
		t.Error(err)
	}
}

// TestConfigurationNumbers checks that an apply reads numbers as a conversion from YAML writes them.
func TestConfigurationNumbers(t *testing.T) {
	for body, want := range map[string]string{
		`{"a":-0.0,"b":[1e3,-0,1.0,0.1e1],"c":"1e3 \" -0.0","d":1.5,"e":-12}`: `{"a":0,"b":[1000,0,1,1],"c":"1e3 \" -0.0","d":1.5,"e":-12}`,
		`{"a":9223372036854775808,"b":1e400,"c":1E20}`:                        `{"a":9223372036854775808,"b":1e400,"c":100000000000000000000}`,
		"a: -0.0\nb: 1e3\n": `{"a":0,"b":1000}`,
		`-0.0`:              `0`,
		`"1e3"`:             `"1e3"`,
	} {
		got, _, err := Configuration(JSON, []byte(body))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v\nwant %s", body, got, err, want)
		}
	}
}
