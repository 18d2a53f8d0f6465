package serving_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tidemark-dev/tidemark/internal/serving"
)

// writePair writes a self-signed certificate with a common name and DNS names, and returns it
// as a pair that has the given names.
func writePair(t testing.TB, dir, cn string, dns, names []string) serving.Pair {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: cn}, DNSNames: dns,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	p := serving.Pair{CertFile: filepath.Join(dir, cn+".crt"), KeyFile: filepath.Join(dir, cn+".key"), Names: names}
	for path, block := range map[string]*pem.Block{p.CertFile: {Type: "CERTIFICATE", Bytes: der}, p.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// presented returns the common name of the certificate that a client gets for a name.
func presented(t testing.TB, get func(*tls.ClientHelloInfo) (*tls.Certificate, error), name string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		tls.Server(c, &tls.Config{GetCertificate: get}).Handshake()
	}()
	c, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{ServerName: name, InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestNames: the rows are the certificates that kube-apiserver v1.36 presents.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	standard, err := writePair(t, dir, "standard", []string{"standard.test"}, nil).Reloaded(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c, err := serving.NewCertificates(serving.CertificatesConfig{
		Default: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return standard.Get(), nil },
		Pairs: []serving.Pair{
			writePair(t, dir, "first", []string{"within.test"}, []string{"a.example.com", "*.example.com"}),
			writePair(t, dir, "unlisted.test", []string{"b.example.com", "own.test", "a.example.com", "*.wild.test"}, nil),
			writePair(t, dir, "listed", []string{"x.test"}, []string{"b.example.com", "127.0.0.1", "one.wild.test"}),
			writePair(t, dir, "any", []string{"x.test"}, []string{"*"}),
			writePair(t, dir, "late", []string{"x.test"}, []string{"a.example.com", "late.test"}),
			writePair(t, dir, "10.0.0.1", []string{"y.test"}, nil),
		},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a.example.com":   "first",         // before the name in a certificate, and before a later pair
		"x.example.com":   "first",         // by its pattern
		"X.Example.com":   "first",         // without regard to case
		"b.example.com":   "listed",        // a listed name, not the one in a certificate, nor the pattern
		"own.test":        "unlisted.test", // by its certificate
		"unlisted.test":   "unlisted.test", // by its common name
		"two.wild.test":   "unlisted.test", // by the pattern in its certificate
		"one.wild.test":   "listed",
		"late.test":       "late",
		"localhost":       "any",      // one label
		"y.x.example.com": "standard", // a pattern stands for one label
		"example.com":     "standard",
		"within.test":     "first", // nothing lists it, and this certificate is valid for it
		"standard.test":   "standard",
		"y.test":          "10.0.0.1",
		"":                "listed", // by the address
	} {
		if got := presented(t, c.Get, name); got != want {
			t.Errorf("%q gets the certificate %q, want %q", name, got, want)
		}
	}
}

// TestPairsReload: a pair follows its files; one that cannot be read stays as it was, without
// an effect on the others.
func TestPairsReload(t *testing.T) {
	dir := t.TempDir()
	var ahead atomic.Int64
	one, two := writePair(t, dir, "one", []string{"one.test"}, nil), writePair(t, dir, "two", []string{"two.test"}, nil)
	standard, err := writePair(t, dir, "standard", nil, nil).Reloaded(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c, err := serving.NewCertificates(serving.CertificatesConfig{
		Default: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return standard.Get(), nil },
		Pairs:   []serving.Pair{one, two},
		Now:     func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := func(name, cn string) {
		t.Helper()
		if got := presented(t, c.Get, name); got != cn {
			t.Errorf("%s gets %q, want %q", name, got, cn)
		}
	}
	want("one.test", "one")
	want("two.test", "two")
	moved := writePair(t, dir, "moved", []string{"moved.test"}, nil)
	for from, to := range map[string]string{moved.CertFile: two.CertFile, moved.KeyFile: two.KeyFile} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(one.CertFile, []byte("rubbish"), 0o600); err != nil {
		t.Fatal(err)
	}
	ahead.Add(int64(2 * time.Second))
	want("one.test", "one")
	want("moved.test", "moved")
	want("two.test", "standard") // the name has gone with its certificate
}

// TestPairErrors: an error names the files, and shows nothing of their content.
func TestPairErrors(t *testing.T) {
	dir := t.TempDir()
	good := writePair(t, dir, "good", nil, nil)
	broken := filepath.Join(dir, "broken")
	if err := os.WriteFile(broken, []byte("-----BEGIN PRIVATE KEY-----\nhush\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, p := range []serving.Pair{{CertFile: good.CertFile, KeyFile: broken}, {CertFile: filepath.Join(dir, "absent"), KeyFile: good.KeyFile}, {CertFile: good.KeyFile, KeyFile: good.CertFile}} {
		_, err := serving.NewCertificates(serving.CertificatesConfig{Pairs: []serving.Pair{good, p}, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), p.CertFile) || !strings.Contains(err.Error(), p.KeyFile) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// TestVersions: the configured version and cipher suites are in effect, and HTTP/2 is not
// served with less than it requires.
func TestVersions(t *testing.T) {
	const cbc = tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA
	for _, row := range []struct {
		name   string
		min    uint16
		suites []uint16 // of the server
		client *tls.Config
		want   string // the protocol of the response, or of the connection's end
	}{
		{"the default refuses TLS 1.1", 0, nil, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, "handshake"},
		{"the default", 0, nil, &tls.Config{MaxVersion: tls.VersionTLS12}, "HTTP/2.0"},
		{"TLS 1.3 alone", tls.VersionTLS13, nil, &tls.Config{MaxVersion: tls.VersionTLS12}, "handshake"},
		{"TLS 1.3", tls.VersionTLS13, []uint16{cbc}, &tls.Config{}, "HTTP/2.0"},
		{"another suite", 0, []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384}}, "handshake"},
		{"a weak suite", 0, []uint16{cbc}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{cbc}}, "INADEQUATE_SECURITY"},
		{"a weak suite, HTTP/1.1", 0, []uint16{cbc}, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{cbc}, NextProtos: []string{"http/1.1"}}, "HTTP/1.1"},
		{"an old version", tls.VersionTLS10, nil, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "INADEQUATE_SECURITY"},
		{"an old version, HTTP/1.1", tls.VersionTLS10, nil, &tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10, NextProtos: []string{"http/1.1"}}, "HTTP/1.1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			f := start(t, func(c *serving.Config) { c.MinVersion, c.CipherSuites = row.min, row.suites })
			config := row.client.Clone()
			config.InsecureSkipVerify = true
			if config.NextProtos == nil {
				config.NextProtos = []string{"h2"}
			}
			if got := f.protocol(config); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

// protocol connects, sends a request, and returns the protocol of the response; or "handshake",
// or the code of GOAWAY.
func (f *fixture) protocol(config *tls.Config) string {
	f.t.Helper()
	c, err := tls.Dial("tcp", f.address, config)
	if err != nil {
		return "handshake"
	}
	defer c.Close()
	if config.NextProtos[0] == "http/1.1" {
		c.Write([]byte("GET /quick HTTP/1.1\r\nHost: x\r\n\r\n"))
		var head [8]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			f.t.Fatal(err)
		}
		return string(head[:])
	}
	return f.overHTTP2(c)
}

// overHTTP2 sends a request over HTTP/2, and returns the protocol of the response or the code of
// GOAWAY.
func (f *fixture) overHTTP2(c *tls.Conn) string {
	f.t.Helper()
	framer := http2.NewFramer(c, c)
	c.Write([]byte(http2.ClientPreface))
	framer.WriteSettings()
	var block bytes.Buffer
	h := hpack.NewEncoder(&block)
	for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/quick"}, {":authority", "x"}} {
		h.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]})
	}
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			f.t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.DataFrame:
			return strings.TrimSpace(string(frame.Data()))
		case *http2.GoAwayFrame:
			return frame.ErrCode.String()
		}
	}
}
