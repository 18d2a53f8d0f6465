package admission

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/admission/manifest"
	"github.com/tidemark-dev/tidemark/internal/admission/policy"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/mutating"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/policytest"
	"github.com/tidemark-dev/tidemark/internal/admission/policy/validating"
	"github.com/tidemark-dev/tidemark/internal/admission/webhook"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	remote "github.com/tidemark-dev/tidemark/internal/webhook"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

const manifestHead = "apiVersion: admissionregistration.k8s.io/v1\nkind: "

// directory makes a directory of one file.
func directory(t *testing.T, plugin, text string) *manifest.Directory {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := manifest.Open(plugin, dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const storedPolicy = `{"metadata":{"name":"NAME"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["*"]}]},"validations":[{"expression":"false","message":"stored"}]}}`

// TestValidatingManifests: policies of files come before the stored ones, and apply to stored policies as well.
func TestValidatingManifests(t *testing.T) {
	d := directory(t, manifest.ValidatingPolicies, manifestHead+`ValidatingAdmissionPolicy
metadata: {name: z.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: [CREATE], resources: ["*"]}]}
  validations: [{expression: "!object.metadata.name.startsWith('bad')", message: filed}]
---
`+manifestHead+`ValidatingAdmissionPolicyBinding
metadata: {name: y.static.k8s.io}
spec: {policyName: z.static.k8s.io, validationActions: [Deny]}
`)
	s := policytest.New(t, validating.Plugin(policy.Config{Catalog: builtin.Catalog, Files: d}))
	const policies, bindings = "validatingadmissionpolicies.admissionregistration.k8s.io", "validatingadmissionpolicybindings.admissionregistration.k8s.io"
	refused := func(collection, body, want string) {
		t.Helper()
		_, err := s.Create(collection, body)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: got %v, want %s", collection, err, want)
		}
	}
	const filed = "ValidatingAdmissionPolicy 'z.static.k8s.io' with binding 'y.static.k8s.io' denied request: filed"
	refused("configmaps", `{"metadata":{"name":"good"}}`, "")
	refused("configmaps", `{"metadata":{"name":"bad"}}`, filed)
	refused(policies, strings.Replace(storedPolicy, "NAME", "bad", 1), filed)
	refused(policies, strings.Replace(storedPolicy, "NAME", "a", 1), "")
	refused(bindings, `{"metadata":{"name":"a"},"spec":{"policyName":"a","validationActions":["Deny"]}}`, "")
	refused("configmaps", `{"metadata":{"name":"good2"}}`, "stored")
	refused("configmaps", `{"metadata":{"name":"bad"}}`, filed)
	refused(policies, strings.Replace(storedPolicy, "NAME", "b", 1), "") // no stored policy applies to policies
}

func TestMutatingManifests(t *testing.T) {
	d := directory(t, manifest.MutatingPolicies, manifestHead+`MutatingAdmissionPolicy
metadata: {name: z.static.k8s.io}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [configmaps]}]}
  reinvocationPolicy: Never
  mutations: [{patchType: ApplyConfiguration, applyConfiguration: {expression: "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"}}]
---
`+manifestHead+`MutatingAdmissionPolicyBinding
metadata: {name: y.static.k8s.io}
spec: {policyName: z.static.k8s.io}
`)
	s := policytest.New(t, mutating.Plugin(policy.Config{Catalog: builtin.Catalog, Files: d}))
	got, err := s.Create("configmaps", `{"metadata":{"name":"c"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if text := string(got.Stored.Bytes()); !strings.Contains(text, `"labels":{"a":"b"}`) {
		t.Errorf("no label: %s", text)
	}
}

// TestWebhookManifests: webhooks of files are called before stored ones, and for stored configurations.
func TestWebhookManifests(t *testing.T) {
	hook := webhooktest.Start(t)
	configuration := func(kind, name, path string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"webhooks":[{"name":"a.example.com","clientConfig":` + hook.Config(path) +
			`,"sideEffects":"None","admissionReviewVersions":["v1"],"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["CREATE"],"resources":["*"]}]}]}`
	}
	c := remote.NewConnections(nil, nil)
	w := webhook.New(webhook.Config{
		Mutating: c, Validating: c,
		MutatingFiles:   directory(t, manifest.MutatingWebhooks, configuration("MutatingWebhookConfiguration", "x.static.k8s.io", "/m")),
		ValidatingFiles: directory(t, manifest.ValidatingWebhooks, configuration("ValidatingWebhookConfiguration", "x.static.k8s.io", "/v")),
	})
	defer w.Close()
	s := policytest.New(t, w.Mutating(), w.Validating())
	create := func(collection, body, want string) {
		t.Helper()
		hook.Take()
		if _, err := s.Create(collection, body); err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, r := range hook.Take() {
			paths = append(paths, r.HTTP.URL.Path)
		}
		if got := strings.Join(paths, " "); got != want {
			t.Errorf("%s: called %s, want %s", collection, got, want)
		}
	}
	create("configmaps", `{"metadata":{"name":"a"}}`, "/m /v")
	create("mutatingwebhookconfigurations.admissionregistration.k8s.io", configuration("MutatingWebhookConfiguration", "a", "/stored"), "/m /v")
	create("configmaps", `{"metadata":{"name":"b"}}`, "/m /stored /v")
	create("validatingadmissionpolicies.admissionregistration.k8s.io", strings.Replace(storedPolicy, "NAME", "b", 1), "/m /v")
}

// TestReservedNames: clients cannot create objects with the names of those in files.
func TestReservedNames(t *testing.T) {
	const text = `names ending with ".static.k8s.io" are reserved for static manifest-based configurations and cannot be managed via the API`
	log, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, on := range []bool{true, false} {
		s := policytest.New(t, Chain(Config{Store: log, Configuration: Configuration{StaticManifests: on}})...)
		const policies = "validatingadmissionpolicies.admissionregistration.k8s.io"
		got, err := s.Create(policies, strings.Replace(storedPolicy, "NAME", "a.static.k8s.io", 1))
		if on {
			if status := policytest.Status(t, err); status.Code != 422 || !strings.HasSuffix(status.Message, `metadata.name: Invalid value: "a.static.k8s.io": `+text) {
				t.Errorf("got %d %s", status.Code, status.Message)
			}
		} else if err != nil || strings.Join(got.Warnings, "") != "metadata.name: "+text {
			t.Errorf("got %v %q", err, got.Warnings)
		}
		if _, err := s.Create(policies, strings.Replace(storedPolicy, "NAME", "a", 1)); err != nil {
			t.Error(err)
		}
		if _, err := s.Create("configmaps", `{"metadata":{"name":"a.static.k8s.io"}}`); err != nil {
			t.Error(err)
		}
	}
}
