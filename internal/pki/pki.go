// Package pki is the certificate authority of a server. It has the serving certificate and the
// token of the administrator.
//
// With a directory it keeps these files, readable by the owner only:
//
//	ca.pem       the authority: its certificate and its private key
//	ca.crt       the certificate alone, for clients (curl --cacert)
//	serving.pem  the serving certificate and its private key
//	admin.token  the bearer token of the administrator
//	*.sha256     digests of these files but ca.crt
//
// A certificate and its key are in one file, so that a crash cannot leave the certificate of
// one pair with the key of another. The files are made once and used again after a restart. A
// certificate is renewed after two thirds of its lifetime, without a restart: the first
// handshake after that renews it. The authority is renewed with the same key and name, so that
// clients with the old certificate trust signatures of the new one, and vice versa.
package pki

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/atomicfile"
)

const (
	caLife   = 10 * 365 * 24 * time.Hour
	leafLife = 365 * 24 * time.Hour

	// backdate is how long before its creation a certificate becomes valid, for clients whose
	// clock is slow, by as much as a wrong time zone.
	backdate = 24 * time.Hour

	// signBackdate is the backdate of certificates whose lifetime clients request, as in
	// kube-controller-manager. For lifetimes of shortLife or more it counts as part of the lifetime.
	signBackdate = 5 * time.Minute
	shortLife    = 8 * time.Hour
)

const (
	caFile      = "ca.pem"
	caCertFile  = "ca.crt"
	servingFile = "serving.pem"
	tokenFile   = "admin.token"
)

// Config configures an Authority.
type Config struct {
	// Dir is the directory of the files. It is created if it does not exist. No other process
	// may write to it. Empty: nothing is kept.
	Dir string
	// Hosts are names and addresses of the serving certificate, in addition to those that a
	// Kubernetes API server always has.
	Hosts []string
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Random fills a slice with random bytes, for the first key and certificate of the authority; nil: a secure
	// source of them. It is for tests: who knows it can sign as the authority.
	Random func([]byte)
	// Log gets a line for each renewal; nil: nothing is logged.
	Log *slog.Logger
}

// Authority is a certificate authority with its serving certificate and the
// administrator's token. All methods are safe for concurrent use.
type Authority struct {
	dir   string
	hosts []string
	now   func() time.Time
	log   *slog.Logger
	token string

	current atomic.Pointer[state]
	proxy   frontProxy

	mu        sync.Mutex // held while certificates are renewed
	followers []func()   // guarded by mu
}

// state is an immutable set of certificates that belong together.
type state struct {
	ca      pair
	caPEM   []byte
	pool    *x509.CertPool
	serving *tls.Certificate
	// from and due bound the time in which nothing has to be renewed.
	from, due time.Time
}

// Open reads the authority of a directory, and creates missing files. An unreadable file of the
// authority is an error: a new authority would lock out the clients that trust the old one. An
// unusable serving certificate is replaced.
func Open(c Config) (*Authority, error) {
	a := &Authority{dir: c.Dir, hosts: hosts(c.Hosts), now: c.Now, log: c.Log}
	if a.now == nil {
		a.now = time.Now
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.dir != "" {
		if err := atomicfile.MakeDir(a.dir); err != nil {
			return nil, err
		}
	}
	var err error
	if a.token, err = a.openToken(); err != nil {
		return nil, err
	}
	ca, err := a.readPair(caFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the certificate authority cannot be used: %w; put the file back, or delete it to have a new authority made, which all clients then need the new kubeconfig for", err)
	}
	if ca.cert == nil && c.Random != nil {
		if ca, err = seededCA(c.Random, a.now()); err != nil {
			return nil, err
		}
	}
	serving, err := a.readPair(servingFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		a.log.Warn("a serving certificate that cannot be used is made anew", "err", err)
	}
	s, err := a.renew(ca, serving)
	if err != nil {
		return nil, err
	}
	a.current.Store(s)
	return a, nil
}

// GetCertificate is for tls.Config.GetCertificate.
func (a *Authority) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return a.fresh().serving, nil
}

// CertificatePEM returns the certificate that clients have to trust. The caller must not
// change it.
func (a *Authority) CertificatePEM() []byte { return a.fresh().caPEM }

// Pool returns the pool that verifies certificates of this authority. A renewal makes a new
// pool. The caller must not change it.
func (a *Authority) Pool() *x509.CertPool { return a.fresh().pool }

// AdminToken returns the bearer token of the administrator.
func (a *Authority) AdminToken() string { return a.token }

// IssueClient issues a client certificate for a user, as PEM. It is valid for a year, and not
// kept.
func (a *Authority) IssueClient(user string, groups []string) (cert, key []byte, err error) {
	return a.fresh().ca.issueClient(user, groups, a.now(), leafLife)
}

// Sign issues a certificate for a public key, as PEM. It is valid from five minutes ago, for a year or for life if that
// is shorter, and not longer than the authority. Of the template it ignores the times and the constraints. The same
// template, key and time make the same certificate: the template has the serial number.
func (a *Authority) Sign(template *x509.Certificate, public any, life time.Duration) ([]byte, error) {
	now, ca := a.now(), a.fresh().ca
	if !now.Before(ca.cert.NotAfter) {
		return nil, fmt.Errorf("the certificate authority expired on %v", ca.cert.NotAfter)
	}
	life = min(life, leafLife)
	made := *template
	made.NotBefore, made.NotAfter = now.Add(-signBackdate), now.Add(life)
	if life >= shortLife {
		made.NotAfter = made.NotBefore.Add(life)
	}
	if ca.cert.NotAfter.Before(made.NotAfter) {
		made.NotAfter = ca.cert.NotAfter
	}
	made.BasicConstraintsValid, made.IsCA = true, false
	der, err := x509.CreateCertificate(nil, &made, ca.cert, public, ca.key) // a deterministic signature (RFC 6979)
	return certificatePEM(der), err
}

// Follow has f called after each renewal of the authority's certificate, in a goroutine of its
// own: what clients trust has to be published again.
func (a *Authority) Follow(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.followers = append(a.followers, f)
}

// fresh returns the certificates, after it has renewed those that are due. Certificates that
// cannot be written are used from memory: an API server should not stop because of a full
// disk.
func (a *Authority) fresh() *state {
	s := a.current.Load()
	if s.good(a.now()) {
		return s
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if s = a.current.Load(); s.good(a.now()) {
		return s
	}
	next, err := a.renew(s.ca, pair{})
	if err != nil {
		a.log.Error("renewed certificates cannot be kept", "err", err)
	}
	if next == nil {
		return s
	}
	a.current.Store(next)
	if next.ca.cert != s.ca.cert {
		for _, f := range a.followers {
			go f()
		}
	}
	return next
}

func (s *state) good(now time.Time) bool { return !now.Before(s.from) && now.Before(s.due) }

// renew returns certificates that are valid now. It keeps the given ones that are, and issues
// and writes new ones for the others. A zero pair means that there is none. If it returns both
// a state and an error, only writing has failed.
func (a *Authority) renew(ca, serving pair) (*state, error) {
	now := a.now()
	var err, unwritten error
	if !ca.good(now) {
		if ca, err = renewCA(ca.key, now); err != nil {
			return nil, err
		}
		unwritten = a.writePair(caFile, ca)
		a.made("made a certificate of the authority", "until", ca.cert.NotAfter)
	}
	unwritten = errors.Join(unwritten, a.publish(ca.certPEM()))
	if !serving.good(now) || serving.cert.CheckSignatureFrom(ca.cert) != nil || !serving.names(a.hosts) {
		if serving, err = ca.issue(servingTemplate(a.hosts), now, leafLife); err != nil {
			return nil, err
		}
		unwritten = errors.Join(unwritten, a.writePair(servingFile, serving))
		a.made("made a serving certificate", "until", serving.cert.NotAfter, "names", a.hosts)
	}
	return newState(ca, serving), unwritten
}

// made logs a new certificate; at debug level if it is not kept.
func (a *Authority) made(what string, args ...any) {
	level := slog.LevelInfo
	if a.dir == "" {
		level = slog.LevelDebug
	}
	a.log.Log(context.Background(), level, what, args...)
}

func newState(ca, serving pair) *state {
	s := &state{ca: ca, caPEM: ca.certPEM(), pool: x509.NewCertPool(), serving: serving.tls()}
	s.pool.AddCert(ca.cert)
	s.from, s.due = ca.cert.NotBefore, ca.due()
	if serving.cert.NotBefore.After(s.from) {
		s.from = serving.cert.NotBefore
	}
	if due := serving.due(); due.Before(s.due) {
		s.due = due
	}
	return s
}

// publish writes the authority's certificate for clients, unless the file has it.
func (a *Authority) publish(cert []byte) error {
	if a.dir == "" {
		return nil
	}
	path := filepath.Join(a.dir, caCertFile)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(cert) {
		return nil
	}
	return atomicfile.Write(path, cert, 0o600)
}

// openToken reads the administrator's token, or creates one.
func (a *Authority) openToken() (string, error) {
	token := rand.Text() // 130 bits
	if a.dir == "" {
		return token, nil
	}
	path := filepath.Join(a.dir, tokenFile)
	b, checked, err := readChecked(a.dir, tokenFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return token, writeChecked(a.dir, tokenFile, []byte(token+"\n"))
	case err != nil:
		return "", fmt.Errorf("the administrator's token cannot be used: %w; put it back, or delete the file to have a new one made", err)
	}
	old := strings.TrimSpace(string(b))
	if len(old) < 20 {
		return "", fmt.Errorf("%s holds no token of 20 characters or more: put it back, or delete the file to have a new one made", path)
	}
	if !checked {
		a.record(tokenFile, b)
	}
	return old, nil
}

// record writes the digest of a file that has none. A failure is only logged.
func (a *Authority) record(name string, content []byte) {
	if err := writeDigest(a.dir, name, content); err != nil {
		a.log.Warn("a file has no digest, and its damage would not be seen", "file", filepath.Join(a.dir, name), "err", err)
	}
}

func (a *Authority) readPair(name string) (pair, error) {
	if a.dir == "" {
		return pair{}, nil
	}
	path := filepath.Join(a.dir, name)
	b, checked, err := readChecked(a.dir, name)
	if err != nil {
		return pair{}, err
	}
	p, err := parsePair(b)
	if err != nil {
		return pair{}, fmt.Errorf("%s: %w", path, err)
	}
	if !checked {
		a.record(name, b)
	}
	return p, nil
}

func (a *Authority) writePair(name string, p pair) error {
	if a.dir == "" {
		return nil
	}
	key, err := p.keyPEM()
	if err != nil {
		return err
	}
	return writeChecked(a.dir, name, append(p.certPEM(), key...))
}

// renewCA issues a certificate of the authority, with a new key if there is none.
func renewCA(key *ecdsa.PrivateKey, now time.Time) (pair, error) {
	if key == nil {
		var err error
		if key, err = newKey(); err != nil {
			return pair{}, err
		}
	}
	return selfSign(key, now)
}
