package conformance

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/progress"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// demanding refuses objects that lack a label, as a type with required fields does.
func demanding(config *rest.Config) *rest.Config {
	return behind(config, func(req *http.Request, next http.RoundTripper) (*http.Response, error) {
		if v := verbOf(req); v == "create" && strings.HasSuffix(req.URL.Path, "/leases") || v == "update" && strings.Contains(req.URL.Path, "/leases/") {
			b, err := io.ReadAll(req.Body)
			if err != nil {
				return nil, err
			}
			var o object
			if json.Unmarshal(b, &o) != nil || o.text("spec", "holderIdentity") != "me" || o.text("metadata", "annotations", "team") != "a" {
				return says(always, 422, `{"kind":"Status","status":"Failure","code":422,"message":"spec.holderIdentity: Required value"}`)(req, next)
			}
			req = req.Clone(req.Context())
			req.Body = io.NopCloser(strings.NewReader(string(b)))
		}
		return next.RoundTrip(req)
	})
}

// TestTemplate: a type that wants more than a name is checked with objects like the
// one that is given, and without one the run does not begin.
func TestTemplate(t *testing.T) { synctest.Test(t, testTemplate) }

func testTemplate(t *testing.T) {
	config := demanding(serve(t))
	o := Options{Resource: "leases.coordination.k8s.io", Areas: append(ofAnyType(t), "sweep"), Seed: testrand.New(t).Uint64()}
	if _, err := Run(t.Context(), config, o, progress.Progress{}); err == nil || !strings.Contains(err.Error(), "--template") || !strings.Contains(err.Error(), "Required value") {
		t.Errorf("without a template: %v", err)
	}
	o.Template = []byte(`# like this one
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: taken, namespace: elsewhere, uid: "7", resourceVersion: "9", labels: {keep: this}, annotations: {team: a}, finalizers: [never.example.com/removed]}
spec: {holderIdentity: me}
status: {bad: true}
`)
	report, err := Run(t.Context(), config, o, progress.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		if want, listed := lacking[r.ID]; r.Outcome != Passed && (!listed || r.Outcome != want) {
			t.Errorf("%s: %s %s", r.ID, r.Outcome, r.Message)
		}
	}
	o.Resource = "configmaps"
	if _, err := Run(t.Context(), config, o, progress.Progress{}); err == nil || !strings.Contains(err.Error(), `the template has kind "Lease"`) {
		t.Errorf("of another type: %v", err)
	}
}

func TestParseTemplate(t *testing.T) {
	for text, want := range map[string]string{
		`{"spec":{"a":1}}`:                      "",
		"spec:\n  a: 1\n":                       "",
		"---\n# first\n---\nspec: {}\n---\n":    "",
		"":                                      "is empty",
		"# nothing\n":                           "is empty",
		"[1]":                                   "is not an object",
		"words":                                 "is not an object",
		"a: [":                                  "no YAML",
		"a: 1\n---\nb: 2\n":                     "several objects",
		strings.Repeat("x", maxTemplateBytes+1): "want at most",
	} {
		_, err := parseTemplate([]byte(text))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseTemplate(f *testing.F) {
	f.Add([]byte("apiVersion: v1\nkind: Foo\nmetadata: {labels: [1]}\nspec: {a: &x [1], b: *x}\n"))
	f.Add([]byte(`{"metadata":{"labels":{"a":1}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if o, err := parseTemplate(text); (o == nil) != (err != nil) {
			t.Errorf("%v, %v", o, err)
		} else if o != nil {
			o.copied()
		}
	})
}
