package integration_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

const apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"

// extension is an extension server of a test, with flunders of wardle.example.com.
type extension struct {
	*httptest.Server

	mu       sync.Mutex
	requests []string            // "METHOD PATH USER"
	flunders map[string][]string // finalizers by "NAMESPACE/NAME"
	down     bool                // discovery fails
}

func startExtension(t *testing.T) *extension {
	e := &extension{flunders: map[string][]string{}}
	e.Server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	e.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	e.StartTLS()
	t.Cleanup(func() {
		e.CloseClientConnections()
		e.Close()
	})
	return e
}

func (e *extension) serve(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	const base = "/apis/wardle.example.com/v1"
	certificate := "none"
	if len(r.TLS.PeerCertificates) > 0 {
		certificate = r.TLS.PeerCertificates[0].Subject.CommonName
	}
	e.requests = append(e.requests, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("X-Remote-User"), certificate))
	if e.down {
		http.Error(w, "down", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	rest, ok := strings.CutPrefix(r.URL.Path, base)
	parts := strings.Split(strings.Trim(rest, "/"), "/")
	switch {
	case r.URL.Path == "/apis":
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		fmt.Fprint(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"wardle.example.com"},"versions":[{"version":"v1","resources":[
			{"resource":"flunders","scope":"Namespaced","responseKind":{"kind":"Flunder","group":"","version":""},"singularResource":"flunder","verbs":["get","list","delete","deletecollection"]}]}]}]}`)
	case r.URL.Path == "/openapi/v3":
		fmt.Fprint(w, `{"paths":{"apis/wardle.example.com/v1":{"serverRelativeURL":"/openapi/v3/apis/wardle.example.com/v1?hash=1"}}}`)
	case !ok:
		http.NotFound(w, r)
	case rest == "":
		fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"wardle.example.com/v1","resources":[{"name":"flunders","singularName":"flunder","namespaced":true,"kind":"Flunder","verbs":["get","list","delete","deletecollection"]}]}`)
	case len(parts) == 3 && r.Method == http.MethodDelete:
		for key, finalizers := range e.flunders {
			if strings.HasPrefix(key, parts[1]+"/") && len(finalizers) == 0 {
				delete(e.flunders, key)
			}
		}
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Success"}`)
	case len(parts) == 3:
		list := map[string]any{"kind": "FlunderList", "apiVersion": "wardle.example.com/v1", "metadata": map[string]any{}}
		items := []any{}
		for key, finalizers := range e.flunders {
			if namespace, name, _ := strings.Cut(key, "/"); namespace == parts[1] {
				items = append(items, map[string]any{"metadata": map[string]any{"name": name, "finalizers": finalizers, "deletionTimestamp": "2026-01-01T00:00:00Z"}})
			}
		}
		list["items"] = items
		_ = json.NewEncoder(w).Encode(list)
	default:
		fmt.Fprintf(w, `{"kind":"Flunder","apiVersion":"wardle.example.com/v1","metadata":{"name":"%s"}}`, parts[len(parts)-1])
	}
}

func (e *extension) set(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f()
}

// seen reports whether a request was made.
func (e *extension) seen(request string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.requests {
		if r == request {
			return true
		}
	}
	return false
}

// register creates the Service of an extension server, and the APIService of a group and version.
func register(t *testing.T, c *rest.Config, e *extension, version, group string) {
	t.Helper()
	host, port, err := net.SplitHostPort(e.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	service := fmt.Sprintf(`{"metadata":{"name":"wardle"},"spec":{"type":"ExternalName","externalName":%q}}`, host)
	if code, _, b := exchange(t, c, "POST", "/api/v1/namespaces/default/services", service); code != http.StatusCreated && code != http.StatusConflict {
		t.Fatalf("%d %s", code, b)
	}
	body := fmt.Sprintf(`{"metadata":{"name":"%s.%s"},"spec":{"group":%q,"version":%q,"groupPriorityMinimum":1000,"versionPriority":15,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"wardle","port":%s}}}`,
		version, group, group, version, port)
	code, header, b := exchange(t, c, "POST", apiServicesPath, body)
	if code != http.StatusCreated {
		t.Fatalf("%d %s", code, b)
	}
	if w := header.Get("Warning"); w != "" {
		t.Errorf("a warning: %s", w)
	}
}

// awaitBody waits until the body of a GET contains a text, or with a ! in front does not.
func awaitBody(t *testing.T, c *rest.Config, path, want string) {
	t.Helper()
	text, not := strings.CutPrefix(want, "!")
	await.Nil(t, path, func() error {
		code, b := servertest.Get(t, c, path)
		if strings.Contains(b, text) == not {
			return fmt.Errorf("%d %s, want %q", code, b, want)
		}
		return nil
	})
}

// TestAggregation: requests of users go to an extension server as them, after their rights were checked, and discovery has its
// kinds.
func TestAggregation(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c, e := s.RESTConfig(), startExtension(t)
	register(t, c, e, "v1", "wardle.example.com")
	awaitBody(t, c, apiServicesPath+"/v1.wardle.example.com", `"reason":"Passed"`)
	const flunder = "/apis/wardle.example.com/v1/namespaces/default/flunders/f"
	if code, b := servertest.Get(t, c, flunder); code != http.StatusOK || !strings.Contains(b, `"Flunder"`) {
		t.Fatalf("%d %s", code, b)
	}
	if !e.seen("GET " + flunder + " admin front-proxy-client") {
		t.Errorf("the requests are %v", e.requests)
	}
	user, err := s.RESTConfigFor("jane")
	if err != nil {
		t.Fatal(err)
	}
	if code, b := servertest.Get(t, user, flunder); code != http.StatusForbidden || !strings.Contains(b, `flunders.wardle.example.com \"f\" is forbidden: User \"jane\" cannot get resource \"flunders\" in API group \"wardle.example.com\"`) {
		t.Errorf("without rights: %d %s", code, b)
	}
	if e.seen("GET " + flunder + " jane front-proxy-client") {
		t.Error("a request without rights is forwarded")
	}
	as := rest.CopyConfig(c)
	as.Impersonate = rest.ImpersonationConfig{UserName: "joe", Groups: []string{"system:masters"}}
	if code, b := servertest.Get(t, as, flunder); code != http.StatusOK || !e.seen("GET "+flunder+" joe front-proxy-client") {
		t.Errorf("as another user: %d %s", code, b)
	}
	for path, want := range map[string]string{
		"/apis": `"name":"wardle.example.com"`, "/apis/wardle.example.com": `"APIGroup"`, "/apis/wardle.example.com/v1": `"flunders"`, "/": `"/apis/wardle.example.com/v1"`,
	} {
		awaitBody(t, c, path, want)
	}
	if code, b := servertest.GetAs(t, c, "/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"); code != http.StatusOK || !strings.Contains(b, `"resource":"flunders"`) {
		t.Errorf("%d %s", code, b)
	}
	awaitBody(t, c, "/openapi/v3", "apis/wardle.example.com/v1")
	for path, want := range map[string]int{"/openapi/v3": http.StatusOK, "/openapi/v2": http.StatusOK, "/openapi/v3/apis/wardle.example.com/v1": http.StatusNotFound, "/apis": http.StatusOK, flunder: http.StatusNotFound} {
		if code, b := servertest.Get(t, c, at(s.Root().Revision(), path)); code != want || strings.Contains(b, `wardle.example.com`) {
			t.Errorf("an instant has the extension server: %s: %d %s", path, code, b)
		}
	}
	_, metrics := servertest.Get(t, c, "/metrics")
	if !strings.Contains(metrics, `aggregator_unavailable_apiservice{name="v1.wardle.example.com"} 0`) || strings.Contains(metrics, `resource="flunders"`) {
		t.Error("the metrics lack the APIService, or have a label that a client chose")
	}

	f, err := s.Root().Fork(t.Context(), tidemark.ForkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if code, b := servertest.Get(t, f.RESTConfig(), flunder); code != http.StatusNotFound {
		t.Errorf("a fork: %d %s", code, b)
	}
	if _, b := servertest.Get(t, f.RESTConfig(), "/apis"); strings.Contains(b, "wardle") {
		t.Error("a fork lists the group of an extension server")
	}

	code, _, b := exchange(t, c, "DELETE", apiServicesPath+"/v1.wardle.example.com", "")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	awaitBody(t, c, flunder, "404 page not found")
	awaitBody(t, c, "/apis/wardle.example.com", "404 page not found")
}

const gadgets = `{"metadata":{"name":"gadgets.wardle.example.com"},"spec":{"group":"wardle.example.com","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`

// TestLocalAPIServices: the APIService of custom resources follows their definition, and is restored. One of an
// administrator takes precedence over the definition.
func TestLocalAPIServices(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c, e := s.RESTConfig(), startExtension(t)
	const definitions, own = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", apiServicesPath + "/v1.wardle.example.com"
	if code, _, b := exchange(t, c, "POST", definitions, gadgets); code != http.StatusCreated {
		t.Fatalf("%d %s", code, b)
	}
	awaitBody(t, c, own, `automanaged":"true"`)
	_, _, before := exchange(t, c, "GET", own, "")
	for path, want := range map[string]string{
		"spec.groupPriorityMinimum": "1000", "spec.versionPriority": "100", "status.conditions.0.status": `"True"`, "status.conditions.0.reason": `"Local"`,
	} {
		if got := pick(t, before, path); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	if code, _, b := exchange(t, c, "MERGE", own, `{"spec":{"versionPriority":7}}`); code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	awaitBody(t, c, own, `"versionPriority":100`)
	exchange(t, c, "MERGE", own, `{"spec":{"service":{"namespace":"default","name":"x"},"insecureSkipTLSVerify":true}}`)
	awaitBody(t, c, own, `!"service"`)
	exchange(t, c, "DELETE", own, "")
	awaitBody(t, c, own, `"versionPriority":100`)
	if _, _, after := exchange(t, c, "GET", own, ""); pick(t, after, "metadata.uid") == pick(t, before, "metadata.uid") {
		t.Error("the APIService has the UID of the deleted one")
	}
	if code, _, b := exchange(t, c, "DELETE", definitions+"/gadgets.wardle.example.com", ""); code != http.StatusOK {
		t.Fatalf("%d %s", code, b)
	}
	awaitBody(t, c, own, "not found")

	register(t, c, e, "v1", "wardle.example.com")
	awaitBody(t, c, own, `"reason":"Passed"`)
	if code, _, b := exchange(t, c, "POST", definitions, gadgets); code != http.StatusCreated {
		t.Fatalf("%d %s", code, b)
	}
	awaitBody(t, c, definitions+"/gadgets.wardle.example.com", `"type":"Established"`)
	if code, b := servertest.Get(t, c, "/apis/wardle.example.com/v1/namespaces/default/gadgets/g"); code != http.StatusOK || !strings.Contains(b, `"Flunder"`) {
		t.Errorf("beside an APIService of an administrator: %d %s", code, b)
	}
	exchange(t, c, "DELETE", own, "")
	awaitBody(t, c, own, `automanaged":"true"`)
	awaitBody(t, c, "/apis/wardle.example.com/v1/namespaces/default/gadgets", `"GadgetList"`)
}

// TestNamespaceOfExtension: the objects of extension servers go with their namespace, which waits for them. One whose kinds are
// not known holds up each namespace.
func TestNamespaceOfExtension(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	c, e := s.RESTConfig(), startExtension(t)
	register(t, c, e, "v1", "wardle.example.com")
	awaitBody(t, c, apiServicesPath+"/v1.wardle.example.com", `"reason":"Passed"`)
	create := func(name string) string {
		if code, _, b := exchange(t, c, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`); code != http.StatusCreated {
			t.Fatalf("%d %s", code, b)
		}
		return "/api/v1/namespaces/" + name
	}
	first := create("first")
	e.set(func() { e.flunders["first/a"], e.flunders["first/b"] = nil, []string{"example.com/wait"} })
	exchange(t, c, "DELETE", first, "")
	awaitBody(t, c, first, `Some resources are remaining: flunders.wardle.example.com has 1 resource instances`)
	awaitBody(t, c, first, `example.com/wait in 1 resource instances`)
	if !e.seen("DELETE /apis/wardle.example.com/v1/namespaces/first/flunders system:serviceaccount:kube-system:namespace-controller front-proxy-client") {
		t.Errorf("the requests are %v", e.requests)
	}
	e.set(func() { delete(e.flunders, "first/b") })
	awaitBody(t, c, first, "not found")

	e.set(func() { e.down = true })
	exchange(t, c, "MERGE", "/api/v1/namespaces/default/services/wardle", `{"metadata":{"labels":{"a":"b"}}}`) // it is checked again
	awaitBody(t, c, apiServicesPath+"/v1.wardle.example.com", `"reason":"FailedDiscoveryCheck"`)
	second := create("second")
	exchange(t, c, "DELETE", second, "")
	awaitBody(t, c, second, `Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: wardle.example.com/v1: stale GroupVersion discovery: wardle.example.com/v1"`)
	exchange(t, c, "DELETE", apiServicesPath+"/v1.wardle.example.com", "")
	awaitBody(t, c, second, "not found")
}

// TestSeveralAggregators: each of several servers sends requests to the extension server, with the certificate of their
// common authority. One of them writes the condition of the APIService, and another one after it has stopped.
func TestSeveralAggregators(t *testing.T) {
	log, dir, e := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{}), t.TempDir(), startExtension(t)
	start := func() *tidemark.Server {
		return servertest.Start(t, &tidemark.Server{Storage: &servertest.OnLog{Log: log, Dir: dir}})
	}
	leader := start()
	await.Nil(t, "a leader", func() error {
		if _, b := servertest.Get(t, leader.RESTConfig(), "/readyz?verbose"); strings.Contains(b, "server leads") {
			return errors.New(b)
		}
		return nil
	})
	others := []*tidemark.Server{start(), start()}
	register(t, others[0].RESTConfig(), e, "v1", "wardle.example.com")
	const own, flunder = apiServicesPath + "/v1.wardle.example.com", "/apis/wardle.example.com/v1/namespaces/default/flunders/f"
	written := func(c *rest.Config) string {
		_, _, b := exchange(t, c, "GET", own, "")
		return pick(t, b, "metadata.resourceVersion")
	}
	awaitBody(t, others[0].RESTConfig(), own, `"reason":"Passed"`)
	first := written(others[0].RESTConfig())
	for i, s := range append(others, leader) {
		c, err := s.RESTConfigFor(fmt.Sprint("user", i), "system:masters")
		if err != nil {
			t.Fatal(err)
		}
		awaitBody(t, c, flunder, `"Flunder"`)
		awaitBody(t, c, "/apis/wardle.example.com/v1", `"flunders"`)
		if want := fmt.Sprintf("GET %s user%d front-proxy-client", flunder, i); !e.seen(want) {
			t.Errorf("the extension server has not seen %s", want)
		}
	}
	if now := written(others[0].RESTConfig()); now != first {
		t.Errorf("servers that agree wrote the condition again: revision %s after %s", now, first)
	}

	servertest.Stop(t, leader)
	e.set(func() { e.down = true })
	exchange(t, others[1].RESTConfig(), "MERGE", "/api/v1/namespaces/default/services/wardle", `{"metadata":{"labels":{"a":"b"}}}`) // it is checked again
	for _, s := range others {
		awaitBody(t, s.RESTConfig(), own, `"reason":"FailedDiscoveryCheck"`)
		awaitBody(t, s.RESTConfig(), flunder, "service unavailable")
	}
	e.set(func() { e.down = false })
	for _, s := range others {
		awaitBody(t, s.RESTConfig(), own, `"reason":"Passed"`)
		awaitBody(t, s.RESTConfig(), flunder, `"Flunder"`)
	}
}
