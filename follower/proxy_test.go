package follower_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// forgetful starts a server without controllers, which forgets its history at once.
func forgetful(t *testing.T) *tidemark.Server {
	t.Helper()
	return start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}, History: tidemark.History{Retention: time.Millisecond}})
}

// forget makes changes, and waits until a forgetful server has forgotten them.
func forget(t *testing.T, p *tidemark.Server, changes int) {
	t.Helper()
	var last *corev1.ConfigMap
	for i := range changes {
		var err error
		last, err = maps(p)(t.Context(), fmt.Sprint("change-", i), "2")
		must(t, err)
	}
	at, err := strconv.Atoi(last.ResourceVersion)
	must(t, err)
	await.True(t, "the history is empty", func() bool {
		code, _ := servertest.Get(t, p.RESTConfig(), fmt.Sprintf("/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=%d", at-1))
		return code == http.StatusGone
	})
}

// copyIn makes a copy of a server in a directory.
func copyIn(t *testing.T, dir string, p *tidemark.Server) {
	t.Helper()
	f := following(p.RESTConfig(), dir)
	must(t, f.Start(t.Context()))
	must(t, f.Close())
}

// proxy returns the configuration of a reverse proxy in front of a server.
func proxy(t *testing.T, p *tidemark.Server, wrap func(w http.ResponseWriter, r *http.Request, next http.Handler)) *rest.Config {
	t.Helper()
	transport, err := rest.TransportFor(p.RESTConfig())
	must(t, err)
	u, err := url.Parse(p.URL())
	must(t, err)
	next := httputil.NewSingleHostReverseProxy(u)
	next.Transport, next.FlushInterval = transport, -1
	next.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { wrap(w, r, next) }))
	t.Cleanup(s.CloseClientConnections)
	return &rest.Config{Host: s.URL}
}

// TestOtherClusterExpired: a copy is not replaced by one of another cluster, whose history begins behind it.
func TestOtherClusterExpired(t *testing.T) {
	t.Parallel()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	_, err := maps(p)(t.Context(), "precious", "1")
	must(t, err)
	dir := t.TempDir()
	copyIn(t, dir, p)
	other := forgetful(t)
	forget(t, other, 20)
	f := following(other.RESTConfig(), dir)
	defer f.Close()
	if err := f.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "is the copy of another server") {
		t.Errorf("the copy of another cluster was replaced: %v", err)
	}
	if text := state(t, primary(t, dir)); !strings.Contains(text, "precious") {
		t.Errorf("the copy has\n%s", text)
	}
}

// TestCopyStays: a copy stays until the one that replaces it is whole.
func TestCopyStays(t *testing.T) {
	t.Parallel()
	p := forgetful(t)
	_, err := maps(p)(t.Context(), "precious", "1")
	must(t, err)
	dir := t.TempDir()
	copyIn(t, dir, p)
	forget(t, p, 20)
	dying := proxy(t, p, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path != "/backup" {
			next.ServeHTTP(w, r)
			return
		}
		whole := httptest.NewRecorder()
		next.ServeHTTP(whole, r)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		panic(http.ErrAbortHandler)
	})
	if err := following(dying, dir).Start(t.Context()); err == nil {
		t.Fatal("a follower starts on half a backup")
	}
	saved := t.TempDir()
	must(t, os.CopyFS(saved, os.DirFS(dir)))
	must(t, os.Chmod(saved, 0o700))
	if text := state(t, primary(t, saved)); !strings.Contains(text, "precious") || strings.Contains(text, "change-") {
		t.Errorf("the old copy has\n%s", text)
	}
	f := start(t, following(p.RESTConfig(), dir))
	if a, b := state(t, p), state(t, f); a != b {
		t.Errorf("the server has\n%s\nand the new copy\n%s", a, b)
	}
	if _, err := os.Stat(filepath.Join(dir, "copy.new")); !os.IsNotExist(err) {
		t.Errorf("the directory of the new copy stays: %v", err)
	}
}

// TestLost503 simulates a load balancer that loses the response to a write and sends 503. The
// client must not get Retry-After.
func TestLost503(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	var lose atomic.Bool
	f := start(t, following(proxy(t, p, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/transactions") && lose.CompareAndSwap(true, false) {
			next.ServeHTTP(httptest.NewRecorder(), r)
			http.Error(w, "upstream connect error or disconnect/reset before headers", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	}), t.TempDir()))
	lose.Store(true)
	_, err := clients(f).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "twice-"}}, metav1.CreateOptions{})
	if err == nil {
		t.Error("a create whose response was lost succeeds")
	}
	if n := strings.Count(state(t, p), "twice-"); n != 1 {
		t.Errorf("one create made %d objects", n)
	}
}
