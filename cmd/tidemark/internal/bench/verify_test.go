package bench

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
)

// liar is a proxy in front of a server, and changes responses that are lists, objects or
// events.
func liar(t *testing.T, honest Server, change func(*http.Request, []byte) []byte) Server {
	t.Helper()
	return proxy(t, honest, func(http.ResponseWriter, *http.Request) bool { return false }, change)
}

// proxy is in front of a server. It passes on the requests that get no response, and
// changes the responses as liar does.
func proxy(t *testing.T, honest Server, response func(http.ResponseWriter, *http.Request) (responded bool), change func(*http.Request, []byte) []byte) Server {
	t.Helper()
	target, err := loadTarget(honest)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target.base) },
		FlushInterval: -1,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: target.tls.RootCAs}, ForceAttemptHTTP2: true},
		ModifyResponse: func(resp *http.Response) error {
			resp.Header.Del("Content-Length")
			body := resp.Body
			read, write := io.Pipe()
			resp.Body = read
			go func() {
				defer body.Close()
				lines := bufio.NewReader(body)
				for {
					line, err := lines.ReadBytes('\n')
					if _, failed := write.Write(change(resp.Request, line)); err != nil || failed != nil {
						write.CloseWithError(err)
						return
					}
				}
			}()
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !response(w, r) {
			pass.ServeHTTP(w, r)
		}
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"liar",
		"contexts":[{"name":"liar","context":{"cluster":"c","user":"u"}}],"users":[{"name":"u","user":{"token":%q}}],
		"clusters":[{"name":"c","cluster":{"server":%q,"insecure-skip-tls-verify":true}}]}`, target.token, s.URL)
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return Server{Kubeconfig: path}
}

var anyRevision = regexp.MustCompile(`"resourceVersion":"\d+"`)

// oneLeft is a list that should be empty.
var oneLeft = []byte(`{"kind":"List","items":[{"metadata":{"name":"left","annotations":{"a":"` + mark + `"}}}]}`)

// TestVerify: wrong responses are found, by every kind of scenario.
func TestVerify(t *testing.T) {
	honest := serve(t)
	isList := func(r *http.Request) bool {
		return r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/pods") && !strings.Contains(r.URL.RawQuery, "watch")
	}
	isWatch := func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "watch=1") }
	var versions atomic.Int64
	versions.Store(1e9)
	for _, test := range []struct {
		scenario, want string
		change         func(*http.Request, []byte) []byte
	}{
		{"list-identity", "106 objects, want 107", func(r *http.Request, b []byte) []byte {
			if isList(r) {
				return bytes.Replace(b, markBytes, nil, 1)
			}
			return b
		}},
		{"list-page", "objects in all pages", func(r *http.Request, b []byte) []byte {
			if isList(r) {
				return bytes.Replace(b, markBytes, nil, 1)
			}
			return b
		}},
		{"get", "no resource version", func(r *http.Request, b []byte) []byte {
			if r.Method == "GET" && strings.Contains(r.URL.Path, "/pods/") {
				return anyRevision.ReplaceAll(b, nil)
			}
			return b
		}},
		{"update", "came after", func(r *http.Request, b []byte) []byte {
			if r.Method == "PUT" {
				return anyRevision.ReplaceAll(b, []byte(`"resourceVersion":"77"`))
			}
			return b
		}},
		{"list-exact", "the list is of", func(r *http.Request, b []byte) []byte {
			if strings.Contains(r.URL.RawQuery, "Exact") {
				return anyRevision.ReplaceAll(b, []byte(`"resourceVersion":"77"`))
			}
			return b
		}},
		{"watch-100", "an event at", func(r *http.Request, b []byte) []byte { // which comes twice
			if isWatch(r) {
				return append(bytes.Clone(b), b...)
			}
			return b
		}},
		{"watch-100", "ERROR", func(r *http.Request, b []byte) []byte {
			if isWatch(r) {
				return bytes.Replace(b, []byte("MODIFIED"), []byte("ERROR"), 1)
			}
			return b
		}},
		{"list-stream", "initial events, want 107", func(r *http.Request, b []byte) []byte {
			if isWatch(r) && bytes.Contains(b, []byte(podName(3))) {
				return nil
			}
			return b
		}},
		{"update-pods", "does not have what was written", func(r *http.Request, b []byte) []byte {
			if r.Method == "PUT" {
				return bytes.Replace(b, checksumKey, append(checksumKey, '-'), 1)
			}
			return b
		}},
		{"patch-pods", "does not have what was written", func(r *http.Request, b []byte) []byte {
			if r.Method == "PATCH" {
				return bytes.Replace(b, []byte(`"restartCount":`), []byte(`"restartCount":9`), 1)
			}
			return b
		}},
		{"apply-configmap", "left its resource version at 77", func(r *http.Request, b []byte) []byte {
			if r.Method == "PATCH" {
				return anyRevision.ReplaceAll(b, []byte(`"resourceVersion":"77"`))
			}
			return b
		}},
		{"apply-deployment", "does not have what was written", func(r *http.Request, b []byte) []byte {
			if r.Method == "PATCH" {
				return bytes.Replace(b, []byte("/web:"), []byte("/web:v"), 1)
			}
			return b
		}},
		{"apply-unchanged", "an unchanged apply made", func(r *http.Request, b []byte) []byte {
			if r.Method == "PATCH" {
				return anyRevision.ReplaceAll(b, fmt.Appendf(nil, `"resourceVersion":"%d"`, versions.Add(1)))
			}
			return b
		}},
		{"delete-collection", "the response has 39 objects, want 40", func(r *http.Request, b []byte) []byte {
			if r.Method == "DELETE" && strings.Contains(r.URL.Path, "-deleted/") {
				return bytes.Replace(b, markBytes, nil, 1)
			}
			return b
		}},
		{"delete-collection", "1 configmaps or more are left", func(r *http.Request, b []byte) []byte {
			if r.Method == "GET" && strings.Contains(r.URL.Path, "-deleted/") && len(b) > 0 {
				return oneLeft
			}
			return b
		}},
		{"delete-namespace", "1 ConfigMaps or more are left", func(r *http.Request, b []byte) []byte {
			if r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/configmaps") && len(b) > 0 {
				return oneLeft
			}
			if isWatch(r) { // as if another client had been very quick
				return bytes.Replace(b, []byte("MODIFIED"), []byte("DELETED"), 1)
			}
			return b
		}},
		{"crd-first-object", "does not have what was written", func(r *http.Request, b []byte) []byte {
			return bytes.Replace(b, []byte(`"deletionPolicy":"Delete"`), []byte(`"deletionPolicy":""`), 1)
		}},
		{"custom-create", "does not have what was written", func(r *http.Request, b []byte) []byte {
			if strings.HasSuffix(r.URL.Path, "/gadgets") {
				return bytes.Replace(b, []byte(`"policy":"Delete"`), nil, 1)
			}
			return b
		}},
		{"custom-list", "106 objects, want 107", func(r *http.Request, b []byte) []byte {
			if r.Method == "GET" && strings.HasSuffix(r.URL.Path, "-alike-custom/settings") {
				return bytes.Replace(b, markBytes, nil, 1)
			}
			return b
		}},
	} {
		s := liar(t, honest, test.change)
		r, err := Run(t.Context(), tiny(test.scenario), []Server{s}, progress.Progress{})
		if err != nil {
			t.Errorf("%s: %v", test.scenario, err)
			continue
		}
		if failures := strings.Join(r.Failures(), "\n"); !strings.Contains(failures, test.want) {
			t.Errorf("%s: the failures are %q, want %q", test.scenario, failures, test.want)
		}
	}
}

// TestNamespacesStay: on a server that deletes no namespaces, their deletion is not measured, and
// the result has the reason.
func TestNamespacesStay(t *testing.T) {
	s := liar(t, serve(t), func(r *http.Request, b []byte) []byte {
		if strings.HasPrefix(string(b), `{"type":"DELETED"`) {
			return nil
		}
		return b
	})
	r, err := Run(t.Context(), tiny("delete-namespace"), []Server{s}, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Servers[0].Results[0]; !strings.HasPrefix(got.Skipped, "the server does not delete namespaces: an empty one was still there") || got.Failed != "" {
		t.Errorf("skipped %q, failed %q", got.Skipped, got.Failed)
	}
}

// TestUnreachable: a server that is not there is an error of the run.
func TestUnreachable(t *testing.T) {
	s := liar(t, serve(t), func(_ *http.Request, b []byte) []byte { return b })
	b, err := os.ReadFile(s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	target, err := loadTarget(s)
	if err != nil {
		t.Fatal(err)
	}
	nowhere := url.URL{Scheme: "https", Host: "127.0.0.1:1"}
	b = bytes.Replace(b, []byte(target.base.String()), []byte(nowhere.String()), 1)
	if err := os.WriteFile(s.Kubeconfig, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), tiny("get"), []Server{s}, progress.Progress{}); err == nil {
		t.Error("no error")
	}
	if _, err := Run(t.Context(), tiny("get"), []Server{{Kubeconfig: s.Kubeconfig, Context: "other"}}, progress.Progress{}); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("a context that is not there: %v", err)
	}
}
