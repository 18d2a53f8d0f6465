package etcdlog_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// migrated is a server whose objects move, with the observations of its clients.
type migrated struct {
	t      *testing.T
	dir    string
	binary string
	client kubernetes.Interface
	custom dynamic.Interface
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// newMigrated returns a directory for the server, and the program.
func newMigrated(t *testing.T) *migrated {
	t.Helper()
	m := &migrated{t: t, dir: t.TempDir(), binary: testprogram.Path(t)}
	must(t, os.WriteFile(m.path("encryption.yaml"), []byte(encryptionConfig), 0o600))
	return m
}

func (m *migrated) path(name string) string { return filepath.Join(m.dir, name) }

// tidemark runs the command.
func (m *migrated) tidemark(want int, args ...string) string {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), m.binary, args...).CombinedOutput()
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		m.t.Fatal(err)
	}
	if code != want {
		m.t.Fatalf("tidemark %v: %d, want %d\n%s", args, code, want, out)
	}
	return string(out)
}

// serve starts a server, which the returned function stops.
func (m *migrated) serve(s *tidemark.Server) (stop func()) {
	m.t.Helper()
	s.InProcess = true
	s.Encryption.ProviderConfigFile = m.path("encryption.yaml")
	must(m.t, s.Start(m.t.Context()))
	var err error
	m.client, err = kubernetes.NewForConfig(s.RESTConfig())
	must(m.t, err)
	m.custom, err = dynamic.NewForConfig(s.RESTConfig())
	must(m.t, err)
	return func() { must(m.t, s.Close()) }
}

// state returns the resource versions of the objects that no server changes by itself, by their names.
func (m *migrated) state() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "secrets"}, {Version: "v1", Resource: "events"}, {Version: "v1", Resource: "services"},
		{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, widgets,
	} {
		list, err := m.custom.Resource(gvr).List(m.t.Context(), metav1.ListOptions{})
		must(m.t, err)
		for _, o := range list.Items {
			if strings.HasPrefix(o.GetNamespace(), "kube-") || gvr.Resource == "services" && o.GetName() == "kubernetes" || o.GetName() == "kube-root-ca.crt" {
				continue // servers write them when they start
			}
			text, err := o.MarshalJSON()
			must(m.t, err)
			all[gvr.Resource+" "+o.GetNamespace()+"/"+o.GetName()] = string(text)
		}
	}
	return all
}

func (m *migrated) same(what string, want map[string]string) {
	m.t.Helper()
	got := m.state()
	for name, text := range want {
		if got[name] != text {
			m.t.Errorf("%s: %s was\n%s\nand is\n%s", what, name, text, got[name])
		}
	}
	if len(got) != len(want) {
		m.t.Errorf("%s: %d objects, want %d", what, len(got), len(want))
	}
}

// watched returns the changes of ConfigMaps after a resource version, up to the one of a name.
func (m *migrated) watched(after, last string) (all []string) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), time.Minute)
	defer cancel()
	w, err := m.client.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: after})
	must(m.t, err)
	defer w.Stop()
	for e := range w.ResultChan() {
		c, ok := e.Object.(*corev1.ConfigMap)
		if !ok {
			m.t.Fatalf("a watch after %s: %v", after, e.Object)
		}
		all = append(all, fmt.Sprint(e.Type, " ", c.Name, " ", c.ResourceVersion, " ", c.Data))
		if c.Name == last && e.Type == watch.Added {
			return all
		}
	}
	m.t.Fatalf("a watch after %s ended with %v", after, all)
	return nil
}

// fill makes objects of several kinds, and returns the resource version in the middle.
func (m *migrated) fill() (middle string) {
	m.t.Helper()
	ctx := m.t.Context()
	maps := m.client.CoreV1().ConfigMaps("default")
	make := func(name string) *corev1.ConfigMap {
		c, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": "<1>"}}, metav1.CreateOptions{})
		must(m.t, err)
		return c
	}
	a := make("a")
	make("b")
	_, err := m.client.CoreV1().Secrets("default").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}, StringData: map[string]string{"p": "very-secret-text"}}, metav1.CreateOptions{})
	must(m.t, err)
	_, err = m.client.CoreV1().Events("default").Create(ctx, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "e"}, InvolvedObject: corev1.ObjectReference{Namespace: "default", Name: "x"}}, metav1.CreateOptions{})
	must(m.t, err)
	m.define()
	must(m.t, maps.Delete(ctx, "b", metav1.DeleteOptions{}))
	a.Data["v"] = "2"
	a, err = maps.Update(ctx, a, metav1.UpdateOptions{})
	must(m.t, err)
	middle = a.ResourceVersion
	b := make("b")
	a.Data["v"] = "3"
	_, err = maps.Update(ctx, a, metav1.UpdateOptions{})
	must(m.t, err)
	must(m.t, maps.Delete(ctx, b.Name, metav1.DeleteOptions{}))
	make("last")
	return middle
}

// define makes a definition and custom resources.
func (m *migrated) define() {
	m.t.Helper()
	ctx := m.t.Context()
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}},
		},
	}}
	_, err := m.custom.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(ctx, definition, metav1.CreateOptions{})
	must(m.t, err)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "w"}, "spec": map[string]any{"z": int64(1), "a": 2.50, "t": "<b>"},
	}}
	_, err = m.custom.Resource(widgets).Namespace("default").Create(ctx, widget, metav1.CreateOptions{})
	must(m.t, err)
}

const encryptionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources: [{resources: [secrets], providers: [{aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}, {identity: {}}]}]
`

// restore makes the data directory of a member from a snapshot, and returns its configuration.
func restore(t *testing.T, file string) func(*embed.Config) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	return func(o *embed.Config) {
		if _, err := os.Stat(dir); err != nil {
			must(t, snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
				SnapshotPath: file, Name: o.Name, OutputDataDir: dir, PeerURLs: []string{o.AdvertisePeerUrls[0].String()},
				InitialCluster: o.InitialCluster, InitialClusterToken: o.InitialClusterToken,
			}))
		}
		o.Dir = dir
	}
}

// TestMigrate moves a server to etcd, and back to a directory. Its clients keep their resource versions.
func TestMigrate(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	m := newMigrated(t)
	stop := m.serve(&tidemark.Server{Storage: &datadir.Dir{Path: m.path("data")}})
	middle := m.fill()
	events, before := m.watched(middle, "last"), m.state()
	locked := m.tidemark(1, "migrate", "--from="+m.path("data"), "--to=etcd-snapshot:"+m.path("snapshot.db"), "--encryption-provider-config="+m.path("encryption.yaml"))
	if !strings.Contains(locked, "in use by process") {
		t.Errorf("a directory in use: %s", locked)
	}
	stop()
	m.compact(middle)

	m.toSnapshot()
	c := startCluster(t, 1, restore(t, m.path("snapshot.db")))
	client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
	must(t, err)
	defer client.Close()
	m.compareWith(c)
	m.storedForms(client)

	stop = m.serve(&tidemark.Server{Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: m.path("etcd-files")}})
	m.same("in etcd", before)
	if got := m.watched(middle, "last"); !slices.Equal(got, events) {
		t.Errorf("a watch after %s in etcd:\n%v, want\n%v", middle, got, events)
	}
	m.expired(fmt.Sprint(number(t, middle) - 1))
	m.conflicts(middle)
	m.twins(client)
	before = m.state()
	stop()

	m.back(c, client, before)
}

// compact forgets the history before a resource version.
func (m *migrated) compact(floor string) {
	m.t.Helper()
	log, err := (&datadir.Dir{Path: m.path("data")}).OpenLog(m.t.Context())
	must(m.t, err)
	must(m.t, log.Compact(m.t.Context(), store.Revision(number(m.t, floor))))
	must(m.t, log.Close())
}

func number(t *testing.T, resourceVersion string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	must(t, err)
	return n
}

// expired watches from a resource version whose history is gone.
func (m *migrated) expired(after string) {
	m.t.Helper()
	w, err := m.client.CoreV1().ConfigMaps("default").Watch(m.t.Context(), metav1.ListOptions{ResourceVersion: after})
	if err == nil {
		e := <-w.ResultChan()
		err = apierrors.FromObject(e.Object)
		w.Stop()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		m.t.Errorf("a watch after %s: %v", after, err)
	}
}

// toSnapshot writes the snapshot.
func (m *migrated) toSnapshot() {
	m.t.Helper()
	from, to, config := "--from="+m.path("data"), "--to=etcd-snapshot:"+m.path("snapshot.db"), "--encryption-provider-config="+m.path("encryption.yaml")
	if out := m.tidemark(0, "migrate", from, to, config, "--dry-run"); !strings.Contains(out, "Nothing was written") || !strings.Contains(out, "widgets.example.com") {
		m.t.Errorf("the dry run: %s", out)
	}
	if out := m.tidemark(1, "migrate", from, to); !strings.Contains(out, "start with --encryption-provider-config") {
		m.t.Errorf("without the keys: %s", out)
	}
	out := m.tidemark(0, "migrate", from, to, config)
	if !strings.Contains(out, "snapshot.db is complete") {
		m.t.Errorf("the migration: %s", out)
	}
	m.t.Log(out)
	text, err := os.ReadFile(m.path("snapshot.db"))
	must(m.t, err)
	if strings.Contains(string(text), "very-secret-text") {
		m.t.Error("the snapshot has a Secret that is not encrypted")
	}
	if left, err := filepath.Glob(m.path(".*part")); err != nil || len(left) > 0 {
		m.t.Errorf("files stayed behind: %v, %v", left, err)
	}
}

// compareWith compares the directory with the restored etcd.
func (m *migrated) compareWith(c *cluster) {
	m.t.Helper()
	to, config := "--to="+c.servers()[0], "--encryption-provider-config="+m.path("encryption.yaml")
	if out := m.tidemark(0, "migrate", "--from="+m.path("data"), to, config, "--verify"); !strings.Contains(out, "and no other one") {
		m.t.Errorf("the comparison: %s", out)
	}
}

// storedForms looks at the keys: events have leases, and a key that was written twice has the version 2 or more.
func (m *migrated) storedForms(client *clientv3.Client) {
	m.t.Helper()
	event, err := client.Get(m.t.Context(), "/registry/events/default/e")
	must(m.t, err)
	if len(event.Kvs) != 1 || event.Kvs[0].Lease == 0 {
		m.t.Fatalf("the event in etcd: %v", event.Kvs)
	}
	ttl, err := client.TimeToLive(m.t.Context(), clientv3.LeaseID(event.Kvs[0].Lease), clientv3.WithAttachedKeys())
	must(m.t, err)
	if ttl.GrantedTTL != 3600 || ttl.TTL <= 0 || !slices.ContainsFunc(ttl.Keys, func(k []byte) bool { return string(k) == "/registry/events/default/e" }) {
		m.t.Errorf("the lease of the event: %+v", ttl)
	}
	a, err := client.Get(m.t.Context(), "/registry/configmaps/default/a")
	must(m.t, err)
	if len(a.Kvs) != 1 || a.Kvs[0].Version != 3 || a.Kvs[0].Lease != 0 {
		m.t.Errorf("a ConfigMap that was written three times: %v", a.Kvs)
	}
}

// conflicts updates with an old resource version, and with the current one.
func (m *migrated) conflicts(old string) {
	m.t.Helper()
	maps := m.client.CoreV1().ConfigMaps("default")
	c, err := maps.Get(m.t.Context(), "a", metav1.GetOptions{})
	must(m.t, err)
	now := c.ResourceVersion
	c.ResourceVersion, c.Data["v"] = old, "4"
	if _, err := maps.Update(m.t.Context(), c, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		m.t.Errorf("an update with the old resource version %s: %v", old, err)
	}
	c.ResourceVersion = now
	c, err = maps.Update(m.t.Context(), c, metav1.UpdateOptions{})
	must(m.t, err)
	if number(m.t, c.ResourceVersion) <= number(m.t, now) {
		m.t.Errorf("the resource version %s follows %s", c.ResourceVersion, now)
	}
}

// twins changes two objects in one revision.
func (m *migrated) twins(client *clientv3.Client) {
	m.t.Helper()
	var puts []clientv3.Op
	for _, name := range []string{"a", "last"} {
		got, err := client.Get(m.t.Context(), "/registry/configmaps/default/"+name)
		must(m.t, err)
		puts = append(puts, clientv3.OpPut(string(got.Kvs[0].Key), string(got.Kvs[0].Value)))
	}
	made, err := client.Txn(m.t.Context()).Then(puts...).Commit()
	must(m.t, err)
	for _, name := range []string{"a", "last"} {
		c, err := m.client.CoreV1().ConfigMaps("default").Get(m.t.Context(), name, metav1.GetOptions{})
		must(m.t, err)
		if c.ResourceVersion != fmt.Sprint(made.Header.Revision) {
			m.t.Errorf("%s has the resource version %s, want %d", name, c.ResourceVersion, made.Header.Revision)
		}
	}
}

// back moves the objects to a new directory.
func (m *migrated) back(c *cluster, client *clientv3.Client, before map[string]string) {
	m.t.Helper()
	config := "--encryption-provider-config=" + m.path("encryption.yaml")
	from, to := "--from="+c.servers()[0], "--to="+m.path("data2")
	_, err := client.Put(m.t.Context(), "/registry/leasecandidates/default/x", "something")
	must(m.t, err)
	_, err = client.Put(m.t.Context(), "/registry/ranges/serviceips", "an allocator")
	must(m.t, err)
	out := m.tidemark(0, "migrate", from, to, config, "--dry-run")
	for _, other := range []string{`1 keys, unknown: "/registry/leasecandidates"`, `1 keys, of servers: "/registry/ranges"`} {
		if !strings.Contains(out, other) {
			m.t.Errorf("no line with %s: %s", other, out)
		}
	}
	if _, err := os.Stat(m.path("data2")); !os.IsNotExist(err) {
		m.t.Errorf("after a dry run: %v", err)
	}
	m.refusesDamage(client, from, to, config)
	stop := m.serve(&tidemark.Server{Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: m.path("etcd-files")}})
	if out := m.tidemark(1, "migrate", from, to, config); !strings.Contains(out, "uses etcd: its Lease kube-system/tidemark-") {
		m.t.Errorf("while an idle server runs: %s", out)
	}
	stop()
	out = m.tidemark(0, "migrate", from, to, config)
	m.t.Log(out)
	m.tidemark(0, "check", m.path("data2"))
	m.tidemark(0, "migrate", from, to, config, "--verify")
	again := &tidemark.Server{Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: m.path("etcd-files")}}
	if err := again.Start(m.t.Context()); err == nil || !strings.Contains(err.Error(), "were moved to the data directory "+m.path("data2")) {
		m.t.Errorf("a server starts on the etcd that was left: %v", err)
	}
	if out := m.tidemark(1, "migrate", from, to, config); !strings.Contains(out, "not empty") {
		m.t.Errorf("a target that is not empty: %s", out)
	}
	head, err := client.Get(m.t.Context(), "x")
	must(m.t, err)

	stop = m.serve(&tidemark.Server{Storage: &datadir.Dir{Path: m.path("data2")}})
	m.same("in the new directory", before)
	made, err := m.client.CoreV1().ConfigMaps("default").Create(m.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	must(m.t, err)
	if is := number(m.t, made.ResourceVersion); is <= uint64(head.Header.Revision) {
		m.t.Errorf("the resource version %d of the new directory follows revision %d of etcd", is, head.Header.Revision)
	}
	m.expired("5")
	stop()
}

// refusesDamage: a value that cannot be read stops the migration, by name.
func (m *migrated) refusesDamage(client *clientv3.Client, args ...string) {
	m.t.Helper()
	_, err := client.Put(m.t.Context(), "/registry/configmaps/default/damaged", "k8s\x00nonsense")
	must(m.t, err)
	out := m.tidemark(1, append([]string{"migrate"}, args...)...)
	if !strings.Contains(out, "/registry/configmaps/default/damaged") {
		m.t.Errorf("a damaged value: %s", out)
	}
	if _, err := os.Stat(m.path("data2")); !os.IsNotExist(err) {
		m.t.Errorf("after a migration that failed: %v", err)
	}
	_, err = client.Delete(m.t.Context(), "/registry/configmaps/default/damaged")
	must(m.t, err)
}

// TestMigrateLive copies from etcd while a server writes to it.
func TestMigrateLive(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	m := newMigrated(t)
	c := startCluster(t, 1, nil)
	stop := m.serve(&tidemark.Server{Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: m.path("etcd-files")}})
	m.fill()

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, m.binary, "migrate", "--from="+c.servers()[0], "--to="+m.path("data2"), "--encryption-provider-config="+m.path("encryption.yaml"), "--live")
	enter, err := command.StdinPipe()
	must(t, err)
	says, err := command.StderrPipe()
	must(t, err)
	var out strings.Builder
	command.Stdout = &out
	must(t, command.Start())
	lines := bufio.NewScanner(says)
	for lines.Scan() && !strings.Contains(lines.Text(), "then press Enter") {
		t.Log(lines.Text())
		m.churn(false)
	}
	for i := range 20 {
		m.churn(i%2 == 0)
	}
	if _, err := os.Stat(m.path("data2/FORMAT")); !os.IsNotExist(err) {
		t.Errorf("a server could start on the directory before it is complete: %v", err)
	}
	if out := m.tidemark(1, "migrate", "--from="+c.servers()[0], "--to="+m.path("data3"), "--encryption-provider-config="+m.path("encryption.yaml"), "--live"); !strings.Contains(out, "the standard input ended before Enter was pressed") {
		t.Errorf("without a standard input: %s", out)
	}
	_, err = enter.Write([]byte("\n")) // too early
	must(t, err)
	for lines.Scan() && !strings.Contains(lines.Text(), "was renewed. Stop it, then press Enter") {
		t.Log(lines.Text())
	}
	before := m.state()
	stop()
	_, err = enter.Write([]byte("\n"))
	must(t, err)
	for lines.Scan() {
		t.Log(lines.Text())
	}
	if err := command.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	m.tidemark(0, "check", m.path("data2"))
	defer m.serve(&tidemark.Server{Storage: &datadir.Dir{Path: m.path("data2")}})()
	m.same("in the new directory", before)
}

// churn creates and updates objects, and deletes the new ConfigMap again if keep is false.
func (m *migrated) churn(keep bool) {
	m.t.Helper()
	ctx := m.t.Context()
	maps, secrets := m.client.CoreV1().ConfigMaps("default"), m.client.CoreV1().Secrets("default")
	made, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c"}}, metav1.CreateOptions{})
	must(m.t, err)
	secret, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{GenerateName: "s"}, StringData: map[string]string{"v": "x"}}, metav1.CreateOptions{})
	must(m.t, err)
	secret.Data["v"] = []byte("y")
	_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	must(m.t, err)
	last, err := maps.Get(ctx, "last", metav1.GetOptions{})
	must(m.t, err)
	last.Data["n"] = made.Name
	_, err = maps.Update(ctx, last, metav1.UpdateOptions{})
	must(m.t, err)
	if !keep {
		must(m.t, maps.Delete(ctx, made.Name, metav1.DeleteOptions{}))
	}
}
