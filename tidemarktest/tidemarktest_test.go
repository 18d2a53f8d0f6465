package tidemarktest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/nethttp"
)

var world = tidemarktest.World{
	CRDDirectoryPaths:     []string{"testdata/crd", "testdata/absent"},
	Fixtures:              fstest.MapFS{"a/shop.yaml": {Data: []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n")}, "b/one.json": {Data: []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"namespace":"shop","name":"one"},"spec":{"size":1}}`)}, "README.md": {Data: []byte("# none")}},
	Users:                 []tidemarktest.User{{Name: "root", Groups: []string{"system:masters"}}},
	ErrorIfCRDPathMissing: false,
}

// request sends a request and returns the code and the body.
func request(t *testing.T, e *tidemarktest.Env, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, e.URL()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := nethttp.Client(e).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// TestForks: each test has its own copy of the world, at the same time as others.
func TestForks(t *testing.T) {
	const configMaps = "/api/v1/namespaces/shop/configmaps"
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			env := world.Fork(t)
			if code, text := request(t, env, "GET", "/apis/example.com/v1/namespaces/shop/widgets/one", ""); code != 200 || !strings.Contains(text, `"size":1`) {
				t.Errorf("the fixture: %d %s", code, text)
			}
			if code, text := request(t, env, "POST", configMaps, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i)); code != 201 {
				t.Errorf("a create: %d %s", code, text)
			}
			var list struct {
				Items []struct{ Metadata struct{ Name string } }
			}
			_, text := request(t, env, "GET", configMaps, "")
			if err := json.Unmarshal([]byte(text), &list); err != nil {
				t.Fatal(err)
			}
			for _, item := range list.Items {
				if name := item.Metadata.Name; strings.HasPrefix(name, "c") && name != fmt.Sprintf("c%d", i) {
					t.Errorf("this world has an object of another one: %s", name)
				}
			}
		})
	}
}

// TestStart: the zero value of World works.
func TestStart(t *testing.T) {
	t.Parallel()
	env := tidemarktest.Start(t)
	if code, text := request(t, env, "GET", "/api/v1/namespaces/default", ""); code != 200 {
		t.Errorf("%d %s", code, text)
	}
	text, err := os.ReadFile(env.Kubeconfig(t))
	if err != nil || !strings.Contains(string(text), env.URL()) || len(env.CAData()) == 0 || env.Token() == "" {
		t.Errorf("the kubeconfig: %v\n%s", err, text)
	}
	env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}}")
	if code, _ := request(t, env, "GET", "/api/v1/namespaces/default/configmaps/applied", ""); code != 200 {
		t.Errorf("the applied object: %d", code)
	}
}

// TestUsers: the rights of users are those of RBAC.
func TestUsers(t *testing.T) {
	t.Parallel()
	env := world.Fork(t)
	const secrets = "/api/v1/namespaces/default/secrets"
	for code, user := range map[int]*tidemarktest.Env{403: env.As("alice", "developers"), 200: env.As("root")} {
		if got, text := request(t, user, "GET", secrets, ""); got != code {
			t.Errorf("%d, want %d: %s", got, code, text)
		}
	}
	if err := env.As("alice").Close(); err != nil {
		t.Error(err)
	}
	if code, _ := request(t, env, "GET", secrets, ""); code != 200 {
		t.Errorf("after the Env of a user was closed: %d", code)
	}
}

// TestWebhooks: a webhook that names a Service is called in the test, in each fork at another port.
func TestWebhooks(t *testing.T) {
	t.Parallel()
	hooks := tidemarktest.World{Webhooks: tidemarktest.Webhooks{Paths: []string{"testdata/webhook"}}}
	for range 2 {
		env := hooks.Fork(t)
		var calls atomic.Int32
		nethttp.Serve(t, env.Webhooks(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			calls.Add(1)
			var review struct {
				Request struct {
					UID string `json:"uid"`
				} `json:"request"`
			}
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.URL.Path != "/validate" {
				t.Errorf("%s: %v", r.URL, err)
			}
			fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"message":"not today"}}}`, review.Request.UID)
		}))
		code, text := request(t, env, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"}}`)
		if code != 400 || !strings.Contains(text, "not today") || calls.Load() != 1 {
			t.Errorf("%d %s, %d calls", code, text, calls.Load())
		}
		if _, err := os.Stat(filepath.Join(env.Webhooks().CertDir(t), "tls.key")); err != nil {
			t.Error(err)
		}
	}
}

// TestWebhookHost: webhooks are served on an IP address, or on localhost.
func TestWebhookHost(t *testing.T) {
	t.Parallel()
	hooks := tidemarktest.Webhooks{Paths: []string{"testdata/webhook"}, LocalServingHost: "localhost"}
	env := (&tidemarktest.World{Webhooks: hooks}).Fork(t)
	nethttp.Serve(t, env.Webhooks(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	if code, text := request(t, env, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"}}`); code != 500 || !strings.Contains(text, "418") {
		t.Errorf("%d %s", code, text)
	}
	hooks.LocalServingHost = "hook.example.com"
	if _, err := (&tidemarktest.World{Webhooks: hooks}).Open(t.Context()); err == nil || !strings.Contains(err.Error(), `"hook.example.com": want an IP address or localhost`) {
		t.Errorf("a name: %v", err)
	}
}

// failing is a test that has failed, which records its log lines.
type failing struct {
	tidemarktest.TB
	log      strings.Builder
	cleanups []func()
}

func (f *failing) Failed() bool                 { return true }
func (f *failing) Cleanup(c func())             { f.cleanups = append(f.cleanups, c) }
func (f *failing) Logf(format string, a ...any) { fmt.Fprintf(&f.log, format+"\n", a...) }

// TestDump: a failed test shows the changes.
func TestDump(t *testing.T) {
	dir := t.TempDir()
	for _, variable := range []string{"", dir} {
		t.Setenv("TIDEMARK_DUMP", variable)
		f := &failing{TB: t}
		env := world.Fork(f)
		env.Apply(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: seen}}", "{apiVersion: v1, kind: Node, metadata: {name: node}, status: {phase: Running}}")
		for _, c := range f.cleanups {
			c()
		}
		if variable == "" && !strings.Contains(f.log.String(), "apply   configmaps default/seen") || variable == "" && !strings.Contains(f.log.String(), "apply   nodes/status node") {
			t.Errorf("the log lacks a change:\n%s", &f.log)
		}
	}
	for _, name := range []string{"state.yaml", "history.jsonl"} {
		text, err := os.ReadFile(filepath.Join(dir, "TestDump", name))
		if err != nil || !strings.Contains(string(text), "default/seen") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestErrors: a mistake in a world fails the test that forks it, and the error has its place.
func TestErrors(t *testing.T) {
	t.Parallel()
	for want, w := range map[string]*tidemarktest.World{
		"(relative to ":              {CRDDirectoryPaths: []string{"testdata/none"}, ErrorIfCRDPathMissing: true},
		"bad.yaml":                   {Fixtures: fstest.MapFS{"bad.yaml": {Data: []byte("kind: [")}}},
		"no kind Widget":             {Fixtures: fstest.MapFS{"w.yaml": {Data: []byte("{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}")}}},
		"do not exist: config/crds)": {CRDDirectoryPaths: []string{"config/crds"}, Fixtures: fstest.MapFS{"w.yaml": {Data: []byte("{apiVersion: example.com/v1, kind: Widget, metadata: {name: a}}")}}},
		".datta: field not declared": {Fixtures: fstest.MapFS{"c.yaml": {Data: []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, datta: {}}")}}},
		"there is no controller ":    {Controllers: []string{"none"}},
		`of Kubernetes, "1.99":`:     {KubernetesVersion: "1.99"},
	} {
		if _, err := w.Open(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q in it", err, want)
		}
	}
}

// inProcess is a Host whose requests reach a handler without a network.
type inProcess struct{ handler http.Handler }

func (h inProcess) Control(ctx context.Context, method, path string, body []byte) (int, io.ReadCloser, error) {
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, path, bytes.NewReader(body)))
	return w.Code, io.NopCloser(w.Body), nil
}

func (h inProcess) API() http.RoundTripper { return h }

func (h inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestHost: a World with a Host uses its transports, and no process.
func TestHost(t *testing.T) {
	mux := http.NewServeMux()
	var requests []string
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		io.WriteString(w, `{"name":"fork","url":"https://in.process","token":"secret"}`)
	})
	w := &tidemarktest.World{Host: inProcess{mux}}
	env, err := w.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := request(t, env, "GET", "/version", ""); code != 200 || nethttp.Transport(env) == nil {
		t.Errorf("%d", code)
	}
	if err := env.Close(); err != nil {
		t.Error(err)
	}
	want := "[POST /control/v1/worlds/root/settle  POST /control/v1/worlds  GET /version Bearer secret DELETE /control/v1/worlds/fork ]"
	if got := fmt.Sprint(requests); got != want {
		t.Errorf("the requests are %s, want %s", got, want)
	}
}

// ending is a test whose cleanups the test calls.
type ending struct {
	*recording
	cleanups []func()
}

func (e *ending) Cleanup(f func()) { e.cleanups = append(e.cleanups, f) }

func (e *ending) end() {
	for i := len(e.cleanups) - 1; i >= 0; i-- {
		e.cleanups[i]()
	}
}
