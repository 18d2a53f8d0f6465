package tidemark

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Authentication configures the credentials that a Server accepts, in addition to those of its own
// administrator. The zero value accepts client certificates and tokens of service accounts.
type Authentication struct {
	// APIAudiences are the audiences of the server. A token is valid for the server if it is for one
	// of them; a token that is requested for no audience is for all of them. Empty: the issuer of
	// service account tokens.
	APIAudiences []string

	// ConfigFile is a file with an AuthenticationConfiguration of apiserver.config.k8s.io, which
	// lists OpenID Connect issuers and can limit anonymous requests to some paths. It is read
	// again when it changes; a changed policy for anonymous requests is refused. It excludes
	// OIDC, and a policy for anonymous requests in it excludes DisableAnonymous. Empty: there is
	// none.
	ConfigFile string
	// OIDC is one OpenID Connect issuer whose ID tokens are accepted. The zero value is none.
	OIDC OIDC
}

// openTokens must be called after openStore, which locks the data directory.
func (s *Server) openTokens(objects *store.Store, catalog *resource.Catalog) (*satoken.Authority, error) {
	c := satoken.Config{Dir: s.pkiDir(), Issuer: s.ServiceAccountIssuer, Audiences: s.Authentication.APIAudiences, Now: s.now}
	c.Find = func(name, namespace, object string) (satoken.Found, bool) {
		i, ok := registry.IdentityOf(objects.Any(), registry.Target{Type: catalog.Lookup("", "v1", name), Namespace: namespace, Name: object})
		return satoken.Found{UID: i.UID, Deleted: i.Deleted}, ok
	}
	return satoken.Open(c)
}

// credentials returns the authenticator. Its kinds of tokens are in the order of kube-apiserver:
// the administrator's token, the token file, service accounts, and then those that may ask a remote
// server.
func (s *Server) credentials(r *running, log *slog.Logger) (*authn.Credentials, error) {
	admin := &authn.User{Name: "admin", Groups: []string{"system:masters", authn.Authenticated}}
	c := &authn.Credentials{
		Now:         s.now,
		Authorities: []authn.Authority{r.authority.Pool},
		Audiences:   r.tokens.Audiences(),
		Anonymous:   authn.AnonymousPolicy{Enabled: !s.DisableAnonymous},
	}
	c.Tokens = append(c.Tokens, authn.ForAudiences(c.Audiences, authn.OneToken(r.authority.AdminToken(), admin)))
	if s.ClientCAFile != "" {
		a, err := authn.AuthorityFile(s.ClientCAFile, s.now, log)
		if err != nil {
			return nil, fmt.Errorf("the authorities of clients: %w", err)
		}
		c.Authorities = append(c.Authorities, a)
	}
	if s.TokenAuthFile != "" {
		t, err := authn.TokenFile(s.TokenAuthFile, s.now, log)
		if err != nil {
			return nil, fmt.Errorf("the bearer tokens: %w", err)
		}
		c.Tokens = append(c.Tokens, authn.ForAudiences(c.Audiences, t))
	}
	c.Tokens = append(c.Tokens, r.tokens)
	s.addIssuers(c, r)
	return c, nil
}

// clientCA returns the certificates of the authorities that sign client certificates.
func (s *Server) clientCA(own *pki.Authority) ([]byte, error) {
	all := own.CertificatePEM()
	if s.ClientCAFile == "" {
		return all, nil
	}
	given, err := os.ReadFile(s.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("the authorities of clients: %w", err)
	}
	return append(append([]byte{}, all...), given...), nil
}

// issuerPages let other servers verify service account tokens.
func (r *running) issuerPages() []httpapi.Page {
	const keys = "/openid/v1/jwks"
	return []httpapi.Page{
		{Path: "/.well-known/openid-configuration", Media: "application/json", Read: func() ([]byte, error) { return r.tokens.Discovery(r.url + keys) }},
		{Path: keys, Media: "application/jwk-set+json", Read: r.tokens.KeySet},
	}
}
