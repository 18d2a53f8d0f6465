package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
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

// conn caches the result of verifying a connection's certificate, which would otherwise
// be verified for each request.
type conn struct {
	verified      atomic.Pointer[verified]
	authenticated func() // nil: nothing is called
}

// verified is the outcome of verifying a certificate.
type verified struct {
	user *User
	// pool verified it. The outcome is invalid once the authority has another pool.
	pool *x509.CertPool
	// from and until bound the validity of the whole chain.
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
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || len(c.Authorities) == 0 {
		return nil, nil
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	at := now()
	if known != nil {
		if v := known.verified.Load(); v != nil && c.holds(v, at) {
			return v.user, nil
		}
	}
	v, err := c.verify(r.TLS.PeerCertificates, at)
	if err != nil {
		return nil, fmt.Errorf("the client certificate: %w", err)
	}
	if known != nil {
		known.verified.Store(v)
	}
	return v.user, nil
}

// holds reports whether an earlier outcome is still valid.
func (c *Credentials) holds(v *verified, at time.Time) bool {
	if at.Before(v.from) || at.After(v.until) {
		return false
	}
	return slices.ContainsFunc(c.Authorities, func(a Authority) bool { return a() == v.pool })
}

// verify checks a chain against each authority, and returns the outcome of the
// first that signed it.
func (c *Credentials) verify(chain []*x509.Certificate, at time.Time) (*verified, error) {
	o := x509.VerifyOptions{CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if len(chain) > 1 {
		o.Intermediates = x509.NewCertPool()
		for _, cert := range chain[1:] {
			o.Intermediates.AddCert(cert)
		}
	}
	var err error = x509.UnknownAuthorityError{Cert: chain[0]}
	for _, authority := range c.Authorities {
		pool := authority()
		if pool == nil {
			continue
		}
		o.Roots = pool
		chains, wrong := chain[0].Verify(o)
		if wrong != nil {
			err = wrong
			continue
		}
		v := &verified{user: userOf(chain[0]), pool: pool, from: chains[0][0].NotBefore, until: chains[0][0].NotAfter}
		for _, cert := range chains[0] {
			if cert.NotBefore.After(v.from) {
				v.from = cert.NotBefore
			}
			if cert.NotAfter.Before(v.until) {
				v.until = cert.NotAfter
			}
		}
		return v, nil
	}
	return nil, err
}

// userOf returns the user of a certificate: the common name, with the organizations as groups.
// It is nil without a common name.
func userOf(cert *x509.Certificate) *User {
	if cert.Subject.CommonName == "" {
		return nil
	}
	sum := sha256.Sum256(cert.Raw)
	u := &User{
		Name:   cert.Subject.CommonName,
		Groups: withAuthenticated(cert.Subject.Organization),
		Extra:  map[string][]string{credentialID: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}
	for _, a := range cert.Subject.Names {
		if text, ok := a.Value.(string); ok && a.Type.Equal(uidAttribute) {
			u.UID = text
		}
	}
	return u
}

// withAuthenticated returns the groups with system:authenticated.
func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, Authenticated) {
		return slices.Clip(groups)
	}
	return append(slices.Clip(groups), Authenticated)
}
