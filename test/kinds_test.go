package test

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/test/servers"
)

// kindCases are objects, good and bad, with updates of those that are taken: a line of
// JSON each.
//
//go:embed testdata/kinds.jsonl
var kindCases string

type kindCase struct {
	Path    string         `json:"path"` // {ns} is the namespace
	Object  map[string]any `json:"object"`
	Updates []struct {
		Subresource string         `json:"subresource"`
		Patch       map[string]any `json:"patch"` // a merge patch
	} `json:"updates"`
}

// knownDifferences are paths, and members that differ there for a reason that
// docs/compatibility.md gives.
var knownDifferences = map[string]string{
	"/apis/storage.k8s.io/v1/csinodes":   "an empty list is null on kube-apiserver, which stores protobuf",
	"/apis/storage.k8s.io/v1/csidrivers": "kube-apiserver counts generations of some members",
}

// TestKinds sends the same objects and updates to Tidemark and to kube-apiserver: the
// verdicts, what is said of each member, the warnings and the objects have to be the
// same, but for what chance and time decide. Warnings of refused writes do not count:
// a patch that kube-apiserver tries twice has those of its first try.
func TestKinds(t *testing.T) {
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		peer := newRaw(t, s.Config, s.Namespace)
		ours := newRaw(t, servers.Start(t).RESTConfig(), s.Namespace)
		ours.do("POST", "/api/v1/namespaces", "application/json", map[string]any{"metadata": map[string]any{"name": s.Namespace}})
		for line := range strings.Lines(kindCases) {
			var c kindCase
			if err := json.Unmarshal([]byte(line), &c); err != nil {
				t.Fatal(err)
			}
			compareCase(t, peer, ours, &c)
		}
	})
}

func compareCase(t *testing.T, peer, ours *raw, c *kindCase) {
	path := strings.ReplaceAll(c.Path, "{ns}", peer.namespace)
	object := json.RawMessage(strings.ReplaceAll(text(c.Object), "{ns}", peer.namespace))
	var named struct {
		Metadata map[string]any `json:"metadata"`
	}
	body := map[string]any{}
	if json.Unmarshal(object, &named) != nil || json.Unmarshal(object, &body) != nil {
		t.Fatalf("%s is no object", object)
	}
	if named.Metadata == nil {
		named.Metadata = map[string]any{}
	}
	name, _ := named.Metadata["name"].(string)
	if name == "" {
		name = peer.namespace // nobody else has it
	}
	named.Metadata["name"] = name
	body["metadata"] = named.Metadata
	send := func(what, method, path, media string, body any) bool {
		a, b := peer.do(method, path, media, body), ours.do(method, path, media, body)
		if !a.same(b) && knownDifferences[c.Path] == "" {
			t.Errorf("%s %s of %s\n  kube-apiserver: %v\n  tidemark:       %v", what, text(body), c.Path, a, b)
		}
		return a.code < 300
	}
	if !send("create", "POST", path, "application/json", body) {
		return
	}
	one := path + "/" + name
	for _, u := range c.Updates {
		at := one
		if u.Subresource != "" {
			at += "/" + u.Subresource
		}
		patch := json.RawMessage(strings.ReplaceAll(text(u.Patch), "{ns}", peer.namespace))
		send("patch of "+text(c.Object)+" with", "PATCH", at, "application/merge-patch+json", patch)
	}
	for _, s := range []*raw{peer, ours} {
		s.do("PATCH", one, "application/merge-patch+json", map[string]any{"metadata": map[string]any{"finalizers": nil}})
		s.do("DELETE", one, "application/json", nil)
		if strings.HasSuffix(path, "/namespaces") { // nobody else finishes its deletion on kube-apiserver
			s.do("PUT", one+"/finalize", "application/json", map[string]any{"metadata": map[string]any{"name": name}})
		}
	}
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// raw sends requests to a server.
type raw struct {
	t         *testing.T
	client    *http.Client
	host      string
	namespace string
}

func newRaw(t *testing.T, config *rest.Config, namespace string) *raw {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &raw{t, client, config.Host, namespace}
}

// reply is what an answer says, without what chance and time decide.
type reply struct {
	code     int
	warnings []string
	says     any
}

func (r reply) String() string { return fmt.Sprint(r.code, " ", r.warnings, " ", text(r.says)) }

func (r reply) same(o reply) bool {
	return r.code == o.code && reflect.DeepEqual(r.says, o.says) && (r.code >= 300 || slices.Equal(r.warnings, o.warnings))
}

func (s *raw) do(method, path, media string, body any) reply {
	s.t.Helper()
	request, err := http.NewRequestWithContext(s.t.Context(), method, s.host+path, bytes.NewReader([]byte(text(body))))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Content-Type", media)
	answer, err := s.client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	got, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	r := reply{code: answer.StatusCode, warnings: answer.Header["Warning"]}
	slices.Sort(r.warnings)
	for _, v := range variable {
		got = v.expr.ReplaceAll(got, []byte(v.with))
	}
	var object map[string]any
	if err := json.Unmarshal(got, &object); err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	r.says = object
	if metadata, ok := object["metadata"].(map[string]any); ok {
		for _, k := range []string{"uid", "resourceVersion", "creationTimestamp", "managedFields", "deletionTimestamp"} {
			delete(metadata, k)
		}
	}
	if object["kind"] == "Status" {
		r.says = faults(object)
	}
	return r
}

// variable is what two servers do not have alike: times, addresses, node ports.
var variable = []struct {
	expr *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "<time>"},
	{regexp.MustCompile(`\b10\.(0|77|96|1[01]\d|9\d)\.\d+\.\d+\b`), "<address>"},
	{regexp.MustCompile(`"(nodePort|healthCheckNodePort)":\d+`), `"$1":0`},
}

// faults are the causes of a refusal, in the order of the alphabet where they come from
// the members of a map, which has none; the message where there is no cause.
func faults(status map[string]any) any {
	details, _ := status["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	var all []string
	for _, c := range causes {
		all = append(all, text(c))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return status["message"]
	}
	return slices.Compact(all)
}
