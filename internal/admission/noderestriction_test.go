package admission_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/admission/noderestriction"
	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/storetest"
)

var worker = &authn.User{Name: "system:node:worker", Groups: []string{"system:nodes"}}

// write is a request of the node worker for an object.
type write struct {
	group, resource, subresource, namespace, name string
	operation                                     admissionv1.Operation
	object, old                                   runtime.Object
}

func (w *write) attributes(t *testing.T, s *store.State) *registry.Attributes {
	t.Helper()
	kind := builtin.Catalog().Lookup(w.group, "v1", w.resource)
	if kind == nil {
		t.Fatalf("there is no resource %s of the group %q", w.resource, w.group)
	}
	return &registry.Attributes{
		Target:    registry.Target{Type: kind, Subresource: w.subresource, Namespace: w.namespace, Name: w.name},
		Operation: w.operation, User: worker, Object: w.object, Old: w.old, State: s,
	}
}

// check calls the plugin, and checks that its error contains refused; empty means that it must
// admit the write.
func check(t *testing.T, p registry.Plugin, s *store.State, w write, refused string) {
	t.Helper()
	a := w.attributes(t, s)
	if !p.Users(a.User) || !p.Handles(s, a.Target, a.Operation) {
		t.Errorf("%s %s: the plugin does not handle it", w.operation, w.resource)
	}
	err := p.Mutate(t.Context(), a)
	switch {
	case refused == "" && err != nil:
		t.Errorf("%s %s/%s %s: %v", w.operation, w.resource, w.subresource, w.name, err)
	case refused != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), refused)):
		t.Errorf("%s %s/%s %s: %v, want %s", w.operation, w.resource, w.subresource, w.name, err, refused)
	}
}

// object decodes an object.
func object[T any](t *testing.T, text string) *T {
	t.Helper()
	o := new(T)
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

// put stores an object, given as JSON with metadata.
func put(t *testing.T, s *store.Store, collection, key, text string) {
	t.Helper()
	const empty = `"metadata":{"resourceVersion":"`
	text = strings.Replace(text, `"metadata":{`, empty+`",`, 1)
	w := store.Write{Collection: collection, Key: key, Value: []byte(text), RevisionAt: strings.Index(text, empty) + len(empty)}
	if _, err := s.Commit(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// TestNodeRestrictionUsers: the plugin handles the requests of nodes alone.
func TestNodeRestrictionUsers(t *testing.T) {
	p := noderestriction.Plugin(nil)
	for _, u := range []*authn.User{nil, {Name: "alice"}, {Name: "system:node:worker"}, {Name: "alice", Groups: []string{"system:nodes"}}} {
		if p.Users(u) {
			t.Errorf("%+v is taken for a node", u)
		}
	}
	if !p.Users(worker) {
		t.Error("a node is not recognized")
	}
	configMaps := registry.Target{Type: builtin.Catalog().Lookup("", "v1", "configmaps")}
	if p.Handles(nil, configMaps, admissionv1.Create) {
		t.Error("the plugin handles ConfigMaps")
	}
}

// TestNodeRestrictionOwnObjects: a node writes its own Node and lease, without labels, taints and owners that are for
// administrators.
func TestNodeRestrictionOwnObjects(t *testing.T) {
	s := storetest.Open(t, store.Options{Log: memlog.New()}).Any()
	p := noderestriction.Plugin(nil)
	node := func(members string) *corev1.Node { return object[corev1.Node](t, "{"+members+"}") }
	create := func(name string, o *corev1.Node) write {
		return write{resource: "nodes", name: name, operation: admissionv1.Create, object: o}
	}
	update := func(old, next *corev1.Node) write {
		return write{resource: "nodes", name: "worker", operation: admissionv1.Update, object: next, old: old}
	}
	check(t, p, s, create("worker", node(`"metadata":{"labels":{"kubernetes.io/hostname":"h","a":"b"}}`)), "")
	check(t, p, s, create("other", node("")), `node "worker" is not allowed to modify node "other"`)
	check(t, p, s, create("worker", node(`"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y","other.k8s.io/z":""}}`)),
		`node "worker" is not allowed to set the following labels: node-restriction.kubernetes.io/x, other.k8s.io/z`)
	check(t, p, s, update(node(""), node(`"status":{"phase":"Running"}`)), "")
	check(t, p, s, update(node(""), node(`"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}`)), "is not allowed to modify taints")
	check(t, p, s, update(node(""), node(`"metadata":{"ownerReferences":[{"name":"o"}]}`)), "is not allowed to modify ownerReferences")
	check(t, p, s, update(node(`"metadata":{"labels":{"node-restriction.kubernetes.io/x":"y"}}`), node("")),
		"is not allowed to modify labels: node-restriction.kubernetes.io/x")

	lease := func(namespace, name string) write {
		return write{group: "coordination.k8s.io", resource: "leases", namespace: namespace, name: name, operation: admissionv1.Update, object: &coordinationv1.Lease{}, old: &coordinationv1.Lease{}}
	}
	check(t, p, s, lease("kube-node-lease", "worker"), "")
	check(t, p, s, lease("default", "worker"), `can only access leases in the "kube-node-lease" system namespace`)
	check(t, p, s, lease("kube-node-lease", "other"), "can only access node lease with the same name")
}

// TestNodeRestrictionPods: a node creates mirror Pods without references, and writes to the Pods that run on it.
func TestNodeRestrictionPods(t *testing.T) {
	st := storetest.Open(t, store.Options{Log: memlog.New()})
	put(t, st, "nodes", "worker", `{"kind":"Node","apiVersion":"v1","metadata":{"name":"worker","uid":"1"}}`)
	s := st.Any()
	p := noderestriction.Plugin(nil)
	const mirror = `{"metadata":{"annotations":{"kubernetes.io/config.mirror":"x"},"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"worker","uid":"1","controller":true}]},"spec":{"nodeName":"worker"}}`
	create := func(text string) write {
		return write{resource: "pods", namespace: "n", name: "p", operation: admissionv1.Create, object: object[corev1.Pod](t, text)}
	}
	replaced := func(old, next string) write { return create(strings.Replace(mirror, old, next, 1)) }
	check(t, p, s, create(mirror), "")
	check(t, p, s, replaced("config.mirror", "other"), "can only create mirror pods")
	check(t, p, s, replaced(`"nodeName":"worker"`, `"nodeName":"other"`), "can only create pods with spec.nodeName set to itself")
	check(t, p, s, replaced(`"uid":"1"`, `"uid":"2"`), "node worker UID mismatch: expected 2 got 1")
	check(t, p, s, replaced(`"controller":true`, `"controller":false`), "with a controller owner reference set to itself")
	for volume, what := range map[string]string{
		`"secret":{"secretName":"s"}`:                          "secrets",
		`"configMap":{"name":"m"}`:                             "configmaps",
		`"persistentVolumeClaim":{"claimName":"c"}`:            "persistentvolumeclaims",
		`"csi":{"driver":"d"}`:                                 "csidrivers (via CSI volumes)",
		`"projected":{"sources":[{"serviceAccountToken":{}}]}`: "serviceaccounts (via projected volumes)",
	} {
		check(t, p, s, replaced(`"spec":{`, `"spec":{"volumes":[{"name":"v",`+volume+`}],`), "can not create pods that reference "+what)
	}
	check(t, p, s, replaced(`"spec":{`, `"spec":{"volumes":[{"name":"v","projected":{"sources":[{"downwardAPI":{}}]}},{"name":"w","emptyDir":{}}],`), "")

	here, there := object[corev1.Pod](t, `{"spec":{"nodeName":"worker"}}`), object[corev1.Pod](t, `{"spec":{"nodeName":"other"}}`)
	check(t, p, s, write{resource: "pods", name: "p", operation: admissionv1.Delete, old: here}, "")
	check(t, p, s, write{resource: "pods", name: "p", operation: admissionv1.Delete, old: there}, "can only delete pods with spec.nodeName set to itself")
	check(t, p, s, write{resource: "pods", subresource: "status", name: "p", operation: admissionv1.Update, old: here, object: here}, "")
	check(t, p, s, write{resource: "pods", subresource: "status", name: "p", operation: admissionv1.Update, old: here, object: object[corev1.Pod](t, `{"metadata":{"labels":{"a":"b"}}}`)}, "cannot update labels through pod status")
	check(t, p, s, write{resource: "pods", name: "p", operation: admissionv1.Update, old: here, object: here}, `unexpected operation "UPDATE"`)
}

// TestNodeRestrictionTokens: a node requests tokens for its Pods, for audiences that a volume names or that the
// authorizer allows.
func TestNodeRestrictionTokens(t *testing.T) {
	st := storetest.Open(t, store.Options{Log: memlog.New()})
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"NAME","namespace":"n","uid":"1"},"spec":{"nodeName":"NODE","volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"audience":"vault"}}]}}]}}`
	put(t, st, "pods", "n/here", strings.NewReplacer("NAME", "here", "NODE", "worker").Replace(pod))
	put(t, st, "pods", "n/there", strings.NewReplacer("NAME", "there", "NODE", "other").Replace(pod))
	request := func(name string, uid types.UID, audience string) write {
		o := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences:      []string{audience},
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: name, UID: uid},
		}}
		return write{resource: "serviceaccounts", subresource: "token", namespace: "n", name: "a", operation: admissionv1.Create, object: o}
	}
	p := noderestriction.Plugin(grants("bank"))
	check(t, p, st.Any(), request("here", "1", "vault"), "")
	check(t, p, st.Any(), request("here", "1", "bank"), "")
	check(t, p, st.Any(), request("here", "1", "safe"), `system:node:worker is not authorized to request tokens for audience "safe"`)
	check(t, p, st.Any(), request("here", "2", "vault"), "does not match the UID in record")
	check(t, p, st.Any(), request("there", "1", "vault"), "scheduled on a different node")
	check(t, noderestriction.Plugin(nil), st.Any(), request("here", "1", "bank"), `is not authorized to request tokens for audience "bank"`)
	unbound := request("here", "1", "vault")
	unbound.object.(*authenticationv1.TokenRequest).Spec.BoundObjectRef = nil
	check(t, p, st.Any(), unbound, "not bound to a pod")
}

// grants is an authorizer that allows tokens for one audience.
type grants string

// Authorize implements authz.Authorizer.
func (g grants) Authorize(_ context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	if a.Verb == "request-serviceaccounts-token-audience" && a.Resource == string(g) {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}
