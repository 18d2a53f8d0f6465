// Package satoken makes and verifies the tokens of service accounts: JSON Web
// Tokens (RFC 7519) in compact form, signed with RS256 and nothing else. A token
// is bound to an audience, to a time, to its service account by name and uid, and
// maybe to a Pod, a Node or a Secret: when one of these goes away, so does what
// the token is worth.
//
// With a directory the keys are kept there, in serviceaccount.pem, for the owner
// alone. The first key of the file signs; all of them verify, so that a key is
// replaced by putting a new one before it. The key is made when the first one is
// needed: making one takes longer than all else at a server's start.
package satoken

import (
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

// DefaultIssuer is what tokens name as their issuer unless somebody says otherwise.
const DefaultIssuer = "https://kubernetes.default.svc.cluster.local"

const (
	// maxTokenBytes bounds a token: ours have about a thousand bytes.
	maxTokenBytes = 16 << 10
	// leeway is by how much clocks may differ.
	leeway = time.Minute
	// maxVerified bounds the tokens whose signature is remembered, at about 1 KiB each.
	maxVerified = 4096
)

// Config is what an Authority needs.
type Config struct {
	// Dir keeps the keys. Nobody else may write to it meanwhile. Empty: they are
	// gone with the process, and so is what their tokens are worth.
	Dir string
	// Issuer names who made a token, and is its audience where nobody asks for
	// another one; empty: DefaultIssuer.
	Issuer string
	// Find looks an object up that a token is bound to. Resource is serviceaccounts,
	// pods, secrets or nodes; nodes have no namespace. It is required.
	Find func(resource, namespace, name string) (Found, bool)
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Found is what matters of an object that a token is bound to.
type Found struct {
	UID string
	// Deleted is when it has to be gone at the latest; zero: it stays.
	Deleted time.Time
}

// Authority makes and verifies tokens. Its methods are safe for concurrent use.
type Authority struct {
	c      Config
	making sync.Mutex // held while a key is made
	// keys are those there are; nil before the first one. Only who holds making
	// changes it.
	keys atomic.Pointer[keyring]

	seen     sync.RWMutex
	verified map[[sha256.Size]byte]*claims // guarded by seen
}

// Ref names an object that a token is bound to.
type Ref struct {
	Name string `json:"name"`
	UID  string `json:"uid,omitempty"`
}

// Subject is whose token it is.
type Subject struct {
	Namespace      string
	ServiceAccount Ref
	// Pod, Secret and Node are what else the token is bound to; nil: nothing. The Node
	// of a Pod's token may lack its uid: then it is no binding.
	Pod, Secret, Node *Ref
}

// claims are the payload of a token. Their names are those of RFC 7519 and of
// Kubernetes.
type claims struct {
	Audience audience `json:"aud"`
	Expires  int64    `json:"exp"`
	Issued   int64    `json:"iat"`
	Issuer   string   `json:"iss"`
	ID       string   `json:"jti"`
	Bound    bound    `json:"kubernetes.io"`
	From     int64    `json:"nbf"`
	Subject  string   `json:"sub"`

	who *authn.User // made once, of a token that is verified
}

type bound struct {
	Namespace      string `json:"namespace"`
	Node           *Ref   `json:"node,omitempty"`
	Pod            *Ref   `json:"pod,omitempty"`
	Secret         *Ref   `json:"secret,omitempty"`
	ServiceAccount Ref    `json:"serviceaccount"`
}

// Open reads the keys of a directory, if there are any. A file that cannot be used
// is an error: other keys would make all tokens worthless.
func Open(c Config) (*Authority, error) {
	if c.Issuer == "" {
		c.Issuer = DefaultIssuer
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

// Issuer is the name of who makes the tokens.
func (a *Authority) Issuer() string { return a.c.Issuer }

// TooLongError says that a token would be longer than those that are accepted.
type TooLongError struct {
	Bytes, Most int
}

// Error implements error.
func (e *TooLongError) Error() string {
	return fmt.Sprintf("the token would have %d bytes, and none of more than %d is accepted", e.Bytes, e.Most)
}

// Issue makes a token that is good for a time; no audiences: those of the server.
// Too many of them are a *TooLongError. Whether the objects are there is for the
// caller to know. The first token makes the key, and writes its file.
func (a *Authority) Issue(s Subject, audiences []string, life time.Duration) (token string, expires time.Time, err error) {
	if len(audiences) == 0 {
		audiences = []string{a.c.Issuer}
	}
	now := a.c.Now().Truncate(time.Second)
	expires = now.Add(life)
	payload, err := json.Marshal(&claims{
		Audience: audiences, Expires: expires.Unix(), Issued: now.Unix(), Issuer: a.c.Issuer, ID: uuid.New(),
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

// Authenticate returns who a token is of, and for which of the audiences it is
// good; no audiences: those of the server. The user is nil, without an error, when
// the text is no token of this issuer's; the error says why one of them is not
// good now, and shows nothing of it. It implements authn.Signed.
func (a *Authority) Authenticate(token string, audiences []string) (*authn.User, []string, error) {
	c, err := a.open(token)
	if c == nil || err != nil {
		return nil, nil, err
	}
	if len(audiences) == 0 {
		audiences = []string{a.c.Issuer}
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

// open returns the claims of a token whose signature is right: nil, without an
// error, for what is no token of this issuer's.
func (a *Authority) open(token string) (*claims, error) {
	if len(token) > maxTokenBytes || strings.Count(token, ".") != 2 {
		return nil, nil
	}
	sum := sha256.Sum256([]byte(token))
	a.seen.RLock()
	c := a.verified[sum]
	a.seen.RUnlock()
	if c != nil {
		return c, nil
	}
	c, err := a.parse(token)
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
	a.verified[sum] = c
	return c, nil
}

// holds reports whether a token's time is now and its objects are there.
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
	if b.Pod != nil { // its node is what the token tells, not what it is bound to
		return nil
	}
	return a.present("nodes", "", b.Node)
}

// present reports whether an object is there, the same one as when the token was
// made, and not due to be gone; nil is nothing to look for.
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

// user is who the token is of.
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
