package etcdlog_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/encryption"
	"github.com/tidemark-dev/tidemark/internal/encryption/kmstest"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// kmsConfig returns the file of a configuration that encrypts Secrets with a plugin, whose calls may take so long.
func kmsConfig(t testing.TB, p *kmstest.Plugin, timeout time.Duration) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	must(t, os.WriteFile(path, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: p, endpoint: '%s', timeout: %v}
  - identity: {}
`, p.Endpoint(), timeout), 0o600))
	return path
}

// encrypted opens the log of a cluster with an encryption configuration.
func encrypted(t testing.TB, c *cluster, config encryption.Config) (store.Shared, store.Encryption, *encryption.Set) {
	t.Helper()
	set, err := encryption.Load(config)
	must(t, err)
	o, err := (&etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}).Open(t.Context(), storage.Options{Encryption: encryption.NewActive(set)})
	must(t, err)
	t.Cleanup(func() { must(t, o.Shared.Close()) })
	return o.Shared, o.Encryption, set
}

// putSecret writes a Secret, and returns its revision.
func putSecret(t testing.TB, l store.Shared, name string, condition store.Revision) store.Revision {
	t.Helper()
	head := fmt.Sprintf(`{"kind":"Secret","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","uid":"u","resourceVersion":"`, name)
	w := store.Write{Collection: "secrets", Key: "ns/" + name, Value: []byte(head + `"}}`), RevisionAt: len(head), If: condition}
	d, err := l.Propose(t.Context(), &store.Txn{Writes: []store.Write{w}})
	if err != nil || !d.Made {
		t.Fatalf("propose %s: got %+v, %v, want it made", name, d, err)
	}
	return d.Revision
}

// changes returns the entries after a revision, up to another one.
func changes(t testing.TB, l store.Shared, after, upTo store.Revision) (all []store.Entry) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for b, err := range l.Follow(ctx, after) {
		must(t, err)
		all = append(all, b.Entries...)
		if b.Through >= upTo {
			break
		}
	}
	return all
}

// TestKMSRotation: when a KMS plugin has changed its key, the values that have the old one are outdated until they are
// written again, also those that the log wrote or read before.
func TestKMSRotation(t *testing.T) {
	c := startCluster(t, 1, nil)
	// A plugin that is unhealthy encrypts, and Await then reads its status.
	p := kmstest.Start(t, "k1")
	p.Set("k1", "sick")
	config := encryption.Config{Path: kmsConfig(t, p, 3*time.Second)}
	other, _, set := encrypted(t, c, config)
	await.True(t, "the plugin has given a data key", func() bool { return p.Calls("Encrypt") == 1 && strings.Contains(fmt.Sprint(set.Health()), "sick") })
	first := putSecret(t, other, "read", 0)

	l, encryption, set := encrypted(t, c, config)
	await.True(t, "the plugin has given a data key", func() bool { return p.Calls("Encrypt") == 2 && strings.Contains(fmt.Sprint(set.Health()), "sick") })
	_, err := l.Load(t.Context(), func(string, *store.Object) error { return nil })
	must(t, err)
	followed := putSecret(t, other, "followed", 0)
	written := putSecret(t, l, "written", 0)
	if n := len(changes(t, l, first, written)); n != 2 {
		t.Fatalf("%d changes, want 2", n)
	}
	all := map[string]store.Revision{"read": first, "followed": followed, "written": written}
	for name := range all {
		if encryption.Outdated("secrets", "ns/"+name) {
			t.Errorf("%s is outdated before the plugin changes its key", name)
		}
	}
	p.Set("k2", "ok")
	set.Await(t.Context())
	must(t, set.Health())
	last := written
	for name, was := range all {
		if !encryption.Outdated("secrets", "ns/"+name) {
			t.Errorf("%s is not outdated after the plugin has changed its key", name)
		}
		now := putSecret(t, l, name, was)
		changes(t, l, last, now)
		last = now
		if encryption.Outdated("secrets", "ns/"+name) {
			t.Errorf("%s is outdated after a write with the new key", name)
		}
	}
	if encryption.Outdated("secrets", "ns/none") || encryption.Outdated("configmaps", "ns/none") {
		t.Error("an object that does not exist is outdated")
	}
}

// TestServerKMSRotation: an update that changes nothing stores a Secret anew after the plugin has changed its key.
func TestServerKMSRotation(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	c, p := startCluster(t, 1, nil), kmstest.Start(t, "k1")
	s := &tidemark.Server{InProcess: true, Encryption: tidemark.Encryption{ProviderConfigFile: kmsConfig(t, p, 20*time.Second)},
		Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}}
	secrets := begin(t, s).CoreV1().Secrets("default")
	made, err := secrets.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	update := func() string {
		t.Helper()
		o, err := secrets.Update(t.Context(), made, metav1.UpdateOptions{})
		must(t, err)
		made = o
		return o.ResourceVersion
	}
	was := made.ResourceVersion
	if now := update(); now != was {
		t.Fatalf("an update that changes nothing: resource version %s, want %s", now, was)
	}
	p.Set("k2", "ok")
	await.True(t, "an update has stored the Secret with the new key", func() bool { return update() != was })
	was = made.ResourceVersion
	if now := update(); now != was {
		t.Errorf("another update that changes nothing: resource version %s, want %s", now, was)
	}
}

// TestKMSDown: while a KMS plugin is down, the values that need it are tried for a while all together, not each, by a start
// and by a follower. When it is back, values are read, and those that could not be read, too.
func TestKMSDown(t *testing.T) {
	tier.Full(t)
	c, p := startCluster(t, 1, nil), kmstest.Start(t, "k1")
	path := kmsConfig(t, p, time.Second)
	writer, _, set := encrypted(t, c, encryption.Config{Path: path})
	set.Await(t.Context())
	must(t, set.Health())
	const secrets = 64
	var head store.Revision
	for i := range secrets {
		head = putSecret(t, writer, fmt.Sprint("s", i), 0)
	}
	p.Stop()

	// The clock runs fast, so that ten seconds are one.
	began := time.Now()
	now := func() time.Time { return began.Add(10 * time.Since(began)) }
	l, _, reader := encrypted(t, c, encryption.Config{Path: path, Now: now})
	var stood atomic.Int32
	start := time.Now()
	b, err := l.Load(t.Context(), func(collection string, o *store.Object) error {
		if collection == "secrets" && o.Unreadable() != "" {
			stood.Add(1)
		}
		return nil
	})
	must(t, err)
	if took := time.Since(start); took > time.Minute || stood.Load() != secrets {
		t.Errorf("a start without the plugin took %v, and %d Secrets cannot be read; want a short time and %d", took, stood.Load(), secrets)
	}
	for i := range secrets {
		head = putSecret(t, writer, fmt.Sprint("f", i), 0)
	}
	start, stood = time.Now(), atomic.Int32{}
	for _, e := range changes(t, l, b.Head, head) {
		if e.Object.Unreadable() != "" {
			stood.Add(1)
		}
	}
	if took := time.Since(start); took > time.Minute || stood.Load() != secrets {
		t.Errorf("following without the plugin took %v, and %d Secrets cannot be read; want a short time and %d", took, stood.Load(), secrets)
	}
	healing, err := encryption.Load(encryption.Config{Path: path, Now: now})
	must(t, err)
	o, err := (&etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1}).Open(t.Context(), storage.Options{Encryption: encryption.NewActive(healing)})
	must(t, err)
	objects, err := stores.Open(t.Context(), store.Options{Shared: o.Shared})
	must(t, err)
	t.Cleanup(func() { objects.Close() })
	if objects.Any().Get("secrets", "ns/s0").Unreadable() == "" {
		t.Error("a Secret can be read without the plugin")
	}
	p.Restart(t)
	reader.Await(t.Context())
	must(t, reader.Health())
	last := putSecret(t, writer, "last", 0)
	for _, e := range changes(t, l, head, last) {
		if why := e.Object.Unreadable(); why != "" {
			t.Errorf("%s cannot be read after the plugin is back: %s", e.Key, why)
		}
	}
	healing.Await(t.Context())
	must(t, healing.Health())
	for objects.HasUnreadable() { // until the time limit of the test
		time.Sleep(50 * time.Millisecond)
	}
	for o := range objects.Any().Snapshot("secrets").Scan("", "") {
		if why := o.Unreadable(); why != "" {
			t.Errorf("%s cannot be read after the plugin is back: %s", o.Key, why)
		}
	}
}
