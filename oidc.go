package tidemark

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
)

// OIDC configures an OpenID Connect issuer whose ID tokens are accepted as bearer tokens. The zero
// value configures none. Authentication.ConfigFile can list several issuers, with more rules.
type OIDC struct {
	// IssuerURL is the issuer, an https URL. Its keys are found by OpenID Connect Discovery.
	// Until the issuer has responded, its tokens are refused.
	IssuerURL string
	// ClientID is the audience that a token must have. It is required with IssuerURL.
	ClientID string
	// CAFile holds the certificates (PEM) of the authorities that verify the issuer's
	// certificate; empty: those of the system.
	CAFile string

	// UsernameClaim is the claim with the name of the user; empty: "sub".
	UsernameClaim string
	// UsernamePrefix is put before the name; "-": nothing. Empty: nothing before the claim
	// "email", and otherwise the issuer's URL and "#".
	UsernamePrefix string
	// GroupsClaim is the claim with the groups of the user, a string or a list; empty: there are
	// no groups.
	GroupsClaim string
	// GroupsPrefix is put before each group; empty: nothing.
	GroupsPrefix string

	// RequiredClaims are claims that a token must have, with their values. Nil: none.
	RequiredClaims map[string]string
	// SigningAlgs are the accepted signing algorithms: RS256, RS384, RS512, ES256, ES384, ES512,
	// PS256, PS384, PS512. Nil: RS256.
	SigningAlgs []string
}

// isZero reports whether nothing is configured.
func (o *OIDC) isZero() bool {
	return o.IssuerURL == "" && o.ClientID == "" && o.CAFile == "" && o.UsernameClaim == "" && o.UsernamePrefix == "" &&
		o.GroupsClaim == "" && o.GroupsPrefix == "" && len(o.RequiredClaims) == 0 && len(o.SigningAlgs) == 0
}

// checkIssuers validates everything that needs no file.
func (a *Authentication) checkIssuers() error {
	if a.OIDC.isZero() {
		return nil
	}
	if a.ConfigFile != "" {
		return errors.New("authentication-config file and oidc-* flags are mutually exclusive")
	}
	if a.OIDC.IssuerURL == "" || a.OIDC.ClientID == "" {
		return errors.New("oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set")
	}
	for _, name := range a.OIDC.SigningAlgs {
		if !slices.Contains(oidc.Algorithms, name) {
			return fmt.Errorf("oidc: unsupported signing alg: %q", name)
		}
	}
	return nil
}

// authenticator returns the configuration as an AuthenticationConfiguration has it.
func (o *OIDC) authenticator() (apiserver.JWTAuthenticator, error) {
	name, prefix := o.UsernameClaim, o.UsernamePrefix
	if name == "" {
		name = "sub"
	}
	switch {
	case prefix == "-":
		prefix = ""
	case prefix == "" && name != "email":
		prefix = o.IssuerURL + "#"
	}
	a := apiserver.JWTAuthenticator{
		Issuer:        apiserver.Issuer{URL: o.IssuerURL, Audiences: []string{o.ClientID}},
		ClaimMappings: apiserver.ClaimMappings{Username: apiserver.PrefixedClaimOrExpression{Claim: name, Prefix: &prefix}},
	}
	if o.GroupsClaim != "" {
		a.ClaimMappings.Groups = apiserver.PrefixedClaimOrExpression{Claim: o.GroupsClaim, Prefix: &o.GroupsPrefix}
	}
	for claim, value := range o.RequiredClaims {
		a.ClaimValidationRules = append(a.ClaimValidationRules, apiserver.ClaimValidationRule{Claim: claim, RequiredValue: value})
	}
	slices.SortFunc(a.ClaimValidationRules, func(x, y apiserver.ClaimValidationRule) int { return strings.Compare(x.Claim, y.Claim) })
	if o.CAFile != "" {
		b, err := os.ReadFile(o.CAFile)
		if err != nil {
			return a, fmt.Errorf("the authorities of the issuer of ID tokens: %w", err)
		}
		a.Issuer.CertificateAuthority = string(b)
	}
	return a, nil
}
