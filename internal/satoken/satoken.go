// Package satoken issues and verifies tokens of service accounts: JSON Web Tokens (RFC 7519) in
// compact form, signed with RS256 only. A token is bound to audiences, to a time, to its
// service account by name and uid, and optionally to a Pod, a Node or a Secret. It is invalid
// once one of these is gone.
//
// With a directory the keys are kept in serviceaccount.pem, readable by the owner only. The
// first key of the file signs, and all of them verify. To replace the key, put a new one before
// it. The first key is made when it is needed, because that takes longer than the rest of a
// server's start.
package satoken

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/uuid"
)

// DefaultIssuer is the default of Config.Issuer.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

const (
	// maxTokenBytes bounds a token: ours have about a thousand bytes.
	maxTokenBytes = 16 << 10
	// leeway is how much clocks may differ.
	leeway = time.Minute
	// maxVerified bounds the cache of verified tokens, of about 1 KiB each.
	maxVerified = 4096
)

// Config configures an Authority.
type Config struct {
	// Dir is the directory of the keys. No other process may write to it. Empty: the keys and
	// their tokens end with the process.
	Dir string
	// Issuer is the issuer of tokens; empty: DefaultIssuer.
	Issuer string
	// Audiences are the audiences of the server, and of a token that is requested for none.
	// Empty: the issuer.
	Audiences []string
	// Find returns an object that a token is bound to. resource is serviceaccounts, pods,
	// secrets or nodes; nodes have no namespace. It is required.
	Find func(resource, namespace, name string) (Found, bool)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Found describes an object that a token is bound to.
type Found struct {
	UID string
	// Deleted is the deletionTimestamp: when the object has to be gone; zero: it has none.
	Deleted time.Time
}

// Authority issues and verifies tokens. Its methods are safe for concurrent use.
type Authority struct {
	c      Config
	making sync.Mutex // held while a key is made
	// keys is nil before the first key is made. It changes only while making is held.
	keys atomic.Pointer[keyring]

	seen     sync.RWMutex
	verified map[[sha256.Size]byte]*claims // guarded by seen
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
	// ID is the ID of the token, which is unique; empty: a random one.
	ID string
}

// claims are the payload of a token, with the names of RFC 7519 and of Kubernetes.
type claims struct {
	Audience audience `json:"aud"`
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Issuer   string   `json:"iss"`
	ID       string   `json:"jti"`
	Bound    bound    `json:"kubernetes.io"`
	From     int64    `json:"nbf"`
	Subject  string   `json:"sub"`

	who *authn.User // the user; set when the token is verified
}

type bound struct {
	Namespace      string `json:"namespace"`
	Node           *Ref   `json:"node,omitempty"`
	Pod            *Ref   `json:"pod,omitempty"`
	Secret         *Ref   `json:"secret,omitempty"`
	ServiceAccount Ref    `json:"serviceaccount"`
}

// Open reads the keys of a directory, if there are any. An unusable file is an error, because
// new keys would make all tokens invalid.
func Open(c Config) (*Authority, error) {
	if c.Issuer == "" {
		c.Issuer = DefaultIssuer
	}
	if len(c.Audiences) == 0 {
		c.Audiences = []string{c.Issuer}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	a := &Authority{c: c, verified: map[[sha256.Size]byte]*claims{}}
	keys, err := readKeys(c.Dir)
	if len(keys) > 0 {
		a.keys.Store(&keys)
	}
	return a, err
}

// Audiences returns the audiences of the server. The caller must not change them.
func (a *Authority) Audiences() []string { return a.c.Audiences }

// TooLongError is the error for a token that would be longer than Authenticate accepts.
type TooLongError struct {
	Bytes, Most int
}

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the token would have %d bytes, and none of more than %d is accepted", e.Bytes, e.Most)
}

// Issue issues a token with a lifetime; no audiences: those of the server. If a token would be
// too long, the error is a *TooLongError. The caller checks that the objects exist. The first
// call makes the key and writes its file.
func (a *Authority) Issue(s Subject, audiences []string, life time.Duration) (token string, expires time.Time, err error) {
	if len(audiences) == 0 {
		audiences = a.c.Audiences
	}
	now := a.c.Now().Truncate(time.Second)
	expires = now.Add(life)
	payload, err := json.Marshal(&claims{
		Audience: audiences, Expires: expires.Unix(), Issued: now.Unix(), Issuer: a.c.Issuer, ID: cmp.Or(s.ID, uuid.New()),
		Bound:   bound{Namespace: s.Namespace, Node: s.Node, Pod: s.Pod, Secret: s.Secret, ServiceAccount: s.ServiceAccount},
		From:    now.Unix(),
		Subject: userName(s.Namespace, s.ServiceAccount.Name),
	})
	if err != nil {
		return "", time.Time{}, err
	}
	k, err := a.signer()
	if err != nil {
		return "", time.Time{}, err
	}
	if token, err = k.sign(payload); err != nil {
		return "", time.Time{}, err
	}
	if len(token) > maxTokenBytes {
		return "", time.Time{}, &TooLongError{len(token), maxTokenBytes}
	}
	return token, expires, nil
}

// AuthenticateToken implements authn.Tokens. The user is nil, without an error, if the text is not
// a token of this issuer.
func (a *Authority) AuthenticateToken(_ context.Context, t authn.Token, audiences []string) (*authn.User, []string, error) {
	c, err := a.open(t)
	if c == nil || err != nil {
		return nil, nil, err
	}
	if len(audiences) == 0 {
		audiences = a.c.Audiences
	}
	var good []string
	for _, want := range audiences {
		if slices.Contains(c.Audience, want) {
			good = append(good, want)
		}
	}
	if len(good) == 0 {
		return nil, nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", []string(c.Audience), audiences)
	}
	if err := a.holds(c); err != nil {
		return nil, nil, err
	}
	return c.who, good, nil
}

// open returns the claims of a token with a valid signature; nil, without an error, if the
// text is not a token of this issuer.
func (a *Authority) open(t authn.Token) (*claims, error) {
	if len(t.Text) > maxTokenBytes || strings.Count(t.Text, ".") != 2 {
		return nil, nil
	}
	a.seen.RLock()
	c := a.verified[t.Sum]
	a.seen.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := a.parse(t.Text)
	if c == nil || err != nil {
		return nil, err
	}
	a.seen.Lock()
	defer a.seen.Unlock()
	if len(a.verified) >= maxVerified {
		for other := range a.verified { // any: it is verified again when it comes back
			delete(a.verified, other)
			break
		}
	}
	a.verified[t.Sum] = c
	return c, nil
}

// holds returns an error unless the token is valid now and its objects exist.
func (a *Authority) holds(c *claims) error {
	now := a.c.Now()
	switch {
	case now.Add(-leeway).After(time.Unix(c.Expires, 0)):
		return errors.New("service account token has expired")
	case now.Add(leeway).Before(time.Unix(c.From, 0)):
		return errors.New("service account token is not valid yet")
	}
	b := &c.Bound
	if err := a.present("serviceaccounts", b.Namespace, &b.ServiceAccount); err != nil {
		return err
	}
	if err := a.present("secrets", b.Namespace, b.Secret); err != nil {
		return err
	}
	if err := a.present("pods", b.Namespace, b.Pod); err != nil {
		return err
	}
	if b.Pod != nil { // the token is not bound to its node
		return nil
	}
	return a.present("nodes", "", b.Node)
}

// present returns an error unless the object exists, with the same uid, and does not have to be
// gone. A nil ref is no error.
func (a *Authority) present(resource, namespace string, r *Ref) error {
	if r == nil {
		return nil
	}
	found, ok := a.c.Find(resource, namespace, r.Name)
	switch {
	case !ok, found.UID != r.UID:
		return fmt.Errorf("service account token has been invalidated: its object of %s is not there any more", resource)
	case !found.Deleted.IsZero() && a.c.Now().Add(-leeway).After(found.Deleted):
		return fmt.Errorf("service account token has been invalidated: its object of %s has been deleted", resource)
	}
	return nil
}

// user returns the user of the token.
func (c *claims) user() *authn.User {
	const prefix = "authentication.kubernetes.io/"
	b := &c.Bound
	extra := map[string][]string{}
	if c.ID != "" {
		extra[prefix+"credential-id"] = []string{"JTI=" + c.ID}
	}
	if b.Pod != nil {
		extra[prefix+"pod-name"], extra[prefix+"pod-uid"] = []string{b.Pod.Name}, []string{b.Pod.UID}
	}
	if b.Node != nil {
		extra[prefix+"node-name"] = []string{b.Node.Name}
		if b.Node.UID != "" {
			extra[prefix+"node-uid"] = []string{b.Node.UID}
		}
	}
	return &authn.User{
		Name: userName(b.Namespace, b.ServiceAccount.Name), UID: b.ServiceAccount.UID, Extra: extra,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + b.Namespace, authn.Authenticated},
	}
}

func userName(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// audience is a claim that may be one string or several.
type audience []string

// UnmarshalJSON implements json.Unmarshaler.
func (a *audience) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*a = audience{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(a))
}

var encoding = base64.RawURLEncoding.Strict()
