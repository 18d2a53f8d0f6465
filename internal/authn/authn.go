// Package authn tells who sends a request: by its client certificate, or by its
// bearer token.
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

// User is who sends a request. It is immutable.
type User struct {
	Name   string
	UID    string
	Groups []string
	Extra  map[string][]string
}

// Info is the user as objects name one. The caller must not change its parts.
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

// Authenticated is the group of every user who showed right credentials.
const Authenticated = "system:authenticated"

// Authenticator finds out who sends a request. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the user, nil when the request carries no credentials at
	// all, and an error when it carries wrong ones. The error's text is for the log
	// and holds no secret.
	Authenticate(r *http.Request) (*User, error)
}

// Credentials authenticates by client certificate and by bearer token. The first
// that is right counts, the certificate before the token; when one is wrong and
// none is right the request is refused.
type Credentials struct {
	// Authorities verify client certificates: each a function that returns the
	// certificates to trust now, or nil for none. Empty: certificates do not count.
	Authorities []Authority
	// Tokens are asked in this order.
	Tokens []Tokens
	// Signed verifies what none of Tokens knows; nil: there are no such tokens.
	Signed Signed
	// Audiences are those of the server: who shows a token of Tokens is known to
	// them. Empty: there are none, and a review for an audience knows no such token.
	Audiences []string
	// Now is the clock that certificates are checked by; nil: time.Now.
	Now func() time.Time
}

// Tokens knows users by the SHA-256 of their bearer tokens; nil for a token that
// it does not know. Looking a hash up tells nothing of a token by the time it
// takes. It is safe for concurrent use.
type Tokens func(sum [sha256.Size]byte) *User

// Signed verifies a token that says itself who it is of, for one of the audiences;
// no audiences: those of the server. It returns for which of them the token is good.
// The user is nil, without an error, when the text is no such token. It is safe for
// concurrent use.
type Signed func(token string, audiences []string) (u *User, good []string, err error)

// OneToken is the Tokens of a single user.
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

// Review tells who a bearer token is of, and for which of the audiences; no
// audiences: those of the server. The user is nil for a token that is not good; then
// the error says why, for the caller, and shows nothing of the token.
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
