package integration_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// send sends a JSON request over a client's connection, and returns the status code
// and the body.
func send(t testing.TB, h *http.Client, method, url, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	if _, err := io.Copy(&text, resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, text.String()
}

// exchange sends a request over a connection of its own. PATCH is a strategic merge
// patch; MERGE is a merge patch, JSON a JSON patch, APPLY a server-side apply, and TABLE a GET of a Table.
func exchange(t *testing.T, c *rest.Config, method, path, body string) (int, http.Header, []byte) {
	t.Helper()
	media, accept := "application/json", ""
	switch method {
	case "TABLE":
		method, accept = http.MethodGet, "application/json;as=Table;g=meta.k8s.io;v=v1"
	case http.MethodPatch:
		media = "application/strategic-merge-patch+json"
	case "MERGE":
		method, media = http.MethodPatch, "application/merge-patch+json"
	case "JSON":
		method, media = http.MethodPatch, "application/json-patch+json"
	case "APPLY":
		method, media = http.MethodPatch, "application/apply-patch+yaml"
	}
	r, err := http.NewRequestWithContext(t.Context(), method, c.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	response, err := servertest.Client(t, c).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, response.Header, bytes.TrimSpace(b)
}

// A step is a request and the wanted response: the status code, and either the
// message of the Status (a string), or JSON values by their paths in the body, such as
// {"spec.replicas": "3"}.
type step struct {
	request string // "GET /path"
	body    string
	code    int
	want    any // string, map[string]string, nil
}

// run sends requests one after the other, and reports each unexpected response.
func run(t *testing.T, c *rest.Config, steps []step) {
	t.Helper()
	for _, s := range steps {
		method, path, _ := strings.Cut(s.request, " ")
		code, _, b := exchange(t, c, method, path, s.body)
		if code != s.code {
			t.Errorf("%s %s: %d, want %d\n%s", s.request, s.body, code, s.code, b)
			continue
		}
		want, _ := s.want.(map[string]string)
		if message, ok := s.want.(string); ok {
			text, _ := json.Marshal(message)
			want = map[string]string{"message": string(text)}
		}
		for path, value := range want {
			if got := pick(t, b, path); !sameJSON(t, got, value) {
				t.Errorf("%s %s: %s is %s, want %s", s.request, s.body, path, got, value)
			}
		}
	}
}

// pick returns the JSON value at a path, or "null".
func pick(t *testing.T, b []byte, path string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	for name := range strings.SplitSeq(path, ".") {
		var i int
		switch in := v.(type) {
		case map[string]any:
			v = in[name]
		case []any:
			if _, err := fmt.Sscan(name, &i); err != nil || i >= len(in) {
				return "null"
			}
			v = in[i]
		default:
			return "null"
		}
	}
	text, _ := json.Marshal(v)
	return string(text)
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var va, vb any
	if err := json.Unmarshal([]byte(a), &va); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &vb); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	return reflect.DeepEqual(va, vb)
}

// post sends a POST, and returns the status code and the body.
func post(t *testing.T, c *rest.Config, path, body string) (int, []byte) {
	t.Helper()
	code, _, b := exchange(t, c, http.MethodPost, path, body)
	return code, b
}

// create sends a POST that must create an object, and decodes the response.
func create[T any](t *testing.T, c *rest.Config, path, body string) *T {
	t.Helper()
	code, b := post(t, c, path, body)
	if code != http.StatusCreated {
		t.Fatalf("POST %s %s: %d %s", path, body, code, b)
	}
	o := new(T)
	if err := json.Unmarshal(b, o); err != nil {
		t.Fatal(err)
	}
	return o
}

// wantRefused sends a POST that must fail with a code and a message.
func wantRefused(t *testing.T, c *rest.Config, path, body string, code int32, message string) {
	t.Helper()
	got, b := post(t, c, path, body)
	var s metav1.Status
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if int32(got) != code || s.Code != code || s.Message != message {
		t.Errorf("POST %s %s: %d %q, want %d %q", path, body, got, s.Message, code, message)
	}
}

// object sends a GET that must succeed, and decodes the object.
func object[T any](t *testing.T, c *rest.Config, path string) *T {
	t.Helper()
	code, body := servertest.Get(t, c, path)
	o := new(T)
	if err := json.Unmarshal([]byte(body), o); err != nil || code != http.StatusOK {
		t.Fatalf("GET %s: %d %s (%v)", path, code, body, err)
	}
	return o
}

// remove deletes an object, which must succeed.
func remove(t *testing.T, c *rest.Config, path string) {
	t.Helper()
	if code, _, b := exchange(t, c, http.MethodDelete, path, ""); code != http.StatusOK {
		t.Fatalf("DELETE %s: %d %s", path, code, b)
	}
}

// settle waits until the controllers have seen every write and have nothing left to
// do. It reads the metrics three times, so that each number is at least as new as the
// one before: the revision that the controllers have seen, the depth of their queues,
// and the revision of the store. If the queues are empty and the two revisions are
// equal, nothing was written in between.
func settle(t testing.TB, c *rest.Config) {
	t.Helper()
	h := servertest.Client(t, c)
	for {
		seen := metrics(t, h, c.Host)["tidemark_controllers_revision"]
		var left float64
		for name, value := range metrics(t, h, c.Host) {
			if strings.HasPrefix(name, "workqueue_depth{") {
				left += value
			}
		}
		if left == 0 && metrics(t, h, c.Host)["tidemark_store_revision"] == seen {
			return
		}
	}
}

// metrics returns the server's metrics by their names with labels.
func metrics(t testing.TB, h *http.Client, host string) map[string]float64 {
	t.Helper()
	_, text := send(t, h, http.MethodGet, host+"/metrics", "")
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			all[name] = n
		}
	}
	return all
}
