package projects

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// request is a request to both servers.
type request struct {
	verb         string // of the report
	method, path string
	media        string // of the body; empty: JSON
	accept       string // empty: JSON
	body         any
}

// response is a response of a server.
type response struct {
	code     int
	warnings []string
	body     tree
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

// send returns a response with the code 0 if the connection breaks, as it does when a handler panics.
func (s sender) send(r request) response {
	var body io.Reader
	switch b := r.body.(type) {
	case nil:
	case []byte:
		body = bytes.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			panic(err)
		}
		body = bytes.NewReader(text)
	}
	sent, err := http.NewRequestWithContext(context.Background(), r.method, s.host+r.path, body)
	if err != nil {
		panic(err)
	}
	media := r.media
	if media == "" {
		media = "application/json"
	}
	sent.Header.Set("Content-Type", media)
	if r.accept != "" {
		sent.Header.Set("Accept", r.accept)
	}
	got, err := s.client.Do(sent)
	if err != nil {
		return response{body: tree{"message": err.Error()}}
	}
	defer got.Body.Close()
	made := response{code: got.StatusCode, warnings: got.Header.Values("Warning")}
	slices.Sort(made.warnings)
	text, err := io.ReadAll(got.Body)
	if err != nil {
		return response{body: tree{"message": err.Error()}}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&made.body) != nil {
		made.body = tree{"message": string(text)}
	}
	return made
}

// both sends the requests to kube-apiserver and to Tidemark at the same time.
func (w *walk) both(r [2]request) (got [2]response) {
	var all sync.WaitGroup
	for i := range got {
		all.Go(func() { got[i] = w.servers[i].send(r[i]) })
	}
	all.Wait()
	return got
}

var (
	// ownParts differ between servers, and from one moment to the next.
	ownParts = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b10\.(0|96|1[01]\d|9\d)\.\d+\.\d+\b`)
	ownPorts = regexp.MustCompile(`("nodePort":|"healthCheckNodePort":|:)3\d{4}\b`)
	ages     = regexp.MustCompile(`"\d+m?s"`)
	// wholes are objects that an error shows whole, with members in any order.
	wholes = regexp.MustCompile(`Invalid value: "?\{.*\}"?: `)
	// broken matches errors about values without the type of their schema. Which one a rule meets first varies.
	broken = regexp.MustCompile(`invalid data, .*? evaluating rule`)
)

func masked(v any) string {
	message, _ := v.(string)
	return broken.ReplaceAllString(wholes.ReplaceAllString(message, "Invalid value: "), "invalid data evaluating rule")
}

// plain returns the parts of a response that are compared.
func (r response) plain(table bool) any {
	text, _ := json.Marshal(r.body)
	text = ownPorts.ReplaceAll(ownParts.ReplaceAll(text, []byte("*")), []byte("${1}0"))
	if table {
		text = ages.ReplaceAll(text, []byte(`"*"`))
	}
	var o tree
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&o) != nil {
		o = tree{"text": string(text)}
	}
	if message, ok := o["message"].(string); ok {
		o["message"] = masked(message)
	}
	if m, ok := o["metadata"].(tree); ok {
		delete(m, "resourceVersion")
		if managed, ok := m["managedFields"].([]any); ok { // sorted by the second
			slices.SortFunc(managed, func(a, b any) int { return strings.Compare(jsonText(a), jsonText(b)) })
		}
	}
	if rows, ok := o["rows"].([]any); ok {
		for _, row := range rows {
			object, _ := row.(tree)["object"].(tree)
			if m, ok := object["metadata"].(tree); ok {
				delete(m, "resourceVersion")
				delete(m, "managedFields") // get compares them
			}
		}
	}
	if details, ok := o["details"].(tree); ok && details["causes"] != nil {
		causes := []any{}
		for _, each := range details["causes"].([]any) {
			c, _ := each.(tree)
			if c["message"] = masked(c["message"]); !strings.Contains(jsonText(c), "contributed to estimated rule cost total") {
				causes = append(causes, c)
			}
		}
		slices.SortFunc(causes, func(a, b any) int { return strings.Compare(jsonText(a), jsonText(b)) })
		if details["causes"] = causes; len(causes) > 1 {
			delete(o, "message") // the causes again
		}
	}
	warnings := []any{}
	for _, w := range r.warnings {
		warnings = append(warnings, ownParts.ReplaceAllString(masked(w), "*"))
	}
	return tree{"warnings": warnings, "body": o}
}

func jsonText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// A difference is a place at which two responses differ.
type difference struct {
	path      string
	peer, own string
}

func (d difference) String() string {
	return fmt.Sprintf("at %s\n      kube-apiserver %.600s\n      Tidemark       %.600s", d.path, d.peer, d.own)
}

// compare returns the differences of two responses.
func compare(peer, own response, table bool) []difference {
	if peer.code != own.code {
		return []difference{{".code", fmt.Sprintf("%d %s", peer.code, peer.said()), fmt.Sprintf("%d %s", own.code, own.said())}}
	}
	return differences("", peer.plain(table), own.plain(table), nil)
}

// said is the message of a Status, and empty for an object.
func (r response) said() string {
	if message, ok := r.body["message"].(string); ok {
		return message
	}
	return ""
}

func differences(path string, peer, own any, found []difference) []difference {
	switch p := peer.(type) {
	case tree:
		o, ok := own.(tree)
		if !ok {
			break
		}
		names := map[string]bool{}
		for name := range p {
			names[name] = true
		}
		for name := range o {
			names[name] = true
		}
		for _, name := range sortedNames(names) {
			_, there := p[name]
			_, here := o[name]
			if there != here {
				found = append(found, difference{path + "." + name, shown(p[name], there), shown(o[name], here)})
				continue
			}
			found = differences(path+"."+name, p[name], o[name], found)
		}
		return found
	case []any:
		o, ok := own.([]any)
		if !ok || len(o) != len(p) {
			break
		}
		for i := range p {
			found = differences(path+"[]", p[i], o[i], found)
		}
		return found
	}
	if !reflect.DeepEqual(peer, own) {
		found = append(found, difference{path, jsonText(peer), jsonText(own)})
	}
	return found
}

func shown(v any, there bool) string {
	if !there {
		return "(nothing)"
	}
	return jsonText(v)
}

func sortedNames(names map[string]bool) (all []string) {
	for name := range names {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

const strict = "strict decoding error: "

// nulled matches kube-apiserver's error for an apply that sets null, or that removes the last member of a map or list with
// other owners.
var nulled = regexp.MustCompile(`must be of type [a-z,]+: "null"`)

// documented returns the row of docs/compatibility.md that describes why two responses differ, or nothing.
func documented(r request, peer, own response, differ []difference) string {
	there, here := peer.said(), own.said()
	i, j := strings.LastIndex(there, strict), strings.LastIndex(here, strict)
	apply := r.media == applyPatch
	switch {
	case peer.code == 422 && own.code == 400 && i >= 0 && j >= 0 && there[i:] == here[j:]:
		return "F4"
	case peer.code == 500 && own.code == 400 && there == here:
		return "S5"
	case apply && peer.code == 422 && nulled.MatchString(there) && (own.code < 300 || own.code == 422):
		return "S4, S5"
	case apply && own.code == 400 && strings.Contains(here, "cannot unmarshal number") && (peer.code < 300 || peer.code == 422):
		return "G9"
	case peer.code == 500 && own.code == 422 && strings.HasPrefix(there, "duplicate nodePort"):
		return "Service"
	case peer.code == 422 && strings.Contains(there, "disallowed by cluster policy"):
		return "Pods and workloads"
	case own.code == 400 && strings.Contains(here, "a quantity must have at most"):
		return "limits"
	case peer.code != own.code || peer.code >= 300:
		return ""
	case lostManagers(peer) && only(differ, ".body.metadata.managedFields"):
		return "G7"
	case apply && strings.Contains(jsonText(r.body), "null") && only(differ, ".body.metadata.managedFields", ".body.metadata.generation"):
		return "S5"
	case r.accept == asTable && only(differ, ".body.rows[].object.metadata.annotations"):
		return "C2"
	}
	return ""
}

// only reports whether all differences are below some paths.
func only(differ []difference, paths ...string) bool {
	return !slices.ContainsFunc(differ, func(d difference) bool {
		return !slices.ContainsFunc(paths, func(path string) bool { return strings.HasPrefix(d.path, path) })
	})
}

// lostManagers reports whether an object has no managed fields.
func lostManagers(r response) bool {
	metadata, ok := r.body["metadata"].(tree)
	return ok && metadata["managedFields"] == nil
}
