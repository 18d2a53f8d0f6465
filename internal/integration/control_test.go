package integration_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/control"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// controlAPI is the control API of a server in memory.
type controlAPI struct {
	t   *testing.T
	url string
}

func startControl(t *testing.T) *controlAPI {
	t.Helper()
	s := servertest.Start(t, new(tidemark.Server))
	listener := httptest.NewServer(s.Control())
	t.Cleanup(listener.Close)
	return &controlAPI{t, listener.URL}
}

// send sends a request and returns the code and the body.
func (a *controlAPI) send(method, path, media, body string) (int, string) {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		a.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		a.t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// do sends a JSON request, expects a code, and decodes the response into out, which may be nil.
func (a *controlAPI) do(code int, method, path, body string, out any) {
	a.t.Helper()
	got, text := a.send(method, path, "application/json", body)
	if got != code {
		a.t.Fatalf("%s %s: %d, want %d: %s", method, path, got, code, text)
	}
	if out == nil {
		return
	}
	if err := json.Unmarshal([]byte(text), out); err != nil {
		a.t.Fatalf("%s %s: %v: %s", method, path, err, text)
	}
}

func (a *controlAPI) create(body string) control.Description {
	a.t.Helper()
	var d control.Description
	a.do(http.StatusCreated, "POST", "/control/v1/worlds", body, &d)
	return d
}

func (a *controlAPI) applyYAML(world, text string) {
	a.t.Helper()
	if code, body := a.send("POST", "/control/v1/worlds/"+world+"/apply", "application/yaml", text); code != http.StatusOK {
		a.t.Fatalf("apply: %d: %s", code, body)
	}
}

// getAs reads from the API of a world with a kubeconfig.
func getAs(t *testing.T, kubeconfig, path string) (int, string) {
	t.Helper()
	c, err := clientcmd.RESTConfigFromKubeConfig([]byte(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	return servertest.Get(t, c, path)
}

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// TestControlFork: a fork begins with the objects of its parent, and neither sees the writes of the other.
func TestControlFork(t *testing.T) {
	a := startControl(t)
	base := a.create(`{"name":"base"}`)
	if base.Parent != control.Root || base.Revision == 0 || !strings.HasSuffix(base.URL, "/fork/base") {
		t.Errorf("the description %+v", base)
	}
	// The custom resource comes before its definition and its namespace.
	a.applyYAML("base", `
apiVersion: example.com/v1
kind: Widget
metadata: {namespace: shop, name: one}
spec: {size: 9007199254740993}
status: {phase: Done}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
# nothing but a comment
---`+widgets)
	fork := a.create(`{"parent":"base"}`)
	code, before := getAs(t, base.Kubeconfig, "/apis/example.com/v1/namespaces/shop/widgets/one")
	if code != 200 || !strings.Contains(before, "9007199254740993") || !strings.Contains(before, `"phase":"Done"`) {
		t.Errorf("in the parent: %d %s", code, before)
	}
	if code, after := getAs(t, fork.Kubeconfig, "/apis/example.com/v1/namespaces/shop/widgets/one"); code != 200 || after != before {
		t.Errorf("in the fork: %d %s", code, after)
	}
	a.applyYAML(fork.Name, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: own}\ndata: {a: b}\n")
	if code, _ := getAs(t, fork.Kubeconfig, "/api/v1/namespaces/default/configmaps/own"); code != 200 {
		t.Errorf("the fork responds with %d for its own object", code)
	}
	if code, _ := getAs(t, base.Kubeconfig, "/api/v1/namespaces/default/configmaps/own"); code != 404 {
		t.Errorf("the parent responds with %d for an object of the fork", code)
	}
	var again control.Description
	a.do(200, "GET", "/control/v1/worlds/"+fork.Name, "", &again)
	if again.Revision <= fork.Revision || fork.Revision < base.Revision {
		t.Errorf("revisions: parent %d, fork %d, then %d", base.Revision, fork.Revision, again.Revision)
	}
	old := a.create(fmt.Sprintf(`{"name":"old","parent":%q,"revision":%d}`, fork.Name, fork.Revision))
	if code, _ := getAs(t, old.Kubeconfig, "/api/v1/namespaces/default/configmaps/own"); code != 404 || old.Revision != fork.Revision {
		t.Errorf("a fork at revision %d has %d, and responds with %d for a later object", fork.Revision, old.Revision, code)
	}
	a.do(404, "POST", "/control/v1/worlds", fmt.Sprintf(`{"parent":%q,"revision":%d}`, fork.Name, again.Revision+1000), nil)
	a.do(204, "DELETE", "/control/v1/worlds/old", "", nil)
	a.do(204, "DELETE", "/control/v1/worlds/"+fork.Name, "", nil)
	a.do(404, "GET", "/control/v1/worlds/"+fork.Name, "", nil)
	var list struct{ Worlds []struct{ Name string } }
	a.do(200, "GET", "/control/v1/worlds", "", &list)
	if got := fmt.Sprint(list.Worlds); got != "[{root} {base}]" {
		t.Errorf("the worlds are %s", got)
	}
}

// TestControlUsers: a user has the rights of its groups, with the token and with the certificate.
func TestControlUsers(t *testing.T) {
	a := startControl(t)
	var c control.Credentials
	a.do(201, "POST", "/control/v1/worlds/root/users", `{"name":"alice","groups":["system:masters"]}`, &c)
	if code, body := getAs(t, c.Kubeconfig, "/api/v1/namespaces/default/secrets"); code != 200 {
		t.Errorf("a member of system:masters gets %d: %s", code, body)
	}
	a.do(201, "POST", "/control/v1/worlds/root/users", `{"name":"bob: \"1\""}`, &c)
	if code, body := getAs(t, c.Kubeconfig, "/api/v1/namespaces/default/secrets"); code != 403 || !strings.Contains(body, "bob") {
		t.Errorf("a user without rights gets %d: %s", code, body)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(c.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	config.BearerToken, config.CertData, config.KeyData = "", []byte(c.Certificate), []byte(c.Key)
	if code, body := servertest.Get(t, config, "/api/v1/namespaces/default/secrets"); code != 403 || !strings.Contains(body, "bob") {
		t.Errorf("the certificate gets %d: %s", code, body)
	}
}

// TestControlUsersOfForks: a fork accepts the tokens of its parent, but not the other way around.
func TestControlUsersOfForks(t *testing.T) {
	a := startControl(t)
	parent := a.create(`{"name":"parent"}`)
	fork := a.create(`{"parent":"parent","name":"fork"}`)
	for _, row := range []struct {
		of   string
		code map[string]int // by URL
	}{
		{"parent", map[string]int{parent.URL: 200, fork.URL: 200}},
		{"fork", map[string]int{parent.URL: 401, fork.URL: 200}},
	} {
		var c control.Credentials
		a.do(201, "POST", "/control/v1/worlds/"+row.of+"/users", `{"name":"alice","groups":["system:masters"]}`, &c)
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(c.Kubeconfig))
		if err != nil {
			t.Fatal(err)
		}
		for url, want := range row.code {
			config.Host = url
			if code, body := servertest.Get(t, config, "/api/v1/namespaces/default/secrets"); code != want {
				t.Errorf("the token of %s gets %d at %s, want %d: %s", row.of, code, url, want, body)
			}
		}
	}
}

// TestControlApplyAgain checks that a second apply replaces existing objects, and that a webhook
// with a Service calls the local server instead.
func TestControlApplyAgain(t *testing.T) {
	a := startControl(t)
	manifest := func(value string) string {
		text, err := json.Marshal(`
kind: List
apiVersion: v1
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: ` + value + `}}
- apiVersion: admissionregistration.k8s.io/v1
  kind: ValidatingWebhookConfiguration
  metadata: {name: hook}
  webhooks:
  - name: a.example.com
    clientConfig: {service: {namespace: system, name: hooks, path: /validate}}
    admissionReviewVersions: [v1]
    sideEffects: None
    rules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}]
`)
		if err != nil {
			t.Fatal(err)
		}
		return `{"manifests":[{"name":"all.yaml","content":` + string(text) + `}],"webhooks":{"url":"https://127.0.0.1:1234","caBundle":""}}`
	}
	var response struct {
		Applied []struct{ Kind, Namespace, Name, Result string }
	}
	for _, result := range []string{"created", "updated"} {
		a.do(200, "POST", "/control/v1/worlds/root/apply", manifest(result), &response)
		want := fmt.Sprintf("[{ConfigMap default c %[1]s} {ValidatingWebhookConfiguration  hook %[1]s}]", result)
		if got := fmt.Sprint(response.Applied); got != want {
			t.Errorf("applied %s, want %s", got, want)
		}
	}
	_, state := a.send("GET", "/control/v1/worlds/root/state", "", "")
	for _, want := range []string{"a: updated", "url: https://127.0.0.1:1234/validate"} {
		if !strings.Contains(state, want) {
			t.Errorf("the state lacks %q", want)
		}
	}
}

// TestApplyWebhooksOnly: of the directory of a kustomization, the webhook configurations count.
func TestApplyWebhooksOnly(t *testing.T) {
	a := startControl(t)
	body, err := json.Marshal(map[string]any{"manifests": []any{map[string]any{"webhooksOnly": true, "content": `
resources: [service.yaml]
---
{apiVersion: v1, kind: Service, metadata: {name: hooks, namespace: absent}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: hook}, webhooks: []}
`}}})
	if err != nil {
		t.Fatal(err)
	}
	var response struct {
		Applied []struct{ Kind, Name string }
	}
	a.do(200, "POST", "/control/v1/worlds/root/apply", string(body), &response)
	if got, want := fmt.Sprint(response.Applied), "[{MutatingWebhookConfiguration hook}]"; got != want {
		t.Errorf("applied %s, want %s", got, want)
	}
}

// TestControlForkToken: the token of a fork's administrator is valid in the fork and its forks. Clients that leave out the path
// of the URL, such as kubectl get --raw, do not reach the parent with it.
func TestControlForkToken(t *testing.T) {
	a := startControl(t)
	fork := a.create(`{"name":"outer"}`)
	inner := a.create(`{"name":"inner","parent":"outer"}`)
	for _, c := range []struct {
		path string
		code int
	}{{"", http.StatusUnauthorized}, {"/fork/outer", http.StatusOK}, {"/fork/inner", http.StatusOK}} {
		config, err := clientcmd.RESTConfigFromKubeConfig([]byte(fork.Kubeconfig))
		if err != nil {
			t.Fatal(err)
		}
		config.Host = strings.TrimSuffix(config.Host, "/fork/outer") + c.path
		servertest.WantCode(t, config, "/api/v1/namespaces", c.code, "")
	}
	var again control.Description
	if a.do(200, "GET", "/control/v1/worlds/outer", "", &again); again.Token != fork.Token || again.Token == inner.Token {
		t.Error("the token of a fork is another one each time, or that of its parent")
	}
}

// objectOf returns an object of the state of a world, as YAML.
func (a *controlAPI) objectOf(world, key string) string {
	a.t.Helper()
	_, state := a.send("GET", "/control/v1/worlds/"+world+"/state", "", "")
	_, text, ok := strings.Cut(state, "# "+key+"\n")
	if !ok {
		a.t.Fatalf("there is no %s", key)
	}
	text, _, _ = strings.Cut(text, "\n# ")
	return text
}

// TestControlApplyKeeps checks that apply keeps fields of other managers, and removes fields that
// the manifest no longer has.
func TestControlApplyKeeps(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"controllers":["-*"]}`)
	c, err := clientcmd.RESTConfigFromKubeConfig([]byte(world.Kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	other := func(path, patch string) {
		t.Helper()
		r, err := http.NewRequest("PATCH", world.URL+path, strings.NewReader(patch))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/merge-patch+json")
		response, err := servertest.Client(t, c).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if response.Body.Close(); response.StatusCode != http.StatusOK {
			t.Fatal(response.Status)
		}
	}
	for _, c := range []struct {
		key, first, path, patch, second string
		want, gone                      []string
	}{
		{
			"configmaps default/c",
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {mine: x}}, data: {a: first, b: first}}",
			"/api/v1/namespaces/default/configmaps/c", `{"metadata":{"finalizers":["example.com/other"],"labels":{"other":"y"}},"data":{"a":"other"}}`,
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c, labels: {new: z}}, data: {a: second}}",
			[]string{"- example.com/other\n", "    new: z\n    other: \"y\"\n", "data:\n  a: second\n"}, []string{"    mine: x", "  b: first"},
		},
		{
			"pods default/p",
			"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}, status: {phase: Running, reason: mine}}",
			"/api/v1/namespaces/default/pods/p/status", `{"status":{"message":"other"}}`,
			"{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}, status: {phase: Failed}}",
			[]string{"  message: other\n", "  phase: Failed\n"}, []string{"  reason: mine"},
		},
		{
			"pods default/p", "", "/api/v1/namespaces/default/pods/p/status", `{"status":{"hostIP":"192.0.2.1"}}`,
			"{apiVersion: v1, kind: Pod, metadata: {name: p, creationTimestamp: null}, spec: {containers: [{name: c, image: i, resources: {}}]}, status: {}}",
			[]string{"  message: other\n", "  phase: Failed\n", "  hostIP: 192.0.2.1\n"}, nil,
		},
		{
			"secrets default/s",
			"{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: b, c: d}, data: {e: Zg==}}",
			"/api/v1/namespaces/default/secrets/s", `{"data":{"other":"Zg=="}}`,
			"{apiVersion: v1, kind: Secret, metadata: {name: s}, stringData: {a: x}}",
			[]string{"data:\n  a: eA==\n  other: Zg==\n"}, nil,
		},
	} {
		if c.first != "" {
			a.applyYAML(world.Name, c.first)
		}
		other(c.path, c.patch)
		a.applyYAML(world.Name, c.second)
		text := a.objectOf(world.Name, c.key)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("the object lacks %q:\n%s", want, text)
			}
		}
		for _, gone := range c.gone {
			if strings.Contains(text, gone) {
				t.Errorf("the object still has %q:\n%s", gone, text)
			}
		}
	}
}

// TestControlApplyRead: an object that was read from a server can be applied to another one, again and again.
func TestControlApplyRead(t *testing.T) {
	a := startControl(t)
	from, to := a.create(`{"controllers":["-*"]}`), a.create(`{"controllers":["-*"]}`)
	a.applyYAML(from.Name, "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: c, image: i}]}, status: {phase: Running}}")
	a.applyYAML(from.Name, widgets)
	const hook = "{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: hook}, webhooks: []}"
	a.applyYAML(from.Name, hook)
	for _, key := range []string{"pods default/p", "customresourcedefinitions.apiextensions.k8s.io widgets.example.com", "validatingwebhookconfigurations.admissionregistration.k8s.io hook"} {
		text := a.objectOf(from.Name, key)
		if !strings.Contains(text, "uid: ") || !strings.Contains(text, "resourceVersion: ") {
			t.Fatalf("the state has %s", text)
		}
		for range 2 {
			a.applyYAML(to.Name, text)
		}
		a.applyYAML(to.Name, strings.Replace(text, "  name: ", "  labels: {changed: x}\n  name: ", 1))
		if made := a.objectOf(to.Name, key); !strings.Contains(made, "changed: x") {
			t.Errorf("the object was not changed:\n%s", made)
		}
	}
}

// TestControlApplyUser: with a token, its user writes, with the rights that the user has.
func TestControlApplyUser(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"controllers":["-*"]}`)
	a.applyYAML(world.Name, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: r}, rules: [{apiGroups: [''], resources: [configmaps], verbs: [create, patch]}]}\n---\n"+
		"{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: r}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}]}")
	var alice control.Credentials
	a.do(201, "POST", "/control/v1/worlds/"+world.Name+"/users", `{"name":"alice"}`, &alice)
	apply := func(code int, kind string) {
		t.Helper()
		body := fmt.Sprintf(`{"token":%q,"manifests":[{"content":"{apiVersion: v1, kind: %s, metadata: {name: a}}"}]}`, alice.Token, kind)
		a.do(code, "POST", "/control/v1/worlds/"+world.Name+"/apply", body, nil)
	}
	apply(200, "ConfigMap")
	apply(403, "Secret")
	if _, history := a.send("GET", "/control/v1/worlds/"+world.Name+"/history", "", ""); !strings.Contains(history, `"user":"alice"`) {
		t.Error("the history has no change by alice")
	}
}

// TestControlApplyLists: objects in JSON, one behind the other, and items of a list without their kind.
func TestControlApplyLists(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"controllers":["-*"]}`)
	for _, text := range []string{
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}` + "\n" + `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"}}`,
		`{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"d"}},{"metadata":{"name":"e"}}]}`,
		"apiVersion: v1\nkind: ConfigMapList\nitems:\n- metadata: {name: f}\n---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: g}}\n",
	} {
		a.applyYAML(world.Name, text)
	}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		a.objectOf(world.Name, "configmaps default/"+name)
	}
}

// TestControlHistory: the changes after a revision, in order, and the state between them.
func TestControlHistory(t *testing.T) {
	a := startControl(t)
	world := a.create(`{"controllers":["-*"]}`)
	at := "/control/v1/worlds/" + world.Name
	var between control.Description
	a.applyYAML(world.Name, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: first}}")
	a.do(200, "GET", at, "", &between)
	a.applyYAML(world.Name, "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {a: second}}")
	code, text := a.send("GET", at+fmt.Sprintf("/history?after=%d", world.Revision), "", "")
	if code != 200 {
		t.Fatalf("%d %s", code, text)
	}
	var got []string
	for line := range strings.Lines(text) {
		var c struct {
			Verb, Collection, Key string
			Before, After         struct{ Data map[string]string }
		}
		var made struct {
			Time  time.Time
			Actor control.Actor
		}
		if err := errors.Join(json.Unmarshal([]byte(line), &c), json.Unmarshal([]byte(line), &made)); err != nil {
			t.Fatal(err)
		}
		if who := made.Actor; made.Time.IsZero() || who.User != "admin" || who.UserAgent == "" || who.FieldManager == "" || who.AuditID == "" {
			t.Errorf("a change at %v by %+v: want a time, the user admin, a user agent, a field manager and an audit ID", made.Time, who)
		}
		got = append(got, fmt.Sprint(c))
	}
	want := "[{apply configmaps default/c {map[]} {map[a:first]}} {apply configmaps default/c {map[a:first]} {map[a:second]}}]"
	if fmt.Sprint(got) != want {
		t.Errorf("the history is %v, want %s", got, want)
	}
	_, state := a.send("GET", at+fmt.Sprintf("/state?revision=%d", between.Revision), "", "")
	if !strings.Contains(state, "a: first") || strings.Contains(state, "a: second") || !strings.Contains(state, "# configmaps default/c\n") {
		t.Errorf("the state at %d:\n%s", between.Revision, state)
	}
	if code, text := a.send("GET", at+fmt.Sprintf("/history?after=%d&upTo=%d", world.Revision, world.Revision), "", ""); code != 200 || text != "" {
		t.Errorf("an empty range: %d %s", code, text)
	}
}

// TestControlErrors checks that each mistake is a Status with the reason.
func TestControlErrors(t *testing.T) {
	a := startControl(t)
	a.create(`{"name":"taken"}`)
	for _, row := range []struct {
		method, path, body string
		code               int
		message            string
	}{
		{"POST", "/control/v1/worlds", `{"name":"taken"}`, 409, `"taken" exists`},
		{"POST", "/control/v1/worlds", `{"name":"root"}`, 409, `"root" exists`},
		{"POST", "/control/v1/worlds", `{"name":"No"}`, 400, `"No"`},
		{"POST", "/control/v1/worlds", `{"nome":"a"}`, 400, `"nome"`},
		{"POST", "/control/v1/worlds", `{"name":"a","name":"b"}`, 400, `"name"`},
		{"POST", "/control/v1/worlds", `{} {}`, 400, "body"},
		{"POST", "/control/v1/worlds", `{"parent":"none"}`, 404, `"none"`},
		{"POST", "/control/v1/worlds", `{"lease":"none"}`, 404, `"none"`},
		{"POST", "/control/v1/worlds", `{"controllers":["none"]}`, 400, `"none"`},
		{"POST", "/control/v1/worlds", strings.Repeat(" ", 1<<20+1), 413, "1048576"},
		{"DELETE", "/control/v1/worlds/root", "", 403, `"root"`},
		{"DELETE", "/control/v1/worlds/none", "", 404, `"none"`},
		{"GET", "/control/v1/worlds/root/state?revision=x", "", 400, `"x"`},
		{"GET", "/control/v1/worlds/root/state?revision=1", "", 410, "1"},
		{"GET", "/control/v1/worlds/root/state?revision=9000000000000000000", "", 404, "9000000000000000000"},
		{"GET", "/control/v1/worlds/root/history?after=1", "", 410, "1"},
		{"GET", "/control/v1/worlds/root/history?after=9000000000000000000", "", 404, "9000000000000000000"},
		{"GET", "/control/v1/worlds/root/state?time=2026", "", 400, `"time" is unknown: want revision or format`},
		{"GET", "/control/v1/worlds/root/state?Revision=9", "", 400, `"Revision" is unknown`},
		{"GET", "/control/v1/worlds/root/state?revision=2&revision=3", "", 400, `"revision" more than once`},
		{"GET", "/control/v1/worlds/root/state?revision=%zz", "", 400, "the query cannot be read"},
		{"GET", "/control/v1/worlds/root/history?from=1", "", 400, `"from" is unknown: want after or upTo`},
		{"DELETE", "/control/v1/worlds/root/faults?id=a", "", 400, `"id" is unknown: this request takes none`},
		{"POST", "/control/v1/worlds/root/users", `{}`, 400, "name"},
		{"POST", "/control/v1/worlds/root/users", `{"name":"a\nb"}`, 400, "control character"},
		{"POST", "/control/v1/worlds/root/users", `{"name":"a","groups":[""]}`, 400, "groups"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"kind: A"}]}`, 400, "a.yaml: the document has no apiVersion"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"apiVersion: v1\nkind: A"}]}`, 400, "metadata.name"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"a: 1\na: 2"}]}`, 400, "a.yaml"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"{apiVersion: v1, kind: Nothing, metadata: {name: a}}"}]}`, 400, "no kind Nothing in v1"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"{apiVersion: v1, kind: Pod, metadata: {name: a}}"}]}`, 422, "a.yaml: Pod default/a: Pod"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, datta: {}}"}]}`, 400, "a.yaml: ConfigMap default/a: failed to create typed patch object (default/a; /v1, Kind=ConfigMap): .datta: field not declared in schema"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"# nothing"}]}`, 400, "no objects"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.json","content":"{\"kind\":\"A\"} {b"}]}`, 400, "a.json: what follows object 1 is no JSON"},
		{"POST", "/control/v1/worlds/root/apply", `{"manifests":[{"name":"a.yaml","content":"{kind: List, apiVersion: v1, items: [{metadata: {name: a}}]}"}]}`, 400, "a.yaml (item 1): the document has no apiVersion or no kind"},
		{"POST", "/control/v1/worlds/root/apply", `{"webhooks":{"url":"ftp://a"}}`, 400, `"ftp://a"`},
		{"PUT", "/control/v1/worlds", `{}`, 405, "GET"},
		{"GET", "/other", "", 404, "/control/v1"},
	} {
		code, text := a.send(row.method, row.path, "application/json", row.body)
		var status struct {
			Kind, Reason, Message string
			Code                  int
		}
		if err := json.Unmarshal([]byte(text), &status); err != nil || status.Kind != "Status" || status.Reason == "" || status.Code != code {
			t.Errorf("%s %s: no Status: %s", row.method, row.path, text)
		}
		if code != row.code || !strings.Contains(status.Message, row.message) {
			t.Errorf("%s %s %.100s: %d %q, want %d and %q", row.method, row.path, row.body, code, status.Message, row.code, row.message)
		}
	}
}

// TestControlNamesConflict: a definition whose names are taken is an error, not a wait.
func TestControlNamesConflict(t *testing.T) {
	a := startControl(t)
	a.applyYAML("root", widgets)
	other := strings.NewReplacer("widgets", "others", "widget,", "other,").Replace(widgets) // the kind stays
	code, text := a.send("POST", "/control/v1/worlds/root/apply", "application/yaml", other)
	if code != 400 || !strings.Contains(text, "not accepted") {
		t.Errorf("%d %s", code, text)
	}
}

func TestControlRequireToken(t *testing.T) {
	h := control.RequireToken("secret", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "in") }))
	for header, code := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer secret": 200} {
		r := httptest.NewRequest("GET", "/control/v1", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != code {
			t.Errorf("%q: %d, want %d", header, w.Code, code)
		}
	}
}

// TestControlLease: the worlds of a lease end with its connection, and the server is idle after the time of
// grace.
func TestControlLease(t *testing.T) {
	s := servertest.Start(t, new(tidemark.Server))
	listener := httptest.NewServer(s.Control())
	defer listener.Close()
	a := &controlAPI{t, listener.URL}
	ctx, hangUp := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "POST", a.url+"/control/v1/leases", bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadBytes('\n')
	var lease struct{ Lease string }
	if err != nil || json.Unmarshal(line, &lease) != nil || lease.Lease == "" {
		t.Fatalf("%q %v", line, err)
	}
	a.create(`{"name":"mine","lease":"` + lease.Lease + `"}`)
	a.create(`{"name":"other"}`)
	idle := s.Control().Idle(time.Millisecond)
	a.do(200, "GET", "/control/v1/worlds/mine", "", nil)
	hangUp()
	<-idle
	for {
		var list struct{ Worlds []struct{ Name string } }
		a.do(200, "GET", "/control/v1/worlds", "", &list)
		if got := fmt.Sprint(list.Worlds); got == "[{root} {other}]" {
			break
		}
	}
	a.do(410, "POST", "/control/v1/leases", "", nil)
}

// unfinished is a request whose body does not end, and its response. A read fails as if the deadline had come.
type unfinished struct {
	httptest.ResponseRecorder
	deadline time.Time
}

func (u *unfinished) SetReadDeadline(at time.Time) error {
	u.deadline = at
	return nil
}

func (u *unfinished) Read([]byte) (int, error) {
	if u.deadline.IsZero() {
		return 0, errors.New("there is no deadline")
	}
	return 0, os.ErrDeadlineExceeded
}

// TestControlUnfinishedBodies: a request whose body does not end gets a response.
func TestControlUnfinishedBodies(t *testing.T) {
	for _, media := range []string{"application/json", "application/yaml"} {
		h := control.New(control.Config{Worlds: oneWorld{}, Leases: new(control.Leases)})
		u := &unfinished{}
		r := httptest.NewRequest("POST", "/control/v1/worlds/root/apply", u)
		r.Header.Set("Content-Type", media)
		if h.ServeHTTP(u, r); u.Code != http.StatusGatewayTimeout {
			t.Errorf("%s: %d", media, u.Code)
		}
	}
}

// oneWorld is a world that is not used.
type oneWorld struct{ control.Worlds }

func (oneWorld) Find(string) (control.World, error) { return nil, nil }
