package authn

import (
	"context"
	"crypto/subtle"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// BootstrapTokens authenticates bootstrap tokens, by which new nodes join a cluster: ID.SECRET, of 6 and
// 16 characters. The Secret bootstrap-token-ID in kube-system has the secret, the groups and the
// expiry. Each request sees the Secret as it is then.
type BootstrapTokens struct {
	// Secret returns a Secret of kube-system by its name, nil if there is none.
	Secret func(name string) *corev1.Secret
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

const (
	bootstrapIDBytes     = 6
	bootstrapSecretBytes = 16
	bootstrapType        = "bootstrap.kubernetes.io/token"
	bootstrapUser        = "system:bootstrap:"
	bootstrappers        = "system:bootstrappers"
)

// bootstrapGroup are the groups that a Secret may add.
var bootstrapGroup = regexp.MustCompile(`\Asystem:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]\z`)

// AuthenticateToken implements Tokens. The tokens carry no audiences.
func (b *BootstrapTokens) AuthenticateToken(_ context.Context, t Token, audiences []string) (*User, []string, error) {
	id, secret, ok := cutBootstrap(t.Text)
	if !ok {
		return nil, nil, nil
	}
	s := b.Secret("bootstrap-token-" + id)
	if s == nil || s.DeletionTimestamp != nil || s.Type != bootstrapType {
		return nil, nil, nil
	}
	known := subtle.ConstantTimeCompare(s.Data["token-secret"], []byte(secret)) == 1
	if !known || string(s.Data["token-id"]) != id || string(s.Data["usage-bootstrap-authentication"]) != "true" || b.expired(s) {
		return nil, nil, nil
	}
	groups, ok := bootstrapGroups(string(s.Data["auth-extra-groups"]))
	if !ok {
		return nil, nil, nil
	}
	return &User{Name: bootstrapUser + id, Groups: groups}, audiences, nil
}

// cutBootstrap returns the parts of a bootstrap token; ok is false if the text is none.
func cutBootstrap(text string) (id, secret string, ok bool) {
	if len(text) != bootstrapIDBytes+1+bootstrapSecretBytes || text[bootstrapIDBytes] != '.' {
		return "", "", false
	}
	id, secret = text[:bootstrapIDBytes], text[bootstrapIDBytes+1:]
	return id, secret, alphanumeric(id) && alphanumeric(secret)
}

func alphanumeric(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'z') })
}

// expired reports whether the token has expired. A time that cannot be read has passed.
func (b *BootstrapTokens) expired(s *corev1.Secret) bool {
	text := string(s.Data["expiration"])
	if text == "" {
		return false
	}
	now := time.Now
	if b.Now != nil {
		now = b.Now
	}
	at, err := time.Parse(time.RFC3339, text)
	return err != nil || !at.After(now())
}

// bootstrapGroups returns the groups of a token, sorted; ok is false if one is not allowed.
func bootstrapGroups(extra string) (groups []string, ok bool) {
	groups = []string{bootstrappers}
	if extra != "" {
		for group := range strings.SplitSeq(extra, ",") {
			if !bootstrapGroup.MatchString(group) {
				return nil, false
			}
			groups = append(groups, group)
		}
	}
	slices.Sort(groups)
	return slices.Compact(groups), true
}
