package issuers

import (
	"context"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc/oidctest"
)

// BenchmarkTokens measures a token whose result is known, and one that is verified each time.
func BenchmarkTokens(b *testing.B) {
	issuer := oidctest.Listen(b)
	rules := "  userValidationRules: [{expression: 'user.groups.all(g, !g.startsWith(\"system:\"))'}]\n"
	for name, text := range map[string]string{"claims": "", "expressions": rules} {
		for _, algorithm := range []string{"RS256", "ES256"} {
			issuer.Rotate(b, jose.SignatureAlgorithm(algorithm))
			i, err := Open(Config{File: file(b, header+"jwt:\n"+entry(issuer, "")+text), Log: quiet})
			if err != nil {
				b.Fatal(err)
			}
			i.ready(b)
			token := authn.NewToken(issuer.Token(b, time.Now(), map[string]any{"groups": []string{"a", "b"}}))
			if got := i.who(token.Text); got != "ann" {
				b.Fatal(got)
			}
			b.Run(name+"/"+algorithm+"/known", func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					i.AuthenticateToken(context.Background(), token, nil)
				}
			})
			b.Run(name+"/"+algorithm+"/verified", func(b *testing.B) {
				b.ReportAllocs()
				one := i.current.Load().issuers[issuer.URL]
				for b.Loop() {
					if _, err := one.Authenticate(context.Background(), token.Text); err != nil {
						b.Fatal(err)
					}
				}
			})
			i.Close()
		}
	}
}
