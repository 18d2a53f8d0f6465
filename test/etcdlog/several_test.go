package etcdlog_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// begin starts a server, which the test closes, and returns a client of it.
func begin(t *testing.T, s *tidemark.Server) kubernetes.Interface {
	t.Helper()
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { must(t, s.Close()) })
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	return client
}

// sameFiles returns a directory for a further server with the keys of the first one: dir itself for that.
func sameFiles(t *testing.T, dir string) string {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, "pki")); errors.Is(err, fs.ErrNotExist) {
		return dir
	}
	other := t.TempDir()
	must(t, os.Chmod(other, 0o700)) // a server refuses a directory with keys that others can enter
	if out, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(dir, "pki"), other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return other
}

// severalServers starts servers on one cluster.
func severalServers(t *testing.T, c *cluster, n int) (all []*tidemark.Server, clients []kubernetes.Interface) {
	t.Helper()
	dir := t.TempDir()
	for range n {
		s := &tidemark.Server{InProcess: true, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: sameFiles(t, dir)}}
		all, clients = append(all, s), append(clients, begin(t, s))
	}
	return all, clients
}

// TestSeveral: three servers on one etcd. Nothing is given twice, each has what another one has
// acknowledged, and idle ones write their leases alone.
func TestSeveral(t *testing.T) {
	tier.Full(t)
	c := startCluster(t, 1, nil)
	all, clients := severalServers(t, c, 3)
	ctx := t.Context()
	for i := range 20 {
		a, b, d := clients[i%3], clients[(i+1)%3], clients[(i+2)%3]
		name := fmt.Sprint("n", i)
		_, err := a.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
		_, err = b.CoreV1().ConfigMaps(name).Create(ctx, m, metav1.CreateOptions{})
		must(t, err)
		must(t, d.CoreV1().ConfigMaps(name).Delete(ctx, "m", metav1.DeleteOptions{}))
		if err := a.CoreV1().ConfigMaps(name).Delete(ctx, "m", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a second deletion: %v", err)
		}
		_, err = b.CoreV1().ConfigMaps(name).Create(ctx, m, metav1.CreateOptions{})
		must(t, err)
	}
	var made sync.Map
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i, client := range clients {
		for j := range 5 {
			wg.Go(func() {
				s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d-%d", i, j)},
					Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}}}
				s, err := client.CoreV1().Services("default").Create(ctx, s, metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				for _, key := range []any{s.Spec.ClusterIP, s.Spec.Ports[0].NodePort} {
					if other, twice := made.LoadOrStore(key, s.Name); twice {
						t.Errorf("%v was given to %v and %s", key, other, s.Name)
					}
				}
			})
		}
		wg.Go(func() {
			_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, metav1.CreateOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if !apierrors.IsAlreadyExists(err) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d of 3 servers have created one object", won)
	}
	head := func() int64 { return c.members[0].etcd.Server.KV().Rev() }
	await.True(t, "three idle servers make hardly any revisions", func() bool {
		before, began := head(), time.Now()
		time.Sleep(6 * time.Second)
		n, seconds := head()-before, time.Since(began).Seconds()
		t.Logf("%d revisions in %.1f s", n, seconds)
		return float64(n) <= 4+seconds
	})
	for _, s := range all[:2] {
		must(t, s.Close())
	}
	_, err := clients[2].CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "last"}}, metav1.CreateOptions{})
	must(t, err)
	await.True(t, "its controllers work", func() bool {
		_, err := clients[2].CoreV1().ConfigMaps("last").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		return err == nil
	})
}

// TestDirectoryInUse: each server has a directory of its own for its other files. A second server in the same one
// does not start.
func TestDirectoryInUse(t *testing.T) {
	c, dir := startCluster(t, 1, nil), t.TempDir()
	server := func() *tidemark.Server {
		return &tidemark.Server{InProcess: true, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: dir}}
	}
	first, second := server(), server()
	must(t, first.Start(t.Context()))
	t.Cleanup(func() { must(t, first.Close()) })
	if err := second.Start(t.Context()); !errors.Is(err, datadir.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("the directory of another server: %v", err)
		must(t, second.Close())
	}
	must(t, first.Close())
	second = server()
	must(t, second.Start(t.Context()))
	must(t, second.Close())
}

// TestDeadLease: the Lease of a dead server with other settings delays one start, and is deleted then.
func TestDeadLease(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, dir := startCluster(t, 1, nil), t.TempDir()
	log := new(logged)
	start := func() (*tidemark.Server, kubernetes.Interface) {
		s := &tidemark.Server{InProcess: true, Logger: slog.New(slog.NewTextHandler(log, nil)), Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: dir}}
		return s, begin(t, s)
	}
	s, client := start()
	renewed := metav1.NewMicroTime(time.Now().Add(-time.Minute))
	dead := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "tidemark-dead", Labels: map[string]string{"apiserver.kubernetes.io/identity": "tidemark"},
		Annotations: map[string]string{"tidemark.dev/service-node-port-range": "1-2"}}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}
	_, err := client.CoordinationV1().Leases("kube-system").Create(t.Context(), dead, metav1.CreateOptions{})
	must(t, err)
	must(t, s.Close())
	s, client = start()
	if n := strings.Count(log.String(), "waiting in case the clocks differ"); n != 1 {
		t.Errorf("the log says %d times that the server waits:\n%s", n, log)
	}
	if _, err := client.CoordinationV1().Leases("kube-system").Get(t.Context(), "tidemark-dead", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the Lease of the dead server: %v", err)
	}
	must(t, s.Close())
	s, client = start()
	all, err := client.CoordinationV1().Leases("kube-system").List(t.Context(), metav1.ListOptions{LabelSelector: "apiserver.kubernetes.io/identity=tidemark"})
	must(t, err)
	if len(all.Items) != 1 {
		t.Errorf("the Leases of one server: %v", all.Items)
	}
	must(t, s.Close())
}

// TestAddresses: the Service kubernetes has the addresses of all servers, with those that another program
// writes in the same form.
func TestAddresses(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, dir := startCluster(t, 1, nil), t.TempDir()
	start := func(ip string) *tidemark.Server {
		s := &tidemark.Server{Listen: tidemark.Listen{Address: "127.0.0.1", AdvertiseAddress: ip}, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: sameFiles(t, dir)}}
		must(t, s.Start(t.Context()))
		t.Cleanup(func() { must(t, s.Close()) })
		return s
	}
	for _, other := range []string{"rubbish", "127.0.0.1", "10.0.0.03"} { // no addresses for endpoints
		_, err := c.members[0].etcd.Server.Put(t.Context(), &pb.PutRequest{Key: []byte("/registry/masterleases/" + other), Value: []byte("x")})
		must(t, err)
	}
	first := start("10.0.0.2")
	client, err := kubernetes.NewForConfig(first.RESTConfig())
	must(t, err)
	addresses := func() (all []string) {
		slice, err := client.DiscoveryV1().EndpointSlices("default").Get(t.Context(), "kubernetes", metav1.GetOptions{})
		must(t, err)
		for _, e := range slice.Endpoints {
			all = append(all, e.Addresses...)
		}
		e, err := client.CoreV1().Endpoints("default").Get(t.Context(), "kubernetes", metav1.GetOptions{}) //nolint:staticcheck // it is served
		must(t, err)
		var same []string
		for _, a := range e.Subsets[0].Addresses {
			same = append(same, a.IP)
		}
		if !slices.Equal(all, same) {
			return nil // one was written, the other will be
		}
		return all
	}
	if got := addresses(); !slices.Equal(got, []string{"10.0.0.2"}) {
		t.Errorf("one server: %q", got)
	}
	second := start("10.0.0.1")
	await.True(t, "both addresses", func() bool { return slices.Equal(addresses(), []string{"10.0.0.1", "10.0.0.2"}) })
	r, err := c.members[0].etcd.Server.Range(t.Context(), &pb.RangeRequest{Key: []byte("/registry/masterleases/10.0.0.1")})
	must(t, err)
	if len(r.Kvs) != 1 || !strings.HasPrefix(string(r.Kvs[0].Value), "k8s\x00\n\x0f\n\x02v1\x12\tEndpoints") || r.Kvs[0].Lease == 0 {
		t.Errorf("the key of an address: %v", r.Kvs)
	}
	written := r.Kvs[0].ModRevision
	await.True(t, "the address is renewed", func() bool {
		r, err := c.members[0].etcd.Server.Range(t.Context(), &pb.RangeRequest{Key: []byte("/registry/masterleases/10.0.0.1")})
		must(t, err)
		return len(r.Kvs) == 1 && r.Kvs[0].ModRevision > written
	})
	must(t, second.Close())
	r, err = c.members[0].etcd.Server.Range(t.Context(), &pb.RangeRequest{Key: []byte("/registry/masterleases/10.0.0.1")})
	if must(t, err); len(r.Kvs) != 0 {
		t.Errorf("a server that was stopped leaves its address: %v", r.Kvs)
	}
	await.True(t, "one address", func() bool { return slices.Equal(addresses(), []string{"10.0.0.2"}) })
}

// TestUnreadable: a value that cannot be read fails its own requests, and can be deleted if that is enabled.
func TestUnreadable(t *testing.T) {
	c := startCluster(t, 1, nil)
	put := func(key, value string) {
		_, err := c.members[0].etcd.Server.Put(t.Context(), &pb.PutRequest{Key: []byte(key), Value: []byte(value)})
		must(t, err)
	}
	put("/registry/configmaps/default/old", "k8s\x00damaged")
	s := &tidemark.Server{InProcess: true, FeatureGates: map[string]bool{"AllowUnsafeMalformedObjectDeletion": true},
		Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}}
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { must(t, s.Close()) })
	client, err := kubernetes.NewForConfig(s.RESTConfig())
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	maps := client.CoreV1().ConfigMaps("default")
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "fine"}}, metav1.CreateOptions{})
	must(t, err)
	fails := func(what string, err error) {
		t.Helper()
		if !apierrors.IsInternalError(err) {
			t.Errorf("%s: got %v, want InternalError", what, err)
		}
	}
	events, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=new", ResourceVersion: "0"})
	must(t, err)
	defer events.Stop()
	_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	must(t, err)
	if e := <-events.ResultChan(); e.Type != watch.Added {
		t.Errorf("got the event %v", e)
	}
	put("/registry/configmaps/default/new", "k8s:enc:aescbc:v1:lost:what it was")
	if e := <-events.ResultChan(); e.Type != watch.Error || !apierrors.IsInternalError(apierrors.FromObject(e.Object)) {
		t.Errorf("got the event %v, want an InternalError", e)
	}
	for _, name := range []string{"old", "new"} {
		_, err = maps.Get(ctx, name, metav1.GetOptions{})
		fails("get", err)
		_, err = maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.UpdateOptions{})
		fails("update", err)
		fails("delete", maps.Delete(ctx, name, metav1.DeleteOptions{}))
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			t.Errorf("create: %v", err)
		}
	}
	_, err = maps.List(ctx, metav1.ListOptions{})
	fails("list", err)
	if n := strings.Count(err.Error(), "unable to transform key"); n != 1 {
		t.Errorf("the error of a list names the key %d times: %v", n, err)
	}
	if _, err := client.CoreV1().ConfigMaps("kube-system").List(ctx, metav1.ListOptions{}); err != nil {
		t.Errorf("the list of another namespace: %v", err)
	}
	if _, err := maps.Get(ctx, "fine", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	unsafe := true
	for name, reason := range map[string]metav1.StatusReason{"fine": metav1.StatusReasonConflict, "missing": metav1.StatusReasonNotFound} {
		err := maps.Delete(ctx, name, metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &unsafe})
		if apierrors.ReasonForError(err) != reason {
			t.Errorf("the unsafe deletion of %s: got %v, want %s", name, err, reason)
		}
	}
	for _, name := range []string{"old", "new"} {
		must(t, maps.Delete(ctx, name, metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &unsafe}))
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	must(t, err)
	if !slices.ContainsFunc(list.Items, func(m corev1.ConfigMap) bool { return m.Name == "fine" }) {
		t.Errorf("the list: %v", list.Items)
	}
}

// TestUnreadablePolicies checks that an unreadable policy still protects: requests that it may
// concern are rejected until it is repaired or deleted.
func TestUnreadablePolicies(t *testing.T) {
	c := startCluster(t, 1, nil)
	s := &tidemark.Server{InProcess: true, FeatureGates: map[string]bool{"AllowUnsafeMalformedObjectDeletion": true},
		Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}}
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { must(t, s.Close()) })
	config := s.RESTConfig()
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	create := func(namespace string) error {
		_, err := client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}, metav1.CreateOptions{})
		return err
	}
	unsafe := true
	deletion := metav1.DeleteOptions{IgnoreStoreReadErrorWithClusterBreakingPotential: &unsafe}
	registration := client.AdmissionregistrationV1()
	for _, row := range []struct {
		key    string
		delete func() error
		other  bool // requests in another namespace are not concerned
	}{
		{"resourcequotas/default/damaged", func() error { return client.CoreV1().ResourceQuotas("default").Delete(ctx, "damaged", deletion) }, true},
		{"validatingwebhookconfigurations/damaged", func() error {
			return registration.ValidatingWebhookConfigurations().Delete(ctx, "damaged", deletion)
		}, false},
		{"mutatingwebhookconfigurations/damaged", func() error {
			return registration.MutatingWebhookConfigurations().Delete(ctx, "damaged", deletion)
		}, false},
		{"validatingadmissionpolicybindings/damaged", func() error {
			return registration.ValidatingAdmissionPolicyBindings().Delete(ctx, "damaged", deletion)
		}, false},
		{"validatingadmissionpolicies/damaged", func() error {
			return registration.ValidatingAdmissionPolicies().Delete(ctx, "damaged", deletion)
		}, false},
	} {
		t.Run(row.key, func(t *testing.T) {
			if strings.HasPrefix(row.key, "validatingadmissionpolicies/") { // which has no effect without a binding
				_, err := registration.ValidatingAdmissionPolicyBindings().Create(ctx, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
					ObjectMeta: metav1.ObjectMeta{Name: "binding"},
					Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
						PolicyName: "damaged", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
					},
				}, metav1.CreateOptions{})
				must(t, err)
			}
			must(t, create("default"))
			_, err := c.members[0].etcd.Server.Put(ctx, &pb.PutRequest{Key: []byte("/registry/" + row.key), Value: []byte("k8s\x00damaged")})
			must(t, err)
			await.True(t, "a refusal", func() bool { return create("default") != nil })
			if err := create("default"); !apierrors.IsInternalError(err) && !apierrors.IsInvalid(err) {
				t.Errorf("got %v, want InternalError, or Invalid as a policy responds", err)
			}
			if err := create("kube-public"); row.other != (err == nil) {
				t.Errorf("in another namespace: %v", err)
			}
			must(t, row.delete())
			must(t, create("default"))
		})
	}
}
