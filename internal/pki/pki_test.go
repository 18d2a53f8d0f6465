package pki_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/pki"
)

const year = 365 * 24 * time.Hour

// clock is one that the test turns.
type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func newClock() *clock { return &clock{time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)} }

func open(t *testing.T, dir string, c *clock, hosts ...string) *pki.Authority {
	t.Helper()
	a, err := pki.Open(pki.Config{Dir: dir, Now: c.now, Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func serving(t *testing.T, a *pki.Authority) *x509.Certificate {
	t.Helper()
	c, err := a.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.Leaf
}

// trust checks that a client who holds the PEM accepts the certificate at a time.
func trust(t *testing.T, ca []byte, leaf *x509.Certificate, at time.Time) {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("there is no certificate in the PEM")
	}
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at, DNSName: "localhost"}); err != nil {
		t.Errorf("at %v: %v", at, err)
	}
}

func TestNames(t *testing.T) {
	leaf := serving(t, open(t, "", newClock(), "192.0.2.7", "api.example.org", "bad_name", ""))
	name, _ := os.Hostname()
	for _, host := range []string{"localhost", "127.0.0.1", "::1", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
		"kubernetes.default.svc.cluster.local", "192.0.2.7", "api.example.org", name} {
		if err := leaf.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if leaf.VerifyHostname("example.org") == nil {
		t.Error("the certificate names example.org")
	}
}

func TestEveryInterface(t *testing.T) {
	if err := serving(t, open(t, "", newClock(), "0.0.0.0")).VerifyHostname("127.0.0.1"); err != nil {
		t.Error(err)
	}
}

// TestClockSkew: a client whose clock is behind takes the certificates.
func TestClockSkew(t *testing.T) {
	c := newClock()
	a := open(t, "", c)
	trust(t, a.CertificatePEM(), serving(t, a), c.Add(-23*time.Hour))
	trust(t, a.CertificatePEM(), serving(t, a), c.Time)
}

func TestRestart(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "pki"), newClock()
	a := open(t, dir, c)
	b := open(t, dir, c)
	if !bytes.Equal(a.CertificatePEM(), b.CertificatePEM()) || !serving(t, a).Equal(serving(t, b)) || a.AdminToken() != b.AdminToken() {
		t.Error("a restart made new credentials")
	}
	published, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil || !bytes.Equal(published, a.CertificatePEM()) {
		t.Errorf("ca.crt holds\n%s%v", published, err)
	}
	// Another address to listen on: the authority stays, the certificate does not.
	d := open(t, dir, c, "192.0.2.9")
	if err := serving(t, d).VerifyHostname("192.0.2.9"); err != nil {
		t.Error(err)
	}
	trust(t, a.CertificatePEM(), serving(t, d), c.Time)
	filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		want := fs.FileMode(0o600)
		if path == dir {
			want = 0o700
		}
		if info, _ := e.Info(); info.Mode().Perm() != want {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
}

// TestRenewal lets fifteen years go by, and then the clock jump back.
func TestRenewal(t *testing.T) {
	dir, c := t.TempDir(), newClock()
	a := open(t, dir, c)
	first := a.CertificatePEM()
	c1, k1, err := a.IssueClient("ann", []string{"dev"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tls.X509KeyPair(c1, k1); err != nil {
		t.Error(err)
	}
	start, leaf := c.Time, serving(t, a)
	renewals := 0
	for c.Before(start.Add(15 * year)) {
		c.Time = c.Add(30 * 24 * time.Hour)
		next := serving(t, a)
		if left := next.NotAfter.Sub(c.Time); left < 90*24*time.Hour {
			t.Fatalf("the certificate in use is good for only %v", left)
		}
		trust(t, a.CertificatePEM(), next, c.Time)
		if c.Before(start.Add(9 * year)) {
			trust(t, first, next, c.Time) // a client with the first kubeconfig
		}
		if !next.Equal(leaf) {
			renewals++
		}
		leaf = next
	}
	if renewals < 15 || renewals > 30 {
		t.Errorf("%d renewals in 15 years", renewals)
	}
	if bytes.Equal(first, a.CertificatePEM()) {
		t.Error("the authority was never renewed")
	}
	if b := open(t, dir, c); !serving(t, b).Equal(leaf) || !bytes.Equal(b.CertificatePEM(), a.CertificatePEM()) {
		t.Error("what was renewed is not what a restart finds")
	}
	c.Time = start
	trust(t, a.CertificatePEM(), serving(t, a), c.Time)
}

// TestRenewalUnwritten: with the directory gone the server renews all the same.
func TestRenewalUnwritten(t *testing.T) {
	dir, c := filepath.Join(t.TempDir(), "pki"), newClock()
	a := open(t, dir, c)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	c.Time = c.Add(2 * year)
	trust(t, a.CertificatePEM(), serving(t, a), c.Time)
}

func TestDamage(t *testing.T) {
	damage := func(name, text string) (string, error) {
		dir, c := t.TempDir(), newClock()
		open(t, dir, c)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := pki.Open(pki.Config{Dir: dir, Now: c.now})
		return filepath.Join(dir, name), err
	}
	for _, name := range []string{"ca.pem", "admin.token"} {
		path, err := damage(name, "rubbish")
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("a damaged %s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "rubbish") {
			t.Errorf("the error shows what the file holds: %v", err)
		}
	}
	if _, err := damage("serving.pem", "rubbish"); err != nil {
		t.Errorf("a damaged serving certificate: %v", err)
	}
}
