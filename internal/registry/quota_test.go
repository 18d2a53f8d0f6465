package registry_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/admission/addresses"
	"github.com/tidemark-dev/tidemark/internal/admission/quota"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// bank is the verbs with the ledger.
type bank struct {
	*testing.T
	*registry.Registry
	ledger *quota.Ledger
	now    time.Time
}

func newBank(t *testing.T) *bank { return newBankOver(t, memlog.New()) }

func newBankOver(t *testing.T, log store.Log) *bank {
	s, err := stores.Open(t.Context(), store.Options{Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	b := &bank{T: t, Registry: &registry.Registry{Store: s}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b.Now = func() time.Time { return b.now }
	b.ledger = &quota.Ledger{Quotas: b.target("resourcequotas", "").Type, Now: b.Now}
	services, err := addresses.New(addresses.Config{Store: s, Type: b.target("ipaddresses", "").Type})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(services.Close)
	b.Plugins = append(services.Plugins(), b.ledger.Plugins()...)
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
	next, err := b.ledger.Recount(b.Context(), b.Registry, "n", name, "test")
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

func TestQuotaCompute(t *testing.T) {
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

func TestQuotaServices(t *testing.T) {
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

func TestQuotaClaims(t *testing.T) {
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

func TestQuotaCounts(t *testing.T) {
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

// TestManyQuotas: a write that more quotas count than a transaction can change is invalid, and no error of the server.
func TestManyQuotas(t *testing.T) {
	tier.Full(t)
	b := newBank(t)
	for i := range store.MaxTxnWrites {
		b.quota(fmt.Sprint("q", i), `"configmaps":"5"`, "")
	}
	if err := b.create("configmaps", `{"metadata":{"name":"a"}}`); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "want at most 1024") {
		t.Error(err)
	}
	if _, err := b.Registry.Delete(t.Context(), b.target("resourcequotas", "q0"), nil, nil); err != nil {
		t.Fatal(err)
	}
	b.must("configmaps", `{"metadata":{"name":"a"}}`)
	b.used("q1", `"configmaps":"1"`)
}

// TestQuotaStatusDecides: limits hold as of the status, also if a client writes it.
func TestQuotaStatusDecides(t *testing.T) {
	b := newBank(t)
	b.must("resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"secrets":"0","configmaps":"0"}}}`)
	b.must("secrets", `{"metadata":{"name":"early"}}`)
	if err := b.patch("resourcequotas", "q", "status", `{"status":{"hard":{"secrets":"5","configmaps":"1"},"used":{"secrets":"5"}}}`); err != nil {
		t.Fatal(err)
	}
	b.refuse("secrets", `{"metadata":{"name":"x"}}`, "exceeded quota: q, requested: secrets=1, used: secrets=5, limited: secrets=5")
	b.refuse("configmaps", `{"metadata":{"name":"x"}}`, "status unknown for quota: q, resources: configmaps")
}

func TestQuotaScopes(t *testing.T) {
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

// TestQuotaStoppingPods: a Pod that should long have stopped counts no more.
func TestQuotaStoppingPods(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"pods":"9"`, "")
	b.must("pods", pod("p", `{}`, `"nodeName":"node",`))
	grace := int64(30)
	if _, err := b.Delete(t.Context(), b.target("pods", "p"), &metav1.DeleteOptions{GracePeriodSeconds: &grace}, nil); err != nil {
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

// TestQuotaTogether checks that concurrent writers never exceed a quota, and that its status at
// each revision is the usage of the objects of that revision.
func TestQuotaTogether(t *testing.T) {
	chance := testrand.New(t)
	b := newBank(t)
	const limit, writers, writes = 40, 12, 40
	b.quota("q", fmt.Sprintf(`"services":"%d","services.nodeports":"%d"`, limit, limit/2), "")
	b.quota("all", `"count/services":"1000","secrets":"1000"`, "")
	start := b.Store.Any().Revision()
	seeds := make([]*rand.Rand, writers)
	for i := range seeds {
		seeds[i] = rand.New(rand.NewPCG(chance.Uint64(), 0))
	}
	var refused, conflicts atomic.Int64
	var all sync.WaitGroup
	for _, chance := range seeds {
		all.Go(func() {
			for range writes {
				name := fmt.Sprint("s", chance.IntN(60))
				var err error
				switch chance.IntN(6) {
				case 0, 1, 2:
					err = b.create("services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":%q,"ports":[{"port":80}]}}`, name, []string{"ClusterIP", "NodePort"}[chance.IntN(2)]))
				case 3:
					err = b.patch("services", name, "", fmt.Sprintf(`{"spec":{"type":%q}}`, []string{"ClusterIP", "NodePort"}[chance.IntN(2)]))
				case 4:
					err = b.create("secrets", `{"metadata":{"generateName":"s"}}`)
				case 5: // it must not be counted while it goes
					_, err = b.Delete(t.Context(), b.target("services", name), nil, nil)
				}
				switch {
				case err == nil || apierrors.IsNotFound(err):
				case apierrors.IsAlreadyExists(err):
					conflicts.Add(1)
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
					refused.Add(1)
				default:
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	_, end := b.Store.Bounds()
	for r := start; r <= end; r++ {
		s, err := b.Store.Exact(t.Context(), "services", r, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.neverExceeds(s, limit, limit/2)
		s.Close()
	}
	t.Logf("%d refused, %d conflicts", refused.Load(), conflicts.Load())
}

// neverExceeds checks the objects themselves: the limits, and that no two Services share an
// address or a node port.
func (b *bank) neverExceeds(s *store.View, most, ports int) {
	b.Helper()
	n, with := 0, map[int32]string{}
	ips := map[string]string{}
	for o, err := range s.Scan("", "") {
		if err != nil {
			b.Fatal(err)
		}
		service, err := registry.Decode[corev1.Service](o)
		if err != nil {
			b.Fatal(err)
		}
		n++
		if other := ips[service.Spec.ClusterIP]; other != "" {
			b.Errorf("%s and %s share %s", other, o.Key, service.Spec.ClusterIP)
		}
		ips[service.Spec.ClusterIP] = o.Key
		for _, p := range service.Spec.Ports {
			if p.NodePort == 0 {
				continue
			}
			if other := with[p.NodePort]; other != "" {
				b.Errorf("%s and %s share the port %d", other, o.Key, p.NodePort)
			}
			with[p.NodePort] = o.Key
		}
	}
	if n > most || len(with) > ports {
		b.Errorf("at revision %d there are %d Services with %d node ports, the limits are %d and %d", s.Revision(), n, len(with), most, ports)
	}
}

// TestQuotaChargedOnce: the charge and the object are stored together, for each write that
// succeeds and for no other.
func TestQuotaChargedOnce(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"secrets":"1000"`, "")
	const writers = 32
	var stored atomic.Int64
	for round := range 10 {
		var all sync.WaitGroup
		for i := range writers {
			all.Go(func() { // each name twice
				if b.create("secrets", fmt.Sprintf(`{"metadata":{"name":"s%d-%d"}}`, round, i/2)) == nil {
					stored.Add(1)
				}
			})
		}
		all.Wait()
		if want := int64((round + 1) * writers / 2); stored.Load() != want {
			t.Fatalf("%d were stored, want %d", stored.Load(), want)
		}
		b.used("q", fmt.Sprintf(`"secrets":"%d"`, stored.Load())) // and nothing was counted again
	}
}

// TestQuotaWaitsInVain checks that a write whose client gives up is charged exactly if its object
// is stored, and does not delay others.
func TestQuotaWaitsInVain(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"secrets":"1000"`, "")
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			go cancel()
			_, _ = b.Create(ctx, b.target("secrets", ""), registry.Body{Media: wire.JSON, Bytes: fmt.Appendf(nil, `{"metadata":{"name":"s%d"}}`, i)}, registry.WriteOptions{})
		})
	}
	all.Wait()
	b.used("q", fmt.Sprintf(`"secrets":"%d"`, b.Store.Any().Snapshot("secrets").Count("", "")))
}

// TestQuotaFailedLog checks that writes for which the log has no space are not charged.
func TestQuotaFailedLog(t *testing.T) {
	full := &fullLog{Log: memlog.New()}
	b := newBankOver(t, full)
	b.quota("q", `"secrets":"1000"`, "")
	b.must("secrets", `{"metadata":{"name":"a"}}`)
	full.full.Store(true)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			if err := b.create("secrets", fmt.Sprintf(`{"metadata":{"name":"b%d"}}`, i)); err == nil {
				t.Error("a write succeeds that the log refuses")
			}
		})
	}
	all.Wait()
	b.used("q", `"secrets":"1"`)
	full.full.Store(false)
	b.must("secrets", `{"metadata":{"name":"c"}}`)
	b.used("q", `"secrets":"2"`)
}

// fullLog is a log that has no space at times.
type fullLog struct {
	store.Log
	full atomic.Bool
}

func (l *fullLog) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	if l.full.Load() {
		return store.ErrNoSpace
	}
	return l.Log.Append(ctx, group, mark)
}

// TestQuotaGeneratedNameTaken: a write whose generated name another one takes is charged once.
func TestQuotaGeneratedNameTaken(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"secrets":"10"`, "")
	names := []string{"a", "a", "b"}
	b.GenerateName = func(string) string {
		name := names[0]
		names = names[1:]
		return name
	}
	b.Plugins = append([]registry.Plugin{{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Object.(metav1.Object).GetGenerateName() != "" && len(names) == 2 {
			b.must("secrets", `{"metadata":{"name":"a"}}`)
		}
		return nil
	}}}, b.Plugins...)
	b.must("secrets", `{"metadata":{"generateName":"x"}}`)
	b.used("q", `"secrets":"2"`)
	if b.Store.Any().Get("secrets", "n/b") == nil {
		t.Error("the Secret has another name")
	}
}

// TestQuotaOneNodePort: of Services that are charged together and name one node port, one is stored.
func TestQuotaOneNodePort(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"services":"1000"`, "")
	for round := range 20 {
		var stored atomic.Int64
		var all sync.WaitGroup
		for i := range 16 {
			all.Go(func() {
				err := b.create("services", fmt.Sprintf(`{"metadata":{"name":"s%d-%d"},"spec":{"type":"NodePort","ports":[{"port":80,"nodePort":%d}]}}`, round, i, 30000+round))
				if err == nil {
					stored.Add(1)
				} else if !strings.Contains(err.Error(), "provided port is already allocated") {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if stored.Load() != 1 {
			t.Fatalf("round %d: %d Services have the port", round, stored.Load())
		}
	}
}

// TestQuotaUpdateBeforeFirst: an update that was decided before the first limit held starts again.
func TestQuotaUpdateBeforeFirst(t *testing.T) {
	b := newBank(t)
	b.must("services", `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}`)
	var once sync.Once
	b.Plugins = append([]registry.Plugin{{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Type.Resource == "services" {
			once.Do(func() { b.quota("q", `"services.nodeports":"0"`, "") })
		}
		return nil
	}}}, b.Plugins...)
	b.wantRefused(b.patch("services", "a", "", `{"spec":{"type":"NodePort"}}`),
		"exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=0, limited: services.nodeports=0")
}

// slowLog is a log whose appends take a while.
type slowLog struct {
	store.Log
	pause atomic.Int64
}

func (l *slowLog) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	time.Sleep(time.Duration(l.pause.Load()))
	return l.Log.Append(ctx, group, mark)
}

// TestQuotaDeadline: a write that waits for others ends with its context, and is not made.
func TestQuotaDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{Log: memlog.New()}
		b := newBankOver(t, log)
		b.quota("q", `"secrets":"10"`, "")
		log.pause.Store(int64(time.Minute))
		var first sync.WaitGroup
		first.Go(func() { b.must("secrets", `{"metadata":{"name":"first"}}`) })
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		_, err := b.Create(ctx, b.target("secrets", ""), registry.Body{Media: wire.JSON, Bytes: []byte(`{"metadata":{"name":"second"}}`)}, registry.WriteOptions{})
		if took := time.Since(began); !apierrors.IsTimeout(err) || took != time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		first.Wait()
		b.used("q", `"secrets":"1"`)
		if b.Store.Any().Get("secrets", "n/second") != nil {
			t.Error("the write was made")
		}
	})
}

// TestQuotaUnderLoad: a quota is counted while objects are created all the time.
func TestQuotaUnderLoad(t *testing.T) {
	b := newBank(t)
	b.quota("q", `"pods":"100000"`, "")
	for i := range 500 {
		b.must("pods", pod(fmt.Sprint("p", i), `{}`, ""))
	}
	for i := range 100 {
		if _, err := b.Delete(t.Context(), b.target("pods", fmt.Sprint("p", i)), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var made atomic.Int64
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; !stop.Load(); i++ {
				b.must("pods", pod(fmt.Sprintf("x%d-%d", w, i), `{}`, ""))
				made.Add(1)
			}
		})
	}
	for range 5 {
		b.count("q")
	}
	stop.Store(true)
	writers.Wait()
	b.used("q", fmt.Sprintf(`"pods":"%d"`, 400+made.Load()))
}
