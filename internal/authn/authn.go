// Package authn authenticates requests: by the headers of a front proxy, by client certificate,
// or by bearer token.
package authn

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// User is the user that sends a request. It is immutable.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Info returns the user in the form that objects contain. The caller must not change it.
func (u *User) Info() authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.Name, UID: u.UID, Groups: u.Groups}
	for key, values := range u.Extra {
		if info.Extra == nil {
			info.Extra = make(map[string]authenticationv1.ExtraValue, len(u.Extra))
		}
		info.Extra[key] = values
	}
	return info
}

// Anonymous is the user of a request without credentials.
var Anonymous = &User{Name: "system:anonymous", Groups: []string{Unauthenticated}}

const (
	// Authenticated is the group of all users with valid credentials.
	Authenticated = "system:authenticated"
	// Unauthenticated is the group of system:anonymous.
	Unauthenticated = "system:unauthenticated"
)

// IsAnonymous reports whether the user is system:anonymous, or belongs to its group.
func (u *User) IsAnonymous() bool {
	return u.Name == Anonymous.Name || slices.Contains(u.Groups, Unauthenticated)
}

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the user, which is Anonymous for a request without credentials where
	// that is allowed. A nil user is refused, with or without an error. The error is for the
	// log and contains no secret.
	Authenticate(r *http.Request) (*User, error)
}

// Credentials authenticates by the headers of a front proxy, then by client certificate, then by
// bearer token. The first valid credential wins, and an invalid one before it is ignored. A request
// whose only credentials are invalid is rejected, also where anonymous requests are allowed.
//
// A user is a member of Authenticated, unless it is anonymous.
type Credentials struct {
	// Proxy authenticates the users whom front proxies name; nil: the headers are ignored.
	Proxy *Proxy
	// Authorities verify client certificates. Empty: certificates are ignored.
	Authorities []Authority
	// Tokens are the kinds of bearer tokens, in the order in which they are tried: local ones
	// before those that call a remote server.
	Tokens []Tokens
	// Audiences are the audiences of the server. A token for others is invalid. Empty: all are
	// accepted.
	Audiences []string
	// Anonymous is the policy for requests without credentials.
	Anonymous AnonymousPolicy
	// Now is the clock for the validity of certificates; nil: time.Now.
	Now func() time.Time
	// Metrics counts requests; nil: nothing does.
	Metrics *Metrics
}

// AnonymousPolicy selects the requests without credentials that get the user Anonymous. The zero
// value refuses all.
type AnonymousPolicy struct {
	Enabled bool
	// Paths are the only paths that are allowed, compared exactly: /livez does not include
	// /livez/ping. Empty: all.
	Paths []string
}

func (p *AnonymousPolicy) allows(r *http.Request) bool {
	return p.Enabled && (len(p.Paths) == 0 || slices.Contains(p.Paths, r.URL.Path))
}

var errInvalid = errors.New("invalid bearer token")

// Authenticate implements Authenticator.
func (c *Credentials) Authenticate(r *http.Request) (*User, error) {
	if c.Metrics == nil {
		return c.decide(r)
	}
	began := time.Now()
	u, err := c.decide(r)
	c.Metrics.done(u, err, time.Since(began))
	return u, err
}

// decide authenticates a request that has credentials, and applies the policy to one without.
func (c *Credentials) decide(r *http.Request) (*User, error) {
	connection := connOf(r)
	u, err := c.authenticate(r, connection)
	if u == nil && err == nil && c.Anonymous.allows(r) {
		return Anonymous, nil
	}
	if u != nil && connection != nil && connection.authenticated != nil && !u.IsAnonymous() {
		connection.authenticated()
	}
	return u, err
}

// authenticate returns the user of the first valid credential. If there is none, it returns the
// errors of the invalid ones.
func (c *Credentials) authenticate(r *http.Request, connection *conn) (*User, error) {
	u, wrong := c.Proxy.byHeaders(r, connection, c.now)
	if u != nil {
		return u, nil
	}
	u, err := c.byCertificate(r, connection)
	if u != nil {
		return u, nil
	}
	wrong = errors.Join(wrong, err)
	for _, find := range [...]func(*http.Request) (string, error){bearer, offered} {
		token, err := find(r)
		if token != "" {
			t := NewToken(token)
			t.From = r.RemoteAddr
			u, _, err = authenticateToken(r.Context(), c.Tokens, t, c.Audiences)
			if u != nil {
				return u, nil
			}
			err = cmp.Or(err, errInvalid)
		}
		wrong = errors.Join(wrong, err)
	}
	return nil, wrong
}

// InGroup returns the user as a member of Authenticated, unless the user is anonymous.
func (u *User) InGroup() *User {
	if u.IsAnonymous() || slices.Contains(u.Groups, Authenticated) {
		return u
	}
	with := *u
	with.Groups = append(slices.Clip(u.Groups), Authenticated)
	return &with
}

// flatten returns several errors as kube-apiserver shows them: "[a, b]", each text once.
func flatten(errs ...error) error {
	if all := utilerrors.NewAggregate(errs); all != nil {
		return all
	}
	return nil
}
