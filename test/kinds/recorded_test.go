// Package kinds_test compares the defaults, errors and warnings of kinds with the recorded
// responses of kube-apiserver v1.37.2 to the same requests.
package kinds_test

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// exchange is a recorded request and its response.
type exchange struct {
	Do       string          `json:"do"`             // method and path; {ns} is the namespace
	Type     string          `json:"type,omitempty"` // media type of the body; empty: JSON
	Body     json.RawMessage `json:"body,omitempty"`
	Code     int             `json:"code"` // 0: the response does not matter
	Warnings []string        `json:"warnings,omitempty"`
	Message  string          `json:"message,omitempty"`
	Object   map[string]any  `json:"object,omitempty"`
	// Differs is why Tidemark responds differently; empty: it does not.
	Differs string `json:"differs,omitempty"`
}

var record = flag.String("record", "", "a file of requests, {\"do\":...,\"body\":...} in each line: add them, and what kube-apiserver responds, to those that are recorded; all: record those again")

// TestRecord makes the record longer, or anew for another version of kube-apiserver.
func TestRecord(t *testing.T) {
	tier.Full(t)
	if *record == "" {
		t.Skip("nothing to record")
	}
	before, requests := recorded(t), []exchange(nil)
	if *record == "all" {
		before, requests = nil, before
	} else {
		f, err := os.Open(*record)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		requests = exchanges(t, f)
	}
	servers.Peer(t, func(t *testing.T, s servers.Server) {
		client, err := rest.HTTPClientFor(servers.Quick(s.Config))
		if err != nil {
			t.Fatal(err)
		}
		all := before
		for _, e := range requests {
			got := send(t, client, s, e)
			// kube-apiserver reports errors of map members in random order: not tested.
			steady := true
			for try := 0; got.Code == http.StatusUnprocessableEntity && try < 8; try++ {
				again := send(t, client, s, e)
				steady = steady && again.Message == got.Message
			}
			if !steady {
				t.Logf("not steady: %s %s", e.Do, e.Body)
				if *record != "all" {
					continue
				}
				got = e
			}
			if *record == "all" && e.Code == 0 {
				got = exchange{}
			}
			got.Do, got.Type, got.Body, got.Differs = e.Do, e.Type, e.Body, e.Differs
			all = append(all, got)
		}
		var out bytes.Buffer
		w := gzip.NewWriter(&out)
		for _, e := range all {
			if err := json.NewEncoder(w).Encode(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(w.Close(), os.WriteFile(recordedFile, out.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	})
}

// TestRecorded sends the recorded requests in their order. A request that is marked as
// differing must differ; otherwise the mark is out of date.
func TestRecorded(t *testing.T) {
	tier.Full(t)
	compare := func(t *testing.T, s servers.Server) {
		client, err := rest.HTTPClientFor(s.Config)
		if err != nil {
			t.Fatal(err)
		}
		differing := 0
		for line, e := range recorded(t) {
			got := send(t, client, s, e)
			if e.Code == 0 {
				continue
			}
			if s.Peer && unordered(got.Message) == unordered(e.Message) { // kube-apiserver reports some errors in random order
				got.Message = e.Message
			}
			wrong := got.Code != e.Code || got.Message != e.Message || !slices.Equal(got.Warnings, e.Warnings) || !reflect.DeepEqual(got.Object, e.Object)
			switch {
			case !s.Peer && e.Differs != "" && !wrong:
				t.Errorf("line %d, %s %s, does not differ any more", line+1, e.Do, e.Body)
			case wrong && (s.Peer || e.Differs == ""):
				differing++
				t.Errorf("line %d, %s %s:\n got %s\nwant %s", line+1, e.Do, e.Body, got.short(), e.short())
			}
			if differing == 20 {
				t.Fatal("and so on")
			}
		}
	}
	t.Run("tidemark", func(t *testing.T) { compare(t, servers.Server{Config: alone(t), Namespace: "default"}) })
	servers.Peer(t, compare)
}

// unordered is a message with its errors in no order.
func unordered(message string) string {
	head, list, ok := strings.Cut(message, " is invalid: [")
	if !ok {
		return message
	}
	errs := strings.Split(strings.TrimSuffix(list, "]"), ", ")
	slices.Sort(errs)
	return head + " is invalid: [" + strings.Join(errs, ", ")
}

const recordedFile = "testdata/recorded.jsonl.gz"

func recorded(t *testing.T) (all []exchange) {
	t.Helper()
	f, err := os.Open(recordedFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	return exchanges(t, r)
}

func exchanges(t *testing.T, r io.Reader) (all []exchange) {
	t.Helper()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e exchange
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

func send(t *testing.T, client *http.Client, s servers.Server, e exchange) exchange {
	t.Helper()
	method, path, _ := strings.Cut(e.Do, " ")
	request, err := http.NewRequestWithContext(t.Context(), method, s.Config.Host+strings.ReplaceAll(path, "{ns}", s.Namespace), bytes.NewReader(bytes.ReplaceAll(e.Body, []byte("{ns}"), []byte(s.Namespace))))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", cmp.Or(e.Type, "application/json"))
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := exchange{Code: response.StatusCode}
	got.Warnings = append(got.Warnings, response.Header["Warning"]...)
	slices.Sort(got.Warnings)
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatalf("%s: %v in %s", e.Do, err, body)
	}
	if o["kind"] == "Status" && got.Code >= 300 {
		message, _ := o["message"].(string)
		message = strings.ReplaceAll(message, `:"`+s.Namespace+`"`, `:"{ns}"`)
		got.Message = address.ReplaceAllString(madeUID.ReplaceAllString(message, "<uid>"), "<address>")
		if method == "PATCH" { // one that kube-apiserver tries twice has the warnings of its first try
			got.Warnings = nil
		}
		return got
	}
	delete(o, "kind")
	delete(o, "apiVersion")
	steady(o)
	if meta, ok := o["metadata"].(map[string]any); ok {
		delete(meta, "namespace")
	}
	got.Object = o
	return got
}

// madeUID matches random UIDs; those in requests have another form.
var madeUID = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}`)

// address is one that a server has picked for a Service.
var address = regexp.MustCompile(`\b10\.(0|96|1[01]\d|9\d)\.\d+\.\d+\b`)

// steady removes the parts that differ from run to run.
func steady(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"resourceVersion", "creationTimestamp", "deletionTimestamp", "managedFields", "lastTransitionTime", "lastPhaseTransitionTime", "lastUpdateTime", "timeAdded", "username", "controller-uid", "batch.kubernetes.io/controller-uid"} {
			delete(v, name)
		}
		for _, name := range []string{"clusterIP", "clusterIPs", "nodePort", "healthCheckNodePort"} {
			if is := fmt.Sprint(v[name]); v[name] != nil && is != "None" && is != "[None]" { // the server picks it
				v[name] = "picked"
			}
		}
		for _, name := range []string{"claimRef", "involvedObject", "regarding"} {
			if of, ok := v[name].(map[string]any); ok {
				delete(of, "namespace")
			}
		}
		if v["resource"] == nil { // who reserves something keeps their UID
			delete(v, "uid")
		}
		for _, member := range v {
			steady(member)
		}
	case []any:
		for _, item := range v {
			steady(item)
		}
	}
}

func (e exchange) short() string {
	e.Do, e.Type, e.Body = "", "", nil
	out, _ := json.Marshal(e)
	return string(out[:min(len(out), 1000)])
}
