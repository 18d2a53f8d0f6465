package tidemark_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

const defaultNamespace = "/api/v1/namespaces/default"

func TestZeroValue(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	if !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Errorf("the server is at %q", s.URL())
	}
	c := s.RESTConfig()
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		servertest.WantCode(t, c, "/api/v1/namespaces/"+name, http.StatusOK, "")
	}
	for _, path := range []string{"/healthz", "/livez?verbose", "/readyz", "/readyz/etcd", "/metrics", "/api", "/apis", "/openapi/v3"} {
		servertest.WantCode(t, c, path, http.StatusOK, "")
	}
	fromFile, err := clientcmd.RESTConfigFromKubeConfig(s.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	servertest.WantCode(t, fromFile, defaultNamespace, http.StatusOK, "")
	c.Host = "changed"
	if s.RESTConfig().Host == "changed" {
		t.Error("RESTConfig is not a copy")
	}
	if _, metrics := servertest.Get(t, s.RESTConfig(), "/metrics"); !strings.Contains(metrics, "\ntidemark_store_revision ") {
		t.Error("the metrics do not tell the revision of the store")
	}
}

// TestFeatureGates checks that unknown gates are refused and known ones take effect.
func TestFeatureGates(t *testing.T) {
	s := &tidemark.Server{FeatureGates: map[string]bool{"Nope": true}}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), `"Nope" in Kubernetes 1.37; gates with an effect: AllAlpha, AllBeta, AllowUnsafeMalformedObjectDeletion, CBORServingAndStorage`) {
		t.Errorf("an unknown gate: %v", err)
	}
	for _, on := range []bool{true, false} {
		s := servertest.Start(t, &tidemark.Server{FeatureGates: map[string]bool{"CBORServingAndStorage": on}})
		c := s.RESTConfig()
		r, err := http.NewRequest(http.MethodGet, c.Host+defaultNamespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/cbor")
		resp, err := servertest.Client(t, c).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); (got == "application/cbor") != on || (resp.StatusCode == 200) != on {
			t.Errorf("%t: %d %s", on, resp.StatusCode, got)
		}
	}
}

func TestVersion(t *testing.T) {
	for own, want := range map[string]string{
		"":                    tidemark.Version(),
		"1.2.3":               "v1.37.2+tidemark.1.2.3",
		"v1.2.3-rc.1+dirty_x": "v1.37.2+tidemark.1.2.3-rc.1.dirty.x",
	} {
		_, body := servertest.Get(t, servertest.Anonymous(servertest.Start(t, &tidemark.Server{Version: own})), "/version")
		var v version.Info
		if err := json.Unmarshal([]byte(body), &v); err != nil || v.GitVersion != want || v.Major != "1" || v.Minor != "37" {
			t.Errorf("/version of %q says %s, want %s", own, body, want)
		}
	}
}

func TestLifeCycle(t *testing.T) {
	var s tidemark.Server
	if s.URL() != "" || s.Err() != nil {
		t.Error("a server that has not started has an address, or an error")
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s.Start(t.Context()) == nil {
		t.Error("a server started twice")
	}
	servertest.Stop(t, &s)
	servertest.Stop(t, &s)
	if s.Start(t.Context()) == nil {
		t.Error("a server started after Close")
	}
	if c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "https://")); err == nil {
		c.Close()
		t.Error("the port is still open")
	}
	var never tidemark.Server
	servertest.Stop(t, &never)
	if never.Start(t.Context()) == nil {
		t.Error("a server that was closed has started")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := new(tidemark.Server).Start(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a start whose context has ended: %v", err)
	}
}

// TestStartFails checks the errors of a wrong configuration, and that a failed start
// leaves no listener and no lock behind.
func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("rubbish\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	for _, row := range []struct {
		s    *tidemark.Server
		want string
	}{
		{&tidemark.Server{Listen: tidemark.Listen{Port: port}}, fmt.Sprintf("port %d of 127.0.0.1 is taken", port)},
		{&tidemark.Server{Listen: tidemark.Listen{Port: 70000}}, "70000"},
		{&tidemark.Server{Listen: tidemark.Listen{Address: "example.org"}}, "example.org"},
		{&tidemark.Server{Listen: tidemark.Listen{Address: "192.0.2.1"}}, "192.0.2.1"},
		{&tidemark.Server{Authentication: tidemark.Authentication{TokenFile: file}}, file + ": line 1"},
		{&tidemark.Server{Authentication: tidemark.Authentication{TokenFile: file + "x"}}, file + "x"},
		{&tidemark.Server{Authentication: tidemark.Authentication{ClientCAFile: file}}, file},
		{&tidemark.Server{TLS: tidemark.TLS{CertFile: file, KeyFile: file}}, file},
		{&tidemark.Server{TLS: tidemark.TLS{CertFile: file}}, "both"},
		{&tidemark.Server{Storage: &datadir.Dir{Path: file}}, file},
	} {
		if row.s.Storage == nil {
			row.s.Storage = &datadir.Dir{Path: dir}
		}
		err := row.s.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "rubbish") {
			t.Errorf("%v; want %q, and not what the file holds", err, row.want)
		}
		servertest.Stop(t, row.s)
	}
	servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}}) // the lock is free
}

// TestRestart checks that clients can continue with a new server on the same
// directory.
func TestRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	first := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}})
	if err := first.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	_, before := servertest.Get(t, first.RESTConfig(), defaultNamespace)
	port := first.RESTConfig().Host
	second := &tidemark.Server{Storage: &datadir.Dir{Path: dir}}
	if err := second.Start(t.Context()); err == nil {
		t.Fatal("two servers use one directory")
	}
	servertest.Stop(t, first)

	third := &tidemark.Server{Storage: &datadir.Dir{Path: dir}}
	fmt.Sscanf(strings.TrimPrefix(port, "https://127.0.0.1:"), "%d", &third.Listen.Port)
	servertest.Start(t, third)
	c, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if _, after := servertest.Get(t, c, defaultNamespace); after != before {
		t.Errorf("the namespace was\n%s\nand is, after a restart,\n%s", before, after)
	}
}

// TestKubeconfigOfOthers checks that a file that tidemark did not write is not
// overwritten.
func TestKubeconfigOfOthers(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.WriteKubeconfig(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("writing over a file of others: %v", err)
	}
	if b, _ := os.ReadFile(path); string(b) != "apiVersion: v1\nkind: Config\n" {
		t.Errorf("the file now holds\n%s", b)
	}
}

// TestStopUnderWatches checks that Close ends watches without an error, as a timeout
// does, and does not wait for clients.
func TestStopUnderWatches(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	var watches []*bufio.Reader
	for range 3 {
		h := servertest.Client(t, s.RESTConfig())
		for range 20 {
			resp, err := h.Get(s.URL() + "/api/v1/namespaces?watch=1")
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", resp, err)
			}
			defer resp.Body.Close()
			watches = append(watches, bufio.NewReader(resp.Body))
		}
	}
	for _, w := range watches {
		for range 4 { // the namespaces that are there from the start
			if event, err := w.ReadString('\n'); err != nil || !strings.Contains(event, `"ADDED"`) {
				t.Fatalf("a watch began with %q, %v", event, err)
			}
		}
	}
	servertest.Stop(t, s)
	for _, w := range watches {
		if rest, err := io.ReadAll(w); err != nil || len(rest) > 0 {
			t.Fatalf("a watch ended with %v, after %q", err, rest)
		}
	}
}

// TestStopUnderStall checks that Close does not wait for a client that never ends its
// body.
func TestStopUnderStall(t *testing.T) {
	s := servertest.Start(t, &tidemark.Server{})
	body, write := io.Pipe()
	defer write.Close()
	h := servertest.Client(t, s.RESTConfig())
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := h.Post(s.URL()+"/api/v1/namespaces/default/configmaps", "application/json", body)
		if err == nil {
			resp.Body.Close()
		}
	}()
	if _, err := write.Write([]byte("{")); err != nil { // read: the request is on its way
		t.Fatal(err)
	}
	servertest.Stop(t, s)
	<-done
}

// TestInterfaces checks that a server on all interfaces returns the loopback address
// to clients on this machine.
func TestInterfaces(t *testing.T) {
	for bind, want := range map[string]string{"0.0.0.0": "https://127.0.0.1:", "::1": "https://[::1]:", "::": "https://[::1]:"} {
		if l, err := net.Listen("tcp", net.JoinHostPort(bind, "0")); err != nil {
			t.Logf("this machine has no %s: %v", bind, err)
			continue
		} else {
			l.Close()
		}
		s := servertest.Start(t, &tidemark.Server{Listen: tidemark.Listen{Address: bind}})
		if !strings.HasPrefix(s.URL(), want) {
			t.Errorf("bound to %s the server is at %s", bind, s.URL())
		}
		servertest.WantCode(t, s.RESTConfig(), defaultNamespace, http.StatusOK, "")
	}
}

// trusting returns a TLS configuration that trusts the server, without a client
// certificate.
func trusting(c *rest.Config) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CAData)
	return &tls.Config{RootCAs: pool}
}

// servedBy returns the certificate that a server presents for a name.
func servedBy(t *testing.T, s *tidemark.Server, name string) *x509.Certificate {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0]
}

// TestServingNames checks that the certificate has the address by which Pods reach
// the server: that of the Service, and the first of the current range.
func TestServingNames(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, row := range []struct {
		ranges string
		named  []string
		not    string
	}{
		{"", []string{"10.96.0.1", "kubernetes.default.svc"}, "10.0.0.1"},
		{"172.30.0.0/16", []string{"172.30.0.1", "10.96.0.1"}, "10.0.0.1"}, // the Service keeps its address
		{"fd00:1::/108,10.7.0.0/24", []string{"fd00:1::1", "10.7.0.1", "10.96.0.1"}, "172.30.0.1"},
	} {
		s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, Services: tidemark.Services{ClusterIPRange: row.ranges}})
		c, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), trusting(s.RESTConfig()))
		if err != nil {
			t.Fatal(err)
		}
		leaf := c.ConnectionState().PeerCertificates[0]
		c.Close()
		for _, name := range row.named {
			if err := leaf.VerifyHostname(name); err != nil {
				t.Errorf("with the ranges %q: %v", row.ranges, err)
			}
		}
		if leaf.VerifyHostname(row.not) == nil {
			t.Errorf("with the ranges %q the certificate names %s", row.ranges, row.not)
		}
		servertest.Stop(t, s)
	}
}
