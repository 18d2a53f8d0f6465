// Package kinds_test compares what kinds default, refuse and warn of with what
// kube-apiserver v1.36.3 answered to the same requests.
package kinds_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/test/servers"
)

// exchange is a recorded request and its answer.
type exchange struct {
	Do       string // method and path; {ns} is the namespace
	Body     json.RawMessage
	Code     int // 0: the answer does not matter
	Warnings []string
	Message  string
	Object   map[string]any
	// Differs says why Tidemark answers otherwise; empty: it does not.
	Differs string
}

// TestRecorded sends what was recorded, in its order. What is known to differ has to
// differ: else the record has to say so no more.
func TestRecorded(t *testing.T) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
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
			wrong := got.Code != e.Code || got.Message != e.Message || !slices.Equal(got.Warnings, e.Warnings) || !reflect.DeepEqual(got.Object, e.Object)
			switch {
			case !s.Peer && e.Differs != "" && !wrong:
				t.Errorf("line %d, %s %s, does not differ any more", line+1, e.Do, e.Body)
			case wrong && (s.Peer || e.Differs == ""):
				differing++
				t.Errorf("line %d, %s %s:\n got %s\nwant %s", line+1, e.Do, e.Body, text(got), text(e))
			}
			if differing == 20 {
				t.Fatal("and so on")
			}
		}
	})
}

func recorded(t *testing.T) (all []exchange) {
	t.Helper()
	f, err := os.Open("testdata/recorded.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
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
	request, err := http.NewRequestWithContext(t.Context(), method, s.Config.Host+strings.ReplaceAll(path, "{ns}", s.Namespace), bytes.NewReader(e.Body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := exchange{Code: answer.StatusCode}
	got.Warnings = append(got.Warnings, answer.Header["Warning"]...)
	slices.Sort(got.Warnings)
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatalf("%s: %v in %s", e.Do, err, body)
	}
	if o["kind"] == "Status" && got.Code >= 300 {
		got.Message, _ = o["message"].(string)
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

// steady takes out what differs from run to run.
func steady(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"resourceVersion", "creationTimestamp", "managedFields", "lastTransitionTime", "lastUpdateTime", "timeAdded", "username"} {
			delete(v, name)
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

func text(e exchange) string {
	e.Do, e.Body = "", nil
	out, _ := json.Marshal(e)
	return string(out[:min(len(out), 1000)])
}
