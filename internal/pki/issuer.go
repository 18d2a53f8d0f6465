package pki

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// Issuer issues client certificates of the authority of a server, which may be running. It writes nothing.
type Issuer struct{ ca pair }

// ReadIssuer reads the authority from the directory of an Authority. The error matches fs.ErrNotExist if there is none.
func ReadIssuer(dir string) (*Issuer, error) {
	path := filepath.Join(dir, caFile)
	b, _, err := readChecked(dir, caFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("the certificate authority cannot be used: %w", err)
	}
	ca, err := parsePair(b)
	if err != nil {
		return nil, fmt.Errorf("the certificate authority %s cannot be used: %w", path, err)
	}
	return &Issuer{ca}, nil
}

// CertificatePEM returns the certificate by which clients verify the server.
func (i *Issuer) CertificatePEM() []byte { return i.ca.certPEM() }

// End returns when the authority expires, and with it all that it has issued.
func (i *Issuer) End() time.Time { return i.ca.cert.NotAfter }

// IssueClient issues a client certificate for a user, as PEM, which is valid for life from now on, and not longer than
// the authority.
func (i *Issuer) IssueClient(user string, groups []string, now time.Time, life time.Duration) (cert, key []byte, err error) {
	return i.ca.issueClient(user, groups, now, life)
}
