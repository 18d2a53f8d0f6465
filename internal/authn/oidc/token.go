package oidc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// maxTokenBytes limits the length of a token.
const maxTokenBytes = 1 << 20

// Algorithms are the signing algorithms that can be allowed, sorted. All are asymmetric.
var Algorithms = []string{"ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "RS256", "RS384", "RS512"}

// notBeforeLeeway is how far the clock of an issuer may be ahead.
const notBeforeLeeway = time.Minute

// UnverifiedIssuer returns the issuer that a token names, "" if the text is not a JWT. The token
// is not verified: the issuer only selects who verifies it.
func UnverifiedIssuer(token string) string {
	if len(token) > maxTokenBytes || strings.Count(token, ".") != 2 {
		return ""
	}
	_, rest, _ := strings.Cut(token, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return ""
	}
	var c claims
	if json.Unmarshal(text, &c) != nil {
		return ""
	}
	issuer, err := c.text("iss")
	if err != nil {
		return ""
	}
	return fullIssuer(issuer)
}

// fullIssuer returns the URL of an issuer. Google's tokens can name theirs without the scheme.
func fullIssuer(issuer string) string {
	if issuer == "accounts.google.com" {
		return "https://accounts.google.com"
	}
	return issuer
}

// parseToken parses a signed token with one of the algorithms.
func parseToken(token string, algorithms []string) (*jose.JSONWebSignature, error) {
	if len(token) > maxTokenBytes {
		return nil, fmt.Errorf("oidc: the token is longer than %d bytes", maxTokenBytes)
	}
	header, _, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.DecodeString(header)
	if err != nil {
		return nil, fmt.Errorf("oidc: malformed jwt: %w", err)
	}
	var h struct {
		Algorithm string `json:"alg"`
	}
	if err := json.Unmarshal(text, &h); err != nil {
		return nil, fmt.Errorf("oidc: malformed jwt: %w", err)
	}
	if !slices.Contains(algorithms, h.Algorithm) {
		return nil, fmt.Errorf("oidc: id token signed with unsupported algorithm, expected %q got %q", algorithms, h.Algorithm)
	}
	allowed := make([]jose.SignatureAlgorithm, len(algorithms))
	for i, a := range algorithms {
		allowed[i] = jose.SignatureAlgorithm(a)
	}
	parsed, err := jose.ParseSignedCompact(token, allowed)
	if err != nil {
		return nil, fmt.Errorf("oidc: malformed jwt: %w", err)
	}
	return parsed, nil
}

// verified is a token whose signature and registered claims have been verified.
type verified struct {
	claims claims
	// from and until bound the validity of the token.
	from, until time.Time
	// keys verified the signature; nil: it must be verified again each time.
	keys *keySet
}

// idToken has the claims whose types OpenID Connect defines. A token with other types is rejected.
// The values are never read from here, because encoding/json ignores the case of names.
type idToken struct {
	Issuer    string            `json:"iss"`
	Subject   string            `json:"sub"`
	Audience  oneOrMore         `json:"aud"`
	Expiry    numericDate       `json:"exp"`
	IssuedAt  numericDate       `json:"iat"`
	NotBefore numericDate       `json:"nbf"`
	Nonce     string            `json:"nonce"`
	Hash      string            `json:"at_hash"`
	Names     map[string]string `json:"_claim_names"`
	Sources   map[string]source `json:"_claim_sources"`
}

// expected has the required values of the registered claims of a token.
type expected struct {
	issuer    string
	audiences []string
	now       time.Time
}

// check reads the registered claims of a payload and checks them.
func (e expected) check(payload []byte) (*verified, error) {
	v := &verified{}
	var types idToken
	if err := json.Unmarshal(payload, &types); err != nil {
		return nil, fmt.Errorf("oidc: failed to unmarshal claims: %w", err)
	}
	if err := json.Unmarshal(payload, &v.claims); err != nil {
		return nil, fmt.Errorf("oidc: failed to unmarshal claims: %w", err)
	}
	if err := v.claims.checkSources(); err != nil {
		return nil, err
	}
	var audiences oneOrMore
	var issuer string
	var expiry, notBefore numericDate
	for name, into := range map[string]any{"iss": &issuer, "aud": &audiences, "exp": &expiry, "nbf": &notBefore} {
		if err := v.claims.decode(name, into); err != nil && !errors.Is(err, errNoClaim) {
			return nil, fmt.Errorf("oidc: failed to unmarshal claims: %w", err)
		}
	}
	if fullIssuer(issuer) != e.issuer {
		return nil, fmt.Errorf("oidc: id token issued by a different provider, expected %q got %q", e.issuer, issuer)
	}
	if !slices.ContainsFunc(e.audiences, func(a string) bool { return slices.Contains(audiences, a) }) {
		if len(e.audiences) == 1 {
			return nil, fmt.Errorf("oidc: expected audience %q got %q", e.audiences[0], []string(audiences))
		}
		return nil, fmt.Errorf("oidc: expected audience in %q got %q", slices.Sorted(slices.Values(e.audiences)), []string(audiences))
	}
	v.until = time.Time(expiry)
	if v.until.Before(e.now) {
		return nil, fmt.Errorf("oidc: token is expired (Token Expiry: %v)", v.until)
	}
	if at := time.Time(notBefore); !at.IsZero() {
		v.from = at.Add(-notBeforeLeeway)
		if e.now.Before(v.from) {
			return nil, fmt.Errorf("oidc: current time %v before the nbf (not before) time: %v", e.now, at)
		}
	}
	return v, nil
}

// numericDate is a time in seconds since 1970; zero: the claim is absent.
type numericDate time.Time

var errDate = errors.New("a time is out of range")

func (d *numericDate) UnmarshalJSON(b []byte) error {
	var n json.Number
	if err := json.Unmarshal(b, &n); err != nil || n == "" { // null
		return err
	}
	seconds, err := n.Int64()
	if err != nil {
		f, err := n.Float64()
		if err != nil {
			return err
		}
		seconds = int64(max(math.MinInt64/2, min(math.MaxInt64/2, f)))
	}
	const year9999 = 253402300799
	if seconds < -year9999 || seconds > year9999 {
		return errDate
	}
	*d = numericDate(time.Unix(seconds, 0))
	return nil
}
