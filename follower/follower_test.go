package follower_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/follower"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts a server, which the test closes.
func start(t *testing.T, s *tidemark.Server) *tidemark.Server {
	t.Helper()
	must(t, s.Start(t.Context()))
	t.Cleanup(func() { s.Close() })
	return s
}

func primary(t *testing.T, dir string) *tidemark.Server {
	t.Helper()
	s := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	settle(t, s)
	return s
}

// settle waits until the controllers have settled.
func settle(t *testing.T, s *tidemark.Server) {
	t.Helper()
	_, err := s.Root().Settle(t.Context())
	must(t, err)
}

func following(c *rest.Config, dir string) *tidemark.Server {
	return &tidemark.Server{Storage: &follower.Copy{Server: c, Data: &datadir.Dir{Path: dir}}}
}

func clients(s *tidemark.Server) *kubernetes.Clientset {
	return kubernetes.NewForConfigOrDie(s.RESTConfig())
}

func maps(s *tidemark.Server) func(ctx context.Context, name, value string) (*corev1.ConfigMap, error) {
	c := clients(s).CoreV1().ConfigMaps("default")
	return func(ctx context.Context, name, value string) (*corev1.ConfigMap, error) {
		return c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": value}}, metav1.CreateOptions{})
	}
}

// state returns the resource versions and the contents of all ConfigMaps.
func state(t *testing.T, s *tidemark.Server) string {
	t.Helper()
	all, err := clients(s).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	var b strings.Builder
	for _, c := range all.Items {
		fmt.Fprintln(&b, c.Namespace, c.Name, c.UID, c.ResourceVersion, c.Data["v"])
	}
	return b.String()
}

// TestFollow writes to a server and to its follower, and checks that each reads the acknowledged
// writes of the other one.
func TestFollow(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	onPrimary := maps(p)
	_, err := onPrimary(t.Context(), "before", "1")
	must(t, err)
	f := start(t, following(p.RESTConfig(), t.TempDir()))
	onFollower := maps(f)
	for i := range 20 {
		name := strconv.Itoa(i)
		write, read := onPrimary, f
		if i%2 == 0 {
			write, read = onFollower, p
		}
		made, err := write(t.Context(), name, "x")
		must(t, err)
		got, err := clients(read).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		must(t, err)
		if got.ResourceVersion != made.ResourceVersion || got.UID != made.UID {
			t.Errorf("%s: written %s, read %s", name, made.ResourceVersion, got.ResourceVersion)
		}
	}
	if _, err := onFollower(t.Context(), "before", "2"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("what exists: %v", err)
	}
	if a, b := state(t, p), state(t, f); a != b {
		t.Errorf("the server has\n%s\nand the follower\n%s", a, b)
	}
	if _, err := f.Root().Fork(t.Context(), tidemark.ForkOptions{Keep: true}); !errors.Is(err, tidemark.ErrForkNotKept) || !strings.Contains(err.Error(), "another server") {
		t.Errorf("a kept fork: %v", err)
	}
}

// TestRestart restarts a follower. It goes on with its copy, and a watch goes on from before.
func TestRestart(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	dir := filepath.Join(t.TempDir(), "copy")
	f := following(p.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	first, err := maps(f)(t.Context(), "first", "1")
	must(t, err)
	must(t, f.Close())
	_, err = maps(p)(t.Context(), "meanwhile", "2")
	must(t, err)
	ca, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt"))
	must(t, err)

	f = following(p.RESTConfig(), dir)
	var log bytes.Buffer
	f.Storage.(*follower.Copy).Logger = slog.New(slog.NewTextHandler(&log, nil))
	start(t, f)
	if strings.Contains(log.String(), "made a copy") {
		t.Errorf("the copy was made again: %s", &log)
	}
	if again, err := os.ReadFile(filepath.Join(dir, "pki", "ca.crt")); err != nil || !bytes.Equal(again, ca) {
		t.Errorf("the certificate authority has changed: %v", err)
	}
	if a, b := state(t, p), state(t, f); a != b {
		t.Errorf("the server has\n%s\nand the follower\n%s", a, b)
	}
	w, err := clients(f).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: first.ResourceVersion})
	must(t, err)
	defer w.Stop()
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "meanwhile" {
		t.Errorf("the watch begins with %+v", e)
	}
}

// TestOutage stops the server. Its follower responds to reads of any version, and nothing else, until the server is back.
func TestOutage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := freeport.Find(t)
	p := &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Listen: tidemark.Listen{Port: port}}
	must(t, p.Start(t.Context()))
	f := start(t, following(p.RESTConfig(), t.TempDir()))
	onFollower := clients(f).CoreV1().ConfigMaps("default")
	_, err := maps(f)(t.Context(), "a", "1")
	must(t, err)
	list, err := onFollower.List(t.Context(), metav1.ListOptions{})
	must(t, err)
	w, err := onFollower.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	must(t, err)
	defer w.Stop()
	must(t, p.Close())

	if got, err := onFollower.List(t.Context(), metav1.ListOptions{ResourceVersion: "0"}); err != nil || len(got.Items) != len(list.Items) {
		t.Errorf("a list of any version: %v", err)
	}
	const path = "/api/v1/namespaces/default/configmaps"
	if code, text := servertest.Get(t, f.RESTConfig(), path+"/a"); code < 500 || !strings.Contains(text, "connection refused") {
		t.Errorf("a read of the most recent version without the server: %d %s", code, text)
	}
	r, err := servertest.Client(t, f.RESTConfig()).Post(f.URL()+path, "application/json", strings.NewReader(`{"metadata":{"name":"lost"}}`))
	must(t, err)
	if r.Body.Close(); r.StatusCode < 500 {
		t.Errorf("a write without the server: %d", r.StatusCode)
	}
	if code, text := servertest.Get(t, f.RESTConfig(), "/readyz"); code == 200 {
		t.Errorf("the follower is ready: %s", text)
	}
	if code, text := servertest.Get(t, f.RESTConfig(), "/livez"); code != 200 {
		t.Errorf("a probe would restart the follower: %s", text)
	}
	await.True(t, "tidemark_follower_connected 0", func() bool {
		_, text := servertest.Get(t, f.RESTConfig(), "/metrics")
		return strings.Contains(text, "tidemark_follower_connected 0\n")
	})

	p = start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Listen: tidemark.Listen{Port: port}})
	_, err = maps(p)(t.Context(), "back", "1")
	must(t, err)
	for e := range w.ResultChan() {
		if e.Type != watch.Added {
			t.Fatalf("the watch has %+v", e)
		}
		if e.Object.(*corev1.ConfigMap).Name == "back" {
			break
		}
	}
	_, err = maps(f)(t.Context(), "again", "1")
	must(t, err)
	await.True(t, "tidemark_follower_connected 1, and no lag", func() bool {
		_, text := servertest.Get(t, f.RESTConfig(), "/metrics")
		return strings.Contains(text, "tidemark_follower_connected 1") && strings.Contains(text, "tidemark_follower_lag_seconds 0\n") && strings.Contains(text, "tidemark_follower_lag_revisions 0\n")
	})
}

// TestStartAlone starts a follower while its server is away. It responds to reads of any version from its copy, and goes
// on with it when the server is back.
func TestStartAlone(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	port := freeport.Find(t)
	p := &tidemark.Server{Storage: &datadir.Dir{Path: data}, Listen: tidemark.Listen{Port: port}}
	must(t, p.Start(t.Context()))
	config := p.RESTConfig()
	f := following(config, dir)
	must(t, f.Start(t.Context()))
	_, err := maps(f)(t.Context(), "a", "1")
	must(t, err)
	must(t, f.Close())
	must(t, p.Close())

	f = start(t, following(config, dir))
	got, err := clients(f).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{ResourceVersion: "0", FieldSelector: "metadata.name=a"})
	if err != nil || len(got.Items) != 1 {
		t.Errorf("a list of any version: %v", err)
	}
	if code, text := servertest.Get(t, f.RESTConfig(), "/readyz"); code == 200 {
		t.Errorf("the follower is ready: %s", text)
	}
	r, err := servertest.Client(t, f.RESTConfig()).Post(f.URL()+"/api/v1/namespaces/default/configmaps", "application/json", strings.NewReader(`{"metadata":{"name":"lost"}}`))
	must(t, err)
	if r.Body.Close(); r.StatusCode < 500 {
		t.Errorf("a write without the server: %d", r.StatusCode)
	}
	w, err := clients(f).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: got.ResourceVersion})
	must(t, err)
	defer w.Stop()

	p = start(t, &tidemark.Server{Storage: &datadir.Dir{Path: data}, Listen: tidemark.Listen{Port: port}})
	_, err = maps(p)(t.Context(), "back", "1")
	must(t, err)
	if e := <-w.ResultChan(); e.Type != watch.Added || e.Object.(*corev1.ConfigMap).Name != "back" {
		t.Errorf("the watch begins with %+v", e)
	}
	_, err = maps(f)(t.Context(), "again", "1")
	must(t, err)
	if a, b := state(t, p), state(t, f); a != b {
		t.Errorf("the server has\n%s\nand the follower\n%s", a, b)
	}
}

// TestDifferent: a follower whose settings differ from those of its server does not start. If it started while the server
// was away, it ends when the server is back.
func TestDifferent(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	port := freeport.Find(t)
	p := &tidemark.Server{Storage: &datadir.Dir{Path: data}, Listen: tidemark.Listen{Port: port}}
	must(t, p.Start(t.Context()))
	config := p.RESTConfig()
	different := func() *tidemark.Server {
		f := following(config, dir)
		f.Services.ClusterIPRange = "10.1.0.0/16"
		return f
	}
	const want = "has another range of cluster IPs: [10.96.0.0/12] there, and [10.1.0.0/16] here"
	f := different()
	if err := f.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a follower with another range: %v", err)
		f.Close()
	}
	must(t, p.Close())
	f = start(t, different())
	start(t, &tidemark.Server{Storage: &datadir.Dir{Path: data}, Listen: tidemark.Listen{Port: port}})
	await.Value(t, "the end of the follower", f.Done())
	if !strings.Contains(f.Err().Error(), want) {
		t.Errorf("the follower has ended: %v", f.Err())
	}
}

// TestPromote starts a server on the copy of a follower, in place of the one that it followed.
func TestPromote(t *testing.T) {
	t.Parallel()
	p := &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}}
	must(t, p.Start(t.Context()))
	settle(t, p)
	dir := t.TempDir()
	f := following(p.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	_, err := maps(p)(t.Context(), "a", "1")
	must(t, err)
	_, err = maps(f)(t.Context(), "b", "2")
	must(t, err)
	want := state(t, f)
	config := p.RESTConfig()
	must(t, p.Close())
	must(t, f.Close())
	n := primary(t, dir)
	if got := state(t, n); got != want {
		t.Errorf("the new server has\n%s\nwant\n%s", got, want)
	}
	c, err := maps(n)(t.Context(), "c", "3")
	must(t, err)
	if !strings.Contains(state(t, n), c.ResourceVersion+" 3") {
		t.Errorf("the new server lacks its own write: %s", state(t, n))
	}
	must(t, n.Close())
	if err := following(config, dir).Start(t.Context()); !errors.Is(err, datadir.ErrNoCopy) && (err == nil || !strings.Contains(err.Error(), "connection refused")) {
		t.Errorf("the directory of the new server is followed as a copy: %v", err)
	}
}

// TestPromoteVersions promotes a copy that lacks changes which the server acknowledged. No resource version of the server
// stands for another change afterwards: clients that saw the lost changes list again, and their writes are refused.
func TestPromoteVersions(t *testing.T) {
	t.Parallel()
	p := &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}}
	must(t, p.Start(t.Context()))
	kept, err := p.Root().Fork(t.Context(), tidemark.ForkOptions{Name: "kept", Keep: true})
	must(t, err)
	inFork := func(w *tidemark.World, value string) (*corev1.ConfigMap, error) {
		return kubernetes.NewForConfigOrDie(w.RESTConfig()).CoreV1().ConfigMaps("default").Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "in-fork-"}, Data: map[string]string{"v": value}}, metav1.CreateOptions{})
	}
	_, err = maps(p)(t.Context(), "x", "1")
	must(t, err)
	dir := t.TempDir()
	copyIn(t, dir, p)
	lostInFork, err := inFork(kept, "lost")
	must(t, err)
	object, err := clients(p).CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{})
	must(t, err)
	object.Data["v"] = "lost"
	lost, err := clients(p).CoreV1().ConfigMaps("default").Update(t.Context(), object, metav1.UpdateOptions{})
	must(t, err)
	must(t, p.Close())

	n := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Controllers: []string{"-*"}})
	onNew := clients(n).CoreV1().ConfigMaps("default")
	for i := range 5 {
		_, err := maps(n)(t.Context(), fmt.Sprint("other-", i), "2")
		must(t, err)
	}
	if w, err := onNew.Watch(t.Context(), metav1.ListOptions{ResourceVersion: lost.ResourceVersion}); err == nil {
		e := <-w.ResultChan()
		w.Stop()
		if status, ok := e.Object.(*metav1.Status); !ok || status.Code != 410 {
			t.Errorf("a watch from a lost version begins with %+v", e)
		}
	} else if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("a watch from a lost version: %v", err)
	}
	if _, err := onNew.Update(t.Context(), lost, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("an update with a lost version: %v", err)
	}
	now, err := onNew.Get(t.Context(), "x", metav1.GetOptions{})
	must(t, err)
	now.Data["v"] = "3"
	made, err := onNew.Update(t.Context(), now, metav1.UpdateOptions{})
	must(t, err)
	if len(made.ResourceVersion) <= len(lost.ResourceVersion) {
		t.Errorf("the lost version is %s, and a later one %s", lost.ResourceVersion, made.ResourceVersion)
	}
	again, err := n.Fork("kept")
	must(t, err)
	made, err = inFork(again, "made")
	must(t, err)
	if len(made.ResourceVersion) <= len(lostInFork.ResourceVersion) {
		t.Errorf("the lost version in a kept fork is %s, and a later one %s", lostInFork.ResourceVersion, made.ResourceVersion)
	}
}

// TestReplaced: a copy is made again from a server that was restored from a backup, and refused beside a server that
// it is no copy of.
func TestReplaced(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	dir := t.TempDir()
	f := following(p.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	_, err := maps(f)(t.Context(), "a", "1")
	must(t, err)
	must(t, f.Close())

	restored := t.TempDir()
	backup := new(bytes.Buffer)
	r, err := servertest.Client(t, p.RESTConfig()).Get(p.URL() + "/backup")
	must(t, err)
	_, err = backup.ReadFrom(r.Body)
	must(t, errors.Join(err, r.Body.Close()))
	_, err = (&datadir.Dir{Path: restored}).Restore(t.Context(), backup, datadir.RestoreOptions{})
	must(t, err)
	other := primary(t, restored)
	_, err = maps(other)(t.Context(), "b", "2")
	must(t, err)
	f = following(other.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	if a, b := state(t, other), state(t, f); a != b {
		t.Errorf("the server has\n%s\nand the follower\n%s", a, b)
	}
	must(t, f.Close())

	for what, s := range map[string]*tidemark.Server{"an older server": p, "another server": primary(t, t.TempDir())} {
		if err := following(s.RESTConfig(), dir).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it has changes that the server") {
			t.Errorf("%s is followed by a copy of another one: %v", what, err)
		}
	}
	if err := following(p.RESTConfig(), restored).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it is not empty") {
		t.Errorf("the directory of a server is followed as a copy: %v", err)
	}
}
