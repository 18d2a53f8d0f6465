// Package satoken issues and verifies tokens of service accounts: JSON Web Tokens (RFC 7519) in
// compact form, signed with RSA (RS256) or ECDSA. A token is bound to audiences, to a time, to its
// service account by name and uid, and optionally to a Pod, a Node or a Secret. It is invalid
// once one of these is gone.
//
// The keys come from files that the configuration names, which are read again when they change. If
// it names no key that signs, the server has keys of its own: with a directory they are kept in
// serviceaccount.pem, readable by the owner only. The first key of that file signs, and all of them
// verify. To replace the key, put a new one before it. The first key is made when it is needed,
// because that takes longer than the rest of a server's start.
package satoken

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/reload"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// DefaultIssuer is the default of Config.Issuers.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

const (
	// maxTokenBytes bounds a token: ours have about a thousand bytes.
	maxTokenBytes = 16 << 10
	// leeway is how much clocks may differ.
	leeway = time.Minute
	// maxVerified bounds the cache of verified tokens, of about 1 KiB each.
	maxVerified = 4096
	// injectedLife is the lifetime that admission requests for the tokens of Pods. A longer one
	// replaces it with Config.ExtendInjected, for clients that never read their token again.
	injectedLife = 3607 * time.Second
	extendedLife = 365 * 24 * time.Hour
)

// Config configures an Authority.
type Config struct {
	// Dir is the directory of the server's own keys. No other process may write to it. Empty: the
	// keys and their tokens end with the process.
	Dir string
	// SigningKeyFile holds the private key that signs tokens. It verifies them, too. Empty: the
	// server has keys of its own, which otherwise neither sign nor verify.
	SigningKeyFile string
	// KeyFiles hold further keys that verify tokens, public or private ones.
	KeyFiles []string
	// Issuers are the issuers whose tokens are accepted. The first is that of new tokens. Empty:
	// DefaultIssuer.
	Issuers []string
	// Audiences are the audiences of the server, and of a token that is requested for none.
	// Empty: the issuers.
	Audiences []string
	// MaxLife limits the lifetime of new tokens. Zero: no limit.
	MaxLife time.Duration
	// ExtendInjected issues tokens of a year, whatever MaxLife is, to the Pods that get theirs by
	// admission.
	ExtendInjected bool
	// Find returns an object that a token is bound to. resource is serviceaccounts, pods,
	// secrets or nodes; nodes have no namespace. It is required for verifying tokens; see For.
	Find func(resource, namespace, name string) (Found, bool)
	// Secret returns the contents of a Secret of the type kubernetes.io/service-account-token,
	// false if there is no such Secret. Nil: tokens of Secrets are not accepted.
	Secret func(namespace, name string) (StoredSecret, bool)
	// NoLookup accepts the tokens of Secrets without looking up the Secret and the service account.
	NoLookup bool
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Log gets a line when key files are read again; nil: nothing is logged.
	Log *slog.Logger
}

// Found describes an object that a token is bound to.
type Found struct {
	UID string
	// Deleted is the deletionTimestamp: when the object has to be gone; zero: it has none.
	Deleted time.Time
}

// Authority issues and verifies tokens. Its methods are safe for concurrent use.
type Authority struct {
	c Config
	*keys
	// worlds are the identities of the forks that issue the accepted tokens, in addition to those
	// without one. The last is that of new tokens.
	worlds []string
	// unbound accepts tokens of forks whatever objects there are.
	unbound bool

	seen     sync.RWMutex
	verified map[[sha256.Size]byte]*claims // guarded by seen
}

// keys are the keys of an Authority, and of those that For returns.
type keys struct {
	files *reload.Value[*keyring] // nil: the configuration names no files

	making sync.Mutex // held while a key is made
	// own holds the server's own keys, nil before the first is made. It changes only while making
	// is held.
	own atomic.Pointer[keyring]
	// forks holds the key of all forks in the same way. It signs and verifies the tokens of forks
	// alone: programs that trust the keys of the server, such as a kube-apiserver on the same etcd,
	// do not accept the tokens of a fork.
	forks atomic.Pointer[keyring]
}

// Ref names an object that a token is bound to.
type Ref struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// Subject is the subject of a token.
type Subject struct {
	Namespace      string
	ServiceAccount Ref
	// Pod, Secret and Node are further objects that the token is bound to; nil: none. The Node
	// of a Pod's token may lack a uid; the token is not bound to it then.
	Pod, Secret, Node *Ref
}

// Open reads the keys of the directory, if there are any, and the key files. An unusable file is an
// error, because new keys would make all tokens invalid.
func Open(c Config) (*Authority, error) {
	if len(c.Issuers) == 0 {
		c.Issuers = []string{DefaultIssuer}
	}
	if len(c.Audiences) == 0 {
		c.Audiences = c.Issuers
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	a := &Authority{c: c, keys: new(keys), verified: map[[sha256.Size]byte]*claims{}}
	if err := a.openFiles(); err != nil {
		return nil, fmt.Errorf("the keys of service account tokens: %w", err)
	}
	forks, err := readOwn(c.Dir, forksFile)
	if err != nil {
		return nil, err
	}
	a.forks.Store(forks)
	if c.SigningKeyFile != "" {
		return a, nil
	}
	own, err := readOwn(c.Dir, keyFile)
	if err != nil {
		return nil, err
	}
	a.own.Store(own)
	return a, nil
}

// For returns an Authority with the same keys and configuration for other objects. Find and secret replace
// those of Config, and so does now, unless it is nil.
func (a *Authority) For(find func(resource, namespace, name string) (Found, bool), secret func(namespace, name string) (StoredSecret, bool), now func() time.Time) *Authority {
	c := a.c
	c.Find, c.Secret = find, secret
	if now != nil {
		c.Now = now
	}
	return &Authority{c: c, keys: a.keys, worlds: a.worlds, verified: map[[sha256.Size]byte]*claims{}}
}

// Fork returns an Authority with the same configuration for a fork of the objects, with the key of forks. It accepts the
// tokens that a accepts, as far as their objects exist in the fork; a does not accept the tokens that it
// issues, and neither does another fork of a. The caller calls For on the result.
func (a *Authority) Fork() *Authority {
	return &Authority{c: a.c, keys: a.keys, worlds: append(slices.Clip(a.worlds), uuid.New())}
}

// Forks returns the identities of the forks that issue the accepted tokens. ForkAs makes the Authority again, after
// a restart. They are no secrets.
func (a *Authority) Forks() []string { return slices.Clone(a.worlds) }

// ForkAs is Fork with the identities that Forks returned.
func (a *Authority) ForkAs(forks []string) *Authority {
	return &Authority{c: a.c, keys: a.keys, worlds: slices.Clip(forks)}
}

// Signatures returns an Authority for a fork whose objects are not known yet. It accepts a token that the fork or one of its
// parents, if that is a fork, has issued and whose signature and times are valid, whether its service account exists or
// not. So it identifies clients, and gives no right. It accepts no token of the server itself.
func (a *Authority) Signatures() *Authority {
	c := a.c
	c.Find = nil
	c.Secret = func(string, string) (StoredSecret, bool) { return StoredSecret{}, false }
	return &Authority{c: c, keys: a.keys, worlds: a.worlds, unbound: true, verified: map[[sha256.Size]byte]*claims{}}
}

// world is the identity of the fork that issues a token; empty: there is none.
func (a *Authority) world() string {
	if len(a.worlds) == 0 {
		return ""
	}
	return a.worlds[len(a.worlds)-1]
}

// Audiences returns the audiences of the server. The caller must not change them.
func (a *Authority) Audiences() []string { return a.c.Audiences }

// TooLongError is the error for a token that would be longer than the server accepts.
type TooLongError struct {
	Bytes, Most int
}

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the token would have %d bytes, and none of more than %d is accepted", e.Bytes, e.Most)
}

// Issued is a new token.
type Issued struct {
	Token string
	// Life is the lifetime that the client is to expect: the requested one or Config.MaxLife. The
	// token may stay valid for longer.
	Life time.Duration
	// From is when Life begins.
	From time.Time
	// CredentialID identifies the token in logs and in the extra fields of its user.
	CredentialID string
}

// Issue issues a token with a lifetime; no audiences: those of the server. If a token would be
// too long, the error is a *TooLongError. The caller checks that the objects exist. The first
// call makes the key and writes its file, if none is configured.
func (a *Authority) Issue(s Subject, audiences []string, life time.Duration) (Issued, error) {
	if len(audiences) == 0 {
		audiences = a.c.Audiences
	}
	if a.c.MaxLife > 0 {
		life = min(life, a.c.MaxLife)
	}
	now := a.c.Now().Truncate(time.Second)
	c := &claims{
		Audience: audiences, Expires: at(now.Add(life)), Issued: at(now), From: at(now), Issuer: a.c.Issuers[0], ID: uuid.New(),
		Bound:   bound{Namespace: s.Namespace, Node: s.Node, Pod: s.Pod, Secret: s.Secret, ServiceAccount: s.ServiceAccount},
		Subject: userName(s.Namespace, s.ServiceAccount.Name), World: a.world(),
	}
	if a.c.ExtendInjected && s.Pod != nil && life == injectedLife && a.isForServer(audiences) {
		c.Bound.WarnAfter, c.Expires = c.Expires, at(now.Add(extendedLife))
	}
	payload, err := json.Marshal(c)
	if err != nil {
		return Issued{}, err
	}
	k, err := a.signer()
	if err != nil {
		return Issued{}, err
	}
	token, err := k.sign(payload)
	if err != nil {
		return Issued{}, err
	}
	if len(token) > maxTokenBytes {
		return Issued{}, &TooLongError{len(token), maxTokenBytes}
	}
	return Issued{Token: token, Life: life, From: now, CredentialID: credentialID(c.ID)}, nil
}

// isForServer reports whether all audiences are those of the server.
func (a *Authority) isForServer(audiences []string) bool {
	return !slices.ContainsFunc(audiences, func(s string) bool { return !slices.Contains(a.c.Audiences, s) })
}

var encoding = base64.RawURLEncoding.Strict()
