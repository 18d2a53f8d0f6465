package authn

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Token is a bearer token.
type Token struct {
	// Text is the token. It must not appear in logs, errors or responses.
	Text string
	// Sum is the SHA-256 of Text. Tokens are looked up by it: the time of a lookup by hash
	// reveals nothing about the tokens.
	Sum [sha256.Size]byte
	// From is the address of the client that sends the token, "host:port". It is empty if a TokenReview has the token.
	From string
}

// Client identifies the client that sends the token: by its IPv4 address, or by its IPv6 network of 64 bits, in which a
// client may choose any address. It is empty if From is.
func (t *Token) Client() string {
	from, err := netip.ParseAddrPort(t.From)
	if err != nil {
		return t.From
	}
	a := from.Addr().Unmap().WithZone("")
	if a.Is6() {
		if site, err := a.Prefix(64); err == nil {
			a = site.Addr()
		}
	}
	return a.String()
}

// ErrBusy is the error of Tokens that are too busy with other tokens to check one. A request without another valid
// credential gets 429.
var ErrBusy = errors.New("too many requests are waiting for an authenticator, please try again later")

// NewToken returns the token with that text. Usual tokens cost no allocation: they are copied to the
// stack, short ones to a small buffer.
func NewToken(text string) Token {
	var buf [128]byte
	if len(text) > len(buf) {
		return longToken(text)
	}
	return Token{Text: text, Sum: sha256.Sum256(append(buf[:0], text...))}
}

//go:noinline
func longToken(text string) Token {
	var buf [1536]byte // a service account's token has about a thousand bytes
	return Token{Text: text, Sum: sha256.Sum256(append(buf[:0], text...))}
}

// String implements fmt.Stringer, and hides the token.
func (Token) String() string { return "(a token)" }

// Tokens is one kind of bearer tokens. It is safe for concurrent use.
type Tokens interface {
	// AuthenticateToken returns the user of a token, and those of the audiences for which the token
	// is valid. No audiences means those of the server.
	//
	// If the user is nil without an error, the token is not of this kind. With an error the token
	// is invalid, or could not be checked. The next kind is tried in both cases. Clients see the
	// error in a TokenReview: it must not show the token.
	//
	// A user that is returned often should be a member of Authenticated, which saves a copy for
	// each request.
	AuthenticateToken(ctx context.Context, t Token, audiences []string) (u *User, good []string, err error)
}

// authenticateToken returns the user of the first kind that accepts a token, and the audiences for
// which it is valid. If there is none, it returns the errors of all kinds.
func authenticateToken(ctx context.Context, kinds []Tokens, t Token, audiences []string) (*User, []string, error) {
	var errs []error
	for _, kind := range kinds {
		u, good, err := kind.AuthenticateToken(ctx, t, audiences)
		switch {
		case err != nil:
			errs = append(errs, err)
		case u == nil:
		case len(audiences) > 0 && !overlap(audiences, good):
			errs = append(errs, fmt.Errorf("unable to match the audience: %v , accepted: %v", good, audiences))
		default:
			return u.InGroup(), good, nil
		}
	}
	return nil, nil, flatten(errs...)
}

// Review returns the user of a bearer token, and the audiences for which it is valid; no audiences
// means those of the server. For an invalid token the user is nil, and the error has the reason.
// The client may see it, so it does not show the token.
func (c *Credentials) Review(ctx context.Context, token string, audiences []string) (u *User, good []string, err error) {
	if len(audiences) == 0 {
		audiences = c.Audiences
	}
	u, good, err = authenticateToken(ctx, c.Tokens, NewToken(token), audiences)
	if u == nil {
		return nil, nil, flatten(errInvalid, err)
	}
	return u, good, nil
}

// ForAudiences returns tokens that carry no audiences (a token file, for example) as valid for own,
// the audiences of the server. For other audiences they are not tried.
func ForAudiences(own []string, tokens Tokens) Tokens { return &ownAudiences{own, tokens} }

type ownAudiences struct {
	own    []string
	tokens Tokens
}

// AuthenticateToken implements Tokens.
func (a *ownAudiences) AuthenticateToken(ctx context.Context, t Token, audiences []string) (*User, []string, error) {
	good := a.own
	if len(audiences) > 0 && !slices.Equal(audiences, a.own) {
		if good = common(audiences, a.own); len(good) == 0 {
			return nil, nil, nil
		}
	}
	u, _, err := a.tokens.AuthenticateToken(ctx, t, good)
	return u, good, err
}

// common returns the wanted audiences that are among those of a token or a server.
func common(wanted, of []string) []string {
	var all []string
	for _, a := range wanted {
		if slices.Contains(of, a) {
			all = append(all, a)
		}
	}
	return all
}

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// OneToken returns Tokens with a single user.
func OneToken(token string, u *User) Tokens {
	users := map[[sha256.Size]byte]*User{NewToken(token).Sum: u.InGroup()}
	return known(func() map[[sha256.Size]byte]*User { return users })
}

// known returns the users of static tokens by the hashes of the tokens.
type known func() map[[sha256.Size]byte]*User

// AuthenticateToken implements Tokens. The tokens carry no audiences.
func (k known) AuthenticateToken(_ context.Context, t Token, audiences []string) (*User, []string, error) {
	return k()[t.Sum], audiences, nil
}
