package satoken

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// claims are the payload of a token, with the names of RFC 7519 and of Kubernetes.
type claims struct {
	Audience audience `json:"aud"`
	Expires  *seconds `json:"exp,omitempty"`
	Issued   *seconds `json:"iat,omitempty"`
	Issuer   string   `json:"iss"`
	ID       string   `json:"jti,omitempty"`
	Bound    bound    `json:"kubernetes.io"`
	From     *seconds `json:"nbf,omitempty"`
	Subject  string   `json:"sub"`
	World    string   `json:"tidemark.dev/fork,omitempty"`

	who *authn.User // the user; set when the token is verified
	// stored is the Secret that holds the token; empty: it is not a token of a Secret.
	stored string
	// given are the configured keys that the token was verified with. It is verified again after
	// they changed.
	given *keyring
}

type bound struct {
	Namespace      string   `json:"namespace"`
	Node           *Ref     `json:"node,omitempty"`
	Pod            *Ref     `json:"pod,omitempty"`
	Secret         *Ref     `json:"secret,omitempty"`
	ServiceAccount Ref      `json:"serviceaccount"`
	WarnAfter      *seconds `json:"warnafter,omitempty"`
}

// AuthenticateToken implements authn.Tokens. The user is nil, without an error, if the text is not
// a token of an issuer of this server.
func (a *Authority) AuthenticateToken(_ context.Context, t authn.Token, audiences []string) (*authn.User, []string, error) {
	c, err := a.open(t)
	if c == nil || err != nil {
		return nil, nil, err
	}
	if len(audiences) == 0 {
		audiences = a.c.Audiences
	}
	of := []string(c.Audience)
	if len(of) == 0 {
		of = a.c.Audiences
	}
	good := audiences // without an allocation, as for most tokens
	if !slices.Equal(of, audiences) {
		good = nil
		for _, want := range audiences {
			if slices.Contains(of, want) {
				good = append(good, want)
			}
		}
	}
	if len(good) == 0 {
		return nil, nil, fmt.Errorf("token audiences %q is invalid for the target audiences %q", of, audiences)
	}
	if err := a.holds(c, t); err != nil {
		return nil, nil, err
	}
	return c.who, good, nil
}

// open returns the claims of a token with a valid signature; nil, without an error, if the
// text is not a token of an issuer of this server.
func (a *Authority) open(t authn.Token) (*claims, error) {
	if len(t.Text) > maxTokenBytes || strings.Count(t.Text, ".") != 2 {
		return nil, nil
	}
	given := a.given()
	a.seen.RLock()
	c := a.verified[t.Sum]
	a.seen.RUnlock()
	if c != nil && c.given == given {
		return c, nil
	}
	c, err := a.parse(t.Text)
	if c == nil || err != nil {
		return nil, err
	}
	c.given = given
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

// parse reads a token of an issuer of this server and checks its signature, before it uses any claim
// but the issuer. It returns nil, without an error, if the text is not such a token.
func (a *Authority) parse(token string) (*claims, error) {
	signed := strings.LastIndexByte(token, '.')
	first, payload, _ := strings.Cut(token[:signed], ".")
	var unverified struct {
		Issuer string `json:"iss"`
	}
	var h header
	if !decode(payload, &unverified) || !decode(first, &h) {
		return nil, nil
	}
	inSecret := unverified.Issuer == storedIssuer && a.c.Secret != nil
	if !inSecret && !slices.Contains(a.c.Issuers, unverified.Issuer) {
		return nil, nil
	}
	signature, err := encoding.DecodeString(token[signed+1:])
	if err != nil || len(h.Critical) > 0 { // an extension that must be understood
		return nil, errSignature
	}
	keys := a.verifiers(h.Key)
	if len(keys) == 0 {
		return nil, errors.New("invalid signature, no keys found")
	}
	by := slices.IndexFunc(keys, func(k *key) bool { return k.verify(h.Algorithm, token[:signed], signature) == nil })
	if by < 0 {
		return nil, errSignature
	}
	c := new(claims)
	if inSecret {
		if c, err = readStored(payload); err != nil {
			return nil, err
		}
	} else if !decode(payload, c) {
		return nil, errors.New("the claims of a service account token are not in its format")
	}
	if c.World != "" && !slices.Contains(a.worlds, c.World) {
		return nil, errors.New("the token was issued by another fork of this server")
	}
	if forks := a.forks.Load(); c.World == "" && forks != nil && forks.signer.id == keys[by].id {
		return nil, errSignature // the key of forks signs no tokens of the server
	}
	c.who = c.user()
	return c, nil
}

// OfFork reports whether a text is a token that a fork issued, by its claims alone.
func OfFork(token string) bool {
	var c struct {
		World string `json:"tidemark.dev/fork"`
	}
	parts := strings.Split(token, ".")
	return len(parts) == 3 && decode(parts[1], &c) && c.World != ""
}

// decode reads one part of a token.
func decode(part string, into any) bool {
	b, err := encoding.DecodeString(part)
	return err == nil && json.Unmarshal(b, into) == nil
}

// holds returns an error unless the token is valid now and its objects exist.
func (a *Authority) holds(c *claims, t authn.Token) error {
	now := a.c.Now()
	if a.unbound && c.World == "" {
		return errors.New("the token was issued by the server, not by the fork")
	}
	if c.stored != "" {
		return a.storedHolds(c, t, now)
	}
	switch {
	case c.From != nil && now.Add(leeway).Before(c.From.time()):
		return errors.New("service account token is not valid yet")
	case c.Expires != nil && now.Add(-leeway).After(c.Expires.time()):
		return errors.New("service account token has expired")
	case c.Issued != nil && now.Add(leeway).Before(c.Issued.time()):
		return errors.New("service account token is issued in the future")
	case a.unbound:
		return nil
	}
	b := &c.Bound
	if err := a.accountExists(b.Namespace, b.ServiceAccount, now); err != nil {
		return err
	}
	if err := a.exists("secrets", b.Namespace, b.Secret, now); err != nil {
		return err
	}
	if err := a.exists("pods", b.Namespace, b.Pod, now); err != nil {
		return err
	}
	if b.Pod != nil { // the token is not bound to its node
		return nil
	}
	return a.exists("nodes", "", b.Node, now)
}

// accountExists returns an error unless the service account exists with the same uid, and does not
// have to be gone.
func (a *Authority) accountExists(namespace string, r Ref, now time.Time) error {
	found, ok := a.c.Find("serviceaccounts", namespace, r.Name)
	switch {
	case !ok:
		return fmt.Errorf("serviceaccounts %q not found", r.Name)
	case found.UID != r.UID:
		return fmt.Errorf("service account UID (%s) does not match claim (%s)", found.UID, r.UID)
	case found.gone(now):
		return fmt.Errorf("service account %s/%s has been deleted", namespace, r.Name)
	}
	return nil
}

// exists returns an error unless a bound object exists with the same uid, and does not have to be
// gone. A nil ref is no error.
func (a *Authority) exists(resource, namespace string, r *Ref, now time.Time) error {
	if r == nil {
		return nil
	}
	found, ok := a.c.Find(resource, namespace, r.Name)
	switch {
	case !ok, found.UID == r.UID && found.gone(now):
		return errors.New("service account token has been invalidated")
	case found.UID != r.UID:
		kind := strings.TrimSuffix(resource, "s")
		return fmt.Errorf("%s UID (%s) does not match service account %s ref claim (%s)", kind, found.UID, kind, r.UID)
	}
	return nil
}

// gone reports whether the object had to be gone a while ago.
func (f *Found) gone(now time.Time) bool {
	return !f.Deleted.IsZero() && f.Deleted.Before(now.Add(-leeway))
}

// user returns the user of the token.
func (c *claims) user() *authn.User {
	const prefix = "authentication.kubernetes.io/"
	b := &c.Bound
	extra := map[string][]string{}
	if c.ID != "" {
		extra[prefix+"credential-id"] = []string{credentialID(c.ID)}
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

func credentialID(id string) string { return "JTI=" + id }

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

// seconds is a time in Unix seconds. A fraction is cut off.
type seconds int64

func at(t time.Time) *seconds {
	s := seconds(t.Unix())
	return &s
}

func (s seconds) time() time.Time { return time.Unix(int64(s), 0) }

// UnmarshalJSON implements json.Unmarshaler.
func (s *seconds) UnmarshalJSON(b []byte) error {
	var f float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	const most = 1 << 40 // tens of thousands of years
	if !(f >= -most && f <= most) {
		return errors.New("a time is out of range")
	}
	*s = seconds(f)
	return nil
}
