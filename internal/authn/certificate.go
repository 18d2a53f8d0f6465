package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Authority returns the certificate authorities of clients, nil for none. It may return others
// later, and is safe for concurrent use.
type Authority func() *x509.CertPool

// credentialID is the key of Extra that names a certificate.
const credentialID = "authentication.kubernetes.io/credential-id"

// uidAttribute is the attribute of a certificate's subject that holds the UID.
var uidAttribute = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// connKey is the key of a context's *conn.
type connKey struct{}

// conn caches the results of verifying a connection's certificate, which would otherwise
// be verified for each request.
type conn struct {
	client, proxy slot   // by the authorities of clients, of front proxies
	authenticated func() // nil: nothing is called
}

// slot has the last outcome of verifying a connection's certificate.
type slot struct {
	mu   sync.Mutex // held to verify, so that concurrent requests verify once
	last atomic.Pointer[verified]
}

// verified is the outcome of verifying a certificate.
type verified struct {
	leaf *x509.Certificate // the certificate
	user *User             // by the certificate; nil for one without a name
	err  error             // the certificate is invalid
	// pool verified it. The outcome is invalid once the authority has another pool.
	pool *x509.CertPool
	// unsigned are the pools of all authorities, if none of them has signed the certificate. The outcome is invalid once
	// an authority has another pool.
	unsigned []*x509.CertPool
	// from and until bound the validity of the whole chain. Both are zero: the outcome depends
	// on no time.
	from, until time.Time
}

// WithConnection returns the context of a new connection, whose client certificate is then
// verified once. authenticated is called for each request of the connection with valid
// credentials; it may be nil, and must return quickly. WithConnection is for
// http.Server.ConnContext.
func WithConnection(ctx context.Context, authenticated func()) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{authenticated: authenticated})
}

// connOf returns the conn of the request's connection, or nil.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// byCertificate returns the user of the client certificate, nil if there is none.
func (c *Credentials) byCertificate(r *http.Request, known *conn) (*User, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, nil
	}
	var s *slot
	if known != nil {
		s = &known.client
	}
	now := c.now()
	if c.Metrics != nil && (s == nil || s.last.Load() == nil) {
		c.Metrics.expiry.Observe(r.TLS.PeerCertificates[0].NotAfter.Sub(now).Seconds())
	}
	v := outcome(s, r.TLS.PeerCertificates, c.Authorities, now)
	if v.err != nil {
		return nil, fmt.Errorf("the client certificate: %w", v.err)
	}
	return v.user, nil
}

func (c *Credentials) now() time.Time {
	if c.Now == nil {
		return time.Now()
	}
	return c.Now()
}

// outcome returns the outcome of verifying a chain, from the slot of its connection if it is still
// valid there. A nil slot caches nothing.
func outcome(s *slot, chain []*x509.Certificate, authorities []Authority, at time.Time) *verified {
	if s == nil {
		return verify(chain, authorities, at)
	}
	if v := s.last.Load(); v.holds(chain[0], authorities, at) {
		return v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.last.Load(); v.holds(chain[0], authorities, at) {
		return v
	}
	v := verify(chain, authorities, at)
	s.last.Store(v)
	return v
}

// holds reports whether an outcome is still valid for a certificate.
func (v *verified) holds(leaf *x509.Certificate, authorities []Authority, at time.Time) bool {
	if v == nil || v.leaf != leaf || !v.until.IsZero() && (at.Before(v.from) || at.After(v.until)) {
		return false
	}
	if v.unsigned != nil {
		return slices.EqualFunc(v.unsigned, authorities, func(p *x509.CertPool, a Authority) bool { return a() == p })
	}
	return v.pool != nil && slices.ContainsFunc(authorities, func(a Authority) bool { return a() == v.pool })
}

// verify checks a chain against each authority, and returns the outcome of the first that signed
// it. No authority: no user and no error.
func verify(chain []*x509.Certificate, authorities []Authority, at time.Time) *verified {
	last := &verified{leaf: chain[0]}
	var unsigned []*x509.CertPool
	for _, authority := range authorities {
		roots := authority()
		if roots == nil {
			unsigned = append(unsigned, nil)
			continue
		}
		chains, err := chain[0].Verify(x509.VerifyOptions{
			Roots: roots, Intermediates: intermediates(chain[1:], roots, at),
			CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
		if err != nil {
			last.err = err
			// This error does not depend on the time.
			if unknown := (x509.UnknownAuthorityError{}); errors.As(err, &unknown) {
				unsigned = append(unsigned, roots)
			}
			continue
		}
		v := &verified{leaf: chain[0], pool: roots, from: chains[0][0].NotBefore, until: chains[0][0].NotAfter}
		v.user, v.err = userOf(chain[0])
		for _, cert := range chains[0] {
			if cert.NotBefore.After(v.from) {
				v.from = cert.NotBefore
			}
			if cert.NotAfter.Before(v.until) {
				v.until = cert.NotAfter
			}
		}
		return v
	}
	if last.err != nil && len(unsigned) == len(authorities) {
		last.unsigned = unsigned
	}
	return last
}

// intermediates returns those certificates of a client that the roots have signed, directly or through
// others of them. The work to verify a signature depends on the key, and a client without credentials
// chooses the keys of its certificates: 64 of them cost 0.15 s. So only the keys of the roots, and of
// certificates that they have signed, verify signatures.
func intermediates(certs []*x509.Certificate, roots *x509.CertPool, at time.Time) *x509.CertPool {
	pool, left := x509.NewCertPool(), slices.Clone(certs)
	for before := -1; before != len(left); {
		before = len(left)
		left = slices.DeleteFunc(left, func(cert *x509.Certificate) bool {
			_, err := cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: pool, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if err == nil {
				pool.AddCert(cert)
			}
			return err == nil
		})
	}
	return pool
}

// userOf returns the user of a certificate: the common name, with the organizations as groups.
// It is nil without a common name.
func userOf(cert *x509.Certificate) (*User, error) {
	if cert.Subject.CommonName == "" {
		return nil, nil
	}
	sum := sha256.Sum256(cert.Raw)
	u := &User{
		Name:   cert.Subject.CommonName,
		Groups: cert.Subject.Organization,
		Extra:  map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
	uids := 0
	for _, a := range cert.Subject.Names {
		if !a.Type.Equal(uidAttribute) {
			continue
		}
		text, ok := a.Value.(string)
		if uids++; !ok || text == "" || uids > 1 {
			return nil, errors.New("its subject has more than one UID, or one that is not a text")
		}
		u.UID = text
	}
	return u.InGroup(), nil
}
