package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
)

// oidcFlags begin the names of the flags of one OpenID Connect issuer.
const oidcFlags = "oidc-"

// registerOIDC registers the flags of OpenID Connect issuers.
func (f *serveFlags) registerOIDC(flags *pflag.FlagSet) {
	a := &f.server.Authentication
	flags.StringVar(&a.ConfigFile, "authentication-config", "", "file with an AuthenticationConfiguration (apiserver.config.k8s.io/v1, v1beta1 or v1alpha1): OpenID Connect issuers, and the paths of anonymous requests; excludes the --oidc flags, and --anonymous-auth if it configures anonymous requests")
	flags.StringVar(&a.OIDC.IssuerURL, "oidc-issuer-url", "", "https URL of an OpenID Connect issuer whose ID tokens are accepted")
	flags.StringVar(&a.OIDC.ClientID, "oidc-client-id", "", "client ID that ID tokens must be issued for; required with --oidc-issuer-url")
	flags.StringVar(&a.OIDC.CAFile, "oidc-ca-file", "", "PEM file of the certificate authorities that verify the issuer's certificate (default: those of the system)")
	flags.StringVar(&a.OIDC.UsernameClaim, "oidc-username-claim", "sub", "claim of the ID token with the user name")
	flags.StringVar(&a.OIDC.UsernamePrefix, "oidc-username-prefix", "", "prefix of user names; - is none (default: none for the claim email, otherwise the issuer's URL and #)")
	flags.StringVar(&a.OIDC.GroupsClaim, "oidc-groups-claim", "", "claim of the ID token with the user's groups, a string or a list of strings")
	flags.StringVar(&a.OIDC.GroupsPrefix, "oidc-groups-prefix", "", "prefix of groups")
	flags.StringSliceVar(&a.OIDC.SigningAlgs, "oidc-signing-algs", []string{"RS256"}, "signing algorithms of ID tokens to accept: "+strings.Join(oidc.Algorithms, ", "))
	flags.Var((*requiredClaims)(&a.OIDC.RequiredClaims), "oidc-required-claim", "claim that ID tokens must have, as name=value; may be repeated")
}

// checkOIDC lets the defaults of the flags of issuers count only if an issuer is configured, and
// reports a policy for anonymous requests that is given twice. Authentication.Check does the rest.
func (f *serveFlags) checkOIDC(flags *pflag.FlagSet) error {
	a := &f.server.Authentication
	given := false
	flags.VisitAll(func(one *pflag.Flag) { given = given || one.Changed && strings.HasPrefix(one.Name, oidcFlags) })
	if !given {
		a.OIDC.UsernameClaim, a.OIDC.SigningAlgs = "", nil
	}
	if a.ConfigFile == "" || !flags.Changed("anonymous-auth") {
		return nil
	}
	c, err := issuers.Read(a.ConfigFile)
	if err != nil {
		return err
	}
	if c.Anonymous != nil {
		return errors.New("anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
	}
	return nil
}

// requiredClaims is a flag that may be repeated. Each use adds one claim: a comma is a part of the
// value.
type requiredClaims map[string]string

// String implements pflag.Value.
func (r *requiredClaims) String() string {
	var all []string
	for claim, value := range *r {
		all = append(all, claim+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, ",")
}

// Set implements pflag.Value.
func (r *requiredClaims) Set(text string) error {
	claim, value, ok := strings.Cut(text, "=")
	if !ok {
		return errors.New("malformed pair, expect string=string")
	}
	if *r == nil {
		*r = requiredClaims{}
	}
	(*r)[strings.TrimSpace(claim)] = strings.TrimSpace(value)
	return nil
}

// Type implements pflag.Value.
func (*requiredClaims) Type() string { return "mapStringString" }
