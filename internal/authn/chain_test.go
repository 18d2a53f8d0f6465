package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// signer is a certificate and its key.
type signer struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue returns a certificate that parent signs; the zero parent: the certificate itself.
func issue(t *testing.T, parent signer, name string, authority bool) signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1<<31, 0),
		IsCA: authority, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if parent.cert == nil {
		parent = signer{cert, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, parent.cert, key.Public(), parent.key)
	if err != nil {
		t.Fatal(err)
	}
	if cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return signer{cert, key}
}

// shows returns a request of a client that shows these certificates.
func shows(chain ...signer) *http.Request {
	r := request().WithContext(authn.WithConnection(context.Background(), nil))
	r.TLS = &tls.ConnectionState{}
	for _, s := range chain {
		r.TLS.PeerCertificates = append(r.TLS.PeerCertificates, s.cert)
	}
	return r
}

func pool(certs ...signer) *x509.CertPool {
	p := x509.NewCertPool()
	for _, s := range certs {
		p.AddCert(s.cert)
	}
	return p
}

// TestIntermediates: a chain is valid in any order, and certificates that the authority has not signed do
// not count, so no signature is verified with their keys.
func TestIntermediates(t *testing.T) {
	root := issue(t, signer{}, "root", true)
	one := issue(t, root, "one", true)
	two := issue(t, one, "two", true)
	leaf := issue(t, two, "ann", false)
	forged := issue(t, signer{}, "root", true) // with the name of the root
	foreign := issue(t, forged, "two", true)
	theirs := issue(t, foreign, "ann", false)

	c := authn.Credentials{Authorities: []authn.Authority{func() *x509.CertPool { return pool() }, func() *x509.CertPool { return pool(root) }}}
	for _, row := range []struct {
		what  string
		chain []signer
		user  string
	}{
		{"in order", []signer{leaf, two, one}, "ann"},
		{"in another order", []signer{leaf, one, two}, "ann"},
		{"among others", []signer{leaf, forged, foreign, one, foreign, two, theirs}, "ann"},
		{"a missing intermediate", []signer{leaf, two}, ""},
		{"a foreign chain", []signer{theirs, foreign, forged}, ""},
		{"a foreign chain with the authority's", []signer{theirs, foreign, forged, one, two, root}, ""},
	} {
		u, err := c.Authenticate(shows(row.chain...))
		if name := nameOf(u); name != row.user || (err != nil) != (row.user == "") {
			t.Errorf("%s: %q, %v", row.what, name, err)
		}
	}
	for _, row := range []struct {
		given, want []signer
	}{
		{[]signer{forged, foreign, theirs}, nil},
		{[]signer{two, forged, one, foreign}, []signer{one, two}},
	} {
		var certs []*x509.Certificate
		for _, s := range row.given {
			certs = append(certs, s.cert)
		}
		if got := authn.Intermediates(certs, pool(root), time.Unix(1, 0)); !got.Equal(pool(row.want...)) {
			t.Errorf("the pool for %d certificates is not that of %d", len(row.given), len(row.want))
		}
	}
}

func nameOf(u *authn.User) string {
	if u == nil {
		return ""
	}
	return u.Name
}

// TestForeignChainOnce: a connection's chain is verified once, also if no authority of several has signed
// it, until one of them changes.
func TestForeignChainOnce(t *testing.T) {
	root, other := issue(t, signer{}, "root", true), issue(t, signer{}, "other", true)
	theirs := issue(t, other, "ann", false)
	first, second := pool(root), pool(root)
	c := authn.Credentials{Authorities: []authn.Authority{func() *x509.CertPool { return first }, func() *x509.CertPool { return second }}}
	r := shows(theirs, other)
	if u, err := c.Authenticate(r); u != nil || err == nil {
		t.Fatalf("%+v, %v", u, err)
	}
	const most = 20 // to verify it takes hundreds
	if n := testing.AllocsPerRun(10, func() { _, _ = c.Authenticate(r) }); n > most {
		t.Errorf("%v allocations for a chain that was refused before", n)
	}
	second = pool(other)
	if u, err := c.Authenticate(r); nameOf(u) != "ann" || err != nil {
		t.Errorf("after an authority has changed: %+v, %v", u, err)
	}
}
