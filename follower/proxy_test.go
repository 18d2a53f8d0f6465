package follower_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
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
	"github.com/tidemark-dev/tidemark/follower"
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
	waitFor(t, "the history is empty", func() bool {
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
	p := primary(t, t.TempDir())
	_, err := maps(p)(t.Context(), "precious", "1")
	must(t, err)
	dir := t.TempDir()
	copyIn(t, dir, p)
	other := forgetful(t)
	forget(t, other, 200)
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

// TestLost503: a load balancer loses the answer to a write, and answers 503. The client is not told to try again.
func TestLost503(t *testing.T) {
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
		t.Error("a create whose answer was lost succeeds")
	}
	if n := strings.Count(state(t, p), "twice-"); n != 1 {
		t.Errorf("one create made %d objects", n)
	}
}

// TestNoStream: a follower that gets no changes starts with its copy, and its log has the reason.
func TestNoStream(t *testing.T) {
	p := primary(t, t.TempDir())
	dir := t.TempDir()
	copyIn(t, dir, p)
	_, err := maps(p)(t.Context(), "later", "1")
	must(t, err)
	c := proxy(t, p, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if strings.HasSuffix(r.URL.Path, "/changes") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"as many followers as it may have","reason":"TooManyRequests","code":429}`)
			return
		}
		next.ServeHTTP(w, r)
	})
	var log servertest.Buffer
	f := start(t, &tidemark.Server{Shared: &follower.Copy{Server: c, Data: &datadir.Dir{Path: dir}, Logger: slog.New(slog.NewTextHandler(&log, nil))}})
	if code, text := servertest.Get(t, f.RESTConfig(), "/api/v1/namespaces/default?resourceVersion=0"); code != http.StatusOK {
		t.Errorf("a read of the copy: %d %s", code, text)
	}
	if !strings.Contains(log.String(), "as many followers as it may have") {
		t.Errorf("the log has no reason:\n%s", log.String())
	}
}

// slow forwards connections to a server, and what comes back at a rate in bytes a second, once it is not zero.
func slow(t *testing.T, to string, rate *atomic.Int64) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	forward := func(a, b net.Conn) {
		defer a.Close()
		defer b.Close()
		buf := make([]byte, 16<<10)
		for {
			n, err := b.Read(buf)
			if r := rate.Load(); r > 0 {
				time.Sleep(time.Duration(n) * time.Second / time.Duration(r))
			}
			if _, failed := a.Write(buf[:n]); err != nil || failed != nil {
				return
			}
		}
	}
	go func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			go func() { _, _ = io.Copy(b, a); b.Close(); a.Close() }()
			go forward(a, b)
		}
	}()
	return l.Addr().String()
}

// TestSlowLink: a message that takes longer than the longest silence arrives.
func TestSlowLink(t *testing.T) {
	p := primary(t, t.TempDir())
	u, err := url.Parse(p.URL())
	must(t, err)
	var rate atomic.Int64
	c := rest.CopyConfig(p.RESTConfig())
	c.Host, c.ServerName = "https://"+slow(t, u.Host, &rate), u.Hostname()
	f := start(t, following(c, t.TempDir()))
	rate.Store(150 << 10)
	_, err = maps(p)(t.Context(), "large", strings.Repeat("x", 1_000_000))
	must(t, err)
	waitFor(t, "the object is there", func() bool {
		code, _ := servertest.Get(t, f.RESTConfig(), "/api/v1/namespaces/default/configmaps/large?resourceVersion=0")
		return code == http.StatusOK
	})
}
