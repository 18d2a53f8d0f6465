// Package authn authenticates requests by client certificate or bearer token.
package authn

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
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
var Anonymous = &User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}

// Authenticated is the group of all users with valid credentials.
const Authenticated = "system:authenticated"

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the user; nil if the request has no credentials; an error if they
	// are invalid. The error is for the log and contains no secret.
	Authenticate(r *http.Request) (*User, error)
}

// Credentials authenticates by client certificate, then by bearer token. The first valid one
// counts. If none is valid and one is invalid, the request is refused.
type Credentials struct {
	// Authorities verify client certificates. Empty: certificates are ignored.
	Authorities []Authority
	// Tokens are searched in this order.
	Tokens []Tokens
	// Signed verifies tokens that none of Tokens knows; nil: there are none.
	Signed Signed
	// Audiences are the audiences of the server, for which all of Tokens are valid. Empty:
	// there are none, and no review for an audience accepts one of Tokens.
	Audiences []string
	// Now is the clock for the validity of certificates; nil: time.Now.
	Now func() time.Time
}

// Tokens returns the user of a bearer token by the SHA-256 of the token, nil if it is unknown.
// The time of a lookup by hash reveals nothing about the tokens. It is safe for concurrent
// use.
type Tokens func(sum [sha256.Size]byte) *User

// Signed verifies a signed token for the audiences; none: those of the server. It returns the
// audiences for which the token is valid. The user is nil, without an error, if the text is
// not a signed token. It is safe for concurrent use.
type Signed func(token string, audiences []string) (u *User, good []string, err error)

// OneToken returns Tokens with a single user.
func OneToken(token string, u *User) Tokens {
	known := sha256.Sum256([]byte(token))
	return func(sum [sha256.Size]byte) *User {
		if sum == known {
			return u
		}
		return nil
	}
}

var errToken = errors.New("the bearer token is not known")

// Authenticate implements Authenticator.
func (c *Credentials) Authenticate(r *http.Request) (*User, error) {
	connection := connOf(r)
	u, err := c.authenticate(r, connection)
	if u != nil && connection != nil && connection.authenticated != nil {
		connection.authenticated()
	}
	return u, err
}

func (c *Credentials) authenticate(r *http.Request, connection *conn) (*User, error) {
	u, err := c.byCertificate(r, connection)
	if u != nil {
		return u, nil
	}
	token, tokenErr := bearer(r)
	if token != "" {
		if u := c.known(token); u != nil {
			return u, nil
		}
		tokenErr = errToken
		if c.Signed != nil {
			u, _, wrong := c.Signed(token, nil)
			if u != nil {
				return u, nil
			}
			tokenErr = cmp.Or(wrong, tokenErr)
		}
	}
	return nil, errors.Join(err, tokenErr)
}

// Review returns the user of a bearer token, and the audiences for which it is valid; no
// audiences: those of the server. For an invalid token the user is nil, and the error, which
// the client may see, says why without showing the token.
func (c *Credentials) Review(token string, audiences []string) (u *User, good []string, err error) {
	if len(audiences) == 0 {
		audiences = c.Audiences
	}
	if u := c.known(token); u != nil {
		for _, a := range audiences {
			if slices.Contains(c.Audiences, a) {
				good = append(good, a)
			}
		}
		if len(good) == 0 && len(audiences) > 0 {
			return nil, nil, errInvalid
		}
		return u, good, nil
	}
	if c.Signed == nil {
		return nil, nil, errInvalid
	}
	u, good, err = c.Signed(token, audiences)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("[%w, %w]", errInvalid, err)
	case u == nil:
		return nil, nil, errInvalid
	}
	return u, good, nil
}

var errInvalid = errors.New("invalid bearer token")

// known looks a token up among Tokens.
func (c *Credentials) known(token string) *User {
	var buf [128]byte // on the stack: a usual token costs no allocation
	sum := sha256.Sum256(append(buf[:0], token...))
	for _, known := range c.Tokens {
		if u := known(sum); u != nil {
			return u
		}
	}
	return nil
}
