package httpapi_test

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

const maps = "/api/v1/namespaces/default/configmaps"

func TestVerbs(t *testing.T) {
	s := start(t, wiring{})
	created := s.do(t, "POST", maps, `{"metadata":{"name":"a"},"data":{"k":"<v>"}}`)
	if created.code != 201 || created.header.Get("Content-Type") != "application/json" || !strings.HasSuffix(created.body, "}\n") {
		t.Fatalf("create: %d %v %s", created.code, created.header, created.body)
	}
	if got := s.do(t, "GET", maps+"/a", ""); got.code != 200 || got.body != created.body || got.header.Get("Content-Length") != fmt.Sprint(len(got.body)) {
		t.Errorf("get: %d %v %s", got.code, got.header, got.body)
	}
	if got := s.do(t, "GET", maps+"/a/", ""); got.body != created.body {
		t.Errorf("get with a slash: %s", got.body)
	}
	if got := s.do(t, "GET", maps+"/a?watch=1&nope=2", ""); got.body != created.body {
		t.Errorf("get with parameters: %s", got.body)
	}
	list := s.do(t, "GET", maps, "")
	item := "{" + strings.TrimSuffix(strings.TrimPrefix(created.body, `{"kind":"ConfigMap","apiVersion":"v1",`), "\n")
	if !strings.HasPrefix(list.body, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"`) || !strings.HasSuffix(list.body, `"},"items":[`+item+"]}\n") {
		t.Errorf("list: %s", list.body)
	}
	if all := s.do(t, "GET", "/api/v1/namespaces//configmaps/", ""); all.body != s.do(t, "GET", "/api/v1/configmaps", "").body {
		t.Errorf("an empty namespace is not all of them: %s", all.body)
	}
	updated := s.do(t, "PUT", maps+"/a", strings.Replace(created.body, "v\\u003e", "w", 1))
	if updated.code != 200 || updated.body == created.body {
		t.Errorf("update: %d %s", updated.code, updated.body)
	}
	asYAML := s.do(t, "POST", maps, "metadata:\n  name: yy\n", "Content-Type: application/yaml", "Accept: application/yaml")
	if asYAML.code != 201 || asYAML.header.Get("Content-Type") != "application/yaml" || !strings.HasPrefix(asYAML.body, "apiVersion: v1\nkind: ConfigMap\n") {
		t.Errorf("YAML: %d %s", asYAML.code, asYAML.body)
	}
	deleted := s.do(t, "DELETE", maps+"/a", "")
	if deleted.code != 200 || !strings.HasPrefix(deleted.body, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","details":{"name":"a","kind":"configmaps","uid":`) {
		t.Errorf("delete: %d %s", deleted.code, deleted.body)
	}
	if got := s.do(t, "GET", maps+"/a", ""); got.code != 404 || !strings.Contains(got.body, `"details":{"name":"a","kind":"configmaps"}`) {
		t.Errorf("gone: %d %s", got.code, got.body)
	}
}

// TestUnservedIsRefused requests subresources that discovery shows and that are not
// implemented. A missing object is reported first, and nothing is written.
func TestUnservedIsRefused(t *testing.T) {
	s := start(t, wiring{})
	if a := s.do(t, "POST", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`); a.code != 201 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	s.do(t, "POST", "/api/v1/nodes", `{"metadata":{"name":"n"}}`)
	for path, want := range map[string]int{
		"GET /apis/apps/v1/namespaces/default/deployments/x/scale":              404,
		"POST /apis/apps/v1/namespaces/default/deployments/d/scale":             405,
		"GET /api/v1/nodes/n/proxy/metrics":                                     501,
		"GET /api/v1/nodes/https:n:99/proxy":                                    501,
		"PATCH /api/v1/nodes/n/proxy/any":                                       501,
		"GET /api/v1/nodes/a:b:c:d/proxy":                                       400,
		"GET /api/v1/nodes/m/proxy":                                             404,
		"GET /api/v1/namespaces/default/pods/x/log":                             404,
		"GET /api/v1/namespaces/default/pods/x/exec":                            404,
		"GET /api/v1/namespaces/default/pods/x/proxy/foo/bar":                   404,
		"OPTIONS /api/v1/namespaces/default/pods/x/proxy":                       404,
		"POST /api/v1/namespaces/default/pods/x/eviction":                       404,
		"POST /api/v1/namespaces/default/pods/x/binding":                        404,
		"GET /api/v1/componentstatuses":                                         501,
		"POST /api/v1/namespaces/default/serviceaccounts/x/token":               404,
		"POST /apis/authentication.k8s.io/v1/tokenreviews":                      501,
		"GET /api/v1/namespaces/default/configmaps/" + strings.Repeat("a", 300): 404,
		"GET /api/v1/namespaces/default/configmaps/a%00b":                       404,
		"GET /api/v1/namespaces/nope/status":                                    404,
	} {
		method, path, _ := strings.Cut(path, " ")
		body := ""
		if method == "POST" || method == "PUT" {
			body = "{}"
		}
		a := s.do(t, method, path, body)
		if code, reason, _ := a.status(t); code != want || a.code != want || reason == "" {
			t.Errorf("%s %s: %d, want %d: %s", method, path, a.code, want, a.body)
		}
	}
}

func TestPretty(t *testing.T) {
	s := start(t, wiring{})
	s.create(t, "default", "a", 3)
	for _, path := range []string{maps, maps + "/a", "/apis/apps"} {
		plain := s.do(t, "GET", path, "").body
		for _, how := range []struct{ query, agent string }{{"pretty=true", "x"}, {"pretty=1", "x"}, {"", "curl/8"}, {"", "Wget/1"}, {"", "Mozilla/5.0 (X)"}} {
			a := s.do(t, "GET", path+"?"+how.query, "", "User-Agent: "+how.agent)
			if !strings.HasPrefix(a.body, "{\n  \"kind\": ") || !strings.HasSuffix(a.body, "}") || compact(t, a.body)+"\n" != plain {
				t.Errorf("GET %s, %v: %s", path, how, a.body)
			}
		}
		for _, how := range []struct{ query, agent string }{{"pretty=0", "curl/8"}, {"pretty=zzz", "x"}, {"", "kubectl"}} {
			if a := s.do(t, "GET", path+"?"+how.query, "", "User-Agent: "+how.agent); a.body != plain {
				t.Errorf("GET %s, %v: %s", path, how, a.body)
			}
		}
	}
}

// TestLargeResponses compares a list of some MiB and an object in all their forms.
func TestLargeResponses(t *testing.T) {
	s := start(t, wiring{})
	for i := range 30 {
		s.create(t, "default", fmt.Sprintf("m-%02d", i), 1000+i*i*300)
	}
	for _, path := range []string{maps, maps + "/m-29"} {
		plain := s.do(t, "GET", path, "", "Accept-Encoding: identity")
		if plain.header.Get("Vary") != "" || plain.header.Get("Content-Encoding") != "" || len(plain.body) <= 128<<10 {
			t.Errorf("GET %s: %d bytes, %v", path, len(plain.body), plain.header)
		}
		packed := s.do(t, "GET", path, "", "Accept-Encoding: gzip")
		if packed.header.Get("Vary") != "Accept-Encoding" || packed.header.Get("Content-Encoding") != "gzip" {
			t.Errorf("GET %s: %v", path, packed.header)
		}
		z, err := gzip.NewReader(strings.NewReader(packed.body))
		if err != nil {
			t.Fatal(err)
		}
		if unpacked, err := io.ReadAll(z); err != nil || string(unpacked) != plain.body {
			t.Errorf("GET %s: compressed it is another response (%v)", path, err)
		}
		if other := s.do(t, "GET", path, "", "Accept-Encoding: br, deflate"); other.body != plain.body {
			t.Errorf("GET %s: another response for another encoding", path)
		}
		asYAML := s.do(t, "GET", path, "", "Accept: application/yaml", "Accept-Encoding: identity")
		asJSON, err := yaml.YAMLToJSON([]byte(asYAML.body))
		if err != nil {
			t.Fatal(err)
		}
		want, err := yaml.YAMLToJSON([]byte(plain.body))
		if err != nil {
			t.Fatal(err)
		}
		if string(asJSON) != string(want) {
			t.Errorf("GET %s: as YAML it is another response", path)
		}
		if pretty := s.do(t, "GET", path+"?pretty=1", "", "Accept-Encoding: identity"); compact(t, pretty.body)+"\n" != plain.body {
			t.Errorf("GET %s: indented it is another response", path)
		}
	}
	small := s.do(t, "GET", maps+"/m-00", "", "Accept-Encoding: gzip")
	if small.header.Get("Content-Encoding") != "" || small.header.Get("Vary") != "" {
		t.Errorf("a small response: %v", small.header)
	}
}

func TestServedVersionsOfOneStorage(t *testing.T) {
	s := start(t, wiring{})
	const v1, v2 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	if a := s.do(t, "POST", v2, `{"metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`); a.code != 201 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	for path, want := range map[string]string{
		v1 + "/h": `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v1",`,
		v2 + "/h": `{"kind":"HorizontalPodAutoscaler","apiVersion":"autoscaling/v2",`,
		v1:        `{"kind":"HorizontalPodAutoscalerList","apiVersion":"autoscaling/v1",`,
	} {
		if a := s.do(t, "GET", path, ""); a.code != 200 || !strings.HasPrefix(a.body, want) {
			t.Errorf("GET %s: %d %s", path, a.code, a.body)
		}
	}
	if a := s.do(t, "GET", v1, ""); !strings.Contains(a.body, `"items":[{"metadata":`) {
		t.Errorf("items name their version: %s", a.body)
	}
}

func TestDeprecatedKindWarns(t *testing.T) {
	s := start(t, wiring{})
	a := s.do(t, "GET", "/api/v1/namespaces/default/endpoints", "")
	if got := a.header.Get("Warning"); a.code != http.StatusOK || got != `299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"` {
		t.Errorf("%d, Warning: %s", a.code, got)
	}
}

// TestContentTypes checks which media types of bodies are accepted: those that kube-apiserver
// accepts, which parses the header strictly, and for patches cuts it at the first semicolon.
func TestContentTypes(t *testing.T) {
	s := start(t, wiring{})
	for media, want := range map[string]int{
		"application/json": 201, "application/json;": 201, "application/json; ": 201, "application/json;charset=utf-8": 201, "application/json; charset=utf-8": 201,
		"application/json ; charset=utf-8": 201, "APPLICATION/JSON": 201, "application/json ": 201, "": 201,
		";": 415, " ;": 415, "; charset=utf-8": 415, "application/json; charset": 415, "application/json; charset=": 415, "application/json;charset=a;charset=b": 415,
		"application/json, application/yaml": 415, "application/json application/yaml": 415, "json": 415, "application": 415, "application/": 415, "/json": 415, "*/*": 415, "text/plain": 415,
	} {
		if a := s.do(t, "POST", maps+"?dryRun=All", `{"metadata":{"name":"new"}}`, "Content-Type: "+media); a.code != want {
			t.Errorf("POST of %q: %d, want %d %s", media, a.code, want, a.body)
		}
		want = map[int]int{201: 200, 415: 415}[want]
		if a := s.do(t, "DELETE", maps+"/absent", `{}`, "Content-Type: "+media); a.code != 404 && want == 200 || a.code != 415 && want == 415 {
			t.Errorf("DELETE of %q: %d %s", media, a.code, a.body)
		}
	}
	s.create(t, "default", "a", 10)
	const (
		unrouted = "415: Unsupported Media Type"
		handled  = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json, application/apply-patch+yaml"
	)
	for media, want := range map[string]string{
		"application/merge-patch+json": "", "application/merge-patch+json;": "", "application/merge-patch+json; charset": "", "application/merge-patch+json;charset=utf-8": "",
		"application/merge-patch+json ;": handled, "application/merge-patch+json ; charset=utf-8": handled,
		"APPLICATION/merge-patch+json": unrouted, ";": unrouted, "; application/merge-patch+json": unrouted, "": unrouted, "application/json": unrouted,
	} {
		a := s.do(t, "PATCH", maps+"/a", `{"data":{"k":"v"}}`, "Content-Type: "+media)
		if want == "" && a.code != 200 || want != "" && (a.code != 415 || !strings.Contains(a.body, `"message":"`+want+`"`)) {
			t.Errorf("PATCH of %q: %d %s, want %q", media, a.code, a.body, want)
		}
	}
}
