package admission_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/admission"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// world is the verbs with the steps.
type world struct {
	*testing.T
	*registry.Registry
}

// newWorld has the plugins on that are on by default, and those that are named.
func newWorld(t *testing.T, enable ...string) *world {
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	plugins, err := admission.Choose(enable, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, &registry.Registry{Store: s, Plugins: admission.Chain(admission.Config{Store: s, Enabled: plugins})}}
}

func (w *world) target(resource, namespace, name string) registry.Target {
	w.Helper()
	for t := range builtin.Catalog().Types() {
		if t.Resource == resource {
			return registry.Target{Type: t, Namespace: namespace, Name: name}
		}
	}
	w.Fatalf("there are no %s", resource)
	return registry.Target{}
}

// create returns the warnings without their prefix, and the error.
func (w *world) create(resource, namespace, body string) ([]string, error) {
	w.Helper()
	o, err := w.Create(w.Context(), w.target(resource, namespace, ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{})
	return o.Warnings, err
}

func mergePatch(body string) registry.Patch {
	return registry.Patch{Type: types.MergePatchType, Bytes: []byte(body)}
}

func (w *world) patch(resource, namespace, name, body string) ([]string, error) {
	w.Helper()
	o, err := w.Patch(w.Context(), w.target(resource, namespace, name), mergePatch(body), registry.WriteOptions{})
	return o.Warnings, err
}

func (w *world) namespace(name, labels string) {
	w.Helper()
	if _, err := w.create("namespaces", "", `{"metadata":{"name":"`+name+`","labels":{`+labels+`}}}`); err != nil {
		w.Fatal(err)
	}
}

const (
	plain   = `{"containers":[{"name":"c","image":"i"}]}`
	hostNet = `{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}`
)

func pod(name, spec string) string { return `{"metadata":{"name":"` + name + `"},"spec":` + spec + `}` }

func deployment(spec string) string {
	return `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + spec + `}}}`
}

// TestPodSecurity compares the messages with those of kube-apiserver v1.36.3.
func TestPodSecurity(t *testing.T) {
	w := newWorld(t)
	w.namespace("free", "")
	w.namespace("strict", `"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted","pod-security.kubernetes.io/warn-version":"v1.24"`)
	const refused = `pods "a" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`
	const warned = `would violate PodSecurity "restricted:v1.24": allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), ` +
		`unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), ` +
		`seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`
	for _, c := range []struct {
		resource, namespace, body string
		refused, warned           string
	}{
		{"pods", "free", pod("a", hostNet), "", ""},
		{"pods", "strict", pod("a", hostNet), refused, ""},
		{"pods", "strict", pod("a", plain), "", warned},
		{"deployments", "strict", deployment(plain), "", warned},
		{"deployments", "free", deployment(plain), "", ""},
		{"namespaces", "", `{"metadata":{"name":"x","labels":{"pod-security.kubernetes.io/enforce":"none"}}}`,
			`Namespace "x" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "none": must be one of privileged, baseline, restricted`, ""},
	} {
		warnings, err := w.create(c.resource, c.namespace, c.body)
		if got := text(err); got != c.refused {
			t.Errorf("%s in %q: %q, want %q", c.resource, c.namespace, got, c.refused)
		}
		if got := strings.Join(warnings, "\n"); got != c.warned {
			t.Errorf("%s in %q warns %q, want %q", c.resource, c.namespace, got, c.warned)
		}
	}

	// An update that changes no container is admitted.
	if warnings, err := w.patch("pods", "strict", "a", `{"metadata":{"labels":{"a":"b"}}}`); err != nil || len(warnings) > 0 {
		t.Errorf("a label: %v, %q", err, warnings)
	}
	if warnings, err := w.patch("pods", "strict", "a", `{"spec":{"containers":[{"name":"c","image":"j"}]}}`); err != nil || !slices.Equal(warnings, []string{warned}) {
		t.Errorf("an image: %v, %q", err, warnings)
	}
}

// TestNamespaceLevel checks that a client that makes a level stricter is warned about the Pods that
// violate it.
func TestNamespaceLevel(t *testing.T) {
	w := newWorld(t)
	w.namespace("n", "")
	for name, spec := range map[string]string{"b": hostNet, "a": hostNet, "c": plain} {
		if _, err := w.create("pods", "n", pod(name, spec)); err != nil {
			t.Fatal(err)
		}
	}
	level := func(level string) []string {
		t.Helper()
		warnings, err := w.patch("namespaces", "", "n", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"`+level+`"}}}`)
		if err != nil {
			t.Fatal(err)
		}
		return warnings
	}
	want := []string{`existing pods in namespace "n" violate the new PodSecurity enforce level "baseline:latest"`, "a (and 1 other pod): host namespaces"}
	if got := level("baseline"); !slices.Equal(got, want) {
		t.Errorf("warned of %q, want %q", got, want)
	}
	if got := level("privileged"); len(got) > 0 {
		t.Errorf("a level that allows everything warns of %q", got)
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// TestDefaultPriority checks that at most one class is the global default.
func TestDefaultPriority(t *testing.T) {
	w := newWorld(t)
	class := func(name, global string) string {
		return `{"metadata":{"name":"` + name + `"},"value":1,"globalDefault":` + global + `}`
	}
	for _, c := range []struct{ body, want string }{
		{class("a", "true"), ""},
		{class("b", "true"), `priorityclasses.scheduling.k8s.io "b" is forbidden: PriorityClass a is already marked as default. Only one default can exist`},
		{class("c", "false"), ""},
	} {
		if _, err := w.create("priorityclasses", "", c.body); text(err) != c.want {
			t.Errorf("%s: %v, want %q", c.body, err, c.want)
		}
	}
	if _, err := w.patch("priorityclasses", "", "a", `{"description":"d"}`); err != nil {
		t.Error(err)
	}
	if _, err := w.patch("priorityclasses", "", "c", `{"globalDefault":true}`); !apierrors.IsForbidden(err) {
		t.Errorf("a second default: %v", err)
	}
}
