package kubelet_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/kubelet"
	"github.com/tidemark-dev/tidemark/internal/upgrade"
)

// issue writes a certificate and its key, and returns the paths. It is signed by itself, or by the parent.
func issue(t *testing.T, dir, name string, ips ...net.IP) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: ips, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// start starts a kubelet that responds with the name of its client, and returns its URL.
func start(t *testing.T, certFile, keyFile string) *url.URL {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/", http.StatusFound)
			return
		}
		if len(r.TLS.PeerCertificates) > 0 {
			_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName)
		}
	}))
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	s.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	u, _ := url.Parse(s.URL)
	return u
}

func get(r *kubelet.Route, u *url.URL) (string, error) {
	resp, err := r.Transport.RoundTrip(&http.Request{Method: "GET", URL: u, Header: http.Header{}})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return resp.Status, nil
	}
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// TestTLS checks who presents which certificate to whom, and which one is verified.
func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kubeletCert, kubeletKey := issue(t, dir, "kubelet", net.IPv4(127, 0, 0, 1))
	otherCert, otherKey := issue(t, dir, "elsewhere", net.IPv4(127, 0, 0, 2))
	clientCert, clientKey := issue(t, dir, "apiserver")
	good, strange := start(t, kubeletCert, kubeletKey), start(t, otherCert, otherKey)
	k, err := kubelet.New(kubelet.Config{ClientCertificate: clientCert, ClientKey: clientKey, CertificateAuthority: kubeletCert})
	if err != nil {
		t.Fatal(err)
	}
	defer k.CloseIdleConnections()
	if got, err := get(k.Kubelet, good); got != "apiserver" || err != nil {
		t.Errorf("the kubelet saw %q, %v", got, err)
	}
	var unverified *tls.CertificateVerificationError
	if got, err := get(k.Kubelet, strange); !errors.As(err, &unverified) {
		t.Errorf("a kubelet of another authority: %q, %v", got, err)
	}
	if _, err := k.Kubelet.Dial(t.Context(), strange); !errors.As(err, &unverified) {
		t.Errorf("an upgrade to a kubelet of another authority: %v", err)
	}
	if got, err := get(k.Unverified, strange); got != "apiserver" || err != nil {
		t.Errorf("a kubelet that is not verified saw %q, %v", got, err)
	}
	if c, err := k.Kubelet.Dial(t.Context(), good); err != nil {
		t.Error(err)
	} else {
		if p := c.(*tls.Conn).ConnectionState().NegotiatedProtocol; p == "h2" {
			t.Error("an upgrade cannot use HTTP/2")
		}
		c.Close()
	}
	redirect := *good
	redirect.Path = "/redirect"
	if got, err := get(k.Kubelet, &redirect); got != "302 Found" || err != nil {
		t.Errorf("a redirect: %q, %v", got, err)
	}
	// Without an authority, nothing is verified.
	if k, err = kubelet.New(kubelet.Config{}); err != nil {
		t.Fatal(err)
	}
	if got, err := get(k.Kubelet, strange); got != "" || err != nil {
		t.Errorf("without files: %q, %v", got, err)
	}
	k.CloseIdleConnections()
	for _, c := range []kubelet.Config{{ClientKey: clientKey}, {ClientCertificate: clientCert}, {CertificateAuthority: clientKey}, {CertificateAuthority: "none"}, {ClientCertificate: clientCert, ClientKey: otherKey}} {
		if _, err := kubelet.New(c); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
}

// TestAddresses checks that users reach neither the machine of the server nor its link, by whatever name (CVE-2020-8562), and
// that nothing reaches the server itself.
func TestAddresses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := start(t, first(issue(t, dir, "kubelet")), filepath.Join(dir, "kubelet.key"))
	k, err := kubelet.New(kubelet.Config{Own: kubelet.Listens(&net.TCPAddr{IP: net.IPv6unspecified, Port: 1})})
	if err != nil {
		t.Fatal(err)
	}
	defer k.CloseIdleConnections()
	if _, err := get(k.Kubelet, u); err != nil {
		t.Errorf("logs of a kubelet on this machine: %v", err)
	}
	named := *u
	named.Host = net.JoinHostPort("localhost", u.Port())
	for _, u := range []*url.URL{u, &named} {
		for _, r := range []*kubelet.Route{k.Proxied, k.Backend} {
			if _, err := get(r, u); !errors.Is(err, kubelet.ErrNotAllowed) {
				t.Errorf("a proxy to %s: %v", u, err)
			}
			if _, err := r.Dial(t.Context(), u); !errors.Is(err, kubelet.ErrNotAllowed) {
				t.Errorf("an upgrade to %s: %v", u, err)
			}
		}
	}
	self := &url.URL{Scheme: "https", Host: "127.0.0.1:1"}
	if _, err := get(k.Kubelet, self); !errors.Is(err, kubelet.ErrNotAllowed) {
		t.Errorf("a request to the server itself: %v", err)
	}
	for address, want := range map[string]bool{
		"10.0.0.1": true, "192.168.1.1": true, "8.8.8.8": true, "fd00::1": true, "2001:db8::1": true, "64:ff9b::a00:1": true,
		"127.0.0.1": false, "::1": false, "169.254.169.254": false, "fe80::1": false, "0.0.0.0": false, "::": false, "224.0.0.1": false, "255.255.255.255": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.1.1": false, "64:ff9b::7f00:1": false, "64:ff9b::a9fe:a9fe": false, "64:ff9b:1::a9fe:a9fe": false, "64:ff9b:1:a9fe:a9:fe00::": false, "64:ff9b:1:a9:fe:a9fe::": false, "64:ff9b:1:7f:0:1::": false, "64:ff9b:1::a00:1": true, "2002:7f00:1::": false,
		"fd00:ec2::254": false, "100.100.100.200": false, "::127.0.0.1": false, "ff02::1": false,
	} {
		if got := kubelet.Allowed(netip.MustParseAddr(address)); got != want {
			t.Errorf("Allowed(%s) = %v", address, got)
		}
	}
	own := kubelet.Listens(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, &net.UnixAddr{})
	for at, want := range map[string]bool{"10.0.0.1:6443": true, "10.0.0.1:6444": false, "10.0.0.2:6443": false, "0.0.0.0:6443": true, "[::]:6443": true, "0.0.0.0:6444": false} {
		if got := own(netip.MustParseAddrPort(at)); got != want {
			t.Errorf("Own(%s) = %v", at, got)
		}
	}
}

func first(a, _ string) string { return a }

// TestTimeout checks that a kubelet that accepts a connection and sends nothing does not hold it.
func TestTimeout(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k, err := kubelet.New(kubelet.Config{Timeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Kubelet.Dial(context.Background(), &url.URL{Scheme: "https", Host: l.Addr().String()}); err == nil {
		t.Error("a silent kubelet is connected")
	}
}

// TestMaxConnections checks that connections that are not in use make room for others, and that others do not.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	u := start(t, first(issue(t, dir, "kubelet")), filepath.Join(dir, "kubelet.key"))
	k, err := kubelet.New(kubelet.Config{MaxConnections: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer k.CloseIdleConnections()
	for _, r := range []*kubelet.Route{k.Kubelet, k.Unverified} { // each keeps its connection
		if _, err := get(r, u); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := k.Kubelet.Dial(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := get(k.Unverified, u); !errors.Is(err, upgrade.ErrFull) {
		t.Errorf("a second connection: %v", err)
	}
	conn.Close()
	if _, err := get(k.Unverified, u); err != nil {
		t.Error(err)
	}
}

// TestLocate checks the choice of an address.
func TestLocate(t *testing.T) {
	t.Parallel()
	k, _ := kubelet.New(kubelet.Config{AddressTypes: []string{"InternalIP", "Hostname"}})
	n := &corev1.Node{Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: "Hostname", Address: "n"}, {Type: "InternalIP", Address: "fd00::1"}, {Type: "InternalIP", Address: "10.0.0.1"}}}}
	a, err := k.Locate(n)
	if err != nil || a.URL("/x", url.Values{"b": {"1"}, "a": {"2"}}).String() != "https://[fd00::1]:10250/x?a=2&b=1" || a.WebSockets {
		t.Errorf("got %v, %v", a, err)
	}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port, n.Status.DeclaredFeatures = 10251, []string{"ExtendWebSocketsToKubelet"}
	k, _ = kubelet.New(kubelet.Config{})
	if a, err = k.Locate(n); err != nil || a != (kubelet.Address{Host: "n", Port: "10251", WebSockets: true}) {
		t.Errorf("got %v, %v", a, err)
	}
	if _, err = k.Locate(&corev1.Node{}); err == nil || !strings.Contains(err.Error(), "no preferred addresses found; known addresses: []") {
		t.Errorf("got %v", err)
	}
}
