package kinds_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

var objects = flag.Int("objects", 60, "how many objects of each kind the differential test generates")

// TestKindsLikePeer sends the same generated objects, most of them invalid, to Tidemark and
// to kube-apiserver. Both must return and store the same. Each file of testdata/objects is
// an object with as many fields as possible. The file is named after the resource, with a
// suffix after a dot if the resource has several.
func TestKindsLikePeer(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		both := [2]sender{newSender(t, servers.Quick(s.Config))}
		both[1] = newSender(t, lone(t, both[0]))
		both[1].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": s.Namespace}})
		files, err := filepath.Glob("testdata/objects/*.json")
		if err != nil || len(files) == 0 {
			t.Fatalf("no objects: %v", err)
		}
		grafts := loadGrafts(t)
		for _, file := range files {
			t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
				d := differential{both: both, g: generator{testrand.New(t)}, file: file, namespace: s.Namespace, grafts: grafts}
				d.resource, _, _ = strings.Cut(filepath.Base(file), ".")
				d.collection = d.find(t)
				for range *objects {
					d.object(t)
				}
				t.Logf("%d objects, %d of them taken, %d updates", d.made, d.taken, d.updates)
			})
		}
	})
}

// alone starts a Tidemark without controllers, as a kube-apiserver is.
func alone(t *testing.T) *rest.Config {
	t.Helper()
	s := &tidemark.Server{Controllers: []string{"-*"}, Admission: tidemark.Admission{NoUnenforcedWarnings: true}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return servers.Quick(s.RESTConfig())
}

// lone is alone, and the user that the peer takes this client for.
func lone(t *testing.T, peer sender) *rest.Config {
	config := alone(t)
	user := peer.send(t, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", map[string]any{}).body["status"].(map[string]any)["userInfo"].(map[string]any)
	config.Impersonate.UserName, _ = user["username"].(string)
	config.Impersonate.UID, _ = user["uid"].(string)
	config.Impersonate.Groups = []string{"system:masters"}
	return config
}

// differential compares two servers on objects of one kind.
type differential struct {
	both                 [2]sender // kube-apiserver, Tidemark
	g                    generator
	file, namespace      string
	resource, collection string
	grafts               []graft
	made, taken, updates int
}

// find asks for the path of the collection.
func (d *differential) find(t *testing.T) string {
	version := d.load(t)["apiVersion"].(string)
	path := "/apis/" + version
	if !strings.Contains(version, "/") {
		path = "/api/" + version
	}
	for _, r := range d.both[1].send(t, "GET", path, nil).body["resources"].([]any) {
		switch r := r.(map[string]any); {
		case r["name"] == d.resource && r["namespaced"] == true:
			return path + "/namespaces/" + d.namespace + "/" + d.resource
		case r["name"] == d.resource:
			return path + "/" + d.resource
		}
	}
	t.Fatalf("there is no %s in %s", d.resource, path)
	return ""
}

// load reads the object, with a name that no other of this run has.
func (d *differential) load(t *testing.T) map[string]any {
	d.made++
	run := strings.TrimPrefix(d.namespace, "tidemark-test-")
	return d.g.load(t, d.file, strings.NewReplacer("{ns}", d.namespace, "{name}", fmt.Sprintf("p%d-%s", d.made, run),
		"{n}", fmt.Sprintf("%d.%d", d.made>>8&255, d.made&255)))
}

// object sends an object that is more or less complete, and broken in a few places,
// and when it was stored updates of it.
func (d *differential) object(t *testing.T) {
	o := d.load(t)
	status := o["status"]
	delete(o, "status")
	at := d.collection + "/" + o["metadata"].(map[string]any)["name"].(string)
	d.g.prune(o, []float64{0, 0, .05, .3, .9, 1, 1}[d.g.IntN(7)], d.g.IntN(4) == 0)
	for range []int{0, 0, 0, 1, 1, 2}[d.g.IntN(6)] {
		d.g.mutate(o, func(path []string) bool { return path[0] != "metadata" || len(path) > 2 })
	}
	for range []int{0, 1, 1, 1, 2, 4}[d.g.IntN(6)] {
		d.g.graft(o, d.grafts, func(g graft) bool { return g.At[0] != "status" })
	}
	taken, equal := d.same(t, "create", "POST", d.collection, func(int) map[string]any { return o })
	if taken {
		d.taken++
		for n := 0; n < 6 && d.update(t, at, status); n++ {
		}
	}
	if taken || !equal {
		d.remove(t, at)
	}
}

// remove deletes the object and its finalizers.
func (d *differential) remove(t *testing.T, at string) {
	for i := range d.both {
		d.both[i].send(t, "DELETE", at+"?gracePeriodSeconds=0", nil)
		d.both[i].send(t, "PATCH", at, map[string]any{"metadata": map[string]any{"finalizers": nil}})
		if d.resource == "namespaces" { // kube-apiserver alone has no controller that finalizes them
			d.both[i].send(t, "PUT", at+"/finalize", map[string]any{"metadata": map[string]any{"name": filepath.Base(at)}})
		}
	}
}

// parts of an object that can be updated, with the paths that an update changes.
var parts = map[string]func(path []string) bool{
	"": func(path []string) bool {
		switch path[0] {
		case "status":
			return false
		case "metadata":
			return len(path) > 2
		case "spec":
			return len(path) > 1 && path[1] != "ephemeralContainers"
		}
		return true
	},
	"status":              func(path []string) bool { return path[0] == "status" && len(path) > 1 },
	"ephemeralcontainers": func(path []string) bool { return len(path) > 1 && path[1] == "ephemeralContainers" },
	"resize":              func(path []string) bool { return path[0] == "spec" && slices.Contains(path, "resources") },
}

// update changes one or two values of the object, or of a part of it that one of its subresources
// can change. It reports whether both servers have the same object.
func (d *differential) update(t *testing.T, at string, status any) bool {
	part := ""
	switch n := d.g.IntN(10); {
	case status != nil && n < 4:
		part = "status"
	case d.resource == "pods" && n < 6:
		part = []string{"ephemeralcontainers", "resize"}[n-4]
	}
	seed := d.g.Uint64()
	var stored [2]response
	for i := range d.both {
		if stored[i] = d.both[i].send(t, "GET", at, nil); stored[i].code != 200 {
			t.Fatalf("GET of %s: %v", at, stored[i])
		}
	}
	path := at
	if part != "" {
		path += "/" + part
	}
	d.updates++
	_, equal := d.same(t, "update of "+path, "PUT", path, func(i int) map[string]any { // each with its own uid, which labels of Jobs have
		o := clone(stored[i].body)
		if slices.Contains(watched, d.resource) {
			o["status"] = clone(stored[0].body)["status"]
		}
		d.change(newGenerator(seed), o, part, status)
		return o
	})
	return equal
}

// change makes the body of an update.
func (d *differential) change(g generator, o map[string]any, part string, status any) {
	delete(o["metadata"].(map[string]any), "managedFields")
	if g.IntN(16) == 0 {
		delete(o["metadata"].(map[string]any), "resourceVersion")
	}
	if part == "status" {
		o["status"] = g.withSome(o["status"], status.(map[string]any))
	}
	for n := 1 + g.IntN(2); n > 0; n-- {
		if g.IntN(2) == 0 {
			g.mutate(o, parts[part])
			continue
		}
		g.graft(o, d.grafts, func(f graft) bool {
			path := f.At
			if f.In == "pod" || f.In == "template" {
				path = append([]string{"spec"}, path...)
			}
			return parts[part](path)
		})
	}
}

// deviations are known, each with its reason in docs/compatibility.md.
var deviations = regexp.MustCompile("disallowed by cluster policy|must be `spec.version|" + `strconv.ParseInt|duplicate nodePort: |failed to allocate requested HealthCheck|compilation failed: ERROR|invalid JSONPath`)

// same sends a request to both servers, and compares the responses: code, warnings, causes,
// object. It reports whether both accepted it, and whether the responses are equal.
func (d *differential) same(t *testing.T, what, method, path string, body func(i int) map[string]any) (taken, equal bool) {
	t.Helper()
	path += "?fieldValidation=Ignore"
	sent := body(0)
	peer, own := d.both[0].send(t, method, path, sent), d.both[1].send(t, method, path, body(1))
	if peer.code == 0 || deviations.MatchString(text(peer.body)) || peer.code == 409 && slices.Contains(watched, d.resource) {
		return false, false
	}
	found := differences("", d.plain(peer), d.plain(own), nil)
	found = d.unlessRandom(found, peer, own, func() response { return d.both[0].send(t, method, path, sent) })
	if peer.code != own.code {
		found = []string{fmt.Sprintf("  at .code\n    kube-apiserver %d %.1000s\n    Tidemark       %d %.1000s", peer.code, text(peer.body["message"]), own.code, text(own.body["message"]))}
	}
	if d.uncounted([2]response{peer, own}, found, text(sent)) {
		return true, false
	}
	if len(found) > 0 {
		t.Errorf("%s of %s:\n%s", what, text(sent), strings.Join(found, "\n"))
	}
	return len(found) == 0 && peer.code < 300, len(found) == 0
}

// unlessRandom returns the differences, or none if they are those of an order that kube-apiserver changes from one request
// to the next: that of the errors of map members, and that of the conflicts of several managers. again sends the request
// to kube-apiserver.
func (d *differential) unlessRandom(found []string, peer, own response, again func() response) []string {
	for try := 0; len(found) > 0 && peer.code >= 400 && try < 40 && len(differences("", d.unordered(peer), d.unordered(own), nil)) == 0; try++ {
		if !reflect.DeepEqual(d.plain(again()), d.plain(peer)) {
			return nil
		}
	}
	return found
}

// idle matches members of kinds with which kube-apiserver counts a generation although the write changes nothing that is
// stored: a spec without defaults, and fields of disabled features, as docs/compatibility.md#built-in-kinds describes.
var idle = map[string]*regexp.Regexp{
	"endpointslices":           regexp.MustCompile("deprecatedTopology"),
	"horizontalpodautoscalers": regexp.MustCompile(`autoscaling\.alpha\.kubernetes\.io(/|~1)behavior`),
	"resourceslices":           regexp.MustCompile(`"(nodeAllocatableResources|skipNodeOperations|partitionTypeAttribute|compatibilityGroups|ints|bools|strings|versions)":`),
}

// uncounted reports whether responses differ only in that kube-apiserver counts a generation more, with such a member.
func (d *differential) uncounted(got [2]response, found []string, sent string) bool {
	member := idle[d.resource]
	if member == nil || len(found) != 1 || !strings.Contains(found[0], "at .body.metadata.generation\n") || !member.MatchString(sent) {
		return false
	}
	var counted [2]float64
	for i := range got {
		metadata, _ := got[i].body["metadata"].(map[string]any)
		counted[i], _ = metadata["generation"].(float64)
	}
	return counted[0] == counted[1]+1
}

// differences returns the paths at which two documents differ, with the values.
func differences(path string, peer, own any, found []string) []string {
	switch p := peer.(type) {
	case map[string]any:
		o, ok := own.(map[string]any)
		if !ok {
			break
		}
		both := maps.Clone(p)
		maps.Copy(both, o)
		for _, name := range sorted(both) {
			found = differences(path+"."+name, p[name], o[name], found)
		}
		return found
	case []any:
		o, ok := own.([]any)
		if !ok {
			break
		}
		for i := range max(len(p), len(o)) {
			found = differences(fmt.Sprintf("%s[%d]", path, i), at(p, i), at(o, i), found)
		}
		return found
	}
	if !reflect.DeepEqual(peer, own) {
		found = append(found, fmt.Sprintf("  at %s\n    kube-apiserver %.1000s\n    Tidemark       %.1000s", path, text(peer), text(own)))
	}
	return found
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// sender sends requests to one server.
type sender struct {
	client *http.Client
	host   string
}

func newSender(t *testing.T, c *rest.Config) sender {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return sender{client, c.Host}
}

// response is a server's response. Its code is 0 if the connection broke, as it does when
// kube-apiserver's validation panics.
type response struct {
	code     int
	warnings []string
	body     map[string]any
}

func (s sender) send(t *testing.T, method, path string, body map[string]any) response {
	t.Helper()
	var data io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.NewReader(text)
	}
	media := "application/json"
	if method == "PATCH" {
		media = "application/merge-patch+json"
	}
	return s.do(t, method, path, media, data)
}

// do sends a body of a media type.
func (s sender) do(t *testing.T, method, path, media string, body io.Reader) response {
	t.Helper()
	r, err := http.NewRequestWithContext(context.Background(), method, s.host+path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	got, err := s.client.Do(r)
	if err != nil {
		return response{}
	}
	defer got.Body.Close()
	a := response{code: got.StatusCode, warnings: got.Header.Values("Warning")}
	slices.Sort(a.warnings)
	if err := json.NewDecoder(got.Body).Decode(&a.body); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// watched are resources whose status controllers within kube-apiserver write.
var watched = []string{"apiservices", "customresourcedefinitions", "flowschemas", "servicecidrs"}

// restored lists resources whose updates restore or set members. In kube-apiserver a manager
// owns the fields that it sent, in Tidemark the fields that are stored.
var restored = []string{"namespaces", "nodes", "persistentvolumeclaims", "persistentvolumes", "services"}

// ownParts matches the parts that differ between servers, and from one moment to the next.
var ownParts = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|(?i:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})|\b10\.(0|96|1[01]\d|9\d)\.\d+\.\d+\b`)

// ownPorts are those that servers pick.
var ownPorts = regexp.MustCompile(`"(nodePort|healthCheckNodePort)":3\d{4}`)

// plain returns the parts of a response that tests compare.
func (d *differential) plain(a response) map[string]any {
	all, _ := json.Marshal(map[string]any{"code": a.code, "warnings": a.warnings, "body": a.body})
	var plain map[string]any
	json.Unmarshal(ownPorts.ReplaceAll(ownParts.ReplaceAll(all, []byte("*")), []byte(`"$1":0`)), &plain)
	body, _ := plain["body"].(map[string]any)
	meta, _ := body["metadata"].(map[string]any)
	delete(meta, "resourceVersion")
	switch managers, ok := meta["managedFields"].([]any); {
	case slices.Contains(watched, d.resource) && body["kind"] != "Status":
		delete(body, "status")
		delete(meta, "managedFields")
	case slices.Contains(restored, d.resource):
		delete(meta, "managedFields")
	case ok: // in the order of seconds
		slices.SortFunc(managers, func(a, b any) int { return strings.Compare(text(a), text(b)) })
	}
	if details, ok := body["details"].(map[string]any); ok && details["causes"] != nil {
		delete(body, "message") // the causes again
		details["causes"], details["times"] = once(details["causes"].([]any))
	}
	return plain
}

// once returns each cause once, in the order of messages, and its number.
func once(causes []any) (first []any, times map[string]any) {
	times = map[string]any{}
	for _, c := range causes {
		n, _ := times[text(c)].(int)
		if n == 0 {
			first = append(first, c)
		}
		times[text(c)] = n + 1
	}
	return first, times
}

// unordered is plain with the causes in no order.
func (d *differential) unordered(a response) map[string]any {
	plain := d.plain(a)
	body, _ := plain["body"].(map[string]any)
	details, _ := body["details"].(map[string]any)
	if causes, ok := details["causes"].([]any); ok {
		slices.SortFunc(causes, func(a, b any) int { return strings.Compare(text(a), text(b)) })
	}
	return plain
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}
