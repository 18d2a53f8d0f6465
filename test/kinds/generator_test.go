package kinds_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// generator changes documents at random. The same seed makes the same of the same
// document.
type generator struct{ *rand.Rand }

func newGenerator(seed uint64) generator { return generator{rand.New(rand.NewPCG(seed, 0))} }

// load reads an object of testdata/objects. It replaces {"$template": policy} by the
// metadata and the spec of the Pod in testdata, with that restart policy. It replaces
// "$one": [...] by the members of a random element.
func (g generator) load(t *testing.T, file string, names *strings.Replacer) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(names.Replace(string(text))), &o); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	g.choose(o)
	g.fillTemplates(t, o, names)
	return o
}

// choose puts one of the members that exclude each other into each object.
func (g generator) choose(v any) {
	switch v := v.(type) {
	case map[string]any:
		if of, ok := v["$one"].([]any); ok {
			delete(v, "$one")
			for name, member := range of[g.IntN(len(of))].(map[string]any) {
				if into, ok := v[name].(map[string]any); ok {
					maps.Copy(into, member.(map[string]any))
				} else {
					v[name] = member
				}
			}
		}
		for _, name := range sorted(v) {
			g.choose(v[name])
		}
	case []any:
		for i := range v {
			g.choose(v[i])
		}
	}
}

// withSome is a status with some members of another.
func (g generator) withSome(have any, of map[string]any) map[string]any {
	o, _ := have.(map[string]any)
	if o == nil {
		o = map[string]any{}
	}
	for _, name := range sorted(of) {
		if g.IntN(3) == 0 {
			o[name] = clone(of)[name]
		}
	}
	return o
}

func (g generator) fillTemplates(t *testing.T, o map[string]any, names *strings.Replacer) {
	for _, v := range o {
		m, ok := v.(map[string]any)
		if !ok {
			continue
		}
		policy, ok := m["$template"]
		if !ok {
			g.fillTemplates(t, m, names)
			continue
		}
		delete(m, "$template")
		pod := g.load(t, "testdata/objects/pods.json", names)
		meta, spec := pod["metadata"].(map[string]any), pod["spec"].(map[string]any)
		spec["restartPolicy"] = policy
		if policy == "Always" {
			delete(spec, "activeDeadlineSeconds")
		}
		m["metadata"] = map[string]any{"labels": meta["labels"], "annotations": meta["annotations"]}
		m["spec"] = spec
	}
}

func clone(o map[string]any) (c map[string]any) {
	text, _ := json.Marshal(o)
	json.Unmarshal(text, &c)
	return c
}

func sorted(o map[string]any) []string {
	names := make([]string, 0, len(o))
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// needed are members without which little else of an object is looked at.
var needed = []string{"apiVersion", "kind", "metadata", "spec", "template", "jobTemplate", "containers", "restartPolicy", "selector", "name", "image", "schedule"}

// prune leaves out parts of a document, each with a probability. Below specs and containers, only
// whole removes parts of the parts.
func (g generator) prune(v any, p float64, whole bool) {
	switch v := v.(type) {
	case map[string]any:
		may := whole || v["spec"] != nil || v["template"] != nil || v["containers"] != nil || v["image"] != nil
		for _, name := range sorted(v) {
			first := slices.Contains(needed, name) // stays
			if may && !first && g.Float64() < p {
				delete(v, name)
				continue
			}
			if list, ok := v[name].([]any); ok && may {
				v[name] = slices.DeleteFunc(list, func(any) bool {
					out := !first && g.Float64() < p
					first = false
					return out
				})
			}
			g.prune(v[name], p, whole)
		}
	case []any:
		for i := range v {
			g.prune(v[i], p, whole)
		}
	}
}

// spot is a value in a document, and a way to set it; del is nil for an item of a list.
type spot struct {
	path  []string
	value any
	set   func(any)
	del   func()
}

func spots(v any, path []string) (all []spot) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range sorted(v) {
			at := append(slices.Clone(path), name)
			all = append(all, spot{at, v[name], func(x any) { v[name] = x }, func() { delete(v, name) }})
			all = append(all, spots(v[name], at)...)
		}
	case []any:
		for i := range v {
			at := append(slices.Clone(path), strconv.Itoa(i))
			all = append(all, spot{at, v[i], func(x any) { v[i] = x }, nil})
			all = append(all, spots(v[i], at)...)
		}
	}
	return all
}

var oddStrings = []string{
	"", "A", "a_b", "-a", "a.b", strings.Repeat("x", 64), strings.Repeat("x", 254), "/abs", "a/../b", "..x", "a b", " a", "1", "0",
	"Always", "Never", "OnFailure", "In", "True", "False", "localhost/x", "é", "a=b", "-1", "1.5", "100m", "latest", "UPPER/x:y", "a/b/c",
	"metadata.name", "limits.cpu", "None", "Localhost", "linux", "windows", "10%", "150%", "abc%", "0-1", "2024-01-01T00:00:30Z",
	"@daily", "@every 1h", "0 25 * * *", "* * * * * *", "*/0 * * * *", "5-1 * * * *", "TZ=UTC 0 0 * * *", "Europe/Berlin",
	"10.0.0.7", "fd00::1", "10.0.0.0/8", "10.0.0.1/8", "010.1.1.1", "256.1.1.1", "::ffff:1.2.3.4", "127.0.0.1", "169.254.0.1", "0.0.0.0",
	"224.0.0.1", "fe80::1", "fd00::/64", "1Gi", "-1Gi", "1m", "*.a.b", "*", "a.b.", "https://a.b/c", "http://a", "kubernetes.io/x", "a.k8s.io/y",
	"system:x", "TCP", "UDP", "Cluster", "Local", "IPv6", "PreferSameZone", "Exact", "Prefix", "Retain", "Block", "NoExecute", "Gt", "Value",
}

var oddNumbers = []float64{0, -1, 1, 2, 3, 255, 256, 512, 65535, 65536, 70000, 100000, 100001, 1<<31 - 1, -1 << 31, -5}

// differing lists members that differ as docs/compatibility.md describes, or whose change
// affects other tests.
var differing = []string{
	"privileged", "seLinuxChangePolicy", "stopSignal", "observedGeneration", "deprecated.daemonset.template.generation",
	"globalDefault", "deprecatedTopology", "nodeAllocatableResourceMappings", "expression", "messageExpression", "valueExpression",
}

// mutate changes one value that may be changed, and keeps its type.
func (g generator) mutate(o map[string]any, may func(path []string) bool) {
	all := slices.DeleteFunc(spots(o, nil), func(s spot) bool {
		return s.path[0] == "apiVersion" || s.path[0] == "kind" || slices.ContainsFunc(s.path, func(name string) bool { return slices.Contains(differing, name) }) || !may(s.path)
	})
	if len(all) == 0 {
		return
	}
	s := all[g.IntN(len(all))]
	switch v := s.value.(type) {
	case bool:
		s.set(!v)
	case string:
		s.set(append(slices.Clone(oddStrings), v+v, v+"/", v+"a", strings.ToUpper(v), strings.ToLower(v))[g.IntN(len(oddStrings)+5)])
	case float64:
		s.set(append(slices.Clone(oddNumbers), v+1, v-1)[g.IntN(len(oddNumbers)+2)])
	case []any:
		switch n := g.IntN(4); {
		case n < 2 && len(v) > 0:
			var twice any
			text, _ := json.Marshal(v[g.IntN(len(v))])
			json.Unmarshal(text, &twice)
			s.set(append(slices.Clone(v), twice))
		case n == 2 && len(v) > 0:
			i := g.IntN(len(v))
			s.set(slices.Delete(slices.Clone(v), i, i+1))
		default:
			s.set([]any{})
		}
	case map[string]any:
		names := sorted(v)
		switch n := g.IntN(4); {
		case n == 0 && s.del != nil:
			s.del()
		case n == 1 || len(names) == 0:
			s.set(map[string]any{})
		case n == 2:
			delete(v, names[g.IntN(len(names))])
		default:
			v[oddStrings[g.IntN(len(oddStrings))]] = v[names[g.IntN(len(names))]]
		}
	}
}

// graft is a value that a member can have: there it is set, where it is not, too.
type graft struct {
	// In is where the path starts: at the object of a kind, at a "template" of Pods or
	// at the spec of a "pod".
	In    string   `json:"in"`
	At    []string `json:"at"` // *: one of a list, +: a new one
	Value any      `json:"value"`
}

// loadGrafts reads testdata/grafts.jsonl.
func loadGrafts(t *testing.T) (all []graft) {
	t.Helper()
	content, err := os.ReadFile("testdata/grafts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var g graft
		if err := json.Unmarshal([]byte(line), &g); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, g)
	}
	return all
}

// graft sets one of the values that fit an object.
func (g generator) graft(o map[string]any, all []graft, may func(graft) bool) {
	kind, _ := o["kind"].(string)
	template, pod := podOf(o)
	roots := map[string]map[string]any{kind: o, "template": template, "pod": pod}
	for range 1000 {
		f := all[g.IntN(len(all))]
		if root := roots[f.In]; root != nil && may(f) {
			g.put(root, f.At, clone(map[string]any{"": f.Value})[""])
			return
		}
	}
}

// podOf returns the template and the spec of a Pod, or nil.
func podOf(o map[string]any) (template, pod map[string]any) {
	if spec, _ := o["spec"].(map[string]any); spec["containers"] != nil {
		return nil, spec
	}
	for _, name := range []string{"spec", "jobTemplate", "template"} {
		if next, ok := o[name].(map[string]any); ok {
			if spec, _ := next["spec"].(map[string]any); spec["containers"] != nil {
				return next, spec
			}
			if template, pod := podOf(next); pod != nil {
				return template, pod
			}
		}
	}
	return nil, nil
}

// put sets the value at a path, and makes the objects on the way.
func (g generator) put(in map[string]any, path []string, value any) {
	name := path[0]
	switch {
	case len(path) == 1:
		in[name] = value
	case path[1] == "+":
		list, _ := in[name].([]any)
		in[name] = append(slices.Clone(list), value)
	case path[1] == "*":
		list, _ := in[name].([]any)
		if len(list) == 0 {
			return
		}
		if item, ok := list[g.IntN(len(list))].(map[string]any); ok {
			g.put(item, path[2:], value)
		}
	default:
		next, ok := in[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			in[name] = next
		}
		g.put(next, path[1:], value)
	}
}
