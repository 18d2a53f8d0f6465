package tidemark_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/exposition"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/storage"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
)

// slowLog is a log in memory whose writes wait, and whose disk may be full.
type slowLog struct {
	store.Log
	wait  atomic.Pointer[chan struct{}] // nil: writes do not wait
	usage atomic.Pointer[store.Usage]   // nil: that of the log
}

func (l *slowLog) Open(context.Context, storage.Options) (*storage.Opened, error) {
	return &storage.Opened{Log: l}, nil
}

func (l *slowLog) Append(ctx context.Context, group []store.Entry, mark *store.Mark) error {
	if wait := l.wait.Load(); wait != nil {
		<-*wait
	}
	return l.Log.Append(ctx, group, mark)
}

func (l *slowLog) Usage() store.Usage {
	if u := l.usage.Load(); u != nil {
		return *u
	}
	return l.Log.Usage()
}

// TestNotReadyWhileLogStalls checks that a server is not ready while a write of the log does not return, and that it lives.
func TestNotReadyWhileLogStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &slowLog{Log: memlog.New()}
		s := servertest.Start(t, &tidemark.Server{InProcess: true, Storage: log})
		c := s.RESTConfig()
		wait := make(chan struct{})
		log.wait.Store(&wait)
		written := make(chan struct{})
		go func() {
			defer close(written)
			post(t, c, "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
		}()
		synctest.Wait()
		expect := func(path string, code int, lines ...string) {
			t.Helper()
			got, body := servertest.Get(t, c, path)
			if got != code {
				t.Errorf("%s: %d, want %d: %s", path, got, code, body)
			}
			for _, line := range lines {
				if !strings.Contains(body, line+"\n") {
					t.Errorf("%s has no line %q:\n%s", path, line, body)
				}
			}
		}
		expect("/readyz", 200)
		time.Sleep(11 * time.Second)
		expect("/readyz", 500, "[-]log-sync failed: reason withheld", "readyz check failed")
		expect("/readyz/log-sync", 500)
		expect("/readyz?exclude=log-sync", 200)
		expect("/livez", 200)
		expect("/metrics", 200, "tidemark_log_stalled_seconds 11")
		expect("/metrics/slis", 200, `kubernetes_healthcheck{name="log-sync",type="readyz"} 0`,
			`kubernetes_healthchecks_total{name="log-sync",status="success",type="readyz"} 1`, `kubernetes_healthchecks_total{name="log-sync",status="error",type="readyz"} 2`)
		log.wait.Store(nil)
		close(wait)
		<-written
		expect("/readyz", 200)
		expect("/metrics/slis", 200, `kubernetes_healthcheck{name="log-sync",type="readyz"} 1`)
	})
}

// TestNotReadyOnFullDisk checks that a server that refuses writes because of its disk is not ready, and that it lives.
func TestNotReadyOnFullDisk(t *testing.T) {
	log := &slowLog{Log: memlog.New()}
	s := servertest.Start(t, &tidemark.Server{InProcess: true, Storage: log})
	c := s.RESTConfig()
	for _, one := range []struct {
		usage store.Usage
		code  int
		line  string
	}{
		{store.Usage{}, 200, "[+]disk-space ok\n"},
		{store.Usage{FreeBytes: 200, NeededBytes: 100}, 200, "[+]disk-space ok\n"},
		{store.Usage{FreeBytes: 150, NeededBytes: 100}, 200, "[+]disk-space ok, nearly full: 150 bytes are free"},
		{store.Usage{FreeBytes: 99, NeededBytes: 100}, 500, "[-]disk-space failed: reason withheld\n"},
	} {
		log.usage.Store(&one.usage)
		if code, body := servertest.Get(t, c, "/readyz?verbose"); code != one.code || !strings.Contains(body, one.line) {
			t.Errorf("%+v: %d\n%s", one.usage, code, body)
		}
		if code, body := servertest.Get(t, c, "/livez"); code != 200 {
			t.Errorf("%+v: livez: %d\n%s", one.usage, code, body)
		}
	}
}

// TestNotReadyBeforeCertificateEnds checks the last days and the last hour of a serving certificate.
func TestNotReadyBeforeCertificateEnds(t *testing.T) {
	cert, key := selfSigned(t, 100*24*time.Hour)
	clock := new(tidemark.Clock)
	s := servertest.Start(t, &tidemark.Server{TLS: tidemark.TLS{CertFile: cert, KeyFile: key}, Clock: clock})
	expect := func(code int, line string) {
		t.Helper()
		got, body := servertest.Get(t, s.RESTConfig(), "/readyz?verbose")
		if got != code || !strings.Contains(body, line) {
			t.Errorf("%d, want %d and %q:\n%s", got, code, line, body)
		}
	}
	expect(200, "[+]serving-certificate ok\n")
	clock.Advance(90 * 24 * time.Hour)
	expect(200, "[+]serving-certificate ok, a certificate ends in 2")
	clock.Advance(10*24*time.Hour - 30*time.Minute)
	expect(500, "[-]serving-certificate failed: reason withheld\n")
}

// TestShutdownDelay checks that a server that will stop is not ready, and serves until the delay is over.
func TestShutdownDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := servertest.Start(t, &tidemark.Server{InProcess: true, Shutdown: tidemark.Shutdown{Delay: time.Minute}})
		c := s.RESTConfig()
		closed := make(chan error, 1)
		go func() { closed <- s.Close() }()
		synctest.Wait()
		if code, body := servertest.Get(t, c, "/readyz"); code != 500 || !strings.Contains(body, "[-]shutdown failed") {
			t.Errorf("readyz: %d\n%s", code, body)
		}
		if code, _ := servertest.Get(t, c, "/livez"); code != 200 {
			t.Errorf("livez: %d", code)
		}
		time.Sleep(59 * time.Second)
		post(t, c, "/api/v1/namespaces", `{"metadata":{"name":"late"}}`)
		if s.URL() == "" || len(closed) > 0 {
			t.Error("the server has stopped before the delay was over")
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
	})
}

// selfSigned returns the files of a new certificate for this machine that is valid for a while.
func selfSigned(t *testing.T, valid time.Duration) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(valid),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// stuck is a client that does not read the metrics that contain a text.
type stuck struct {
	text          string
	once          sync.Once
	begun, resume chan struct{}
}

func (s *stuck) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(s.text)) {
		s.once.Do(func() { close(s.begun) })
		<-s.resume
	}
	return len(p), nil
}

// TestStuckScrape: a client that does not read its metrics holds up no other one.
func TestStuckScrape(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}})
	for i := range 300 {
		group := fmt.Sprintf("%s.%s.%s.g%d.example.com", strings.Repeat("a", 60), strings.Repeat("b", 60), strings.Repeat("c", 60), i)
		direct(t, s.Root(), "POST", "/apis/apiregistration.k8s.io/v1/apiservices",
			fmt.Sprintf(`{"metadata":{"name":"v1.%[1]s"},"spec":{"group":%[1]q,"version":"v1","groupPriorityMinimum":100,"versionPriority":100}}`, group))
	}
	all := s.Exposed()
	first := &stuck{text: "aggregator_unavailable_apiservice{", begun: make(chan struct{}), resume: make(chan struct{})}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { all.Expose(exposition.NewWriter(first)) })
	<-first.begun
	defer close(first.resume)
	second := make(chan struct{})
	wg.Go(func() {
		all.Expose(exposition.NewWriter(io.Discard))
		close(second)
	})
	await.Value(t, "a second scrape, which must not wait for the first one", second)
}

// TestForkHealth: the health checks of forks do not count in the metrics of the server, for which an alert watches.
func TestForkHealth(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{Controllers: []string{"-*"}})
	mustFork(t, s.Root(), tidemark.ForkOptions{Name: "a"})
	must(t, below(s, "a"), http.StatusOK, "GET", "/readyz", "")
	must(t, s.RESTConfig(), http.StatusOK, "GET", "/livez", "")
	if got := must(t, s.RESTConfig(), http.StatusOK, "GET", "/metrics/slis", ""); strings.Contains(got, `type="readyz"`) || !strings.Contains(got, `type="livez"`) {
		t.Errorf("after a check of a fork, the metrics are\n%s", got)
	}
}
