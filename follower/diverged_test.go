package follower_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/store"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestDiverged restores an earlier state of the server under a running follower, with the history and the resource
// versions of that state, and lets it get ahead of the follower. The follower ends: its copy has a change that the
// server does not have.
func TestDiverged(t *testing.T) {
	t.Parallel()
	port := freeport.Find(t)
	p := &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}, Listen: tidemark.Listen{Port: port}}
	must(t, p.Start(t.Context()))
	t.Cleanup(func() { p.Close() })
	backup := new(bytes.Buffer)
	r, err := servertest.Client(t, p.RESTConfig()).Get(p.URL() + "/backup")
	must(t, err)
	_, err = backup.ReadFrom(r.Body)
	must(t, errors.Join(err, r.Body.Close()))

	f := start(t, following(p.RESTConfig(), t.TempDir()))
	_, err = maps(p)(t.Context(), "lost", "1")
	must(t, err)
	if got := state(t, f); !strings.Contains(got, " lost ") {
		t.Fatalf("the follower has %s", got)
	}
	must(t, p.Close())

	restored := t.TempDir()
	_, err = (&datadir.Dir{Path: restored}).Restore(t.Context(), backup, datadir.RestoreOptions{KeepHistory: true})
	must(t, err)
	ahead := &tidemark.Server{Storage: &datadir.Dir{Path: restored}, Controllers: []string{"-*"}}
	must(t, ahead.Start(t.Context()))
	for i := range 10 {
		_, err := maps(ahead)(t.Context(), fmt.Sprint("other-", i), "2")
		must(t, err)
	}
	must(t, ahead.Close())
	start(t, &tidemark.Server{Storage: &datadir.Dir{Path: restored}, Controllers: []string{"-*"}, Listen: tidemark.Listen{Port: port}})
	await.Value(t, "the end of the follower", f.Done())
	if err := f.Err(); !errors.Is(err, store.ErrReset) {
		t.Errorf("the follower ended with %v, want %v", err, store.ErrReset)
	}
}

// TestRestoredSince: a server was restored from a backup and written to, and the follower, which has no stream from it yet,
// knows another version of an object with the same revision. Neither a write nor a read of the most recent state
// mistakes one for the other.
func TestRestoredSince(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	object, err := maps(p)(t.Context(), "x", "first")
	must(t, err)
	backup := new(bytes.Buffer)
	r, err := servertest.Client(t, p.RESTConfig()).Get(p.URL() + "/backup")
	must(t, err)
	_, err = backup.ReadFrom(r.Body)
	must(t, errors.Join(err, r.Body.Close()))
	restored := t.TempDir()
	_, err = (&datadir.Dir{Path: restored}).Restore(t.Context(), backup, datadir.RestoreOptions{KeepHistory: true})
	must(t, err)
	next := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: restored}, Controllers: []string{"-*"}})

	var switched atomic.Bool
	var streams sync.WaitGroup
	cut := make(chan struct{})
	to := proxy(t, next, func(w http.ResponseWriter, r *http.Request, next http.Handler) { next.ServeHTTP(w, r) })
	there := httputil.NewSingleHostReverseProxy(must1(url.Parse(to.Host)))
	c := proxy(t, p, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		stream := strings.HasSuffix(r.URL.Path, "/changes")
		switch {
		case stream && switched.Load():
			http.Error(w, "later", http.StatusServiceUnavailable)
		case switched.Load():
			there.ServeHTTP(w, r)
		case stream:
			streams.Add(1)
			defer streams.Done()
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			go func() { <-cut; cancel() }()
			next.ServeHTTP(w, r.WithContext(ctx))
		default:
			next.ServeHTTP(w, r)
		}
	})
	f := start(t, following(c, t.TempDir()))
	update := func(s *tidemark.Server, value string) (*corev1.ConfigMap, error) {
		o := object.DeepCopy()
		o.Data = map[string]string{"v": value}
		return clients(s).CoreV1().ConfigMaps("default").Update(t.Context(), o, metav1.UpdateOptions{})
	}
	a, err := update(p, "of the first server")
	must(t, err)
	b, err := update(next, "of the restored one")
	must(t, err)
	if a.ResourceVersion != b.ResourceVersion {
		t.Fatalf("the versions are %s and %s", a.ResourceVersion, b.ResourceVersion)
	}
	if got := state(t, f); !strings.Contains(got, " x ") {
		t.Fatalf("the follower has %s", got)
	}
	switched.Store(true)
	close(cut)
	streams.Wait()
	object = a
	client := servertest.Client(t, f.RESTConfig())
	var requests sync.WaitGroup // each waits for the stream for a while
	for method, body := range map[string]string{
		http.MethodGet: "",
		http.MethodPut: fmt.Sprintf(`{"metadata":{"name":"x","resourceVersion":%q},"data":{"v":"of the follower"}}`, a.ResourceVersion),
	} {
		q, err := http.NewRequestWithContext(t.Context(), method, f.URL()+"/api/v1/namespaces/default/configmaps/x", strings.NewReader(body))
		must(t, err)
		q.Header.Set("Content-Type", "application/json")
		requests.Go(func() {
			r, err := client.Do(q)
			if err != nil {
				t.Error(err)
				return
			}
			if r.Body.Close(); r.StatusCode < 500 {
				t.Errorf("%s through the follower: %d", method, r.StatusCode)
			}
		})
	}
	requests.Wait()
	got, err := clients(next).CoreV1().ConfigMaps("default").Get(t.Context(), "x", metav1.GetOptions{})
	if must(t, err); got.Data["v"] != "of the restored one" {
		t.Errorf("the restored server has %v", got.Data)
	}
}

func must1[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestOtherCluster: the copy of a server that has no history left is not continued from another server which is
// ahead of it.
func TestOtherCluster(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}, History: tidemark.History{Retention: time.Millisecond}})
	last, err := maps(p)(t.Context(), "last", "1")
	must(t, err)
	at, err := strconv.Atoi(last.ResourceVersion)
	must(t, err)
	await.True(t, "the history is empty", func() bool {
		code, _ := servertest.Get(t, p.RESTConfig(), fmt.Sprintf("/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=%d", at-1))
		return code == http.StatusGone
	})
	dir := t.TempDir()
	f := following(p.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	must(t, f.Close())

	other := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	for i := range 20 {
		_, err := maps(other)(t.Context(), fmt.Sprint("other-", i), "2")
		must(t, err)
	}
	f = following(other.RESTConfig(), dir)
	defer f.Close()
	if err := f.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "it has changes that the server") {
		t.Errorf("the copy of another server goes on: %v", err)
	}
}
