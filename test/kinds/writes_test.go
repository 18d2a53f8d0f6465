package kinds_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var (
	walks = flag.Int("walks", 2, "how many objects of each kind TestWritesLikePeer takes through writes")
	steps = flag.Int("steps", 12, "how many writes of each object TestWritesLikePeer sends")
)

// TestWritesLikePeer takes objects of each kind through random writes of three managers: PUT, each kind of patch, and apply,
// of the object and of its subresources. The values come from testdata/objects, and from the objects of k8s.io/api that have
// every field. After each write, Tidemark and kube-apiserver must return the same: the object with its managed fields, but
// without times, or the error.
func TestWritesLikePeer(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		both := [2]sender{newSender(t, servers.Quick(s.Config))}
		both[1] = newSender(t, lone(t, both[0]))
		both[1].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": s.Namespace}})
		files, err := filepath.Glob("testdata/objects/*.json")
		if err != nil || len(files) == 0 {
			t.Fatalf("no objects: %v", err)
		}
		all, grafts := populated(t), loadGrafts(t)
		for _, file := range files {
			if strings.HasSuffix(file, "horizontalpodautoscalers.v1.json") { // the owners of its annotations differ
				continue
			}
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
				d := differential{both: both, g: generator{testrand.New(t)}, file: file, namespace: s.Namespace, grafts: grafts}
				d.resource, _, _ = strings.Cut(filepath.Base(file), ".")
				d.collection = d.find(t)
				w := writesWalk{differential: &d}
				o := d.load(t)
				group, version, found := strings.Cut(o["apiVersion"].(string), "/")
				if !found {
					group, version = "", group
				}
				w.typ = func() any { return builtin.Catalog().Lookup(group, version, d.resource).New() }
				w.full = all[strings.TrimPrefix(group+"."+version+"."+o["kind"].(string), ".")]
				if w.full == nil {
					t.Fatalf("k8s.io/api has no object of %s %s", o["apiVersion"], o["kind"])
				}
				for range *walks {
					w.object(t)
				}
				t.Logf("%d steps, %d of them taken", w.steps, w.taken)
			})
		}
	})
}

// populated returns the objects of k8s.io/api that have every field, by version and kind.
func populated(t *testing.T) map[string]map[string]any {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "k8s.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "testdata/HEAD/*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects in k8s.io/api: %v", err)
	}
	all := map[string]map[string]any{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var o map[string]any
		if err := json.Unmarshal(content, &o); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		version, _ := o["apiVersion"].(string)
		name := strings.ReplaceAll(version, "/", ".") + "." + fmt.Sprint(o["kind"])
		all[name] = o
	}
	all["apiregistration.k8s.io.v1.APIService"] = map[string]any{} // of another module
	return all
}

// writesWalk takes objects of one kind through writes.
type writesWalk struct {
	*differential
	full         map[string]any // an object with every field, few of them valid
	typ          func() any
	at           string
	steps, taken int
}

// object creates an object, whole or small, and takes it through writes until the servers differ.
func (w *writesWalk) object(t *testing.T) {
	base, _ := w.next(t)
	name := base["metadata"].(map[string]any)["name"].(string)
	w.at = w.collection + "/" + name
	whole := clone(w.full)
	whole["metadata"] = maps.Clone(base["metadata"].(map[string]any))
	w.g.prune(whole, []float64{0, .3, .8}[w.g.IntN(3)], true)
	if len(w.full) > 0 {
		w.compare(t, "POST", w.collection+"?fieldValidation=Strict&fieldManager=one", "application/json", func(int) string { return text(whole) })
		w.remove(t, w.at)
	}
	taken, equal := false, true
	for n := 0; !taken && equal && n < 5; n++ {
		small, _ := w.next(t)
		small["metadata"].(map[string]any)["name"] = name
		delete(small, "status")
		w.g.prune(small, []float64{0, .3, .7, 1}[w.g.IntN(4)], w.g.IntN(2) == 0)
		method, path, media := "POST", w.collection+"?", "application/json"
		if w.g.IntN(3) == 0 {
			method, path, media = "PATCH", w.at+"?force=true&", "application/apply-patch+yaml"
		}
		taken, equal = w.compare(t, method, path+"fieldManager="+w.manager(), media, func(int) string { return text(small) })
	}
	defer w.remove(t, w.at)
	for n := 0; taken && equal && n < *steps; n++ {
		equal = w.step(t, base)
	}
}

func (w *writesWalk) manager() string { return []string{"one", "two", "three"}[w.g.IntN(3)] }

// step sends one write. It reports whether both servers returned the same.
func (w *writesWalk) step(t *testing.T, base map[string]any) bool {
	var stored [2]map[string]any
	for i := range w.both {
		got := w.both[i].send(t, "GET", w.at, nil)
		if stored[i] = got.body; got.code != 200 {
			t.Fatalf("GET of %s: %v", w.at, got)
		}
	}
	part := ""
	switch n := w.g.IntN(10); {
	case base["status"] != nil && n < 3:
		part = "status"
	case w.resource == "pods" && n < 5:
		part = []string{"ephemeralcontainers", "resize"}[n-3]
	}
	path := w.at
	if part != "" {
		path += "/" + part
	}
	path += "?fieldManager=" + w.manager() + "&fieldValidation=" + []string{"Strict", "Warn", "Ignore"}[w.g.IntN(3)]
	verb := []string{"PUT", "merge", "strategic", "json", "apply", "apply"}[w.g.IntN(6)]
	if verb == "apply" && w.g.IntN(3) > 0 {
		path += "&force=true"
	}
	media := map[string]string{
		"PUT": "application/json", "merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json",
		"json": "application/json-patch+json", "apply": "application/apply-patch+yaml",
	}[verb]
	method := "PATCH"
	if verb == "PUT" {
		method = "PUT"
	}
	seed := w.g.Uint64()
	_, equal := w.compare(t, method, path, media, func(i int) string { // each with its own uid, which labels of Jobs have
		g := newGenerator(seed)
		now := clone(stored[i])
		delete(now["metadata"].(map[string]any), "managedFields")
		if slices.Contains(watched, w.resource) {
			now["status"] = clone(stored[0])["status"]
		}
		next := clone(now)
		w.change(g, next, base, part)
		return w.body(g, verb, now, next)
	})
	return equal
}

// change changes a few values of an object: to odd ones, to those of the object with every field, to those of the file.
func (w *writesWalk) change(g generator, o, base map[string]any, part string) {
	may := parts[part]
	if g.IntN(8) == 0 {
		may = func(path []string) bool { return path[0] != "metadata" || len(path) > 2 }
	}
	for range 1 + g.IntN(3) {
		switch g.IntN(5) {
		case 0:
			g.mutate(o, may)
		case 1:
			g.transplant(o, w.full, may)
		case 2:
			g.graft(o, w.grafts, func(f graft) bool {
				path := f.At
				if f.In == "pod" || f.In == "template" {
					path = append([]string{"spec"}, path...)
				}
				return may(path)
			})
		default:
			g.transplant(o, base, may)
		}
	}
}

// transplant sets a value of another object.
func (g generator) transplant(o, from map[string]any, may func(path []string) bool) {
	all := slices.DeleteFunc(spots(clone(from), nil), func(s spot) bool {
		return s.path[0] == "apiVersion" || s.path[0] == "kind" || slices.ContainsFunc(s.path, func(name string) bool { return slices.Contains(differing, name) }) || !may(s.path)
	})
	if len(all) > 0 {
		s := all[g.IntN(len(all))]
		setAt(o, s.path, s.value)
	}
}

// body is the body of a write that changes an object, or of one that is not quite right.
func (w *writesWalk) body(g generator, verb string, now, next map[string]any) string {
	switch verb {
	case "PUT":
		if g.IntN(4) == 0 {
			delete(next["metadata"].(map[string]any), "resourceVersion")
		}
		return text(next)
	case "merge":
		return text(mergePatch(now, next))
	case "strategic":
		patch := map[string]any{}
		made, err := strategicpatch.CreateTwoWayMergePatch([]byte(text(now)), []byte(text(next)), w.typ())
		if err != nil || json.Unmarshal(made, &patch) != nil {
			patch = mergePatch(now, next)
		}
		if g.IntN(4) == 0 {
			g.direct(patch)
		}
		return text(patch)
	case "json":
		return text(g.operations(now, next))
	}
	metadata := next["metadata"].(map[string]any)
	for _, own := range []string{"resourceVersion", "uid", "creationTimestamp", "generation", "deletionTimestamp", "selfLink"} {
		delete(metadata, own)
	}
	g.prune(next, []float64{0, .2, .5, .9}[g.IntN(4)], g.IntN(2) == 0)
	return text(next)
}

// mergePatch is the merge patch from one object to another.
func mergePatch(from, to map[string]any) map[string]any {
	patch := map[string]any{}
	for name, is := range to {
		was, there := from[name]
		before, isMap := was.(map[string]any)
		after, both := is.(map[string]any)
		switch {
		case isMap && both:
			if below := mergePatch(before, after); len(below) > 0 {
				patch[name] = below
			}
		case !there || !reflect.DeepEqual(was, is):
			patch[name] = is
		}
	}
	for name := range from {
		if _, there := to[name]; !there {
			patch[name] = nil
		}
	}
	return patch
}

// direct puts a directive into a strategic merge patch.
func (g generator) direct(patch map[string]any) {
	all := []map[string]any{patch}
	for _, s := range spots(patch, nil) {
		if m, ok := s.value.(map[string]any); ok && s.path[0] != "metadata" {
			all = append(all, m)
		}
	}
	into := all[1%len(all):][g.IntN(max(1, len(all)-1))]
	names := append(sorted(into), "name", "containers")
	name := names[g.IntN(len(names))]
	switch g.IntN(6) {
	case 0:
		into["$patch"] = []string{"delete", "replace", "merge", "other"}[g.IntN(4)]
	case 1:
		into["$retainKeys"] = []any{name}
	case 2:
		into["$deleteFromPrimitiveList/"+name] = []any{"a", "x"}
	case 3:
		into["$setElementOrder/"+name] = []any{map[string]any{"name": "a"}}
	case 4:
		into[name] = nil
	case 5:
		into[name] = []any{map[string]any{"$patch": []string{"delete", "replace"}[g.IntN(2)], "name": "a"}}
	}
}

// operations is a JSON patch that sets values of the second object in the first one, and moves some.
func (g generator) operations(now, next map[string]any) (all []any) {
	may := func(s spot) bool {
		return s.path[0] == "metadata" && len(s.path) < 3 || s.path[0] == "kind" || s.path[0] == "apiVersion"
	}
	from, to := slices.DeleteFunc(spots(now, nil), may), slices.DeleteFunc(spots(next, nil), may)
	at := func(path []string) string { return "/" + strings.Join(escaped(path), "/") }
	for _, name := range sorted(next) { // the changes
		if !reflect.DeepEqual(now[name], next[name]) && name != "metadata" {
			all = append(all, map[string]any{"op": "add", "path": "/" + name, "value": next[name]})
		}
	}
	if len(from) == 0 || len(to) == 0 {
		return append(all, map[string]any{"op": "test", "path": "/kind", "value": now["kind"]})
	}
	for range g.IntN(3) {
		a, b := from[g.IntN(len(from))], to[g.IntN(len(to))]
		switch g.IntN(6) {
		case 0:
			all = append(all, map[string]any{"op": "remove", "path": at(a.path)})
		case 1:
			all = append(all, map[string]any{"op": "replace", "path": at(b.path), "value": b.value})
		case 2:
			all = append(all, map[string]any{"op": []string{"copy", "move"}[g.IntN(2)], "from": at(a.path), "path": at(b.path)})
		case 3:
			all = append(all, map[string]any{"op": "test", "path": at(a.path), "value": b.value})
		default:
			all = append(all, map[string]any{"op": "add", "path": at(b.path), "value": b.value})
		}
	}
	if all == nil {
		all = []any{}
	}
	return all
}

// compare sends a write to both servers. It reports whether both accepted it, and whether they returned the same.
func (w *writesWalk) compare(t *testing.T, method, path, media string, body func(i int) string) (taken, equal bool) {
	t.Helper()
	w.steps++
	var got [2]response
	var before [2]any
	var sent sync.WaitGroup
	for i := range got {
		sent.Go(func() {
			if method != "POST" {
				before[i] = version(w.both[i].send(t, "GET", w.at, nil))
			}
			got[i] = w.both[i].sendText(t, method, path, media, body(i))
		})
	}
	sent.Wait()
	if got[0].code == 0 || deviations.MatchString(text(got[0].body)) || got[0].code == 409 && slices.Contains(watched, w.resource) || got[0].code == 500 && got[1].code >= 400 && got[1].code < 500 {
		return false, got[1].code >= 400
	}
	if untyped(got[0]) && got[1].code == 200 && version(got[1]) == before[1] {
		return false, false // docs/compatibility.md#s5
	}
	for i := range got {
		got[i].body = withoutEcho(got[i].body)
	}
	if strict(got[0]) != "" && strict(got[0]) == strict(got[1]) {
		return false, true // docs/compatibility.md#f4
	}
	found := differences("", w.plain(got[0]), w.plain(got[1]), nil)
	found = w.unlessRandom(found, got[0], got[1], func() response {
		again := w.both[0].sendText(t, method, path, media, body(0))
		again.body = withoutEcho(again.body)
		return again
	})
	if lost(got, found) {
		return true, false // docs/compatibility.md#g7
	}
	if w.uncounted(got, found, body(0)) {
		return true, false
	}
	// kube-apiserver writes some versions of the same content: docs/compatibility.md#g3.
	if got[0].code == 200 && got[1].code == 200 && version(got[0]) == before[0] && version(got[1]) != before[1] {
		found = append(found, "  kube-apiserver keeps the version")
	}
	if got[0].code != got[1].code {
		found = []string{fmt.Sprintf("  at .code\n    kube-apiserver %d %.1000s\n    Tidemark       %d %.1000s", got[0].code, text(got[0].body["message"]), got[1].code, text(got[1].body["message"]))}
	}
	if len(found) > 0 {
		stored := w.both[1].send(t, "GET", w.at, nil)
		t.Errorf("%s %s %s %s\nof %s:\n%s", method, path, media, body(1), text(stored.body), strings.Join(found, "\n"))
	}
	if taken = got[0].code < 300 && got[1].code < 300; taken {
		w.taken++
	}
	return taken, len(found) == 0
}

// untyped reports whether kube-apiserver refuses any apply to an object with a list whose elements lack their keys. Tidemark
// refuses one that changes the object.
func untyped(a response) bool {
	message, _ := a.body["message"].(string)
	return a.code == 500 && strings.HasPrefix(message, "failed to create typed live object") && strings.Contains(message, "omits all key fields")
}

// lost reports whether responses differ only in that kube-apiserver has removed all managed fields.
func lost(got [2]response, found []string) bool {
	metadata, ok := got[0].body["metadata"].(map[string]any)
	return ok && got[1].code < 300 && metadata["managedFields"] == nil && len(found) == 1 && strings.Contains(found[0], "at .body.metadata.managedFields\n")
}

// strict is the part of a message that names unknown fields.
func strict(a response) string {
	message, _ := a.body["message"].(string)
	if _, after, ok := strings.Cut(message, "strict decoding error: "); ok && a.code >= 400 {
		return after
	}
	return ""
}

// version is the resource version of an object.
func version(a response) any {
	metadata, _ := a.body["metadata"].(map[string]any)
	return metadata["resourceVersion"]
}
