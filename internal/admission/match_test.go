package admission_test

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	ar "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/match"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// typeOf returns the Type of a resource at a version.
func typeOf(t testing.TB, group, version, name string) *resource.Type {
	t.Helper()
	for one := range builtin.Catalog().Types() {
		if one.Group == group && one.Version == version && one.Resource == name {
			return one
		}
	}
	t.Fatalf("there is no %s of %s/%s", name, group, version)
	return nil
}

// stateWith returns a state with the Namespace n, which has the label team=a.
func stateWith(t testing.TB) *store.State {
	t.Helper()
	s, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := &registry.Registry{Store: s}
	body := registry.Body{Media: wire.JSON, Bytes: []byte(`{"metadata":{"name":"n","labels":{"team":"a"}}}`)}
	if _, err := r.Create(context.Background(), registry.Target{Type: typeOf(t, "", "v1", "namespaces")}, body, registry.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	return s.Any()
}

// rules returns a rule for operations ("CREATE"), groups, versions and resources.
func rules(operation, group, version string, resources ...string) []ar.NamedRuleWithOperations {
	return []ar.NamedRuleWithOperations{{RuleWithOperations: ar.RuleWithOperations{
		Operations: []ar.OperationType{ar.OperationType(operation)},
		Rule:       ar.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources},
	}}}
}

func scoped(r []ar.NamedRuleWithOperations, s ar.ScopeType) []ar.NamedRuleWithOperations {
	r[0].Scope = &s
	return r
}

func named(r []ar.NamedRuleWithOperations, names ...string) []ar.NamedRuleWithOperations {
	r[0].ResourceNames = names
	return r
}

func labeled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func TestMatch(t *testing.T) {
	equivalent := ar.Equivalent
	state := stateWith(t)
	pods, namespaces := typeOf(t, "", "v1", "pods"), typeOf(t, "", "v1", "namespaces")
	scalers, nodes := typeOf(t, "autoscaling", "v2", "horizontalpodautoscalers"), typeOf(t, "", "v1", "nodes")
	pod := &registry.Attributes{Target: registry.Target{Type: pods, Namespace: "n", Name: "p"}, Operation: admissionv1.Create,
		Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "x"}}}}
	status := &registry.Attributes{Target: registry.Target{Type: pods, Subresource: "status", Namespace: "n", Name: "p"}, Operation: admissionv1.Update, Object: pod.Object}
	deletion := &registry.Attributes{Target: pod.Target, Operation: admissionv1.Delete, Old: pod.Object}
	lost := &registry.Attributes{Target: registry.Target{Type: pods, Namespace: "gone", Name: "p"}, Operation: admissionv1.Delete, Old: pod.Object}
	scaler := &registry.Attributes{Target: registry.Target{Type: scalers, Namespace: "n", Name: "h"}, Operation: admissionv1.Create}
	node := &registry.Attributes{Target: registry.Target{Type: nodes, Name: "n"}, Operation: admissionv1.Create, Object: &corev1.Node{}}
	newNamespace := &registry.Attributes{Target: registry.Target{Type: namespaces, Name: "m"}, Operation: admissionv1.Create,
		Object: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"team": "b"}}}}
	oldNamespace := &registry.Attributes{Target: registry.Target{Type: namespaces, Name: "n"}, Operation: admissionv1.Delete}
	for _, c := range []struct {
		name   string
		source match.Source
		of     *registry.Attributes
		want   string // the resource of the form; empty: no match
	}{
		{"no rules", match.Source{}, pod, "/v1, Resource=pods"},
		{"rule", match.Source{Rules: rules("CREATE", "", "v1", "pods")}, pod, "/v1, Resource=pods"},
		{"wildcards", match.Source{Rules: rules("*", "*", "*", "*")}, pod, "/v1, Resource=pods"},
		{"operation", match.Source{Rules: rules("UPDATE", "", "v1", "pods")}, pod, ""},
		{"group", match.Source{Rules: rules("*", "apps", "*", "*")}, pod, ""},
		{"version", match.Source{Rules: rules("*", "*", "v2", "*")}, pod, ""},
		{"resource", match.Source{Rules: rules("*", "*", "*", "nodes")}, pod, ""},
		{"all resources without subresources", match.Source{Rules: rules("*", "*", "*", "*")}, status, ""},
		{"all subresources", match.Source{Rules: rules("*", "*", "*", "*/*")}, status, "/v1, Resource=pods"},
		{"all subresources and the object", match.Source{Rules: rules("*", "*", "*", "pods/*")}, pod, "/v1, Resource=pods"},
		{"subresource of any resource", match.Source{Rules: rules("*", "*", "*", "*/status")}, status, "/v1, Resource=pods"},
		{"other subresource", match.Source{Rules: rules("*", "*", "*", "pods/exec")}, status, ""},
		{"name", match.Source{Rules: named(rules("*", "*", "*", "*"), "o", "p")}, pod, "/v1, Resource=pods"},
		{"other name", match.Source{Rules: named(rules("*", "*", "*", "*"), "o")}, pod, ""},
		{"excluded", match.Source{ExcludeRules: rules("*", "*", "*", "pods")}, pod, ""},
		{"not excluded", match.Source{ExcludeRules: named(rules("*", "*", "*", "pods"), "o")}, pod, "/v1, Resource=pods"},
		{"namespaced", match.Source{Rules: scoped(rules("*", "*", "*", "*"), ar.NamespacedScope)}, pod, "/v1, Resource=pods"},
		{"of the cluster", match.Source{Rules: scoped(rules("*", "*", "*", "*"), ar.ClusterScope)}, pod, ""},
		{"Namespace of the cluster", match.Source{Rules: scoped(rules("*", "*", "*", "*"), ar.ClusterScope)}, newNamespace, "/v1, Resource=namespaces"},
		{"Namespace in a namespace", match.Source{Rules: scoped(rules("*", "*", "*", "*"), ar.NamespacedScope)}, newNamespace, ""},
		{"exact", match.Source{Rules: rules("*", "autoscaling", "v1", "*")}, scaler, ""},
		{"equivalent", match.Source{Rules: rules("*", "autoscaling", "v1", "*"), MatchPolicy: &equivalent}, scaler, "autoscaling/v1, Resource=horizontalpodautoscalers"},
		{"requested before equivalent", match.Source{Rules: append(rules("*", "autoscaling", "v1", "*"), rules("*", "autoscaling", "v2", "*")...), MatchPolicy: &equivalent}, scaler, "autoscaling/v2, Resource=horizontalpodautoscalers"},
		{"equivalent excluded", match.Source{ExcludeRules: rules("*", "autoscaling", "v1", "*"), MatchPolicy: &equivalent}, scaler, ""},
		{"labels of the namespace", match.Source{NamespaceSelector: labeled("team", "a")}, pod, "/v1, Resource=pods"},
		{"other labels of the namespace", match.Source{NamespaceSelector: labeled("team", "b")}, pod, ""},
		{"no namespace", match.Source{NamespaceSelector: labeled("team", "b")}, node, "/v1, Resource=nodes"},
		{"labels of a new Namespace", match.Source{NamespaceSelector: labeled("team", "b")}, newNamespace, "/v1, Resource=namespaces"},
		{"labels of a stored Namespace", match.Source{NamespaceSelector: labeled("team", "a")}, oldNamespace, "/v1, Resource=namespaces"},
		{"missing namespace of another rule", match.Source{Rules: rules("*", "*", "*", "nodes"), NamespaceSelector: labeled("team", "a")}, lost, ""},
		{"labels", match.Source{ObjectSelector: labeled("app", "x")}, pod, "/v1, Resource=pods"},
		{"other labels", match.Source{ObjectSelector: labeled("app", "y")}, pod, ""},
		{"labels of the old object", match.Source{ObjectSelector: labeled("app", "x")}, deletion, "/v1, Resource=pods"},
	} {
		t.Run(c.name, func(t *testing.T) {
			criteria, err := match.New(c.source)
			if err != nil {
				t.Fatal(err)
			}
			a := *c.of
			a.State = state
			form, ok, err := criteria.Match(t.Context(), &a)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if ok {
				got = form.Resource.String()
			}
			if got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if ok && !criteria.MayMatch(a.Target, a.Operation) {
				t.Error("MayMatch excludes a request that matches")
			}
		})
	}
}

// TestMatchErrors checks that an error of a selector affects only requests that match the rules.
func TestMatchErrors(t *testing.T) {
	state := stateWith(t)
	a := &registry.Attributes{Target: registry.Target{Type: typeOf(t, "", "v1", "pods"), Namespace: "gone", Name: "p"}, Operation: admissionv1.Create, State: state, Object: &corev1.Pod{}}
	criteria, err := match.New(match.Source{NamespaceSelector: labeled("team", "a")})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := criteria.Match(t.Context(), a); !apierrors.IsNotFound(err) {
		t.Errorf("got %v, want NotFound", err)
	}
	for _, broken := range []match.Source{{ObjectSelector: labeled("!", "a")}, {NamespaceSelector: labeled("!", "a")}} {
		criteria, err := match.New(broken)
		if err == nil || criteria == nil {
			t.Fatalf("got %v, %v, want an error and the criteria", criteria, err)
		}
		if _, _, err := criteria.Match(t.Context(), a); !apierrors.IsInternalError(err) {
			t.Errorf("got %v, want an internal error", err)
		}
		broken.Rules = rules("*", "*", "*", "nodes")
		criteria, _ = match.New(broken)
		if _, ok, err := criteria.Match(t.Context(), a); ok || err != nil {
			t.Errorf("got %v, %v, want no match", ok, err)
		}
	}
}

func TestExempt(t *testing.T) {
	for _, name := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "mutatingadmissionpolicies", "mutatingadmissionpolicybindings"} {
		if !match.Exempt(registry.Target{Type: typeOf(t, "admissionregistration.k8s.io", "v1", name)}) {
			t.Errorf("%s are not exempt", name)
		}
	}
	if match.Exempt(registry.Target{Type: typeOf(t, "", "v1", "pods")}) {
		t.Error("pods are exempt")
	}
}

// BenchmarkMatch matches a Pod by a rule and the labels of its namespace.
func BenchmarkMatch(b *testing.B) {
	var pods *resource.Type
	for one := range builtin.Catalog().Types() {
		if one.Collection == "pods" {
			pods = one
		}
	}
	a := &registry.Attributes{Target: registry.Target{Type: pods, Namespace: "n", Name: "p"}, Operation: admissionv1.Create, Object: &corev1.Pod{}}
	a.State = stateWith(b)
	criteria, _ := match.New(match.Source{Rules: rules("CREATE", "", "v1", "pods"), NamespaceSelector: labeled("team", "a")})
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := criteria.Match(b.Context(), a); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}
