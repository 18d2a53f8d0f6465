package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/conformance"
)

// TestConformance: the exit status shows whether a server passes, fails, or could
// not be checked.
func TestConformance(t *testing.T) {
	s := &tidemark.Server{}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	dir := t.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(config, s.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := command("conformance", "--area=versions", "--area=get", "--kubeconfig="+config, "--seed=5")
	if code != exitOK || !strings.Contains(stdout, "versions.object") || !strings.Contains(stdout, "seed 5") || strings.Contains(stderr, "left behind") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	code, stdout, _ = command("conformance", "get.any", "-o", "json", "--kubeconfig="+config)
	var report conformance.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != exitOK || len(report.Results) != 1 || report.Results[0].Outcome != conformance.Passed {
		t.Errorf("%d %v\n%s", code, err, stdout)
	}
	code, stdout, stderr = command("conformance", "get.any", "restart.objects", "--restart-command=exit 3", "--kubeconfig="+config)
	if code != exitUsage || !strings.Contains(stdout, "Not done: ") || !strings.Contains(lastLine(stderr), "could not be restarted: exit status 3") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = command("conformance", "restart.objects", "--kubeconfig="+config)
	if code != exitUsage || !strings.Contains(lastLine(stderr), "no check could be run") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	template := filepath.Join(dir, "template.yaml")
	if err := os.WriteFile(template, []byte("kind: ConfigMap\ndata: {a: b}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = command("conformance", "versions.object", "--template="+template, "--kubeconfig="+config)
	if code != exitOK {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = command("conformance", "versions.no-op", "versions.list", "-o", "junit", "--kubeconfig="+broken(t, s, dir))
	if code != exitFailed || !strings.Contains(stdout, "<failure") || !strings.Contains(lastLine(stderr), "1 checks of level MUST failed") {
		t.Errorf("%d\n%s%s", code, stdout, stderr)
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "not-there"))
	for want, args := range map[string][]string{
		"not-there":   {"--kubeconfig=" + filepath.Join(dir, "not-there")},
		`"elsewhere"`: {"--kubeconfig=" + config, "--context=elsewhere"},
		`"flies"`:     {"--kubeconfig=" + config, "--resource=flies"},
		"$KUBECONFIG": {},
		`"elsewhat"`:  {"--kubeconfig=" + config, "--namespace=elsewhat"},
		`"ConfigMap"`: {"--kubeconfig=" + config, "--resource=secrets", "--template=" + template},
	} {
		code, stdout, stderr := command(append([]string{"conformance"}, args...)...)
		if code != exitUsage || stdout != "" || !strings.Contains(lastLine(stderr), want) {
			t.Errorf("%v: %d\n%s%s, want %q", args, code, stdout, stderr, want)
		}
	}
}

// broken puts a proxy before a server that refuses lists, and returns
// a kubeconfig that leads to it.
func broken(t *testing.T, s *tidemark.Server, dir string) string {
	t.Helper()
	behind, err := rest.TransportFor(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(s.RESTConfig().Host)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{
		Transport: behind,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			if strings.HasSuffix(r.In.URL.Path, "/configmaps") && r.In.Method == http.MethodGet {
				r.Out.Header.Set("Accept", "application/x-none")
			}
		},
	})
	t.Cleanup(proxy.Close)
	path := filepath.Join(dir, "broken")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],` +
		`"clusters":[{"name":"c","cluster":{"server":"` + proxy.URL + `"}}],"users":[{"name":"u","user":{}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestConformanceList(t *testing.T) {
	code, out, _ := command("conformance", "list")
	for _, c := range conformance.Checks() {
		if code != exitOK || !strings.Contains(out, "\n"+c.ID+" ") || !strings.Contains(out, c.Source) {
			t.Errorf("%d: %s is not explained:\n%s", code, c.ID, out)
		}
	}
}

func TestConformanceUsage(t *testing.T) {
	for line, want := range map[string]string{
		"conformance nonsense":        `"nonsense"`,
		"conformance --area=nonsense": `"nonsense"`,
		"conformance --output=yaml":   "yaml",
		"conformance --timeout=1ms":   "want 100ms",
		"conformance --resource=/":    `"/"`,
		"conformance --parallel=-1":   "want 1 to 64",
		"conformance --window=-1s":    "window is -1s",
		"conformance --nonsense":      "--nonsense",
		"conformance --template=none": "none",
		"conformance --template=.":    "directory",
		// An empty file, and one that holds no object.
		"conformance --template=/dev/null":           "is empty",
		"conformance --template=conformance_test.go": "template is no",
	} {
		refused(t, line, want)
	}
}

// TestConformanceHelp: every flag is explained.
func TestConformanceHelp(t *testing.T) {
	code, out, _ := command("conformance", "--help")
	newConformance().Flags().VisitAll(func(f *pflag.Flag) {
		if code != exitOK || f.Usage == "" || !strings.Contains(out, "--"+f.Name) {
			t.Errorf("--%s is not explained", f.Name)
		}
	})
}
