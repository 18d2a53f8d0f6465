package manifest_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/reload"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	policy = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: x.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [configmaps]}]}
  validations: [{expression: "true"}]
`
	binding = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: y.static.k8s.io}
spec: {policyName: x.static.k8s.io, validationActions: [Deny]}
`
	mutating = `apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: x.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [configmaps]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[JSONPatch{op: 'remove', path: '/data'}]"}}]
`
	hooks = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: x.static.k8s.io}
webhooks:
- name: a.example.com
  clientConfig: {url: "https://127.0.0.1:1/x"}
  sideEffects: None
  admissionReviewVersions: [v1]
`
)

// write writes the files of a directory, and removes all others. They look old, so that their stamps
// count.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	then := time.Now().Add(-time.Hour)
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, then, then); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(dir, then, then); err != nil {
		t.Fatal(err)
	}
}

// names returns the objects and bindings of a set.
func names(s *manifest.Set) string {
	var all []string
	for _, o := range slices.Concat(s.Objects, []*store.Object{{Key: "|"}}, s.Bindings) {
		all = append(all, o.Key)
	}
	return strings.Join(all, " ")
}

func replaced(text string, pairs ...string) string {
	return strings.NewReplacer(pairs...).Replace(text)
}

func TestOpen(t *testing.T) {
	list := `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyList"}]}`
	for _, row := range []struct {
		name, plugin string
		files        map[string]string
		want         string // the names of objects and bindings, or a part of the error
	}{
		{"nothing", manifest.ValidatingPolicies, nil, "|"},
		{"two documents", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "---\n" + binding}, "x.static.k8s.io | y.static.k8s.io"},
		{"two files", manifest.ValidatingPolicies, map[string]string{"a.YML": policy, "b.yaml": binding, "c.txt": "{", "d.json": ""}, "x.static.k8s.io | y.static.k8s.io"},
		{"sorted", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "---\n" + replaced(policy, "x.static", "a.static")}, "a.static.k8s.io x.static.k8s.io |"},
		{"without a binding", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy}, "x.static.k8s.io |"},
		{"mutating", manifest.MutatingPolicies, map[string]string{"a.yaml": mutating + "---\n" + list}, "x.static.k8s.io |"},
		{"webhooks", manifest.ValidatingWebhooks, map[string]string{"a.yaml": hooks}, "x.static.k8s.io |"},
		{"mutating webhooks", manifest.MutatingWebhooks, map[string]string{"a.yaml": replaced(hooks, "Validating", "Mutating")}, "x.static.k8s.io |"},

		{"no yaml", manifest.ValidatingPolicies, map[string]string{"a.yaml": "{{"}, "couldn't get version/kind"},
		{"an unknown field", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "  foo: bar\n"}, `unknown field "spec.foo"`},
		{"another version", manifest.ValidatingPolicies, map[string]string{"a.yaml": replaced(policy, "io/v1", "io/v1beta1")}, "unsupported resource type ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1beta1: want ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1, lists of them, or List of v1"},
		{"another kind", manifest.ValidatingPolicies, map[string]string{"a.yaml": mutating}, "unsupported resource type MutatingAdmissionPolicy of "},
		{"webhooks among policies", manifest.ValidatingPolicies, map[string]string{"a.yaml": hooks}, "unsupported resource type ValidatingWebhookConfiguration of "},
		{"a kind of another group", manifest.ValidatingWebhooks, map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap"}, "unsupported resource type ConfigMap of v1: want ValidatingWebhookConfiguration of "},
		{"an item of a list", manifest.ValidatingPolicies, map[string]string{"a.json": list}, "failed to decode list item: unsupported resource type MutatingAdmissionPolicyList of "},
		{"no name", manifest.ValidatingPolicies, map[string]string{"a.yaml": replaced(policy, "name: ", "generateName: ")}, `ValidatingAdmissionPolicy "": metadata.name: Required value`},
		{"a name of the API", manifest.ValidatingPolicies, map[string]string{"a.yaml": replaced(policy, ".static.k8s.io", "")}, `"x" must have a name ending with ".static.k8s.io"`},
		{"an invalid name", manifest.ValidatingPolicies, map[string]string{"a.yaml": replaced(policy, "x.static", "X.static")}, `ValidatingAdmissionPolicy "X.static.k8s.io": metadata.name: Invalid value: "X.static.k8s.io": `},
		{"a namespace", manifest.ValidatingPolicies, map[string]string{"a.yaml": replaced(policy, "{name", "{namespace: a, name")}, "metadata.namespace: Forbidden: not allowed on this type"},
		{"a name twice", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy, "b.yaml": policy}, `a.yaml")`},
		{"an invalid expression", manifest.ValidatingPolicies, map[string]string{"a.yaml": replaced(policy, `"true"`, `"1"`)}, `ValidatingAdmissionPolicy "x.static.k8s.io": spec.validations[0].expression: Invalid value: "1": must evaluate to bool`},
		{"params", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n"}, "spec.paramKind is not supported for static manifests"},
		{"params of a binding", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "---\n" + replaced(binding, "spec: {", "spec: {paramRef: {name: a, parameterNotFoundAction: Deny}, ")}, "spec.paramRef is not supported for static manifests"},
		{"a binding of a stored policy", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "---\n" + replaced(binding, "x.static.k8s.io", "x")}, `binding "y.static.k8s.io": spec.policyName "x" must end with ".static.k8s.io"`},
		{"a binding of nothing", manifest.ValidatingPolicies, map[string]string{"a.yaml": binding}, `binding "y.static.k8s.io" references policy "x.static.k8s.io" which does not exist in the manifest directory`},
		{"an invalid binding", manifest.ValidatingPolicies, map[string]string{"a.yaml": policy + "---\n" + replaced(binding, "[Deny]", "[]")}, "spec.validationActions: Required value"},
		{"a webhook that is a Service", manifest.ValidatingWebhooks, map[string]string{"a.yaml": replaced(hooks, `url: "https://127.0.0.1:1/x"`, "service: {namespace: a, name: b}")}, "clientConfig.service is not supported for static manifests; use clientConfig.url instead"},
		{"an invalid webhook", manifest.ValidatingWebhooks, map[string]string{"a.yaml": replaced(hooks, "None", "Some")}, `webhooks[0].sideEffects: `},
		{"large files", manifest.ValidatingPolicies, map[string]string{"a.yaml": strings.Repeat("#\n", 5<<20), "b.yaml": strings.Repeat("#\n", 5<<20)}, "larger than 16777216 bytes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, row.files)
			d, err := manifest.Open(row.plugin, dir)
			if err == nil {
				if got := names(d.Get()); got != strings.TrimRight(row.want, " ") {
					t.Errorf("got %s, want %s", got, row.want)
				}
				return
			}
			if !strings.HasPrefix(err.Error(), "failed to load static ") || !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %s", err, row.want)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"a.yaml": hooks})
	d, err := manifest.Open(manifest.ValidatingWebhooks, dir)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(d.Get().Objects[0].Bytes()); !strings.Contains(text, `"timeoutSeconds":10`) {
		t.Errorf("without defaults: %s", text)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	write(t, dir, map[string]string{"a": ""})
	for _, row := range [][2]string{
		{dir, ""},
		{path, "must be a directory"},
		{path + "b", "unable to read: "},
		{"a", "must be an absolute file path"},
	} {
		err := manifest.Check(row[0])
		if row[1] == "" && err != nil || row[1] != "" && (err == nil || !strings.Contains(err.Error(), row[1])) {
			t.Errorf("%s: %v", row[0], err)
		}
	}
}

// TestNotAFile: nothing but regular files is read. A named pipe would hold up the server.
func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("b", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := manifest.Open(manifest.ValidatingPolicies, dir); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a directory as a file: %v", err)
	}
}

// count returns the value of a counter of reloads.
func count(t *testing.T, m *manifest.Metrics, status string) (n float64) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(m.Collectors()...)
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			if strings.HasSuffix(f.GetName(), "_reloads_total") && slices.ContainsFunc(one.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == status }) {
				n += one.GetCounter().GetValue()
			}
		}
	}
	return n
}

// TestReload: changes of the files change the set as a whole, or not at all. A failure is counted once.
func TestReload(t *testing.T) {
	dir, now, log, m := t.TempDir(), time.Unix(1e9, 0), new(strings.Builder), manifest.NewMetrics()
	write(t, dir, map[string]string{"a.yaml": policy})
	d, err := manifest.Open(manifest.ValidatingPolicies, dir)
	if err != nil {
		t.Fatal(err)
	}
	d.Watch(manifest.Watching{Now: func() time.Time { return now }, Log: slog.New(slog.NewTextHandler(log, nil)), Metrics: m})
	for _, step := range []struct {
		files           map[string]string
		want            string
		success, failed float64
	}{
		{map[string]string{"a.yaml": policy}, "x.static.k8s.io |", 1, 0},
		{map[string]string{"a.yaml": policy, "b.yaml": binding}, "x.static.k8s.io | y.static.k8s.io", 2, 0},
		{map[string]string{"b.yaml": binding}, "x.static.k8s.io | y.static.k8s.io", 2, 1},
		{map[string]string{"a.yaml": replaced(policy, "x.static", "z.static"), "c.yaml": "{{"}, "x.static.k8s.io | y.static.k8s.io", 2, 2},
		{map[string]string{"a.yaml": replaced(policy, "x.static", "z.static")}, "z.static.k8s.io |", 3, 2},
		{nil, "|", 4, 2},
	} {
		write(t, dir, step.files)
		now = now.Add(reload.Interval)
		for range 2 {
			if got := names(d.Get()); got != step.want {
				t.Errorf("got %s, want %s", got, step.want)
			}
		}
		if ok, bad := count(t, m, "success"), count(t, m, "failure"); ok != step.success || bad != step.failed {
			t.Errorf("%v: counted %v and %v, want %v and %v", step.files, ok, bad, step.success, step.failed)
		}
	}
	if got := strings.Count(log.String(), "level=ERROR"); got != 2 {
		t.Errorf("%d errors in the log:\n%s", got, log)
	}
}

// TestNil: a plugin without a directory has no files.
func TestNil(t *testing.T) {
	var d *manifest.Directory
	d.Watch(manifest.Watching{})
	if names(d.Get()) != "|" {
		t.Error("a directory that there is not has objects")
	}
}
