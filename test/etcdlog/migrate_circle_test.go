package etcdlog_test

import (
	"fmt"
	"slices"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var ipAddresses = schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ipaddresses"}

// together makes the objects that a server writes in one revision of etcd: Services with their addresses, and objects
// with the ResourceQuota or the PodDisruptionBudget that counts them. It adds two that another program wrote so.
func (m *migrated) together(etcd *clientv3.Client) {
	m.t.Helper()
	ctx := m.t.Context()
	core := m.client.CoreV1()
	for i := range 3 {
		_, err := core.Services("default").Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("svc", i)},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		must(m.t, err)
	}
	must(m.t, core.Services("default").Delete(ctx, "svc2", metav1.DeleteOptions{}))
	_, err := core.ResourceQuotas("default").Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("10")}},
	}, metav1.CreateOptions{})
	must(m.t, err)
	await.True(m.t, "the quota", func() bool {
		q, err := core.ResourceQuotas("default").Get(ctx, "q", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	for i := range 3 {
		_, err := core.Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("counted", i)}}, metav1.CreateOptions{})
		must(m.t, err)
	}
	labels := map[string]string{"app": "x"}
	pod, err := core.Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: labels}, Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	must(m.t, err)
	pod.Status.Phase, pod.Status.Conditions = corev1.PodRunning, []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	_, err = core.Pods("default").UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	must(m.t, err)
	least := intstr.FromInt32(0)
	b, err := m.client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: labels}},
	}, metav1.CreateOptions{})
	must(m.t, err)
	b.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: b.Generation, DisruptionsAllowed: 1, CurrentHealthy: 1, ExpectedPods: 1}
	_, err = m.client.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(ctx, b, metav1.UpdateOptions{})
	must(m.t, err)
	must(m.t, m.client.PolicyV1().Evictions("default").Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}}))
	m.twins(etcd)
}

// touch changes some of the objects of together, so that the history of a directory has later versions of them, and
// returns the resource version before.
func (m *migrated) touch(round int) (before string) {
	m.t.Helper()
	ctx := m.t.Context()
	core := m.client.CoreV1()
	last, err := core.ConfigMaps("default").Get(ctx, "last", metav1.GetOptions{})
	must(m.t, err)
	for i := range 2 {
		last.Data = map[string]string{"round": fmt.Sprint(round, " ", i)}
		last, err = core.ConfigMaps("default").Update(ctx, last, metav1.UpdateOptions{})
		must(m.t, err)
		if i == 0 {
			before = last.ResourceVersion
		}
	}
	s, err := core.Services("default").Get(ctx, "svc0", metav1.GetOptions{})
	must(m.t, err)
	s.Labels = map[string]string{"round": fmt.Sprint(round)}
	_, err = core.Services("default").Update(ctx, s, metav1.UpdateOptions{})
	must(m.t, err)
	_, err = core.ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("end", round)}}, metav1.CreateOptions{})
	must(m.t, err)
	return before
}

// TestMigrateCircle moves a server from etcd to a directory and back, twice. Each time the objects keep their resource
// versions, although several share one, and the history of the directory goes with them.
func TestMigrateCircle(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	m := newMigrated(t)
	config := "--encryption-provider-config=" + m.path("encryption.yaml")
	c := startCluster(t, 1, nil)
	onEtcd := func() (stop func()) {
		return m.serve(&tidemark.Server{Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: m.path("etcd-files")}})
	}
	stop := onEtcd()
	m.fill()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
	must(t, err)
	m.together(client)
	must(t, client.Close())
	if n := m.shared(); n == 0 {
		t.Fatal("no two objects share a resource version: the test moves nothing of interest")
	}
	for round := range 2 {
		want := m.state()
		stop()
		data, snapshot := m.path(fmt.Sprint("data", round)), m.path(fmt.Sprint("snapshot", round))
		m.tidemark(0, "migrate", "--from="+c.servers()[0], "--to="+data, config)
		m.tidemark(0, "check", data)
		t.Log(m.tidemark(0, "migrate", "--from="+data, "--to=etcd-snapshot:"+snapshot+"-unserved", config, "--no-history", "--dry-run"))

		stop = m.serve(&tidemark.Server{Storage: &datadir.Dir{Path: data}})
		m.same("in the directory", want)
		middle := m.touch(round)
		end := fmt.Sprint("end", round)
		events := m.watched(middle, end)
		want = m.state()
		stop()
		m.tidemark(0, "migrate", "--from="+data, "--to=etcd-snapshot:"+snapshot, config)

		c = startCluster(t, 1, restore(t, snapshot))
		m.tidemark(0, "migrate", "--from="+data, "--to="+c.servers()[0], "--verify", config)
		stop = onEtcd()
		m.same("in etcd", want)
		if got := m.watched(middle, end); !slices.Equal(got, events) {
			t.Errorf("a watch after %s in etcd:\n%v, want\n%v", middle, got, events)
		}
		if n := m.shared(); n == 0 {
			t.Error("no two objects share a resource version any more")
		}
	}
	stop()
}

// shared returns how many IPAddresses have the resource version of a Service.
func (m *migrated) shared() (n int) {
	m.t.Helper()
	services, err := m.client.CoreV1().Services("default").List(m.t.Context(), metav1.ListOptions{})
	must(m.t, err)
	list, err := m.custom.Resource(ipAddresses).List(m.t.Context(), metav1.ListOptions{})
	must(m.t, err)
	for _, a := range list.Items {
		if slices.ContainsFunc(services.Items, func(s corev1.Service) bool { return s.ResourceVersion == a.GetResourceVersion() }) {
			n++
		}
	}
	return n
}
