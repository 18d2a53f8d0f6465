package test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
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
	for i, c := range []*rest.Config{config, servers.Start(t).RESTConfig()} {
		both[i] = newSender(t, c)
		both[i].send(t, "POST", "/api/v1/namespaces", map[string]any{"metadata": map[string]any{"name": namespace}})
		t.Cleanup(func() { both[i].send(t, "DELETE", "/api/v1/namespaces/"+namespace, nil) })
	}
	files, err := filepath.Glob("testdata/kinds/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no objects: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			d := differential{both: both, g: generator{random(t)}, file: file, namespace: namespace}
			for range *objects {
				d.object(t)
			}
		})
	}
}

// differential compares two servers on objects of one kind.
type differential struct {
	both            [2]sender // kube-apiserver, Tidemark
	g               generator
	file, namespace string
	made            int
}

// object sends an object that is more or less complete, and broken in a few places,
// and when it was stored updates of it.
func (d *differential) object(t *testing.T) {
	o := loadObject(t, d.file)
	status := o["status"]
	delete(o, "status")
	d.made++
	o["metadata"].(map[string]any)["name"] = fmt.Sprintf("p%d", d.made)
	d.g.prune(o, []float64{0, 0, .05, .2, .4, .6}[d.g.IntN(6)])
	for range []int{0, 0, 1, 1, 2, 3}[d.g.IntN(6)] {
		d.g.mutate(o, func(path []string) bool { return path[0] != "metadata" || len(path) > 2 })
	}
	apiVersion := o["apiVersion"].(string)
	collection := "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		collection = "/api/" + apiVersion
	}
	collection += "/namespaces/" + d.namespace + "/" + strings.TrimSuffix(filepath.Base(d.file), ".json")
	answers := d.send(t, "POST", collection+"?fieldValidation=Ignore", func(int) map[string]any { return o })
	if !d.same(t, "create", o, answers) || answers[0].code != 201 {
		return
	}
	at := collection + "/" + o["metadata"].(map[string]any)["name"].(string)
	for range 6 {
		d.update(t, at, status)
	}
	d.send(t, "DELETE", at+"?gracePeriodSeconds=0", func(int) map[string]any { return nil })
}

// update changes the object, or its status, in one or two places.
func (d *differential) update(t *testing.T, at string, status any) {
	part := "spec"
	if status != nil && d.g.IntN(2) == 0 {
		part = "status"
	}
	seed := d.g.Uint64()
	stored := d.send(t, "GET", at, func(int) map[string]any { return nil })
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
		for range 1 + g.IntN(2) {
			g.mutate(o, func(path []string) bool {
				return path[0] == part && len(path) > 1 || path[0] == "template" || path[0] == "data"
			})
		}
		return o
	}
	path := at
	if part == "status" {
		path += "/status"
	}
	answers := d.send(t, "PUT", path+"?fieldValidation=Ignore", next)
	d.same(t, "update of "+part, next(0), answers)
}

func (d *differential) send(t *testing.T, method, path string, body func(i int) map[string]any) (answers [2]answer) {
	t.Helper()
	for i := range d.both {
		answers[i] = d.both[i].send(t, method, path, body(i))
	}
	return answers
}

// deviations are known, each with its reason in docs/compatibility.md.
var deviations = regexp.MustCompile(`disallowed by cluster policy|seLinuxChangePolicy|strconv.ParseInt`)

// same compares the answers: code, warnings, causes in any order, object. Bodies
// that cannot be decoded are 400 for both.
func (d *differential) same(t *testing.T, what string, sent map[string]any, answers [2]answer) bool {
	t.Helper()
	peer, own := answers[0].text(), answers[1].text()
	switch {
	case peer == own, answers[0].code == 0, answers[0].code == 400 && answers[1].code == 400, deviations.MatchString(peer):
		return true
	}
	body, _ := json.Marshal(sent)
	i := 0
	for i < min(len(peer), len(own)) && peer[i] == own[i] {
		i++
	}
	from := max(0, i-100)
	t.Errorf("%s of %s\nkube-apiserver %s\nTidemark       %s", what, body, peer[from:min(len(peer), i+400)], own[from:min(len(own), i+400)])
	return false
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
var ownParts = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// text is what is compared.
func (a answer) text() string {
	o := clone(a.body)
	if m, ok := o["metadata"].(map[string]any); ok {
		delete(m, "resourceVersion")
	}
	if details, ok := o["details"].(map[string]any); ok && details["causes"] != nil {
		var causes []string
		for _, c := range details["causes"].([]any) {
			text, _ := json.Marshal(c)
			causes = append(causes, string(text))
		}
		slices.Sort(causes)
		details["causes"] = causes
		delete(o, "message") // the causes again
	}
	text, _ := json.Marshal(o)
	return fmt.Sprint(a.code, a.warnings, ownParts.ReplaceAllString(string(text), "*"))
}
