package tidemark_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// TestAdvertiseAddress: another address than the one that the server listens on is in the kubeconfig and in the
// certificate.
func TestAdvertiseAddress(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, &tidemark.Server{Listen: tidemark.Listen{Address: "0.0.0.0", AdvertiseAddress: "127.0.0.7"}, TLS: tidemark.TLS{Names: []string{"api.example.com", "192.0.2.7"}}})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := s.WriteKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(config.Host, "https://127.0.0.7:") {
		t.Errorf("the kubeconfig has %s", config.Host)
	}
	servertest.WantCode(t, config, "/api/v1/namespaces/default", http.StatusOK, "")
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	for _, name := range []string{"api.example.com", "192.0.2.7", "localhost", "kubernetes.default.svc"} {
		conn, err := tls.Dial("tcp", strings.TrimPrefix(config.Host, "https://"), &tls.Config{RootCAs: roots, ServerName: name})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		conn.Close()
	}
}

// TestAdvertisedEndpoints: the endpoints of the Service "kubernetes" have the advertised address.
func TestAdvertisedEndpoints(t *testing.T) {
	t.Parallel()
	s := servertest.Start(t, &tidemark.Server{Listen: tidemark.Listen{AdvertiseAddress: "192.0.2.7"}})
	const slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
	if code, text := servertest.Get(t, s.RESTConfig(), slice); code != http.StatusOK || !strings.Contains(text, `"addresses":["192.0.2.7"]`) {
		t.Errorf("%d %s", code, text)
	}
}

func TestWrongAddresses(t *testing.T) {
	for want, s := range map[string]*tidemark.Server{
		`the advertised address, "0.0.0.0", is not`:    {Listen: tidemark.Listen{AdvertiseAddress: "0.0.0.0"}},
		`the advertised address, "host", is not`:       {Listen: tidemark.Listen{AdvertiseAddress: "host"}},
		`the name for the certificate, "a_b", is neit`: {TLS: tidemark.TLS{Names: []string{"a_b"}}},
		`the name for the certificate, "*.a.b", is`:    {TLS: tidemark.TLS{Names: []string{"*.a.b"}}},
	} {
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestNewCertificateNames: a server that starts with another name has a certificate for it, of the same authority.
func TestNewCertificateNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	read := func(names ...string) string {
		t.Helper()
		s := servertest.Start(t, &tidemark.Server{Storage: &datadir.Dir{Path: dir}, TLS: tidemark.TLS{Names: names}})
		defer s.Close()
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(s.RESTConfig().CAData)
		conn, err := tls.Dial("tcp", strings.TrimPrefix(s.URL(), "https://"), &tls.Config{RootCAs: roots, ServerName: "localhost"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return strings.Join(conn.ConnectionState().PeerCertificates[0].DNSNames, " ")
	}
	if got := read(); strings.Contains(got, "api.example.com") {
		t.Errorf("without a name: %s", got)
	}
	if got := read("api.example.com"); !strings.Contains(got, "api.example.com") {
		t.Errorf("with a name: %s", got)
	}
}

// TestSeveralAddresses reaches a server at another address, for which its certificate is valid, and through a socket.
func TestSeveralAddresses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no 127.0.0.2")
	}
	t.Parallel()
	dir, err := os.MkdirTemp("", "tidemark-*") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "made", "api.sock")
	s := servertest.Start(t, &tidemark.Server{Listen: tidemark.Listen{MoreAddresses: []string{"127.0.0.2", "unix:" + socket}}})
	if !strings.HasPrefix(s.URL(), "https://127.0.0.1:") {
		t.Errorf("the URL is %s", s.URL())
	}
	other := s.RESTConfig()
	other.Host = strings.Replace(other.Host, "127.0.0.1", "127.0.0.2", 1)
	servertest.WantCode(t, other, defaultNamespace, http.StatusOK, "")
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	local := s.RESTConfig()
	local.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	servertest.WantCode(t, local, defaultNamespace, http.StatusOK, "")
	if _, body := servertest.Get(t, local, "/api"); !strings.Contains(body, `"serverAddress":"127.0.0.1:`) {
		t.Errorf("/api through the socket: %s", body)
	}
	anonymous := servertest.Anonymous(s)
	anonymous.Dial = local.Dial
	servertest.WantCode(t, anonymous, defaultNamespace, http.StatusForbidden, "")

	taken := tidemark.Server{Listen: tidemark.Listen{MoreAddresses: []string{"unix:" + socket}}}
	if err := taken.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "another process serves") {
		t.Errorf("a socket that is taken: %v", err)
	}
	servertest.Stop(t, s)
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left: %v", err)
	}
}
