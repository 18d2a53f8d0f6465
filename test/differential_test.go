package test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/test/servers"
)

var objects = flag.Int("objects", 60, "how many objects of each kind the differential tests generate")

// TestKindsLikePeer sends the same generated objects, most of them broken, to
// Tidemark and to kube-apiserver: both say the same of them, and store the same.
// Each file of testdata/kinds is an object with as many fields as one can have.
func TestKindsLikePeer(t *testing.T) {
	path := os.Getenv(servers.PeerKubeconfig)
	if path == "" {
		t.Skipf("%s names no kubeconfig", servers.PeerKubeconfig)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	namespace := fmt.Sprintf("tidemark-test-%d", time.Now().UnixNano())
	var both [2]sender
	for i, c := range []*rest.Config{servers.Quick(config), servers.Quick(servers.Start(t).RESTConfig())} {
		both[i] = newSender(t, c)
		both[i].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": namespace}})
		t.Cleanup(func() { both[i].send(t, "DELETE", "/api/v1/namespaces/"+namespace, nil) })
	}
	files, err := filepath.Glob("testdata/kinds/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	grafts := loadGrafts(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			d := differential{both: both, g: generator{random(t)}, file: file, namespace: namespace, grafts: grafts}
			for range *objects {
				d.object(t)
			}
			t.Logf("%d objects, %d of them taken, %d updates", d.made, d.taken, d.updates)
		})
	}
}

// differential compares two servers on objects of one kind.
type differential struct {
	both                 [2]sender // kube-apiserver, Tidemark
	g                    generator
	file, namespace      string
	grafts               []graft
	made, taken, updates int
}

// object sends an object that is more or less complete, and broken in a few places,
// and when it was stored updates of it.
func (d *differential) object(t *testing.T) {
	o := loadObject(t, d.file)
	status := o["status"]
	delete(o, "status")
	d.made++
	o["metadata"].(map[string]any)["name"] = fmt.Sprintf("p%d", d.made)
	d.g.prune(o, []float64{0, 0, .05, .3, .9, 1, 1}[d.g.IntN(7)], d.g.IntN(4) == 0)
	for range []int{0, 0, 0, 1, 1, 2}[d.g.IntN(6)] {
		d.g.mutate(o, func(path []string) bool { return path[0] != "metadata" || len(path) > 2 })
	}
	for range []int{0, 1, 1, 1, 2, 4}[d.g.IntN(6)] {
		d.g.graft(o, d.grafts, func(g graft) bool { return g.At[0] != "status" })
	}
	apiVersion := o["apiVersion"].(string)
	collection := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		collection = "/api/" + apiVersion
	}
	collection += "/namespaces/" + d.namespace + "/" + strings.TrimSuffix(filepath.Base(d.file), ".json")
	if taken, _ := d.same(t, "create", "POST", collection, func(int) map[string]any { return o }); !taken {
		return
	}
	d.taken++
	at := collection + "/" + o["metadata"].(map[string]any)["name"].(string)
	for n := 0; n < 6 && d.update(t, at, status); n++ {
	}
	for i := range d.both {
		d.both[i].send(t, "DELETE", at+"?gracePeriodSeconds=0", nil)
	}
}

// parts of an object that can be updated, with the paths that an update changes.
var parts = map[string]func(path []string) bool{
	"": func(path []string) bool {
		return path[0] == "spec" && len(path) > 1 && path[1] != "ephemeralContainers" || path[0] == "template" || path[0] == "data" || path[0] == "revision" ||
			path[0] == "metadata" && len(path) > 2 && path[1] == "annotations"
	},
	"status":              func(path []string) bool { return path[0] == "status" && len(path) > 1 },
	"ephemeralcontainers": func(path []string) bool { return len(path) > 1 && path[1] == "ephemeralContainers" },
	"resize":              func(path []string) bool { return path[0] == "spec" && slices.Contains(path, "resources") },
}

// update changes the object, or what one of its subresources changes, in one or two
// places. It tells whether both servers have the same of it.
func (d *differential) update(t *testing.T, at string, status any) bool {
	part := ""
	switch n := d.g.IntN(10); {
	case status != nil && n < 4:
		part = "status"
	case strings.Contains(at, "/pods/") && n < 6:
		part = []string{"ephemeralcontainers", "resize"}[n-4]
	}
	seed := d.g.Uint64()
	var stored [2]answer
	for i := range d.both {
		stored[i] = d.both[i].send(t, "GET", at, nil)
	}
	next := func(i int) map[string]any { // with its own uid, which labels of Jobs have
		g, o := newGenerator(seed), clone(stored[i].body)
		delete(o["metadata"].(map[string]any), "managedFields")
		delete(o["metadata"].(map[string]any), "resourceVersion")
		if part == "status" {
			have, _ := o["status"].(map[string]any)
			if have == nil {
				have = map[string]any{}
			}
			for _, name := range sorted(status.(map[string]any)) {
				if g.IntN(3) == 0 {
					have[name] = clone(status.(map[string]any))[name]
				}
			}
			o["status"] = have
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
		return o
	}
	path := at
	if part != "" {
		path += "/" + part
	}
	d.updates++
	_, equal := d.same(t, "update of "+part, "PUT", path, next)
	return equal
}

// deviations are known, each with its reason in docs/compatibility.md.
var deviations = regexp.MustCompile(`disallowed by cluster policy|strconv.ParseInt`)

// same sends a request to both, and compares the answers: code, warnings, causes,
// object. It tells whether they took it, and whether that is the same.
func (d *differential) same(t *testing.T, what, method, path string, body func(i int) map[string]any) (taken, equal bool) {
	t.Helper()
	path += "?fieldValidation=Ignore"
	sent := body(0)
	peer, own := d.both[0].send(t, method, path, sent), d.both[1].send(t, method, path, body(1))
	if peer.code == 0 || deviations.MatchString(text(peer.body)) {
		return false, false
	}
	found := differences("", peer.plain(), own.plain(), nil)
	// What is wrong with the members of a map has no order there.
	for try := 0; len(found) > 0 && try < 20 && len(differences("", peer.unordered(), own.unordered(), nil)) == 0; try++ {
		peer = d.both[0].send(t, method, path, sent)
		found = differences("", peer.plain(), own.plain(), nil)
	}
	if len(found) > 0 {
		t.Errorf("%s of %s:\n%s", what, text(sent), strings.Join(found, "\n"))
	}
	return len(found) == 0 && peer.code < 300, len(found) == 0
}

// differences are the paths at which two documents differ, with what stands there.
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
	if !reflect.DeepEqual(peer, own) && !(empty(peer) && empty(own)) {
		found = append(found, fmt.Sprintf("  at %s\n    kube-apiserver %.1000s\n    Tidemark       %.1000s", path, text(peer), text(own)))
	}
	return found
}

// empty lists are null there, where it is protobuf that is stored.
func empty(v any) bool {
	list, ok := v.([]any)
	return v == nil || ok && len(list) == 0
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

// answer is that of a server; its code is 0 when it broke off, as kube-apiserver
// does where its validation panics.
type answer struct {
	code     int
	warnings []string
	body     map[string]any
}

func (s sender) send(t *testing.T, method, path string, body map[string]any) answer {
	t.Helper()
	var data io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(context.Background(), method, s.host+path, data)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	got, err := s.client.Do(r)
	if err != nil {
		return answer{}
	}
	defer got.Body.Close()
	a := answer{code: got.StatusCode, warnings: got.Header.Values("Warning")}
	slices.Sort(a.warnings)
	if err := json.NewDecoder(got.Body).Decode(&a.body); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// own is what differs between servers, and from one moment to the next.
var ownParts = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|(?i:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})`)

// plain is what is compared.
func (a answer) plain() map[string]any {
	all, _ := json.Marshal(map[string]any{"code": a.code, "warnings": a.warnings, "body": a.body})
	var plain map[string]any
	json.Unmarshal(ownParts.ReplaceAll(all, []byte("*")), &plain)
	body, _ := plain["body"].(map[string]any)
	if m, ok := body["metadata"].(map[string]any); ok {
		delete(m, "resourceVersion")
		if managers, ok := m["managedFields"].([]any); ok { // in the order of seconds
			slices.SortFunc(managers, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
	}
	if details, ok := body["details"].(map[string]any); ok && details["causes"] != nil {
		delete(body, "message") // the causes again
	}
	return plain
}

// unordered is plain with the causes in no order.
func (a answer) unordered() map[string]any {
	plain := a.plain()
	body, _ := plain["body"].(map[string]any)
	details, _ := body["details"].(map[string]any)
	if causes, ok := details["causes"].([]any); ok {
		slices.SortFunc(causes, func(a, b any) int { return strings.Compare(text(a), text(b)) })
	}
	return plain
}
