package podsecurity

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/pod-security-admission/policy"
	yamls "sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// newest is the version of the fixtures that examples/policies/pod-security.yaml implements.
const newest = "v1.35"

// readPolicies returns the policies of the example, with their bindings.
func readPolicies(t *testing.T) (policies []*admissionregistrationv1.ValidatingAdmissionPolicy, bindings []*admissionregistrationv1.ValidatingAdmissionPolicyBinding) {
	t.Helper()
	text, err := os.ReadFile("../../examples/policies/pod-security.yaml")
	if err != nil {
		t.Fatal(err)
	}
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		one, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return policies, bindings
		}
		if err != nil {
			t.Fatal(err)
		}
		var kind metav1.TypeMeta
		if err := yamls.Unmarshal(one, &kind); err != nil {
			t.Fatal(err)
		}
		var into any
		switch kind.Kind {
		case "ValidatingAdmissionPolicy":
			p := &admissionregistrationv1.ValidatingAdmissionPolicy{}
			policies, into = append(policies, p), p
		case "ValidatingAdmissionPolicyBinding":
			b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
			bindings, into = append(bindings, b), b
		default:
			t.Fatalf("a document of kind %q", kind.Kind)
		}
		if err := yamls.UnmarshalStrict(one, into); err != nil {
			t.Fatal(err)
		}
	}
}

// checkOf returns the check that a validation names, before the first colon of its message.
func checkOf(v admissionregistrationv1.Validation) string {
	text := v.Message
	if text == "" {
		text = v.MessageExpression
	}
	name, _, _ := strings.Cut(strings.TrimLeft(text, "'"), ":")
	return name
}

// TestPoliciesCoverChecks: each of upstream's checks has one validation, in the policy of its level.
func TestPoliciesCoverChecks(t *testing.T) {
	tier.Full(t)
	want, got := sets.New[string](), sets.New[string]()
	for _, c := range policy.DefaultChecks() {
		want.Insert(string(c.Level) + " " + string(c.ID))
	}
	policies, _ := readPolicies(t)
	for _, p := range policies {
		for _, v := range p.Spec.Validations {
			got.Insert(strings.TrimPrefix(p.Name, "pod-security-") + " " + checkOf(v))
		}
	}
	if !got.Equal(want) {
		t.Errorf("only in the policies: %v; only upstream: %v", sets.List(got.Difference(want)), sets.List(want.Difference(got)))
	}
}

// install creates the policies and a namespace of each level. It returns the names of the namespaces
// by level.
func install(t *testing.T, k kubernetes.Interface) map[string]string {
	t.Helper()
	names := map[string]string{}
	policies, bindings := readPolicies(t)
	r, none := k.AdmissionregistrationV1(), metav1.CreateOptions{}
	for _, level := range []string{"baseline", "restricted"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "policies-", Labels: map[string]string{"pod-security": level}}}
		ns, err := k.CoreV1().Namespaces().Create(t.Context(), ns, none)
		if err != nil {
			t.Fatal(err)
		}
		names[level] = ns.Name
		t.Cleanup(func() { k.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}) })
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		if _, err := k.CoreV1().ServiceAccounts(ns.Name).Create(t.Context(), account, none); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	for _, p := range policies {
		if _, err := r.ValidatingAdmissionPolicies().Create(t.Context(), p, none); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.ValidatingAdmissionPolicies().Delete(context.Background(), p.Name, metav1.DeleteOptions{}) })
	}
	for _, b := range bindings {
		if _, err := r.ValidatingAdmissionPolicyBindings().Create(t.Context(), b, none); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			r.ValidatingAdmissionPolicyBindings().Delete(context.Background(), b.Name, metav1.DeleteOptions{})
		})
	}
	return names
}

// typeChecked waits for the status of the policies, which has no warnings.
func typeChecked(t *testing.T, k kubernetes.Interface) {
	t.Helper()
	policies, _ := readPolicies(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, p := range policies {
		for {
			got, err := k.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status.ObservedGeneration != got.Generation {
				time.Sleep(20 * time.Millisecond)
				continue
			}
			if got.Status.TypeChecking != nil {
				for _, w := range got.Status.TypeChecking.ExpressionWarnings {
					t.Errorf("%s: %s: %s", p.Name, w.FieldRef, w.Warning)
				}
			}
			break
		}
	}
}

// inEffect waits until the policies deny: a kube-apiserver sees new ones a moment later.
func inEffect(t *testing.T, k kubernetes.Interface, namespaces map[string]string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for level, set := range map[string]func(*corev1.PodSpec){
		"baseline":   func(s *corev1.PodSpec) { s.HostPID = true },
		"restricted": func(*corev1.PodSpec) {},
	} {
		for {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "probe"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			set(&pod.Spec)
			_, err := k.CoreV1().Pods(namespaces[level]).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if apierrors.IsForbidden(err) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

// overridden returns the pairs of a restricted check and a baseline check that it includes, in lower case
// and in both orders. A Pod that fails both is denied by either policy.
func overridden() sets.Set[string] {
	pairs := sets.New[string]()
	for _, c := range policy.DefaultChecks() {
		for _, v := range c.Versions {
			for _, o := range v.OverrideCheckIDs {
				a, b := strings.ToLower(string(c.ID)), strings.ToLower(string(o))
				pairs.Insert(a+" "+b, b+" "+a)
			}
		}
	}
	return pairs
}

// TestPolicies: the policies of the example decide on the Pods of upstream's fixtures as the plugin does,
// and name the check that the fixture fails.
func TestPolicies(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		k := kubernetes.NewForConfigOrDie(s.Config)
		namespaces := install(t, k)
		if s.Peer {
			inEffect(t, k, namespaces)
		} else {
			typeChecked(t, k)
		}
		var all []fixture
		for _, f := range readFixtures(t) {
			if f.version == newest {
				all = append(all, f)
			}
		}
		if len(all) < 120 {
			t.Fatalf("there are %d fixtures of %s", len(all), newest)
		}
		overrides := overridden()
		decide(t, s.Config, all, func(f fixture) string { return namespaces[f.level] }, func(f fixture, code int, message string) {
			if f.allowed {
				if code != http.StatusCreated {
					t.Errorf("%s: %d %s", f.name, code, message)
				}
				return
			}
			// The name of the file is that of the check in lower case, and a number.
			check := strings.TrimRight(strings.TrimSuffix(f.name[strings.LastIndex(f.name, "/")+1:], ".yaml"), "0123456789")
			if check == "procmount" && code == http.StatusUnprocessableEntity && strings.Contains(message, "`hostUsers` must be false") {
				return // the validation of Pods comes first
			}
			if s.Peer && strings.Contains(message, "disallowed by cluster policy") {
				return // it runs without --allow-privileged
			}
			_, text, _ := strings.Cut(message, " denied request: ")
			named, _, _ := strings.Cut(strings.ToLower(text), ":")
			if code != http.StatusForbidden || named != check && !overrides.Has(named+" "+check) {
				t.Errorf("%s: %d %s", f.name, code, message)
			}
		})
		ephemeral(t, k.CoreV1().Pods(namespaces["baseline"]))
	})
}

// ephemeral adds a container to a running Pod, which the policies check too.
func ephemeral(t *testing.T, pods corev1client.PodInterface) {
	t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "runs"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	p, err := pods.Create(t.Context(), p, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		pods.Delete(context.Background(), p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)})
	})
	with := func(add corev1.Capability) error {
		p := p.DeepCopy()
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "debug", Image: "i", SecurityContext: &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{add}}},
		}}}
		_, err := pods.UpdateEphemeralContainers(t.Context(), p.Name, p, metav1.UpdateOptions{})
		return err
	}
	const want = `pods "runs" is forbidden: ValidatingAdmissionPolicy 'pod-security-baseline' with binding 'pod-security-baseline' denied request: ` +
		"capabilities_baseline: containers must not add capabilities beyond the default set"
	if err := with("SYS_PTRACE"); !apierrors.IsForbidden(err) || err.Error() != want {
		t.Errorf("a container with SYS_PTRACE: %v", err)
	}
	if err := with("KILL"); err != nil {
		t.Errorf("a container with KILL: %v", err)
	}
}
