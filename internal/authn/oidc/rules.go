package oidc

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Rules map the claims of a verified token to a user, and decide whether that user is accepted.
// They are immutable.
type Rules struct {
	mappings              apiserver.ClaimMappings
	username, groups, uid *expression // nil: the mapping names a claim, or nothing
	extra                 []extra

	required []requirement
	ofClaims []condition
	ofUser   []condition
}

// extra is an extra field of the user.
type extra struct {
	key   string
	value *expression
}

// requirement is a claim that must have a value.
type requirement struct{ claim, value string }

// condition is an expression that must be true.
type condition struct {
	expression *expression
	message    string
}

// credentialID is the key of Extra that names a token.
const credentialID = "authentication.kubernetes.io/credential-id"

// user returns the user of a token with these claims.
func (r *Rules) user(ctx context.Context, c claims) (*authn.User, error) {
	m := &mapping{Rules: r, ctx: ctx, claims: c}
	u, err := m.user()
	if err != nil {
		return nil, err
	}
	for _, q := range r.required {
		value, err := c.text(q.claim)
		switch {
		case errors.Is(err, errNoClaim):
			return nil, fmt.Errorf("oidc: required claim %s not present in ID token", q.claim)
		case err != nil:
			return nil, fmt.Errorf("oidc: parse claim %s: %w", q.claim, err)
		case value != q.value:
			return nil, fmt.Errorf("oidc: required claim %s value does not match. Got = %s, want = %s", q.claim, value, q.value)
		}
	}
	if len(r.ofClaims) > 0 {
		if err := check(ctx, r.ofClaims, m.all()); err != nil {
			return nil, fmt.Errorf("oidc: error evaluating claim validation expression: %w", err)
		}
	}
	if len(r.ofUser) > 0 {
		if err := check(ctx, r.ofUser, userValue(u)); err != nil {
			return nil, fmt.Errorf("oidc: error evaluating user info validation rule: %w", err)
		}
	}
	return u, nil
}

// check evaluates all conditions, then returns an error for the first that is not true.
func check(ctx context.Context, conditions []condition, v ref.Val) error {
	results := make([]ref.Val, len(conditions))
	for i, c := range conditions {
		var err error
		if results[i], err = c.expression.evaluate(ctx, v); err != nil {
			return err
		}
	}
	for i, c := range conditions {
		switch results[i] {
		case types.True:
		case types.False:
			return fmt.Errorf("validation expression '%s' failed: %s", c.expression.text, c.message)
		default:
			return errNoCondition
		}
	}
	return nil
}

// mapping maps the claims of one token.
type mapping struct {
	*Rules
	ctx    context.Context
	claims claims
	value  ref.Val // the claims as expressions see them; nil: no expression has been evaluated
}

// all returns the claims as expressions see them.
func (m *mapping) all() ref.Val {
	if m.value == nil {
		m.value = claimsValue(m.claims)
	}
	return m.value
}

func (m *mapping) user() (*authn.User, error) {
	u := &authn.User{}
	var err error
	if u.Name, err = m.name(); err != nil {
		return nil, err
	}
	if u.Groups, err = m.groupsOf(); err != nil {
		return nil, err
	}
	if u.UID, err = m.uidOf(); err != nil {
		return nil, err
	}
	if u.Extra, err = m.extraOf(); err != nil {
		return nil, err
	}
	return u, nil
}

var errEmptyName = errors.New("the user name is empty")

func (m *mapping) name() (string, error) {
	if m.username != nil {
		name, err := m.string("username", m.username)
		if err == nil && name == "" {
			return "", errors.New("oidc: empty username via CEL expression is not allowed")
		}
		return name, err
	}
	claim := m.mappings.Username.Claim
	name, err := m.claims.text(claim)
	if err == nil {
		name = prefixed(m.mappings.Username.Prefix, name)
		if name == "" {
			err = errEmptyName
		}
	}
	if err != nil {
		return "", fmt.Errorf("oidc: parse username claims %q: %w", claim, err)
	}
	if claim == "email" {
		return name, m.verifiedEmail()
	}
	return name, nil
}

// verifiedEmail returns an error if the claims mark the e-mail address as not verified.
func (m *mapping) verifiedEmail() error {
	var verified bool
	err := m.claims.decode("email_verified", &verified)
	switch {
	case errors.Is(err, errNoClaim):
		return nil
	case err != nil:
		return fmt.Errorf("oidc: parse 'email_verified' claim: %w", err)
	case !verified:
		return errors.New("oidc: email not verified")
	}
	return nil
}

func (m *mapping) groupsOf() ([]string, error) {
	if m.groups != nil {
		v, err := m.groups.evaluate(m.ctx, m.all())
		if err == nil {
			var all []string
			if all, err = stringsOf(v); err == nil {
				return all, nil
			}
		}
		return nil, fmt.Errorf("oidc: error evaluating group claim expression: %w", err)
	}
	claim := m.mappings.Groups.Claim
	if _, ok := m.claims[claim]; claim == "" || !ok {
		return nil, nil
	}
	var all oneOrMore
	if err := m.claims.decode(claim, &all); err != nil {
		return nil, fmt.Errorf("oidc: parse groups claim %q: %w", claim, err)
	}
	for i, g := range all {
		all[i] = prefixed(m.mappings.Groups.Prefix, g)
	}
	return all, nil
}

func (m *mapping) uidOf() (string, error) {
	if m.uid != nil {
		return m.string("uid", m.uid)
	}
	claim := m.mappings.UID.Claim
	if claim == "" {
		return "", nil
	}
	uid, err := m.claims.text(claim)
	if err != nil {
		return "", fmt.Errorf("oidc: parse uid claim %q: %w", claim, err)
	}
	return uid, nil
}

func (m *mapping) extraOf() (map[string][]string, error) {
	all := map[string][]string{}
	if id, err := m.claims.text("jti"); err == nil && id != "" {
		all[credentialID] = []string{"JTI=" + id}
	}
	values := make([]ref.Val, len(m.extra))
	for i, e := range m.extra {
		var err error
		if values[i], err = e.value.evaluate(m.ctx, m.all()); err != nil {
			return nil, err
		}
	}
	for i, e := range m.extra {
		found, err := stringsOf(values[i])
		if err != nil {
			return nil, fmt.Errorf("oidc: error evaluating extra claim expression: %s: %w", e.value.text, err)
		}
		if len(found) > 0 {
			all[e.key] = found
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

// string evaluates an expression that must return a string.
func (m *mapping) string(what string, e *expression) (string, error) {
	v, err := e.evaluate(m.ctx, m.all())
	if err == nil {
		if s, ok := v.(types.String); ok {
			return string(s), nil
		}
		err = fmt.Errorf("%s claim expression must return a string", what)
	}
	return "", fmt.Errorf("oidc: error evaluating %s claim expression: %w", what, err)
}

func prefixed(prefix *string, s string) string {
	if prefix == nil {
		return s
	}
	return *prefix + s
}
