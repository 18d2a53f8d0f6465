package apply

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

func builtin(t testing.TB, group, version, kind string, empty runtime.Object) *Schema {
	t.Helper()
	s, err := Builtin(schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, empty)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// custom is a kind whose schema has each type of list.
func custom(t testing.TB) *Schema {
	t.Helper()
	var shown spec.Schema
	if err := json.Unmarshal([]byte(`{"type":"object","properties":{
		"metadata":{"type":"object"},
		"spec":{"type":"object","properties":{
			"hosts":{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set"},
			"numbers":{"type":"array","items":{"type":"integer"},"x-kubernetes-list-type":"set"},
			"ports":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["protocol","port"],
				"items":{"type":"object","properties":{"port":{"type":"integer"},"protocol":{"type":"string","default":"TCP"},"name":{"type":"string"}}}},
			"steps":{"type":"array","items":{"type":"object","properties":{"run":{"type":"string"}}}},
			"one":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"a":{"type":"string"}}},
			"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}}}`), &shown); err != nil {
		t.Fatal(err)
	}
	s, err := FromOpenAPI(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}, &shown, false)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// lines prints fields, one a line.
func lines(fields []Field) string {
	var b strings.Builder
	for _, f := range fields {
		from, to := string(f.From), string(f.To)
		switch {
		case f.From == nil:
			fmt.Fprintf(&b, "+ %s %s\n", f.Path, to)
		case f.To == nil:
			fmt.Fprintf(&b, "- %s %s\n", f.Path, from)
		default:
			fmt.Fprintf(&b, "~ %s %s -> %s\n", f.Path, from, to)
		}
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	deployments := builtin(t, "apps", "v1", "Deployment", &appsv1.Deployment{})
	pods := builtin(t, "", "v1", "Pod", &corev1.Pod{})
	services := builtin(t, "", "v1", "Service", &corev1.Service{})
	widgets := custom(t)
	for _, c := range []struct {
		name          string
		s             *Schema
		before, after string // empty: there is none
		want          string
	}{
		{"a number", deployments, `{"spec":{"replicas":3}}`, `{"spec":{"replicas":5}}`, `~ spec.replicas 3 -> 5`},
		{"the same in another form", deployments, `{"spec":{"replicas":3,"paused":true}}`, `{"spec": {"paused": true, "replicas": 3}}`, ``},
		{"the image of a container by name", deployments,
			`{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"i"},{"name":"app","image":"v1"}]}}}}`,
			`{"spec":{"template":{"spec":{"containers":[{"name":"app","image":"v2"},{"name":"a","image":"i"}]}}}}`,
			`~ spec.template.spec.containers[name=app].image "v1" -> "v2"`},
		{"an added and a removed container", pods,
			`{"spec":{"containers":[{"name":"a"},{"name":"b","image":"i"}]}}`, `{"spec":{"containers":[{"name":"a"},{"name":"c","image":"j"}]}}`,
			"+ spec.containers[name=c] {\"name\":\"c\",\"image\":\"j\"}\n- spec.containers[name=b] {\"name\":\"b\",\"image\":\"i\"}"},
		{"the order alone", pods, `{"spec":{"initContainers":[{"name":"a"},{"name":"b"}]}}`, `{"spec":{"initContainers":[{"name":"b"},{"name":"a"}]}}`,
			`~ spec.initContainers [{"name":"a"},{"name":"b"}] -> [{"name":"b"},{"name":"a"}]`},
		{"two keys, one of them by default", services, `{"spec":{"ports":[{"port":80,"targetPort":1}]}}`, `{"spec":{"ports":[{"port":80,"protocol":"TCP","targetPort":2}]}}`,
			"+ spec.ports[port=80,protocol=TCP].protocol \"TCP\"\n~ spec.ports[port=80,protocol=TCP].targetPort 1 -> 2"},
		{"keys in the schema's order", widgets, `{"spec":{"ports":[{"port":80,"name":"a"}]}}`, `{"spec":{"ports":[{"port":80,"name":"b"}]}}`,
			`~ spec.ports[protocol=TCP,port=80].name "a" -> "b"`},
		{"labels", pods, `{"metadata":{"labels":{"a.b/c":"1","plain":"2"}}}`, `{"metadata":{"labels":{"a.b/c":"3"}}}`,
			"~ metadata.labels[\"a.b/c\"] \"1\" -> \"3\"\n- metadata.labels.plain \"2\""},
		{"the first label", pods, `{"metadata":{"name":"x"}}`, `{"metadata":{"name":"x","labels":{"a":"1","b":"2"}}}`, "+ metadata.labels.a \"1\"\n+ metadata.labels.b \"2\""},
		{"an empty map", pods, `{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}`, `{"spec":{"volumes":[{"name":"v","emptyDir":{"medium":"Memory"}}]}}`, `+ spec.volumes[name=v].emptyDir.medium "Memory"`},
		{"a set", widgets, `{"spec":{"hosts":["a","b"],"numbers":[1,2]}}`, `{"spec":{"hosts":["b","c\"]"],"numbers":[2]}}`,
			"+ spec.hosts[=\"c\\\"]\"] \"c\\\"]\"\n- spec.hosts[=\"a\"] \"a\"\n- spec.numbers[=1] 1"},
		{"an atomic list", widgets, `{"spec":{"steps":[{"run":"a"}]}}`, `{"spec":{"steps":[{"run":"a"},{"run":"b"}]}}`, `~ spec.steps [{"run":"a"}] -> [{"run":"a"},{"run":"b"}]`},
		{"an atomic map", widgets, `{"spec":{"one":{"a":"1"}}}`, `{"spec":{"one":{"a":"2"}}}`, `~ spec.one {"a":"1"} -> {"a":"2"}`},
		{"a value without a schema", widgets, `{"spec":{"any":{"deep":{"list":[1],"x":1}}}}`, `{"spec":{"any":{"deep":{"list":[1,2],"x":1}}}}`, `~ spec.any.deep.list [1] -> [1,2]`},
		{"a member that the schema does not have", pods, `{"spec":{"later":{"a":1}}}`, `{"spec":{"later":{"a":2}}}`, `~ spec.later.a 1 -> 2`},
		{"another type than the schema's", pods, `{"spec":{"containers":{"a":1}}}`, `{"spec":{"containers":[{"name":"a"}]}}`, `~ spec.containers {"a":1} -> [{"name":"a"}]`},
		{"keys that are not unique", pods, `{"spec":{"containers":[{"name":"a"},{"name":"a","image":"i"}]}}`, `{"spec":{"containers":[{"name":"a"}]}}`,
			`~ spec.containers [{"name":"a"},{"name":"a","image":"i"}] -> [{"name":"a"}]`},
		{"elements without a key", pods, `{"spec":{"containers":[{"name":null,"image":"i"}]}}`, `{"spec":{"containers":[{"name":null}]}}`, `~ spec.containers [{"name":null,"image":"i"}] -> [{"name":null}]`},
		{"keys with quotes", pods, `{"spec":{"containers":[{"name":"1","image":"i"},{"name":"a b","image":"i"}]}}`, `{"spec":{"containers":[{"name":"1","image":"j"},{"name":"a b","image":"j"}]}}`,
			"~ spec.containers[name=\"1\"].image \"i\" -> \"j\"\n~ spec.containers[name=\"a b\"].image \"i\" -> \"j\""},
		{"an IP address", pods, `{"status":{"podIPs":[{"ip":"10.0.0.1"}]}}`, `{"status":{"podIPs":[{"ip":"10.0.0.2"}]}}`,
			"+ status.podIPs[ip=10.0.0.2] {\"ip\":\"10.0.0.2\"}\n- status.podIPs[ip=10.0.0.1] {\"ip\":\"10.0.0.1\"}"},
		{"created", services, ``, `{"kind":"Service","metadata":{"name":"x","resourceVersion":"1","generation":1,"managedFields":[{}]},"spec":{"ports":[{"port":80,"protocol":"TCP"}],"selector":{"a":"b"}}}`,
			"+ kind \"Service\"\n+ metadata.name \"x\"\n+ spec.ports[port=80,protocol=TCP].port 80\n+ spec.ports[port=80,protocol=TCP].protocol \"TCP\"\n+ spec.selector {\"a\":\"b\"}"},
		{"deleted", pods, `{"metadata":{"name":"x","labels":{"a":"1"}}}`, ``, "- metadata.name \"x\"\n- metadata.labels.a \"1\""},
		{"versions", pods, `{"metadata":{"resourceVersion":"1","generation":1,"managedFields":[]}}`, `{"metadata":{"resourceVersion":"2","generation":2}}`, ``},
		{"null", widgets, `{"spec":{"any":{"a":null}}}`, `{"spec":{"any":{"a":1,"b":null}}}`, "~ spec.any.a null -> 1\n+ spec.any.b null"},
		{"no JSON", pods, `{`, `{}`, `~  { -> {}`},
	} {
		var before, after []byte
		if c.before != "" {
			before = []byte(c.before)
		}
		if c.after != "" {
			after = []byte(c.after)
		}
		if got := strings.TrimSuffix(lines(c.s.Diff(before, after, DiffOptions{})), "\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.name, got, c.want)
		}
	}
	all := pods.Diff([]byte(`{"metadata":{"generation":1}}`), []byte(`{"metadata":{"generation":2}}`), DiffOptions{All: true})
	if got := lines(all); got != "~ metadata.generation 1 -> 2\n" {
		t.Errorf("all fields: %s", got)
	}
}

// TestDiffLimit checks that a value with too many fields becomes one, and that the others keep their fields.
func TestDiffLimit(t *testing.T) {
	maps := builtin(t, "", "v1", "ConfigMap", &corev1.ConfigMap{})
	object := func(n int, value, name string) []byte {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":"%s"`, i, value)
		}
		return []byte(`{"kind":"ConfigMap","metadata":{"labels":{"a":"` + value + `","b":"` + value + `"}},"data":{` + strings.TrimPrefix(b.String(), ",") + `},"immutable":` + name + `}`)
	}
	for _, c := range []struct {
		n, limit int
		want     string
	}{
		{3, 10, "metadata.labels.a metadata.labels.b data.k0 data.k1 data.k2 immutable"},
		{20, 10, "metadata.labels.a metadata.labels.b data immutable"},
		{3, 1, "metadata.labels data immutable"},
	} {
		var paths []string
		for _, f := range maps.Diff(object(c.n, "x", "true"), object(c.n, "y", "false"), DiffOptions{Limit: c.limit}) {
			paths = append(paths, f.Path)
		}
		if got := strings.Join(paths, " "); got != c.want {
			t.Errorf("%d members, at most %d fields: %s, want %s", c.n, c.limit, got, c.want)
		}
	}
	if got := maps.Diff(nil, object(100_000, "x", "true"), DiffOptions{}); len(got) != 5 {
		t.Errorf("a large object has %d fields", len(got))
	}
	long := maps.Diff(nil, []byte(`{"data":{"`+strings.Repeat("x", maxDiffPath+1)+`":"v"}}`), DiffOptions{})
	if len(long) != 1 || long[0].Path != "data" {
		t.Errorf("a long key: %.200s", lines(long))
	}
}

// TestDiffPaths: the paths of many small fields, deep in an object, take a bounded multiple of its size. A value whose paths
// would take more is one field.
func TestDiffPaths(t *testing.T) {
	var leaves strings.Builder
	for i := range 400 {
		fmt.Fprintf(&leaves, `,"k%d":0`, i)
	}
	object := `{` + leaves.String()[1:] + `}`
	for range 10 {
		object = `{"` + strings.Repeat("d", 500) + `":` + object + `}`
	}
	object = `{"spec":{"any":` + object + `},"other":1}`
	bytes := 0
	fields := custom(t).Diff(nil, []byte(object), DiffOptions{})
	for _, f := range fields {
		bytes += len(f.Path)
	}
	if bytes > 64<<10+16*len(object) {
		t.Errorf("paths of %d bytes for an object of %d", bytes, len(object))
	}
	if n := len(fields); n == 0 || fields[n-1].Path != "other" {
		t.Errorf("%d fields: %.300s", n, lines(fields))
	}
}

func TestEmbedded(t *testing.T) {
	for kind, want := range map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "Pod"}:                                                     true,
		{Group: "apps", Version: "v1", Kind: "Deployment"}:                               true,
		{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "ClusterRole"}:         true,
		{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}: true,
		{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"}:             true,
		{Group: "apps.example.com", Version: "v1", Kind: "Deployment"}:                   false,
		{Group: "apps", Version: "v1", Kind: "Nothing"}:                                  false,
	} {
		if s := Embedded(kind); (s != nil) != want {
			t.Errorf("%v: %v", kind, s)
		}
	}
	fields := Embedded(schema.GroupVersionKind{Version: "v1", Kind: "Pod"}).Diff([]byte(`{"spec":{"containers":[{"name":"a","image":"i"}]}}`), []byte(`{"spec":{"containers":[{"name":"a","image":"j"}]}}`), DiffOptions{})
	if got := lines(fields); got != "~ spec.containers[name=a].image \"i\" -> \"j\"\n" {
		t.Error(got)
	}
}

func FuzzDiff(f *testing.F) {
	f.Add([]byte(`{"spec":{"ports":[{"port":80,"name":"a"}],"hosts":["a"]}}`), []byte(`{"spec":{"ports":[{"port":81}],"hosts":["b","a"]}}`))
	f.Add([]byte(`{"metadata":{"labels":{"a":"1"}},"spec":{"any":{"a":[1,{}]},"steps":[{}]}}`), []byte(`{"metadata":{"labels":{}},"spec":{"any":{"a":null},"one":{}}}`))
	f.Add([]byte(`{"a":1,"a":2}`), []byte(`{"a":2,"a":1,"spec":[]}`))
	s := custom(f)
	f.Fuzz(func(t *testing.T, before, after []byte) {
		there := s.Diff(before, after, DiffOptions{All: true, Limit: 20})
		if len(there) > 20+diffSlack {
			t.Errorf("%d fields", len(there))
		}
		if json.Valid(before) && json.Valid(after) && bytes.HasPrefix(before, []byte("{")) && bytes.HasPrefix(after, []byte("{")) {
			for _, c := range there {
				if c.From != nil && !json.Valid(c.From) || c.To != nil && !json.Valid(c.To) || c.From == nil && c.To == nil {
					t.Errorf("%s %q -> %q", c.Path, c.From, c.To)
				}
			}
		}
		if len(s.Diff(after, before, DiffOptions{All: true, Limit: 20})) == 0 && len(there) > 0 && !repeats(before) && !repeats(after) {
			t.Errorf("no difference back: %s", lines(there))
		}
		s.Diff(nil, after, DiffOptions{})
		s.Diff(before, nil, DiffOptions{})
	})
}

// repeats reports whether an object may have a member twice.
func repeats(text []byte) bool {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return true
	}
	short, err := json.Marshal(v)
	return err != nil || bytes.Count(short, []byte(`":`)) != bytes.Count(text, []byte(`":`))
}

func BenchmarkDiff(b *testing.B) {
	pods := builtin(b, "", "v1", "Pod", &corev1.Pod{})
	var managed strings.Builder
	for i := range 3 {
		fmt.Fprintf(&managed, `,{"manager":"m%d","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:spec":{"f:containers":{"k:{\"name\":\"app\"}":{".":{},"f:image":{},"f:name":{},"f:resources":{}}}}}}`, i)
	}
	pod := func(image, ready string) []byte {
		var c strings.Builder
		for i := range 4 {
			fmt.Fprintf(&c, `,{"name":"c%d","image":"%s","args":["--a","--b"],"ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"100Mi"}},"volumeMounts":[{"name":"v","mountPath":"/v"}],"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}`, i, image)
		}
		return []byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"default","uid":"u","resourceVersion":"1","managedFields":[` + managed.String()[1:] + `]},"spec":{"containers":[` + c.String()[1:] + `],"restartPolicy":"Always","nodeName":"n"},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"` + ready + `","lastTransitionTime":"2026-01-01T00:00:00Z"},{"type":"PodScheduled","status":"True"}]}}`)
	}
	old, next := pod("v1", "False"), pod("v1", "True")
	b.SetBytes(int64(len(old)))
	b.ReportAllocs()
	for b.Loop() {
		if len(pods.Diff(old, next, DiffOptions{})) != 1 {
			b.Fatal("fields")
		}
	}
}
