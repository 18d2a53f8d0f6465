package authn_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// TestBootstrapTokens: each condition of a bootstrap token counts.
func TestBootstrapTokens(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	const token = "abcdef.0123456789abcdef"
	valid := map[string]string{"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
	with := func(key, value string) func(*corev1.Secret) {
		return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
	}
	for what, row := range map[string]struct {
		token  string
		change func(*corev1.Secret)
		groups []string // nil: the token is not accepted
	}{
		"valid":               {token, nil, []string{"system:bootstrappers", "system:authenticated"}},
		"further groups":      {token, with("auth-extra-groups", "system:bootstrappers:z,system:bootstrappers:a,system:bootstrappers:a"), []string{"system:bootstrappers", "system:bootstrappers:a", "system:bootstrappers:z", "system:authenticated"}},
		"a group of others":   {token, with("auth-extra-groups", "system:bootstrappers:a,system:masters"), nil},
		"a later expiry":      {token, with("expiration", "2030-01-01T00:00:01Z"), []string{"system:bootstrappers", "system:authenticated"}},
		"expired":             {token, with("expiration", "2030-01-01T00:00:00Z"), nil},
		"no time":             {token, with("expiration", "tomorrow"), nil},
		"another secret":      {"abcdef.0123456789abcdee", nil, nil},
		"another ID":          {"abcdeg.0123456789abcdef", nil, nil},
		"an ID in the Secret": {token, with("token-id", "abcdeg"), nil},
		"no usage":            {token, with("usage-bootstrap-authentication", "TRUE"), nil},
		"another type":        {token, func(s *corev1.Secret) { s.Type = "Opaque" }, nil},
		"being deleted":       {token, func(s *corev1.Secret) { s.DeletionTimestamp = &metav1.Time{Time: now} }, nil},
		"upper case":          {"ABCDEF.0123456789abcdef", nil, nil},
		"too long":            {token + "0", nil, nil},
		"no dot":              {"abcdef00123456789abcdef", nil, nil},
		"empty":               {"", with("token-secret", ""), nil},
	} {
		s := &corev1.Secret{Type: "bootstrap.kubernetes.io/token", Data: map[string][]byte{}}
		for key, value := range valid {
			s.Data[key] = []byte(value)
		}
		if row.change != nil {
			row.change(s)
		}
		secrets := map[string]*corev1.Secret{"bootstrap-token-abcdef": s}
		b := &authn.BootstrapTokens{Secret: func(name string) *corev1.Secret { return secrets[name] }, Now: func() time.Time { return now }}
		c := authn.Credentials{Tokens: []authn.Tokens{b}}
		u, err := c.Authenticate(request("Authorization", "Bearer "+row.token))
		switch {
		case row.groups == nil:
			if u != nil {
				t.Errorf("%s: %+v", what, u)
			}
		case err != nil || u.Name != "system:bootstrap:abcdef" || !slices.Equal(u.Groups, row.groups):
			t.Errorf("%s: %+v, %v; want %q", what, u, err, row.groups)
		}
		clear(secrets)
		if u, _ := c.Authenticate(request("Authorization", "Bearer "+row.token)); u != nil {
			t.Errorf("%s: accepted without its Secret", what)
		}
	}
}
