package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/startup"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// world is a server's verbs over an empty store.
type world struct {
	testing.TB
	startup.Config
}

func emptyStore(t testing.TB) *store.Store {
	s, err := stores.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newWorld(t testing.TB) *world {
	s, catalog := emptyStore(t), builtin.Catalog()
	services, err := addresses.New(addresses.Config{Store: s, Type: catalog.Lookup("networking.k8s.io", "v1", "ipaddresses")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(services.Close)
	return &world{t, startup.Config{
		Registry: &registry.Registry{Store: s, Plugins: services.Plugins()}, Catalog: catalog, Clients: map[string]string{"client-ca-file": "authority"},
		Ranges: services.Ranges(), First: services.First(), Address: netip.MustParseAddrPort("192.0.2.1:6443"),
	}}
}

func (w *world) ensure() {
	w.Helper()
	if err := startup.Ensure(w.Context(), w.Config); err != nil {
		w.Fatal(err)
	}
}

// target is that of a kind's object: "namespace/name" or "name".
func (w *world) target(kind, place string) registry.Target {
	namespace, name, ok := strings.Cut(place, "/")
	if !ok {
		namespace, name = "", place
	}
	for t := range w.Catalog.Types() {
		if t.Kind == kind && !strings.Contains(t.Resource, "/") {
			return registry.Target{Type: t, Namespace: namespace, Name: name}
		}
	}
	w.Fatalf("there is no kind %s", kind)
	return registry.Target{}
}

func read[T any](w *world, kind, place string) *T {
	w.Helper()
	o, err := w.Registry.Get(w.Context(), w.target(kind, place), "")
	if err != nil {
		w.Fatal(err)
	}
	made := new(T)
	if err := json.Unmarshal(o.Stored.Bytes(), made); err != nil {
		w.Fatal(err)
	}
	return made
}

func edit[T any](w *world, kind, place string, change func(*T)) {
	w.Helper()
	if _, err := w.Registry.Edit(w.Context(), w.target(kind, place), "somebody", func(o metav1.Object) error {
		change(any(o).(*T))
		return nil
	}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(kind, place string) {
	w.Helper()
	if _, err := w.Registry.Delete(w.Context(), w.target(kind, place), nil, nil); err != nil {
		w.Fatal(err)
	}
}

// lose removes an object from the store that clients cannot delete.
func (w *world) lose(kind, place string) {
	w.Helper()
	collection := w.target(kind, place).Type.Collection
	o := w.Registry.Store.Any().Get(collection, place)
	if o == nil {
		w.Fatalf("there is no %s %s", kind, place)
	}
	if _, err := w.Registry.Store.Commit(w.Context(), store.Write{Collection: collection, Key: place, If: o.Modified}); err != nil {
		w.Fatal(err)
	}
}

// TestStartupRecorded compares the objects with those of kube-apiserver.
func TestStartupRecorded(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	record, err := os.ReadFile("testdata/objects.txt")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, kind := range []string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "PriorityLevelConfiguration", "FlowSchema", "PriorityClass", "APIService"} {
		for o := range w.Registry.Store.Any().Snapshot(w.target(kind, "").Type.Collection).Scan("", "") {
			describe(&got, kind, o.Bytes())
		}
	}
	_, want, _ := strings.Cut(string(record), "\n\n")
	gotLines, wantLines := strings.Split(strings.TrimSpace(got.String()), "\n"), strings.Split(strings.TrimSpace(want), "\n")
	for i := range min(len(gotLines), len(wantLines)) {
		if gotLines[i] != wantLines[i] {
			t.Fatalf("line %d is %q, recorded is %q", i, gotLines[i], wantLines[i])
		}
	}
	if len(gotLines) != len(wantLines) {
		t.Errorf("%d lines, recorded are %d", len(gotLines), len(wantLines))
	}
	if m := read[struct{ Data map[string]string }](w, "ConfigMap", "kube-system/extension-apiserver-authentication"); m.Data["client-ca-file"] != "authority" {
		t.Errorf("the authorities of clients are %q", m.Data)
	}
	if f := read[flowcontrolv1.FlowSchema](w, "FlowSchema", "probes"); len(f.Status.Conditions) != 1 || f.Status.Conditions[0].Status != flowcontrolv1.ConditionFalse {
		t.Errorf("the status of a flow schema is %v", f.Status)
	}
	if s := read[apiregistrationv1.APIService](w, "APIService", "v1.apps"); len(s.Status.Conditions) != 1 || s.Status.Conditions[0].Reason != "Local" {
		t.Errorf("the status of an APIService is %v", s.Status)
	}
}

// describe writes an object as testdata has it: a path and a value on each line.
func describe(out *strings.Builder, kind string, value []byte) {
	var o map[string]any
	if err := json.Unmarshal(value, &o); err != nil {
		panic(err)
	}
	meta := o["metadata"].(map[string]any)
	name := fmt.Sprint(meta["name"])
	if n := meta["namespace"]; n != nil {
		name = fmt.Sprint(n, "/", name)
	}
	fmt.Fprintf(out, "\n%s %s\n", kind, name)
	o["metadata"] = map[string]any{"annotations": meta["annotations"], "labels": meta["labels"]}
	delete(o, "status")
	delete(o, "kind")
	delete(o, "apiVersion")
	lines(out, "  ", o)
}

func lines(out *strings.Builder, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			lines(out, path+"."+k, v[k])
		}
	case []any:
		if words := fmt.Sprintf("%q", v); !strings.Contains(words, "map[") {
			fmt.Fprintf(out, "%s %s\n", path, words)
			return
		}
		for i := range v {
			lines(out, fmt.Sprintf("%s[%d]", path, i), v[i])
		}
	case nil:
	default:
		fmt.Fprintf(out, "%s %v\n", path, v)
	}
}

// TestStartupServed checks that each served group and version has an APIService.
func TestStartupServed(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	var got, want []string
	for o := range w.Registry.Store.Any().Snapshot("apiservices.apiregistration.k8s.io").Scan("", "") {
		got = append(got, o.Key)
	}
	for _, g := range w.Catalog.Groups() {
		for _, v := range g.Versions {
			if g.Name != "apiregistration.k8s.io" && g.Name != "tidemark.dev" { // the one defines APIServices, kube-apiserver does not have the other
				want = append(want, v.Name+"."+g.Name)
			}
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("APIServices are %q, served is %q", got, want)
	}
}

// TestStartupUnchanged checks that a start writes nothing if all objects are stored.
func TestStartupUnchanged(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	before := w.Registry.Store.Any().Revision()
	w.ensure()
	edit(w, "ClusterRole", "view", func(r *rbacv1.ClusterRole) {
		r.Labels["own"], r.Rules = "x", []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}}
	})
	w.ensure()
	if got := w.Registry.Store.Any().Revision(); got != before+1 {
		t.Errorf("two starts wrote %d versions", got-before-1)
	}
}

// TestStartupReconciled checks that a start adds missing rules, and keeps added ones.
func TestStartupReconciled(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	rules := read[rbacv1.ClusterRole](w, "ClusterRole", "system:discovery").Rules
	edit(w, "ClusterRole", "system:discovery", func(r *rbacv1.ClusterRole) {
		r.Rules = []rbacv1.PolicyRule{{Verbs: []string{"get"}, NonResourceURLs: []string{"/x"}}}
		r.Labels = map[string]string{"own": "x"}
	})
	edit(w, "ClusterRole", "edit", func(r *rbacv1.ClusterRole) { r.AggregationRule = nil })
	edit(w, "ClusterRoleBinding", "system:discovery", func(b *rbacv1.ClusterRoleBinding) {
		b.Subjects = []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "somebody"}}
	})
	edit(w, "Role", "kube-system/system:controller:token-cleaner", func(r *rbacv1.Role) {
		r.Rules = nil
		r.Annotations[rbacv1.AutoUpdateAnnotationKey] = "false"
	})
	w.remove("ClusterRoleBinding", "system:basic-user")
	w.create("ClusterRoleBinding", `{"metadata":{"name":"system:basic-user"},"roleRef":{"kind":"ClusterRole","name":"view"}}`)
	w.lose("PriorityClass", "system-node-critical")
	w.remove("APIService", "v1.apps")
	w.ensure()

	r := read[rbacv1.ClusterRole](w, "ClusterRole", "system:discovery")
	if r.Labels["own"] != "x" || r.Labels["kubernetes.io/bootstrapping"] == "" || r.Rules[0].NonResourceURLs[0] != "/x" || len(r.Rules) != 1+len(rules[0].NonResourceURLs) {
		t.Errorf("the role is %v, with labels %v", r.Rules, r.Labels)
	}
	if r := read[rbacv1.ClusterRole](w, "ClusterRole", "edit"); r.AggregationRule == nil {
		t.Error("a role that others make up is not one any more")
	}
	if b := read[rbacv1.ClusterRoleBinding](w, "ClusterRoleBinding", "system:discovery"); len(b.Subjects) != 2 || b.Subjects[0].Name != "somebody" {
		t.Errorf("the subjects are %v", b.Subjects)
	}
	if r := read[rbacv1.Role](w, "Role", "kube-system/system:controller:token-cleaner"); len(r.Rules) > 0 {
		t.Errorf("a role that is not to be updated has %v", r.Rules)
	}
	if b := read[rbacv1.ClusterRoleBinding](w, "ClusterRoleBinding", "system:basic-user"); b.RoleRef.Name != "system:basic-user" {
		t.Errorf("the role of the binding is %v", b.RoleRef)
	}
	read[struct{}](w, "PriorityClass", "system-node-critical")
	read[struct{}](w, "APIService", "v1.apps")
}

func (w *world) create(kind, body string) {
	w.Helper()
	if _, err := w.Registry.Create(w.Context(), w.target(kind, ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// TestStartupFlows checks that the annotation decides about updates and, without it, whether a client has
// changed the spec.
func TestStartupFlows(t *testing.T) {
	const auto = flowcontrolv1.AutoUpdateAnnotationKey
	for _, c := range []struct {
		name, say string
		want      int32
		note      string
	}{
		{"probes", "true", 2, "true"},
		{"probes", "false", 7, "false"},
		{"probes", "", 7, "false"},
	} {
		t.Run(c.name+c.say, func(t *testing.T) {
			w := newWorld(t)
			w.ensure()
			edit(w, "FlowSchema", c.name, func(f *flowcontrolv1.FlowSchema) {
				f.Spec.MatchingPrecedence = 7
				f.Annotations = nil
				if c.say != "" {
					f.Annotations = map[string]string{auto: c.say}
				}
			})
			w.ensure()
			f := read[flowcontrolv1.FlowSchema](w, "FlowSchema", c.name)
			if f.Spec.MatchingPrecedence != c.want || f.Annotations[auto] != c.note {
				t.Errorf("precedence %d and %v, want %d and %s", f.Spec.MatchingPrecedence, f.Annotations, c.want, c.note)
			}
		})
	}
}

// TestStartupMandatory checks the mandatory flow schemas and levels: the shares of the exempt level
// can be configured, and the annotation enables updates.
func TestStartupMandatory(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	edit(w, "PriorityLevelConfiguration", "exempt", func(l *flowcontrolv1.PriorityLevelConfiguration) {
		l.Spec.Exempt.NominalConcurrencyShares = new(int32)
		*l.Spec.Exempt.NominalConcurrencyShares = 9
		l.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] = "false"
	})
	w.ensure()
	l := read[flowcontrolv1.PriorityLevelConfiguration](w, "PriorityLevelConfiguration", "exempt")
	if n := *l.Spec.Exempt.NominalConcurrencyShares; n != 9 || l.Annotations[flowcontrolv1.AutoUpdateAnnotationKey] != "true" {
		t.Errorf("%d shares and %v", n, l.Annotations)
	}
}

// TestStartupFailed checks that the error names the object that could not be stored.
func TestStartupFailed(t *testing.T) {
	w := newWorld(t)
	w.Registry.Plugins = append(w.Registry.Plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Type.Kind == "Role" {
			return errors.New("no roles here")
		}
		return nil
	}})
	err := startup.Ensure(t.Context(), w.Config)
	if err == nil || !strings.Contains(err.Error(), "Role system:controller:bootstrap-signer: no roles here") {
		t.Errorf("without roles: %v", err)
	}
}

// TestStartupService checks the Service by which clients in a cluster find the server, and that its
// endpoints follow the server's address.
func TestStartupService(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	w.Address = netip.MustParseAddrPort("192.0.2.2:6443")
	w.ensure()
	if s := read[corev1.Service](w, "Service", "default/kubernetes"); s.Spec.ClusterIP != w.First.String() || s.Spec.Ports[0].TargetPort.IntValue() != 6443 {
		t.Errorf("the Service is %+v", s.Spec)
	}
	if s := read[discoveryv1.EndpointSlice](w, "EndpointSlice", "default/kubernetes"); len(s.Endpoints) != 1 || s.Endpoints[0].Addresses[0] != "192.0.2.2" {
		t.Errorf("the endpoints are %+v", s.Endpoints)
	}
	if c := read[networkingv1.ServiceCIDR](w, "ServiceCIDR", "kubernetes"); len(c.Spec.CIDRs) != 1 || len(c.Status.Conditions) != 1 {
		t.Errorf("the range is %+v", c)
	}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		read[struct{}](w, "Namespace", name)
	}
}

// TestStartupEndpointsOfPeers checks that a server whose write of the endpoints conflicts with that
// of another server also writes the addresses of the other one.
func TestStartupEndpointsOfPeers(t *testing.T) {
	w := newWorld(t)
	w.ensure()
	all := []string{"192.0.2.1"}
	meanwhile := 0
	w.Registry.Plugins = append(w.Registry.Plugins, registry.Plugin{
		Validate: func(ctx context.Context, a *registry.Attributes) error {
			if a.Operation == admissionv1.Update && len(all) < 3 {
				meanwhile++
				all = append(all, fmt.Sprint("192.0.2.", len(all)+1))
				own := slices.Clone(all)
				return w.PutEndpoints(ctx, func() []string { return own })
			}
			return nil
		}})
	all = append(all, "192.0.2.2")
	if err := w.PutEndpoints(t.Context(), func() []string { return slices.Clone(all) }); err != nil {
		t.Fatal(err)
	}
	var got []string
	//lint:ignore SA1019 Endpoints are deprecated, and served
	for _, a := range read[corev1.Endpoints](w, "Endpoints", "default/kubernetes").Subsets[0].Addresses {
		got = append(got, a.IP)
	}
	var sliced []string
	for _, e := range read[discoveryv1.EndpointSlice](w, "EndpointSlice", "default/kubernetes").Endpoints {
		sliced = append(sliced, e.Addresses...)
	}
	if meanwhile != 1 || !slices.Equal(got, all) || !slices.Equal(sliced, all) {
		t.Errorf("another server wrote %d times, and the endpoints are %v and %v, want %v", meanwhile, got, sliced, all)
	}
}
