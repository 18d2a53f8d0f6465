package tidemark_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const eventLimits = `
apiVersion: eventratelimit.admission.k8s.io/v1alpha1
kind: Configuration
limits:
- {type: Namespace, qps: 1, burst: 3, cacheSize: 10}
- {type: SourceAndObject, qps: 1, burst: 2}
`

// TestEventRateLimit: Events beyond a limit are refused with 429, in kube-apiserver's words.
func TestEventRateLimit(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "events.yaml", eventLimits)
	file := write(t, dir, "admission.yaml", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: [{name: EventRateLimit, path: events.yaml}]")
	s := &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"EventRateLimit"}, ConfigFile: file}}
	now := time.Now()
	s.SetClock(func() time.Time { return now }) // no bucket is filled again
	servertest.Start(t, s)
	c := s.RESTConfig()
	client := servertest.Client(t, c)
	const object = `"involvedObject":{"namespace":"default","kind":"Pod","name":"p","uid":"u","apiVersion":"v1"},"source":{"component":"c","host":"h"}}`
	for _, step := range []struct {
		path, body string
		code       int
		message    string
	}{
		{"events?dryRun=All", `{"metadata":{"name":"e1"},` + object, 201, ""},
		{"events?dryRun=All", `{"metadata":{"name":"e1"},` + object, 201, ""},
		{"events?dryRun=All", `{"metadata":{"name":"e1"},` + object, 201, ""},
		{"events", `{"metadata":{"name":"e1"},` + object, 201, ""},
		{"events/e1", `{"count":2}`, 200, ""},
		{"events", `{"metadata":{"name":"e2"},` + object, 429, "Too many requests: limit reached on type SourceAndObject for key chPoddefaultpuv1"},
		{"events", `{"metadata":{"name":"e3"},` + object, 429, "Too many requests: [limit reached on type Namespace for key default, limit reached on type SourceAndObject for key chPoddefaultpuv1]"},
		{"events", `{"metadata":{"name":"e4"},"involvedObject":{"namespace":"default"}}`, 429, "Too many requests: limit reached on type Namespace for key default"},
		{"configmaps", `{"metadata":{"name":"c"}}`, 201, ""},
	} {
		method := http.MethodPost
		if step.code == 200 {
			method = http.MethodPatch
		}
		r, err := http.NewRequestWithContext(t.Context(), method, c.Host+"/api/v1/namespaces/default/"+step.path, strings.NewReader(step.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", map[string]string{http.MethodPost: "application/json", http.MethodPatch: "application/merge-patch+json"}[method])
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(response.Body)
		response.Body.Close()
		var status struct{ Message string }
		if err != nil || json.Unmarshal(b, &status) != nil || response.StatusCode != step.code || status.Message != step.message {
			t.Errorf("%s %s: %d %s, want %d %s", step.path, step.body, response.StatusCode, b, step.code, step.message)
		}
	}
}

// TestAdmissionConfiguration: a server does not start with a configuration that it cannot follow.
func TestAdmissionConfiguration(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	dir := t.TempDir()
	write(t, dir, "bad.yaml", "kind: x")
	write(t, dir, "good.yaml", eventLimits)
	for _, row := range []struct{ text, want string }{
		{head, `couldn't init admission plugin "EventRateLimit": limits: Invalid value: null: must not be empty`},
		{head + "plugins: [{name: EventRateLimit, path: good.yaml}]", ""},
		{head + "plugins: [{name: EventRateLimit, path: " + dir + "/good.yaml}, {name: PodSecurity}]", ""},
		{head + "plugins: [{name: EventRateLimit, path: none.yaml}]", "no such file"},
		{head + "plugins: [{name: EventRateLimit, path: bad.yaml}]", "Object 'apiVersion' is missing"},
		{head + "plugins: [{name: EventRateLimit, path: good.yaml}, {name: PodSecurity, configuration: {a: b}}]", `couldn't init admission plugin "PodSecurity": Object 'Kind' is missing`},
		{head + "plugins: [{name: EventRateLimit, path: good.yaml}, {name: Nope}]", ""},
		{head + "plugin: []", `unknown field "plugin"`},
		{"kind: AdmissionConfiguration", "Object 'apiVersion' is missing"},
		{"- a", "cannot unmarshal array"},
		{strings.Repeat("#", 1<<20) + "\n", "is larger than 1048576 bytes"},
	} {
		file := filepath.Join(dir, "admission.yaml")
		if err := os.WriteFile(file, []byte(row.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &tidemark.Server{Admission: tidemark.Admission{Enable: []string{"EventRateLimit"}, ConfigFile: file}}
		err := s.Start(t.Context())
		if err == nil {
			servertest.Stop(t, s)
		}
		if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%.200s: %v, want %s", row.text, err, row.want)
		}
	}
	s := &tidemark.Server{Admission: tidemark.Admission{ConfigFile: filepath.Join(dir, "missing.yaml")}}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "unable to read admission control configuration from") {
		t.Errorf("a missing file: %v", err)
	}
}

// TestStaticManifests: webhooks and policies of files are in effect from the start, and an invalid file ends it. With the feature
// off, the directory is refused.
func TestStaticManifests(t *testing.T) {
	dir, manifests := t.TempDir(), t.TempDir()
	write(t, manifests, "a.yaml", `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: a.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "!object.metadata.name.startsWith('bad')"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: a.static.k8s.io}
spec: {policyName: a.static.k8s.io, validationActions: [Deny]}
`)
	file := write(t, dir, "admission.yaml", `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: ValidatingAdmissionPolicy
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ValidatingAdmissionPolicyConfiguration, staticManifestsDir: `+manifests+`}
`)
	options := tidemark.Admission{ConfigFile: file}
	s := &tidemark.Server{Admission: options}
	servertest.Start(t, s)
	client := servertest.Client(t, s.RESTConfig())
	for name, want := range map[string]int{"good": 201, "bad": 422} {
		response, err := client.Post(s.RESTConfig().Host+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(`{"metadata":{"name":"`+name+`"}}`))
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("%s: %d, want %d", name, response.StatusCode, want)
		}
	}
	response, err := client.Get(s.RESTConfig().Host + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if want := `apiserver_manifest_admission_config_controller_automatic_reloads_total{apiserver_id_hash="sha256:`; err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the metrics lack %s: %v", want, err)
	}
	off := &tidemark.Server{Admission: options, FeatureGates: map[string]bool{"ManifestBasedAdmissionControlConfig": false}}
	if err := off.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "staticManifestsDir requires the ManifestBasedAdmissionControlConfig feature gate to be enabled") {
		t.Errorf("with the feature off: %v", err)
	}
	write(t, manifests, "b.yaml", "{{")
	broken := &tidemark.Server{Admission: options}
	if err := broken.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `failed to initialize admission plugin "ValidatingAdmissionPolicy": failed to load static policy manifests from "`+manifests+`": error loading `+filepath.Join(manifests, "b.yaml")) {
		t.Errorf("with a broken file: %v", err)
	}
}
