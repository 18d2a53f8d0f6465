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
	"testing"

	"github.com/tidemark-dev/tidemark/internal/progress"
)

// liar stands before a server, and changes answers that are lists, objects or
// events.
func liar(t *testing.T, honest Server, change func(*http.Request, []byte) []byte) Server {
	t.Helper()
	target, err := loadTarget(honest)
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
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
	s := httptest.NewUnstartedServer(proxy)
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

// TestVerify: wrong answers are found, by every kind of scenario.
func TestVerify(t *testing.T) {
	honest := serve(t)
	isList := func(r *http.Request) bool {
		return r.Method == "GET" && strings.HasSuffix(r.URL.Path, "/pods") && !strings.Contains(r.URL.RawQuery, "watch")
	}
	isWatch := func(r *http.Request) bool { return strings.Contains(r.URL.RawQuery, "watch=1") }
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
