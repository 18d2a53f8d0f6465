package quota_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/addresses"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/quota"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// bank is the verbs with the books.
type bank struct {
	*testing.T
	*registry.Registry
	books *quota.Books
	now   time.Time
}

func newBank(t *testing.T) *bank {
	s, err := store.Open(t.Context(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b := &bank{T: t, Registry: &registry.Registry{Store: s}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.Now = func() time.Time { return b.now }
	b.books = &quota.Books{Registry: b.Registry, Quotas: b.target("resourcequotas", "").Type, Now: b.Now}
	services, err := addresses.New(addresses.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(services.Close)
	b.Reserve = map[string]registry.Reserve{"services": services.Reserve}
	b.Admission = []registry.Step{{Wants: b.books.Wants, Admit: b.books.Admit}}
	b.must("namespaces", `{"metadata":{"name":"n"}}`)
	return b
}

func (b *bank) target(resource, name string) registry.Target {
	b.Helper()
	for t := range builtin.Catalog().Types() {
		if t.Resource == resource && t.Conversion == nil {
			target := registry.Target{Type: t, Name: name}
			if t.Namespaced {
				target.Namespace = "n"
			}
			return target
		}
	}
	b.Fatalf("there are no %s", resource)
	return registry.Target{}
}

func (b *bank) create(resource, body string) error {
	b.Helper()
	_, err := b.Create(b.Context(), b.target(resource, ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{})
	return err
}

func (b *bank) must(resource, body string) {
	b.Helper()
	if err := b.create(resource, body); err != nil {
		b.Fatalf("%s %s: %v", resource, body, err)
	}
}

func (b *bank) wantRefused(err error, why string) {
	b.Helper()
	if !apierrors.IsForbidden(err) || !strings.HasSuffix(err.Error(), `" is forbidden: `+why) {
		b.Errorf("got %v\nwant %s", err, why)
	}
}

func (b *bank) refuse(resource, body, why string) {
	b.Helper()
	b.wantRefused(b.create(resource, body), why)
}

func (b *bank) patch(resource, name, sub, body string) error {
	t := b.target(resource, name)
	t.Subresource = sub
	_, err := b.Patch(b.Context(), t, registry.Patch{Type: types.MergePatchType, Bytes: []byte(body)}, registry.WriteOptions{})
	return err
}

// quota makes one and counts it.
func (b *bank) quota(name, hard, scopes string) {
	b.Helper()
	b.must("resourcequotas", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"hard":{%s}%s}}`, name, hard, scopes))
	b.count(name)
}

func (b *bank) count(name string) time.Time {
	b.Helper()
	next, err := b.books.Recount(b.Context(), "n", name, "test")
	if err != nil {
		b.Fatal(err)
	}
	return next
}

func (b *bank) used(name, want string) {
	b.Helper()
	var q corev1.ResourceQuota
	if err := json.Unmarshal(b.Store.Any().Get("resourcequotas", "n/"+name).Bytes(), &q); err != nil {
		b.Fatal(err)
	}
	if got, err := json.Marshal(q.Status.Used); err != nil || string(got) != "{"+want+"}" {
		b.Errorf("%s: used is %s, want {%s} (%v)", name, got, want, err)
	}
}

func pod(name, resources, more string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{%s"containers":[{"name":"c","image":"i","resources":%s}]}}`, name, more, resources)
}

// The words and amounts of these tests are those of kube-apiserver v1.36.3.

func TestCompute(t *testing.T) {
	b := newBank(t)
	b.quota("a", `"pods":"2","requests.cpu":"1","limits.memory":"1Gi","requests.memory":"1Gi","requests.example.com/gpu":"2","hugepages-2Mi":"4Mi","requests.ephemeral-storage":"1Gi","count/pods":"5"`, "")
	b.refuse("pods", pod("p", `{}`, ""), "failed quota: a: must specify limits.memory for: c; requests.cpu for: c; requests.memory for: c")
	b.must("pods", pod("p1", `{"requests":{"cpu":"100m","memory":"100Mi"},"limits":{"memory":"100Mi"}}`, ""))
	b.refuse("pods", pod("p", `{"requests":{"cpu":"950m","memory":"1000Mi"},"limits":{"memory":"1Gi"}}`, ""),
		"exceeded quota: a, requested: limits.memory=1Gi,requests.cpu=950m,requests.memory=1000Mi, used: limits.memory=100Mi,requests.cpu=100m,requests.memory=100Mi, limited: limits.memory=1Gi,requests.cpu=1,requests.memory=1Gi")
	b.refuse("pods", pod("p", `{"requests":{"cpu":"100m","memory":"10Mi","example.com/gpu":"3"},"limits":{"memory":"10Mi","example.com/gpu":"3"}}`, ""),
		"exceeded quota: a, requested: requests.example.com/gpu=3, used: requests.example.com/gpu=0, limited: requests.example.com/gpu=2")
	b.refuse("pods", pod("p", `{"requests":{"cpu":"100m","memory":"10Mi","hugepages-2Mi":"8Mi"},"limits":{"memory":"10Mi","hugepages-2Mi":"8Mi"}}`, ""),
		"exceeded quota: a, requested: hugepages-2Mi=8Mi, used: hugepages-2Mi=0, limited: hugepages-2Mi=4Mi")
	b.must("pods", pod("p2", `{"requests":{"cpu":"100m","memory":"10Mi","example.com/gpu":"1"},"limits":{"memory":"10Mi","example.com/gpu":"1"}}`, ""))
	const used = `"count/pods":"2","hugepages-2Mi":"0","limits.memory":"110Mi","pods":"2","requests.cpu":"200m","requests.ephemeral-storage":"0","requests.example.com/gpu":"1","requests.memory":"110Mi"`
	b.used("a", used)
	b.count("a")
	b.used("a", used)
}

func TestServices(t *testing.T) {
	b := newBank(t)
	b.quota("s", `"services":"2","services.nodeports":"1","services.loadbalancers":"0"`, "")
	b.must("services", `{"metadata":{"name":"s1"},"spec":{"ports":[{"port":80}]}}`)
	b.refuse("services", `{"metadata":{"name":"x"},"spec":{"type":"NodePort","ports":[{"name":"a","port":80},{"name":"b","port":81}]}}`,
		"exceeded quota: s, requested: services.nodeports=2, used: services.nodeports=0, limited: services.nodeports=1")
	b.refuse("services", `{"metadata":{"name":"x"},"spec":{"type":"LoadBalancer","allocateLoadBalancerNodePorts":false,"ports":[{"port":80}]}}`,
		"exceeded quota: s, requested: services.loadbalancers=1, used: services.loadbalancers=0, limited: services.loadbalancers=0")
	if err := b.patch("services", "s1", "", `{"spec":{"type":"NodePort"}}`); err != nil {
		t.Error(err)
	}
	b.must("services", `{"metadata":{"name":"s2"},"spec":{"ports":[{"port":80}]}}`)
	b.refuse("services", `{"metadata":{"name":"x"},"spec":{"ports":[{"port":80}]}}`, "exceeded quota: s, requested: services=1, used: services=2, limited: services=2")
	b.wantRefused(b.patch("services", "s2", "", `{"spec":{"type":"NodePort"}}`),
		"exceeded quota: s, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1")
	b.used("s", `"services":"2","services.loadbalancers":"0","services.nodeports":"1"`)
}

func TestClaims(t *testing.T) {
	b := newBank(t)
	b.quota("v", `"persistentvolumeclaims":"2","requests.storage":"10Gi","gold.storageclass.storage.k8s.io/requests.storage":"5Gi","gold.storageclass.storage.k8s.io/persistentvolumeclaims":"1"`, "")
	claim := func(name, class, size string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"storageClassName":%q,"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":%q}}}}`, name, class, size)
	}
	b.refuse("persistentvolumeclaims", claim("v1", "gold", "6Gi"),
		"exceeded quota: v, requested: gold.storageclass.storage.k8s.io/requests.storage=6Gi, used: gold.storageclass.storage.k8s.io/requests.storage=0, limited: gold.storageclass.storage.k8s.io/requests.storage=5Gi")
	b.must("persistentvolumeclaims", claim("v1", "gold", "4Gi"))
	b.refuse("persistentvolumeclaims", claim("v2", "gold", "1Gi"),
		"exceeded quota: v, requested: gold.storageclass.storage.k8s.io/persistentvolumeclaims=1, used: gold.storageclass.storage.k8s.io/persistentvolumeclaims=1, limited: gold.storageclass.storage.k8s.io/persistentvolumeclaims=1")
	b.must("persistentvolumeclaims", claim("v2", "iron", "1500m"))
	b.used("v", `"gold.storageclass.storage.k8s.io/persistentvolumeclaims":"1","gold.storageclass.storage.k8s.io/requests.storage":"4Gi","persistentvolumeclaims":"2","requests.storage":"4294967298"`)
}

func TestCounts(t *testing.T) {
	b := newBank(t)
	b.quota("c", `"configmaps":"1","count/configmaps":"5","count/leases.coordination.k8s.io":"0","resourcequotas":"2","count/events":"0"`, "")
	b.must("configmaps", `{"metadata":{"name":"a"}}`)
	b.refuse("configmaps", `{"metadata":{"generateName":"b"}}`, "exceeded quota: c, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
	b.refuse("leases", `{"metadata":{"name":"b"}}`, "exceeded quota: c, requested: count/leases.coordination.k8s.io=1, used: count/leases.coordination.k8s.io=0, limited: count/leases.coordination.k8s.io=0")
	b.must("events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"n"}}`)
	b.must("resourcequotas", `{"metadata":{"name":"d"}}`)
	b.used("c", `"configmaps":"1","count/configmaps":"1","count/leases.coordination.k8s.io":"0","resourcequotas":"2"`)
	b.refuse("resourcequotas", `{"metadata":{"name":"e"}}`, "exceeded quota: c, requested: resourcequotas=1, used: resourcequotas=2, limited: resourcequotas=2")
}

// TestStatusDecides: limits hold as of the status, where somebody else keeps it, too.
func TestStatusDecides(t *testing.T) {
	b := newBank(t)
	b.must("resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"secrets":"0","configmaps":"0"}}}`)
	b.must("secrets", `{"metadata":{"name":"early"}}`)
	if err := b.patch("resourcequotas", "q", "status", `{"status":{"hard":{"secrets":"5","configmaps":"1"},"used":{"secrets":"5"}}}`); err != nil {
		t.Fatal(err)
	}
	b.refuse("secrets", `{"metadata":{"name":"x"}}`, "exceeded quota: q, requested: secrets=1, used: secrets=5, limited: secrets=5")
	b.refuse("configmaps", `{"metadata":{"name":"x"}}`, "status unknown for quota: q, resources: configmaps")
}

func TestScopes(t *testing.T) {
	b := newBank(t)
	b.quota("be", `"pods":"1"`, `,"scopes":["BestEffort"]`)
	b.quota("nt", `"pods":"1","cpu":"1"`, `,"scopes":["NotTerminating","NotBestEffort"]`)
	b.quota("te", `"pods":"0"`, `,"scopes":["Terminating"]`)
	b.quota("pc", `"pods":"1"`, `,"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}`)
	b.quota("ca", `"pods":"0"`, `,"scopeSelector":{"matchExpressions":[{"scopeName":"CrossNamespacePodAffinity","operator":"Exists"}]}`)
	b.must("pods", pod("b1", `{}`, ""))
	b.refuse("pods", pod("b2", `{}`, ""), "exceeded quota: be, requested: pods=1, used: pods=1, limited: pods=1")
	b.refuse("pods", pod("n1", `{"requests":{"memory":"1Mi"}}`, ""), "failed quota: nt: must specify cpu for: c")
	b.refuse("pods", pod("x1", `{"requests":{"cpu":"1"}}`, `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"a","namespaces":["x"]}]}},`),
		"exceeded quota: ca, requested: pods=1, used: pods=0, limited: pods=0")
	b.must("pods", pod("n1", `{"requests":{"cpu":"1"}}`, `"priorityClassName":"high",`))
	b.refuse("pods", pod("t1", `{"requests":{"cpu":"1"}}`, `"activeDeadlineSeconds":5,`), "exceeded quota: te, requested: pods=1, used: pods=0, limited: pods=0")
	b.wantRefused(b.patch("pods", "n1", "", `{"spec":{"activeDeadlineSeconds":5}}`), "exceeded quota: te, requested: pods=1, used: pods=0, limited: pods=0")
	if err := b.patch("pods", "n1", "", `{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Error(err)
	}
	for name, used := range map[string]string{"be": `"pods":"1"`, "nt": `"cpu":"1","pods":"1"`, "te": `"pods":"0"`, "pc": `"pods":"1"`, "ca": `"pods":"0"`} {
		b.used(name, used)
		b.count(name)
		b.used(name, used)
	}
}

// TestStoppingPods: a Pod that should long have stopped counts no more.
func TestStoppingPods(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"pods":"9"`, "")
	b.must("pods", pod("p", `{}`, `"nodeName":"node",`))
	grace := int64(30)
	if _, err := b.Delete(t.Context(), b.target("pods", "p"), &metav1.DeleteOptions{GracePeriodSeconds: &grace}); err != nil {
		t.Fatal(err)
	}
	next := b.count("q")
	b.used("q", `"pods":"1"`)
	if want := b.now.Add(time.Minute); !next.Equal(want) {
		t.Errorf("it counts until %v, want %v", next, want)
	}
	b.now = next.Add(time.Second)
	if next = b.count("q"); !next.IsZero() {
		t.Errorf("it changes at %v, want never", next)
	}
	b.used("q", `"pods":"0"`)
}

// TestPanic: a write that ends in a panic while charges are made, of which the HTTP server
// recovers, holds up nobody, and lets nobody pass who is not charged.
func TestPanic(t *testing.T) {
	const writers = 16
	b := newBank(t)
	b.quota("q", `"secrets":"1000"`, "")
	var edits, stored, stale atomic.Int64
	b.books.OnStale(func(string) { stale.Add(1) })
	b.Admission = append(b.Admission, registry.Step{
		Wants: func(t registry.Target, _ string) bool { return t.Type.Collection == quota.Collection },
		Admit: func(context.Context, *registry.Admission) error {
			if edits.Add(1)%2 == 0 {
				panic("in the middle of it")
			}
			return nil
		},
	})
	for round := range 10 {
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() {
				defer func() { _ = recover() }()
				if b.create("secrets", fmt.Sprintf(`{"metadata":{"name":"s%d-%d"}}`, round, i)) == nil {
					stored.Add(1)
				}
			})
		}
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a panic holds up all writes after it")
		}
	}
	if stale.Load() == 0 {
		t.Error("nobody was told to count again")
	}
	b.used("q", fmt.Sprintf(`"secrets":"%d"`, stored.Load())) // the panics were before the commits
	b.Admission = b.Admission[:1]
	b.count("q")
	b.used("q", fmt.Sprintf(`"secrets":"%d"`, stored.Load()))
}
