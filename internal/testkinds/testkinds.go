// Package testkinds gives tests an object of every built-in kind that can be created,
// the lists and maps of these kinds, and a measure of how cost grows with their length.
package testkinds

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Objects reads all objects of a directory of templates, with the name in the place of
// each {name}, each with its kind. Of parts that exclude each other one stands, by chance.
func Objects(t testing.TB, dir, name string, chance *rand.Rand) []map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil || len(files) < 50 {
		t.Fatalf("%d templates in %s: %v", len(files), dir, err)
	}
	l := loader{t, dir, strings.NewReplacer("{name}", name, "{ns}", "default", "{n}", "7", "{c}", "c"), chance}
	var all []map[string]any
	for _, file := range files {
		all = append(all, l.load(filepath.Base(file)))
	}
	return all
}

type loader struct {
	t      testing.TB
	dir    string
	names  *strings.Replacer
	chance *rand.Rand
}

func (l loader) load(file string) map[string]any {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join(l.dir, file))
	if err != nil {
		l.t.Fatal(err)
	}
	var o map[string]any
	if err := json.Unmarshal([]byte(l.names.Replace(string(text))), &o); err != nil {
		l.t.Fatalf("%s: %v", file, err)
	}
	l.complete(o)
	return o
}

// complete replaces {"$one": [...]} by one of its parts, and {"$template": policy} by
// the metadata and the spec of a Pod with that restart policy.
func (l loader) complete(v any) {
	switch v := v.(type) {
	case map[string]any:
		if parts, ok := v["$one"].([]any); ok {
			delete(v, "$one")
			for name, part := range parts[l.chance.IntN(len(parts))].(map[string]any) {
				if into, ok := v[name].(map[string]any); ok {
					maps.Copy(into, part.(map[string]any))
				} else {
					v[name] = part
				}
			}
		}
		if policy, ok := v["$template"]; ok {
			delete(v, "$template")
			l.fill(v, policy)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			l.complete(v[name])
		}
	case []any:
		for _, e := range v {
			l.complete(e)
		}
	}
}

func (l loader) fill(template map[string]any, policy any) {
	pod := l.load("pods.json")
	meta, spec := pod["metadata"].(map[string]any), pod["spec"].(map[string]any)
	spec["restartPolicy"] = policy
	if policy == "Always" {
		delete(spec, "activeDeadlineSeconds")
	}
	template["metadata"] = map[string]any{"labels": meta["labels"], "annotations": meta["annotations"]}
	template["spec"] = spec
}
