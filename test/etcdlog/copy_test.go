package etcdlog_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/etcdstore"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/etcdlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// copying is a store on a cluster with a file for the copy.
type copying struct {
	*store.Store
	log *etcdlog.Log
	// said is the log of the process.
	said *logged
}

func openCopying(t *testing.T, c *cluster, file string) *copying {
	t.Helper()
	k := &copying{said: new(logged)}
	l, err := etcdlog.Open(etcdlog.Options{Servers: c.servers(), Codec: codec(), CompactionInterval: -1, Copy: file, Logger: slog.New(slog.NewTextHandler(k.said, nil))})
	must(t, err)
	s, err := stores.Open(t.Context(), store.Options{Shared: l})
	must(t, err)
	k.Store, k.log = s, l
	return k
}

// leave writes the copy, and closes the store.
func (k *copying) leave(t *testing.T) {
	t.Helper()
	must(t, k.log.Keep(t.Context(), k.Any()))
	must(t, k.Close())
}

// used reports whether the store was loaded from the copy.
func (k *copying) used() bool {
	return strings.Contains(k.said.String(), "read the objects from the copy")
}

func (k *copying) put(t *testing.T, collection, key, text string) {
	t.Helper()
	at := store.Revision(0)
	if o := k.Any().Get(collection, key); o != nil {
		at = o.Modified
	}
	_, err := k.Apply(t.Context(), &store.Txn{Writes: []store.Write{put(collection, key, text, at)}})
	must(t, err)
}

// content returns all objects of the most recent state.
func (k *copying) content(t *testing.T) string {
	t.Helper()
	s, err := k.MostRecent(t.Context())
	must(t, err)
	var b strings.Builder
	for collection, o := range s.All() {
		fmt.Fprintln(&b, collection, o.Key, o.Created, o.Modified, string(o.Bytes()))
	}
	return b.String()
}

// TestCopy checks that a store that begins with a copy has the same state as one without it, and
// the changes since then. The copy is used once.
func TestCopy(t *testing.T) {
	c, file := startCluster(t, 1, nil), filepath.Join(t.TempDir(), "copy")
	k := openCopying(t, c, file)
	for i := range 30 {
		k.put(t, "pods", fmt.Sprint("p", i), strings.Repeat("x", i*2000)) // several blocks
		k.put(t, "secrets", fmt.Sprint("s", i), "text")
	}
	k.leave(t)
	other := openCopying(t, c, "")
	other.put(t, "pods", "p1", "changed")
	other.put(t, "pods", "new", "new")
	_, err := other.Apply(t.Context(), &store.Txn{Writes: []store.Write{del("secrets", "s2", other.Any().Get("secrets", "s2").Modified)}})
	must(t, err)
	want := other.content(t)

	k = openCopying(t, c, file)
	if got := k.content(t); !k.used() || got != want {
		t.Errorf("used: %v; got\n%s\nwant\n%s", k.used(), got, want)
	}
	if files, err := os.ReadDir(filepath.Dir(file)); err != nil || len(files) != 0 {
		t.Errorf("the copy stays: %v, %v", files, err)
	}
	k.put(t, "pods", "p2", "written again")
	if a, b := k.content(t), other.content(t); a != b {
		t.Errorf("after a write: got\n%s\nwant\n%s", a, b)
	}
	must(t, k.Close()) // as after a crash: there is no copy
	k = openCopying(t, c, file)
	if k.used() {
		t.Error("a copy was used twice")
	}
	must(t, k.Close())
	must(t, other.Close())
}

// TestWrongCopies: a copy that is damaged, of another state or not within the history is not used.
func TestWrongCopies(t *testing.T) {
	rnd := testrand.New(t)
	replaced := func(t *testing.T, c *cluster, then func()) {
		backup := filepath.Join(t.TempDir(), "backup")
		replaceData(t, c, func(dir string) { must(t, os.CopyFS(backup, os.DirFS(dir))) })
		then()
		replaceData(t, c, func(dir string) {
			must(t, os.RemoveAll(dir))
			must(t, os.CopyFS(dir, os.DirFS(backup)))
		})
	}
	type row struct {
		name string
		// change is called after the copy was written.
		change func(t *testing.T, c *cluster, file string)
	}
	rows := []row{
		{"truncated", func(t *testing.T, _ *cluster, file string) {
			info, err := os.Stat(file)
			must(t, err)
			must(t, os.Truncate(file, info.Size()-1))
		}},
		{"longer", func(t *testing.T, _ *cluster, file string) {
			all, err := os.ReadFile(file)
			must(t, err)
			must(t, os.WriteFile(file, append(all, 0), 0o600))
		}},
		{"empty", func(t *testing.T, _ *cluster, file string) { must(t, os.WriteFile(file, nil, 0o600)) }},
		{"compacted", func(t *testing.T, c *cluster, _ string) {
			k := openCopying(t, c, "")
			k.put(t, "pods", "later", "text")
			client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
			must(t, err)
			defer client.Close()
			_, err = client.Compact(t.Context(), int64(k.Any().Revision()))
			must(t, err)
			must(t, k.Close())
		}},
		{"empty cluster", func(t *testing.T, c *cluster, _ string) {
			replaceData(t, c, func(dir string) { must(t, os.RemoveAll(dir)) })
		}},
		{"far behind", func(t *testing.T, c *cluster, _ string) {
			client, err := clientv3.New(clientv3.Config{Endpoints: c.servers()})
			must(t, err)
			defer client.Close()
			for range 1_100 {
				_, err := client.Put(t.Context(), "other", "")
				must(t, err)
			}
		}},
	}
	for range 12 {
		at, bit := rnd.Float64(), byte(1<<rnd.IntN(8))
		rows = append(rows, row{fmt.Sprintf("a bit at %.3f", at), func(t *testing.T, _ *cluster, file string) {
			all, err := os.ReadFile(file)
			must(t, err)
			all[int(at*float64(len(all)))] ^= bit
			must(t, os.WriteFile(file, all, 0o600))
		}})
	}
	run := func(name string, f func(t *testing.T, c *cluster, file string)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, file := startCluster(t, 1, nil), filepath.Join(t.TempDir(), "copy")
			f(t, c, file)
			fresh := openCopying(t, c, "")
			want := fresh.content(t)
			must(t, fresh.Close())
			k := openCopying(t, c, file)
			if got := k.content(t); k.used() || got != want {
				t.Errorf("used: %v; got\n%s\nwant\n%s", k.used(), got, want)
			}
			if !strings.Contains(k.said.String(), "the copy of the objects is not used") {
				t.Errorf("the log does not say why: %s", k.said)
			}
			must(t, k.Close())
		})
	}
	fill := func(t *testing.T, c *cluster, file string) {
		k := openCopying(t, c, file)
		for i := range 5 {
			k.put(t, "pods", fmt.Sprint("p", i), "text")
		}
		k.leave(t)
	}
	for _, row := range rows {
		run(row.name, func(t *testing.T, c *cluster, file string) {
			fill(t, c, file)
			row.change(t, c, file)
		})
	}
	run("restored from before deletions, and ahead again", func(t *testing.T, c *cluster, file string) {
		k := openCopying(t, c, "")
		for _, key := range []string{"victim", "victim2", "newest"} {
			k.put(t, "pods", key, "text")
		}
		must(t, k.Close())
		replaced(t, c, func() {
			k := openCopying(t, c, file)
			for _, key := range []string{"victim", "victim2"} {
				_, err := k.Apply(t.Context(), &store.Txn{Writes: []store.Write{del("pods", key, k.Any().Get("pods", key).Modified)}})
				must(t, err)
			}
			k.leave(t)
		})
		k = openCopying(t, c, "")
		for i := range 20 {
			k.put(t, "pods", fmt.Sprint("other", i), "text")
		}
		must(t, k.Close())
	})
	run("restored, and ahead again", func(t *testing.T, c *cluster, file string) {
		k := openCopying(t, c, "")
		k.put(t, "pods", "before", "text")
		must(t, k.Close())
		replaced(t, c, func() { fill(t, c, file) })
		k = openCopying(t, c, "")
		for i := range 20 {
			k.put(t, "pods", fmt.Sprint("other", i), "text")
		}
		must(t, k.Close())
	})
}

// TestKeepLate: a copy that is not complete in time is not there.
func TestKeepLate(t *testing.T) {
	c, file := startCluster(t, 1, nil), filepath.Join(t.TempDir(), "copy")
	k := openCopying(t, c, file)
	k.put(t, "pods", "p", "text")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := k.log.Keep(ended, k.Any()); err == nil {
		t.Error("a copy after the end of the time")
	}
	if files, err := os.ReadDir(filepath.Dir(file)); err != nil || len(files) != 0 {
		t.Errorf("it left %v, %v", files, err)
	}
	must(t, k.Close())
}

// TestNoCopy: there is no copy of a state whose newest object is old, which a restored backup may have too.
func TestNoCopy(t *testing.T) {
	c, file := startCluster(t, 1, nil), filepath.Join(t.TempDir(), "copy")
	k := openCopying(t, c, file)
	for i := range 20 {
		k.put(t, "pods", fmt.Sprint("p", i), "text")
	}
	for i := range 12 {
		key := fmt.Sprint("p", i)
		_, err := k.Apply(t.Context(), &store.Txn{Writes: []store.Write{del("pods", key, k.Any().Get("pods", key).Modified)}})
		must(t, err)
	}
	k.leave(t)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a copy after deletions alone: %v", err)
	}
}

// TestServerCopy checks that a server leaves a copy when it stops, without objects that are
// encrypted in etcd. A watch continues from before the restart.
func TestServerCopy(t *testing.T) {
	c, dir := startCluster(t, 1, nil), t.TempDir()
	file := filepath.Join(dir, "objects.copy")
	start := func(encryption string) (*tidemark.Server, kubernetes.Interface, *logged) {
		log := new(logged)
		logger := slog.New(slog.NewTextHandler(log, nil))
		s := &tidemark.Server{InProcess: true, Logger: logger, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: dir, Logger: logger}}
		s.Encryption.ProviderConfigFile = encryption
		must(t, s.Start(t.Context()))
		t.Cleanup(func() { s.Close() })
		client, err := kubernetes.NewForConfig(s.RESTConfig())
		must(t, err)
		return s, client, log
	}
	// stop stops a server, which leaves its copy within two seconds or not at all: on a slow machine, it tries again.
	stop := func(s *tidemark.Server, log *logged) {
		t.Helper()
		must(t, s.Close())
		for strings.Contains(log.String(), "the next start reads all objects from etcd") && strings.Contains(log.String(), context.DeadlineExceeded.Error()) {
			t.Log("the copy took too long")
			s, _, log = start("")
			must(t, s.Close())
		}
	}
	s, client, first := start("")
	made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	must(t, err)
	before, err := client.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
	must(t, err)
	stop(s, first)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the copy: %v, %v", info, err)
	}
	other := &tidemark.Server{InProcess: true, Storage: &etcdstore.Cluster{Servers: c.servers(), CompactionInterval: -1, Path: sameFiles(t, dir)}}
	must(t, other.Start(t.Context()))
	theirs, err := kubernetes.NewForConfig(other.RESTConfig())
	must(t, err)
	_, err = theirs.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "meanwhile"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, other.Close())
	s, client, log := start("")
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "meanwhile", metav1.GetOptions{ResourceVersion: "0"}); err != nil {
		t.Errorf("a server that has started lacks what was there before: %v", err)
	}
	if !strings.Contains(log.String(), "read the objects from the copy") {
		t.Errorf("the copy was not used:\n%s", log)
	}
	got, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	if must(t, err); got.ResourceVersion != made.ResourceVersion || got.UID != made.UID {
		t.Errorf("got %v, want %v", got, made)
	}
	w, err := client.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: before.ResourceVersion, FieldSelector: "metadata.name=b"})
	must(t, err)
	defer w.Stop()
	select {
	case e := <-w.ResultChan():
		if m, ok := e.Object.(*corev1.ConfigMap); !ok || m.Name != "b" {
			t.Errorf("the watch begins with %v", e)
		}
	case <-time.After(time.Minute):
		t.Error("the watch has no events")
	}
	must(t, s.Close())

	config := filepath.Join(t.TempDir(), "encryption.yaml")
	must(t, os.WriteFile(config, []byte(encryptionConfig), 0o600))
	s, _, _ = start(config)
	must(t, s.Close())
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("a copy beside encryption: %v", err)
	}
}
