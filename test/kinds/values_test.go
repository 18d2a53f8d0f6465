package kinds_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var values = flag.Int("values", 8, "how many values of each kind TestValuesLikePeer tries with each verb; 0: all of them")

var atPlace = flag.String("at", "", "a regular expression: TestValuesLikePeer tries values only at places that match, such as ^metadata")

// TestValuesLikePeer puts values that say little into each field of each kind, and numbers in unusual texts: zeros, empty
// objects, empty lists, null. It creates an object with the value, and sets it in a stored one by each verb. Tidemark and
// kube-apiserver must return and store the same.
func TestValuesLikePeer(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		both := [2]sender{newSender(t, servers.Quick(s.Config))}
		both[1] = newSender(t, lone(t, both[0]))
		both[1].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": s.Namespace}})
		files, err := filepath.Glob("testdata/objects/*.json")
		if err != nil || len(files) == 0 {
			t.Fatalf("no objects: %v", err)
		}
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
				d := differential{both: both, g: generator{testrand.New(t)}, file: file, namespace: s.Namespace}
				d.resource, _, _ = strings.Cut(filepath.Base(file), ".")
				d.collection = d.find(t)
				// Through version 1, kube-apiserver gives the writer of a status annotations that stand for the specification.
				w := valueWalk{differential: &d, status: d.load(t)["status"] != nil && !strings.HasSuffix(file, "horizontalpodautoscalers.v1.json")}
				w.run(t)
				t.Logf("%d requests, %d of them accepted", w.requests, w.accepted)
			})
		}
	})
}

// valueWalk tries values in one kind.
type valueWalk struct {
	*differential
	status             bool           // the kind has that subresource
	stored             map[string]any // an object that is stored, as sent
	at                 string         // its path
	requests, accepted int
}

// trial is a text to put at a place of an object.
type trial struct {
	path []string
	text string
}

func (w *valueWalk) run(t *testing.T) {
	base := w.load(t)
	group, version, found := strings.Cut(base["apiVersion"].(string), "/")
	if !found {
		group, version = "", group
	}
	typ := builtin.Catalog().Lookup(group, version, w.resource)
	if typ == nil {
		t.Fatalf("there is no %s in %s/%s", w.resource, group, version)
	}
	var trials []trial
	for _, p := range places(reflect.TypeOf(typ.New()), nil, nil) {
		for _, text := range texts(p.typ) {
			trials = append(trials, trial{p.path, text})
		}
	}
	only := regexp.MustCompile(*atPlace)
	trials = slices.DeleteFunc(trials, func(v trial) bool {
		return v.path[0] == "status" && slices.Contains(watched, w.resource) || !only.MatchString(strings.Join(v.path, ".")) || v.path[0] == "status" && !w.status || slices.ContainsFunc(v.path, func(name string) bool { return slices.Contains(differing, name) })
	})
	w.g.Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })
	if *values > 0 {
		trials = trials[:min(len(trials), *values)]
	}
	w.store(t)
	defer w.remove(t, w.at)
	for _, v := range trials {
		w.try(t, v)
	}
}

// store stores an object on both servers. Not every one of the file is valid.
func (w *valueWalk) store(t *testing.T) {
	for range 100 {
		w.stored, w.at = w.next(t)
		delete(w.stored, "status") // a new object owns parts of the status of version 1 of an autoscaler
		taken, equal := w.same(t, "create", "POST", w.collection, func(int) map[string]any { return w.stored })
		if taken && equal {
			return
		}
		w.remove(t, w.at)
	}
	t.Fatal("no object of the file is valid")
}

// try sends one value by each verb: stored by POST, as dry runs by the others.
func (w *valueWalk) try(t *testing.T, v trial) {
	if v.path[0] != "status" {
		o, at := w.next(t)
		delete(o, "status")
		equal, taken := w.compare(t, v, "POST", "POST", w.collection, "application/json", withText(o, v))
		if taken && equal {
			w.compare(t, v, "GET", "GET", at, "", "")
		}
		if taken || !equal {
			w.remove(t, at)
		}
	}
	path := w.at
	if v.path[0] == "status" {
		path += "/status"
	}
	for _, verb := range []string{"PUT", "merge", "strategic", "json", "apply"} {
		method, media, body := w.request(verb, w.stored, v)
		w.compare(t, v, verb, method, path+"?dryRun=All", media, body)
	}
}

// next is another object of the kind, and its path.
func (d *differential) next(t *testing.T) (o map[string]any, at string) {
	o = d.load(t)
	if d.resource == "endpointslices" { // its updates count generations otherwise
		for _, e := range o["endpoints"].([]any) {
			delete(e.(map[string]any), "deprecatedTopology")
		}
	}
	return o, d.collection + "/" + o["metadata"].(map[string]any)["name"].(string)
}

// request is the request of a verb that sets a value in an object.
func (w *valueWalk) request(verb string, o map[string]any, v trial) (method, media, body string) {
	whole := withText(o, v)
	switch verb {
	case "PUT":
		return "PUT", "application/json", whole
	case "apply":
		return "PATCH", "application/apply-patch+yaml", whole
	case "json":
		var parts []string
		at := any(o)
		for i, name := range v.path { // the parents that are not there
			next := child(at, name)
			if i == len(v.path)-1 {
				parts = append(parts, fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, "/"+strings.Join(escaped(v.path), "/"), v.text))
				break
			}
			if next == nil {
				parts = append(parts, fmt.Sprintf(`{"op":"add","path":%q,"value":%s}`, "/"+strings.Join(escaped(v.path[:i+1]), "/"), text(emptyFor(v.path[i+1]))))
			}
			at = next
		}
		return "PATCH", "application/json-patch+json", "[" + strings.Join(parts, ",") + "]"
	}
	media = "application/merge-patch+json"
	if verb == "strategic" {
		media = "application/strategic-merge-patch+json"
	}
	return "PATCH", media, part(o, v)
}

func escaped(path []string) (out []string) {
	for _, name := range path {
		out = append(out, strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return out
}

func child(v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		return v[name]
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// emptyFor is an empty value with a member of a name.
func emptyFor(name string) any {
	if _, err := strconv.Atoi(name); err == nil {
		return []any{}
	}
	return map[string]any{}
}

const mark = "\x01value\x01"

// withText is the JSON of an object with a text at a place.
func withText(o map[string]any, v trial) string {
	o = clone(o)
	setAt(o, v.path, mark)
	return strings.ReplaceAll(text(o), text(mark), v.text)
}

// part is a merge patch that sets a value in an object: members down to the first list, which is whole.
func part(o map[string]any, v trial) string {
	o = clone(o)
	setAt(o, v.path, mark)
	var cut func(at any, path []string) any
	cut = func(at any, path []string) any {
		m, ok := at.(map[string]any)
		if !ok || len(path) == 0 {
			return at
		}
		return map[string]any{path[0]: cut(m[path[0]], path[1:])}
	}
	return strings.ReplaceAll(text(cut(o, v.path)), text(mark), v.text)
}

// setAt sets a value, and makes its parents.
func setAt(v any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	if i, err := strconv.Atoi(path[0]); err == nil {
		list, _ := v.([]any)
		list = slices.Clone(list)
		if i >= len(list) {
			list = append(list, nil)
			i = len(list) - 1
		}
		list[i] = setAt(list[i], path[1:], value)
		return list
	}
	m, ok := v.(map[string]any)
	if !ok {
		m = map[string]any{}
	}
	m[path[0]] = setAt(m[path[0]], path[1:], value)
	return m
}

// compare sends a request to both servers. It reports whether they returned the same, and whether they accepted it.
func (w *valueWalk) compare(t *testing.T, v trial, verb, method, path, media, body string) (equal, taken bool) {
	t.Helper()
	w.requests++
	query := "?"
	if strings.Contains(path, "?") {
		query = "&"
	}
	query += "fieldValidation=Warn"
	if strings.HasPrefix(media, "application/apply") {
		query += "&fieldManager=walk&force=true"
	}
	var got [2]response
	both := func() {
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = w.both[i].sendText(t, method, path+query, media, body) })
		}
		all.Wait()
	}
	both()
	for i := range got {
		got[i].body = withoutEcho(got[i].body)
	}
	if got[0].code == 0 || deviations.MatchString(text(got[0].body)) || differs(got, method, media, v) {
		return true, got[1].code < 300
	}
	found := differences("", w.plain(got[0]), w.plain(got[1]), nil)
	for try := 0; len(found) > 0 && got[0].code >= 400 && try < 20 && len(differences("", w.unordered(got[0]), w.unordered(got[1]), nil)) == 0; try++ {
		got[0] = w.both[0].sendText(t, method, path+query, media, body)
		got[0].body = withoutEcho(got[0].body)
		found = differences("", w.plain(got[0]), w.plain(got[1]), nil)
	}
	if got[0].code != got[1].code {
		found = []string{fmt.Sprintf("  at .code\n    kube-apiserver %d %.1000s\n    Tidemark       %d %.1000s", got[0].code, text(got[0].body["message"]), got[1].code, text(got[1].body["message"]))}
	}
	if w.uncounted(got, found, body) {
		return false, true
	}
	if len(found) > 0 {
		t.Errorf("%s of %s = %s:\n%s", verb, strings.Join(v.path, "."), v.text, strings.Join(found, "\n"))
	}
	if got[0].code < 300 {
		w.accepted++
	}
	return len(found) == 0, got[0].code < 300 || got[1].code < 300
}

// differs reports whether responses may differ, by G9 and S5 of docs/compatibility.md: Tidemark refuses mistakes of the
// client for which kube-apiserver returns 500, and large numbers, which kube-apiserver truncates or rounds in an apply
// and in a strategic merge patch. It has limits for quantities.
func differs(got [2]response, method, media string, v trial) bool {
	if got[1].code == 400 && strings.Contains(text(got[1].body), "a quantity must have at most") {
		return true // limits.md
	}
	if got[0].code < 300 && got[1].code == 422 && strings.Contains(text(got[1].body), "provided port is not in the valid range") {
		return true // a dry-run: R1 of compatibility.md
	}
	if method != "PATCH" || !strings.HasPrefix(media, "application/apply") && !strings.HasPrefix(media, "application/strategic") {
		return false
	}
	n, err := strconv.ParseFloat(v.text, 64)
	large := err != nil && n != 0 || math.Abs(n) > math.MaxInt32
	return large || got[0].code == 500 && got[1].code >= 400 && got[1].code < 500
}

// echo is the whole object in the message of a refused patch.
var echo = regexp.MustCompile(`Invalid value: \\"\{.*\}\\": `)

// withoutEcho is a body without the objects in its messages.
func withoutEcho(body map[string]any) map[string]any {
	out := map[string]any{}
	for name, v := range body {
		if out[name] = v; name == "message" || name == "details" {
			var short any
			if err := json.Unmarshal(echo.ReplaceAll([]byte(text(v)), nil), &short); err == nil {
				out[name] = short
			}
		}
	}
	return out
}

// sendText sends a body as it is.
func (s sender) sendText(t *testing.T, method, path, media, body string) response {
	t.Helper()
	return s.do(t, method, path, media, strings.NewReader(body))
}

// place is a field of a type, or an element of a list or map.
type place struct {
	path []string
	typ  reflect.Type
}

var leaves = []reflect.Type{
	reflect.TypeFor[resource.Quantity](), reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime](),
	reflect.TypeFor[metav1.Duration](), reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[metav1.FieldsV1](),
}

// places are the places of a type, with each type once on a path.
func places(typ reflect.Type, path []string, on []reflect.Type) (all []place) {
	bare := typ
	for bare.Kind() == reflect.Pointer {
		bare = bare.Elem()
	}
	if len(path) > 0 {
		all = append(all, place{path, typ})
	}
	if slices.Contains(leaves, bare) || slices.Contains(on, bare) {
		return all
	}
	below := func(name string, t reflect.Type) []place {
		return places(t, append(slices.Clone(path), name), append(slices.Clone(on), bare))
	}
	switch bare.Kind() {
	case reflect.Struct:
		for i := range bare.NumField() {
			f := bare.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Name == "TypeMeta", f.Name == "ManagedFields", name == "-", len(path) == 1 && path[0] == "metadata" && slices.Contains([]string{"Name", "Namespace", "ResourceVersion", "UID", "GenerateName"}, f.Name):
			case name == "" && f.Anonymous:
				for _, p := range places(f.Type, path, on) {
					if len(p.path) > len(path) {
						all = append(all, p)
					}
				}
			case name != "":
				all = append(all, below(name, f.Type)...)
			}
		}
	case reflect.Slice:
		if bare.Elem().Kind() != reflect.Uint8 {
			all = append(all, below("0", bare.Elem())...)
		}
	case reflect.Map:
		all = append(all, below("k", bare.Elem())...)
	}
	return all
}

// numbers are texts of numbers.
var numbers = []string{"-0", "-0.0", "0.0", "1e0", "1.0", "1.5", "1e3", "1E+2", "1e400", "01", "+1", ".5", "1.", "2147483648", "-2147483649", "9223372036854775807", "9223372036854775808", "1e18", "1e19", `"1"`, `""`, "true", "NaN"}

// texts are the texts to try in a field of a type.
func texts(typ reflect.Type) []string {
	bare := typ
	for bare.Kind() == reflect.Pointer {
		bare = bare.Elem()
	}
	switch bare {
	case leaves[0]:
		return append([]string{"null", "0", `"0"`, "{}"}, numbers...)
	case leaves[1]:
		return append([]string{"null", "0", `"0"`, `"0%"`, "{}"}, numbers...)
	case leaves[2], leaves[3], leaves[4]:
		return []string{"null", `""`, "0", `"0001-01-01T00:00:00Z"`, `"0001-01-01T00:00:00.000000Z"`, `"0s"`}
	case leaves[5], leaves[6]:
		return []string{"null", "{}", `""`, "[]", "0", `{"a":-0.0,"b":1e3,"c":1.0}`}
	}
	switch bare.Kind() {
	case reflect.Bool:
		return []string{"null", "false", "true", "0", `"false"`}
	case reflect.Int32, reflect.Int64, reflect.Int, reflect.Uint8, reflect.Float64:
		return append([]string{"null", "0"}, numbers...)
	case reflect.String:
		return []string{"null", `""`, "0", "1000"}
	case reflect.Slice:
		if bare.Elem().Kind() == reflect.Uint8 {
			return []string{"null", `""`, "[]", `"="`}
		}
		return []string{"null", "[]", "[null]", "{}"}
	case reflect.Map:
		return []string{"null", "{}", `{"k":null}`, "[]"}
	case reflect.Struct:
		return []string{"null", "{}", "[]"}
	}
	return []string{"null"}
}
