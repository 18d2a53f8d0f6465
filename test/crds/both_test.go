package crds

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/test/servers"
)

// sender sends requests to one server.
type sender struct {
	client *http.Client
	host   string
}

func newSender(t testing.TB, c *rest.Config) sender {
	t.Helper()
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	return sender{client, c.Host}
}

// request is a request to both servers.
type request struct {
	method, path, kind string // kind is the content type; empty: JSON
	body               any
}

// applied is the content type of server-side apply.
const applied = "application/apply-patch+yaml"

// response is a server's response.
type response struct {
	code     int
	warnings []string
	body     tree
}

func (s sender) send(t testing.TB, r request) response {
	t.Helper()
	var data io.Reader
	if text, ok := r.body.([]byte); ok { // as it is
		data = bytes.NewReader(text)
	} else if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			t.Fatal(err)
		}
		data = bytes.NewReader(text)
	}
	sent, err := http.NewRequestWithContext(context.Background(), r.method, s.host+r.path, data)
	if err != nil {
		t.Fatal(err)
	}
	sent.Header.Set("Content-Type", "application/json")
	if r.kind != "" {
		sent.Header.Set("Content-Type", r.kind)
	}
	got, err := s.client.Do(sent)
	if err != nil {
		t.Fatalf("%s %s: %v", r.method, r.path, err)
	}
	defer got.Body.Close()
	a := response{code: got.StatusCode, warnings: got.Header.Values("Warning")}
	slices.Sort(a.warnings)
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &a.body); err != nil {
		a.body = tree{"message": string(text)}
	}
	return a
}

// both are kube-apiserver and Tidemark.
type both struct {
	servers   [2]sender
	namespace string
	requests  int    // those that try has sent
	owners    string // managed fields of the object in kube-apiserver before the next try; empty if there is no object
}

// newBoth connects to both; without kube-apiserver the test is not for here.
func newBoth(t *testing.T) *both {
	t.Helper()
	path := os.Getenv(servers.PeerKubeconfig)
	if path == "" {
		t.Skipf("%s names no kubeconfig", servers.PeerKubeconfig)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	b := &both{namespace: fmt.Sprintf("tidemark-test-%d", time.Now().UnixNano())}
	for i, c := range []*rest.Config{servers.Quick(config), servers.Quick(servers.Start(t).RESTConfig())} {
		b.servers[i] = newSender(t, c)
		b.servers[i].send(t, request{"POST", "/api/v1/namespaces", "", tree{"metadata": tree{"name": b.namespace}}})
		t.Cleanup(func() { b.servers[i].send(t, request{"DELETE", "/api/v1/namespaces/" + b.namespace, "", nil}) })
	}
	return b
}

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// define stores a definition for the length of a test, and reports whether it is served.
func (b *both) define(t *testing.T, d *definition) bool {
	t.Helper()
	responses := b.send(t, request{"POST", definitions, "", d.body})
	if responses[0].code == http.StatusConflict {
		t.Skipf("kube-apiserver has %s already", d.name)
	}
	t.Cleanup(func() { b.send(t, request{"DELETE", definitions + "/" + d.name, "", nil}) })
	if !same(t, "the definition "+d.name, responses) || responses[0].code != http.StatusCreated {
		return false
	}
	for _, v := range d.versions {
		at := request{"GET", d.collection(v, b.namespace), "", nil}
		if got := b.servers[1].send(t, at); got.code != http.StatusOK {
			t.Errorf("%s is not served at once: %d", d.name, got.code)
		}
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			return b.servers[0].send(t, at).code == http.StatusOK, nil
		})
		if err != nil {
			t.Fatalf("kube-apiserver does not serve %s: %v", d.name, err)
		}
	}
	return true
}

func (b *both) send(t *testing.T, r request) (responses [2]response) {
	t.Helper()
	for i := range b.servers {
		responses[i] = b.servers[i].send(t, r)
	}
	return responses
}

// try sends a request to both servers. It returns Tidemark's response, and whether both
// servers then have the same state.
func (b *both) try(t *testing.T, r request) (a response, alike bool) {
	t.Helper()
	responses := b.send(t, r)
	b.requests++
	text, _ := json.Marshal(r.body)
	if diverges(r.kind, b.owners, responses[0], responses[1]) || ownsDefaults(responses) || r.kind == applied && bytes.Contains(text, []byte("null")) && sameButOwners(responses) {
		return responses[1], false
	}
	alike = same(t, fmt.Sprintf("%s %s %s %s", r.method, r.path, r.kind, text), responses)
	return responses[1], alike
}

// same compares responses: code, warnings, causes in any order, object.
func same(t *testing.T, what string, responses [2]response) bool {
	t.Helper()
	peer, own := responses[0].text(), responses[1].text()
	if peer == own || differs(responses[0], responses[1]) {
		return true
	}
	i := 0
	for i < min(len(peer), len(own)) && peer[i] == own[i] {
		i++
	}
	from := max(0, i-150)
	t.Errorf("%s\nkube-apiserver %s\nTidemark       %s", what[:min(len(what), 3000)], peer[from:min(len(peer), i+500)], own[from:min(len(own), i+500)])
	return false
}

// differs reports whether responses differ as documented: docs/compatibility.md#s5 and #f4.
func differs(peer, own response) bool {
	said, other := fmt.Sprint(peer.body["message"]), fmt.Sprint(own.body["message"])
	if own.code != http.StatusBadRequest {
		return false
	}
	const strict = "strict decoding error: "
	i, j := strings.LastIndex(said, strict), strings.LastIndex(other, strict)
	switch {
	case peer.code == http.StatusInternalServerError:
		return said == other
	case peer.code == http.StatusUnprocessableEntity && i >= 0 && j >= 0:
		return said[i:] == other[j:]
	}
	return false
}

// emptied matches kube-apiserver's error for an apply that sets null, or that removes the
// last member of a map or list with other owners.
var emptied = regexp.MustCompile(`must be of type [a-z]+: "null"`)

// diverges reports whether the stored objects differ from now on as documented:
// docs/compatibility.md#g7 and #s4. owners are the managed fields before the write, which kube-apiserver keeps if it cannot
// update them.
func diverges(kind, owners string, peer, own response) bool {
	if kind == applied && peer.code == http.StatusUnprocessableEntity && emptied.MatchString(fmt.Sprint(peer.body["message"])) {
		return own.code == http.StatusOK || own.code == http.StatusUnprocessableEntity
	}
	if own.code != http.StatusOK && own.code != http.StatusCreated {
		return false
	}
	metadata, ok := peer.body["metadata"].(tree)
	if !ok || peer.code != own.code || metadata["managedFields"] != nil && marshal(metadata["managedFields"]) != owners {
		return false
	}
	bare := [2]response{{peer.code, peer.warnings, clone(peer.body)}, {own.code, own.warnings, clone(own.body)}}
	for _, a := range bare {
		if metadata, ok := a.body["metadata"].(tree); ok {
			delete(metadata, "managedFields")
		}
	}
	return bare[0].text() == bare[1].text() && own.text() != peer.text()
}

// sameButOwners reports whether responses are the same without managed fields and generations, as for an apply that sets
// null: docs/compatibility.md#s5.
func sameButOwners(responses [2]response) bool {
	var texts [2]string
	for i, a := range responses {
		bare := response{a.code, a.warnings, clone(a.body)}
		if metadata, ok := bare.body["metadata"].(tree); ok {
			delete(metadata, "managedFields")
			delete(metadata, "generation")
		}
		texts[i] = bare.text()
	}
	return texts[0] == texts[1] && responses[0].text() != responses[1].text()
}

// ownsDefaults reports whether responses differ only in that kube-apiserver's writer of the status owns fields that are not
// in the status: docs/compatibility.md#g7.
func ownsDefaults(responses [2]response) bool {
	if !sameButOwners(responses) {
		return false
	}
	peer := clone(responses[0].body)
	metadata := peer["metadata"].(tree)
	entries, _ := metadata["managedFields"].([]any)
	metadata["managedFields"] = slices.DeleteFunc(entries, func(e any) bool {
		fields, _ := e.(tree)["fieldsV1"].(tree)
		return e.(tree)["subresource"] == "status" && fields["f:status"] == nil
	})
	return response{responses[0].code, responses[0].warnings, peer}.text() == responses[1].text()
}

// ownParts matches the parts that differ between servers, and from one moment to the next.
var ownParts = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func marshal(v any) string {
	text, _ := json.Marshal(v)
	return ownParts.ReplaceAllString(string(text), "*")
}

// wholes are objects that an error shows whole, with members in an order of its own.
var wholes = regexp.MustCompile(`Invalid value: "\{.*\}": `)

// broken matches errors about values that do not have the type of their schema. Which of
// several such values a rule meets first varies.
var broken = regexp.MustCompile(`invalid data, .*? evaluating rule`)

// masked returns a message without the parts that differ from time to time.
func masked(message string) string {
	return broken.ReplaceAllString(wholes.ReplaceAllString(message, "Invalid value: "), "invalid data evaluating rule")
}

// text returns the text that tests compare.
func (a response) text() string {
	o := clone(a.body)
	if message, ok := o["message"].(string); ok {
		o["message"] = masked(message)
	}
	if m, ok := o["metadata"].(tree); ok {
		delete(m, "resourceVersion")
		if managed, ok := m["managedFields"].([]any); ok { // by the second in which they wrote
			slices.SortFunc(managed, func(a, b any) int { return strings.Compare(marshal(a), marshal(b)) })
		}
	}
	if details, ok := o["details"].(tree); ok && details["causes"] != nil {
		var causes []string
		for _, c := range details["causes"].([]any) {
			if message, ok := c.(tree)["message"].(string); ok {
				c.(tree)["message"] = masked(message)
			}
			if text, _ := json.Marshal(c); !bytes.Contains(text, []byte("contributed to estimated rule cost total")) { // a few of them, whichever
				causes = append(causes, string(text))
			}
		}
		slices.Sort(causes)
		details["causes"] = causes
		if len(causes) > 1 {
			delete(o, "message") // the causes again
		}
	}
	text, _ := json.Marshal(o)
	return fmt.Sprint(a.code, a.warnings, ownParts.ReplaceAllString(strings.TrimSpace(string(text)), "*"))
}
