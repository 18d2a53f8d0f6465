package etcdlog_test

import (
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// reloading is a server on etcd that reads its encryption configuration again when the file changes.
type reloading struct {
	kubernetes.Interface
	t    *testing.T
	file string
	log  *logged
}

// startReloading starts a server that encrypts Secrets with the first of the keys, and decrypts them with all.
func startReloading(t *testing.T, c *cluster, dir string, keys ...string) *reloading {
	t.Helper()
	r := &reloading{t: t, file: filepath.Join(t.TempDir(), "encryption.yaml"), log: new(logged)}
	r.write(keys...)
	r.Interface = begin(t, &tidemark.Server{
		InProcess: true, Logger: slog.New(slog.NewTextHandler(r.log, nil)),
		Encryption: tidemark.Encryption{ProviderConfigFile: r.file, AutomaticReload: true},
		Storage:    &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: sameFiles(t, dir)},
	})
	return r
}

// write writes the configuration. It takes the place of the former one at once.
func (r *reloading) write(keys ...string) {
	r.t.Helper()
	var all []string
	for _, k := range keys {
		secret := base64.StdEncoding.EncodeToString([]byte(strings.Repeat(k, 32)))
		all = append(all, fmt.Sprintf("{name: %s, secret: %s}", k, secret))
	}
	fresh := r.file + ".new"
	must(r.t, os.WriteFile(fresh, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers: [{aescbc: {keys: [%s]}}]
`, strings.Join(all, ", ")), 0o600))
	must(r.t, os.Rename(fresh, r.file))
}

// logged returns how many times the log has a text.
func (r *reloading) logged(text string) int { return strings.Count(r.log.String(), text) }

// change changes the configuration, and waits until it is in effect.
func (r *reloading) change(keys ...string) {
	r.t.Helper()
	before := r.logged("the changed configuration is in effect")
	r.write(keys...)
	await.True(r.t, "the configuration is in effect", func() bool { return r.logged("the changed configuration is in effect") > before })
}

// TestReload changes the key of Secrets on two servers, by their files alone. No watch ends, and
// each server reads the writes of the other one at every step.
func TestReload(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, dir := startCluster(t, 1, nil), t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	a := startReloading(t, c, dir, "a")
	b := startReloading(t, c, dir, "a")
	key := func(name string) string { // that the Secret is encrypted with
		t.Helper()
		r, err := c.members[0].etcd.Server.Range(t.Context(), &pb.RangeRequest{Key: []byte("/registry/secrets/default/" + name)})
		must(t, err)
		found, ok := strings.CutPrefix(string(r.Kvs[0].Value), "k8s:enc:aescbc:v1:")
		if !ok {
			t.Fatalf("%s is not encrypted", name)
		}
		found, _, _ = strings.Cut(found, ":")
		return found
	}
	written := map[string]int{} // by name
	create := func(r *reloading, name string) {
		t.Helper()
		_, err := r.CoreV1().Secrets("default").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		must(t, err)
		written[name]++
	}
	replace := func(r *reloading, name string) { // by an update that changes nothing
		t.Helper()
		o, err := r.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		was := o.ResourceVersion
		o, err = r.CoreV1().Secrets("default").Update(t.Context(), o, metav1.UpdateOptions{})
		must(t, err)
		if o.ResourceVersion != was {
			written[name]++
		}
	}
	want := func(keys map[string]string) {
		t.Helper()
		for name, k := range keys {
			if got := key(name); got != k {
				t.Errorf("%s is encrypted with the key %s, want %s", name, got, k)
			}
			for _, r := range []*reloading{a, b} {
				_, err := r.CoreV1().Secrets("default").Get(t.Context(), name, metav1.GetOptions{})
				must(t, err)
			}
		}
	}
	var watches []watch.Interface
	for _, r := range []*reloading{a, b} {
		w, err := r.CoreV1().Secrets("default").Watch(t.Context(), metav1.ListOptions{})
		must(t, err)
		defer w.Stop()
		watches = append(watches, w)
	}

	create(a, "s")
	create(b, "t")
	for _, r := range []*reloading{a, b} { // 1: add the new key
		r.change("a", "b")
		replace(r, "s")
	}
	want(map[string]string{"s": "a", "t": "a"})

	a.change("b", "a") // 2: the new key encrypts, on one server after the other
	create(a, "u")
	create(b, "v")
	want(map[string]string{"s": "a", "t": "a", "u": "b", "v": "a"})
	b.change("b", "a")

	a.write("b") // too early
	await.True(t, "the configuration without the first key is refused", func() bool { return a.logged("3 stored objects cannot be read") == 1 })
	create(a, "w")
	for _, name := range []string{"s", "t", "u", "v", "w"} { // 3: rewrite the objects
		replace(a, name)
		replace(b, name) // which finds nothing to do
	}
	all := map[string]string{"s": "b", "t": "b", "u": "b", "v": "b", "w": "b"}
	want(all)
	for _, r := range []*reloading{a, b} { // 4: remove the old key
		r.change("b", "c")
		r.change("b")
	}
	create(b, "x")
	all["x"] = "b"
	want(all)

	total := 0
	for name, n := range written {
		total += n
		if most := map[string]int{"s": 2, "t": 2, "v": 2}[name]; n != max(most, 1) {
			t.Errorf("%s was written %d times, want %d", name, n, max(most, 1))
		}
	}
	for i, w := range watches {
		for n := range total {
			var e watch.Event
			open := false
			select {
			case e, open = <-w.ResultChan():
			case <-time.After(time.Minute):
			}
			if !open || e.Type != watch.Added && e.Type != watch.Modified {
				t.Fatalf("watch %d: event %d of %d is %v, open %t", i, n+1, total, e.Type, open)
			}
		}
	}
}

// TestReloadHeals: a server that lacks a key reads the values of that key once it has it.
func TestReloadHeals(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, dir := startCluster(t, 1, nil), t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"}}
	a := startReloading(t, c, dir, "a", "b")
	b := startReloading(t, c, dir, "b")
	_, err := a.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
	must(t, err)
	_, err = b.CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
	if err == nil || !strings.Contains(err.Error(), "unable to transform key") {
		t.Fatalf("a GET without the key: %v", err)
	}
	b.change("b", "a")
	await.True(t, "the Secret can be read", func() bool {
		_, err := b.CoreV1().Secrets("default").Get(t.Context(), "s", metav1.GetOptions{})
		return err == nil
	})
}
