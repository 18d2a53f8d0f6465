package tidemark

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/authn/oidc"
	"github.com/tidemark-dev/tidemark/internal/authn/webhook"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/world"
)

// Authentication configures the credentials that a Server accepts, in addition to those of its own
// administrator. The zero value accepts client certificates and tokens of service accounts.
type Authentication struct {
	// TokenFile lists bearer tokens in the format of kube-apiserver, a line of CSV
	// each: token,user,uid,"group1,group2". It is read again when it changes.
	// Empty: there are none.
	TokenFile string
	// ClientCAFile holds the certificates (PEM) of certificate authorities that sign client
	// certificates, in addition to the server's own. It is read again when it changes. Empty:
	// none.
	ClientCAFile string
	// DisableAnonymous refuses requests without credentials with 401. Otherwise
	// their user is system:anonymous, who may read the health endpoints and
	// /version.
	DisableAnonymous bool

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
	// ServiceAccounts configures the tokens of service accounts. The zero value signs them with a key of the server.
	ServiceAccounts ServiceAccounts
	// BootstrapTokens accepts the tokens of the Secrets of type bootstrap.kubernetes.io/token in
	// kube-system, by which new nodes join a cluster. False: they are not accepted.
	BootstrapTokens bool
	// RequestHeader configures front proxies. The zero value is none.
	RequestHeader RequestHeader
	// Webhook configures a service that reviews the tokens that nothing else knows. The zero value is none.
	Webhook TokenWebhook
}

// ServiceAccounts configures the tokens of service accounts.
type ServiceAccounts struct {
	// Issuers are the issuers whose tokens are accepted, URLs. The first is that of new tokens. Empty:
	// https://kubernetes.default.svc.cluster.local.
	Issuers []string
	// SigningKeyFile holds the private key (PEM, RSA or ECDSA) that signs tokens. Empty: the server
	// makes a key of its own. KeyFiles hold further keys that verify tokens, public or private ones. All
	// are read again when they change.
	SigningKeyFile string
	KeyFiles       []string
	// MaxTokenExpiration limits the lifetime of new tokens, at least an hour; zero: 2^32 seconds.
	MaxTokenExpiration time.Duration
	// NoExtendedExpiration ends the tokens that admission requests for Pods after the hour that they
	// are requested for. Otherwise they are valid for a year.
	NoExtendedExpiration bool
	// NoLookup accepts the tokens that Secrets hold without looking up the Secret and the
	// ServiceAccount.
	NoLookup bool
	// JWKSURI is the URL of the public keys in the discovery document; empty: of this server.
	JWKSURI string
}

// Check returns an error for options that contradict each other, or are out of range. It opens no file.
func (a *Authentication) Check() error {
	if slices.Contains(a.APIAudiences, "") {
		return errors.New("an audience of the server is empty")
	}
	return errors.Join(a.ServiceAccounts.check(), a.RequestHeader.check(), a.Webhook.check(), a.checkIssuers())
}

func (a *ServiceAccounts) check() error {
	for i, issuer := range a.Issuers {
		_, err := url.Parse(issuer)
		switch {
		case issuer == "":
			return errors.New("an issuer of service account tokens is empty")
		case err != nil && strings.Contains(issuer, ":"):
			return fmt.Errorf("the issuer %q of service account tokens is not a URL: %w", issuer, err)
		case slices.Contains(a.Issuers[:i], issuer):
			return fmt.Errorf("the issuer %q of service account tokens is specified twice", issuer)
		}
	}
	if d := a.MaxTokenExpiration; d != 0 && (d < time.Hour || d > 1<<32*time.Second) {
		return fmt.Errorf("the maximal expiration of service account tokens is %v: want an hour to 2^32 seconds", d)
	}
	if a.JWKSURI == "" {
		return nil
	}
	if u, err := url.Parse(a.JWKSURI); err != nil || u.Scheme != "https" {
		return fmt.Errorf("the URL %q of the keys of service account tokens is not an https URL", a.JWKSURI)
	}
	return nil
}

// RequestHeader configures front proxies: servers that authenticate users on their own, and name them
// in headers of the requests that they forward.
type RequestHeader struct {
	// ClientCAFile holds the certificates (PEM) of the authorities that sign the client certificates
	// of front proxies. It is read again when it changes. Empty: there are no front proxies, and the
	// headers of all clients are ignored.
	ClientCAFile string
	// AllowedNames are the common names that a front proxy may have. Empty: any; then ClientCAFile
	// must not have a certificate in common with Authentication.ClientCAFile.
	AllowedNames []string
	// UsernameHeaders, UIDHeaders: the first header with a value counts. GroupHeaders: all values of
	// all headers count. Usual are X-Remote-User, X-Remote-Uid and X-Remote-Group.
	UsernameHeaders, UIDHeaders, GroupHeaders []string
	// ExtraHeadersPrefixes are the beginnings of the headers of extra fields; X-Remote-Extra- is usual.
	ExtraHeadersPrefixes []string
}

// TokenWebhook configures a service that authenticates tokens by TokenReview.
type TokenWebhook struct {
	// ConfigFile is a kubeconfig file with the address and the credentials of the service. It and the
	// files that it names are read again when they change. Empty: there is no service.
	ConfigFile string
	// Version is the version of TokenReview, v1 or v1beta1; empty: v1beta1, as in kube-apiserver.
	Version string
	// CacheTTL is how long the service's responses are in effect; zero: 2 minutes; negative: for the
	// requests alone that wait for them.
	CacheTTL time.Duration
}

func (w *TokenWebhook) check() error {
	if w.Version != "" && w.Version != "v1" && w.Version != "v1beta1" {
		return fmt.Errorf("the version %q of the token webhook: want v1 or v1beta1", w.Version)
	}
	return nil
}

func (h *RequestHeader) check() error {
	for _, list := range [][]string{h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders, h.ExtraHeadersPrefixes, h.AllowedNames} {
		if slices.ContainsFunc(list, func(name string) bool { return strings.TrimSpace(name) == "" }) {
			return errors.New("the headers and names of front proxies contain an empty value")
		}
	}
	if len(h.UIDHeaders) > 0 && !slices.ContainsFunc(h.UIDHeaders, func(n string) bool { return strings.EqualFold(n, "X-Remote-Uid") }) {
		return errors.New("the UID headers of front proxies lack the standard header X-Remote-Uid")
	}
	return nil
}

// config returns the configurations of the authenticators. It reads the certificate of OIDC.
func (a *Authentication) config() (c world.Authentication, err error) {
	s, h, w := &a.ServiceAccounts, &a.RequestHeader, &a.Webhook
	c = world.Authentication{
		TokenFile: a.TokenFile, ClientCAFile: a.ClientCAFile, DisableAnonymous: a.DisableAnonymous, BootstrapTokens: a.BootstrapTokens, JWKSURI: s.JWKSURI,
		Tokens: satoken.Config{
			SigningKeyFile: s.SigningKeyFile, KeyFiles: s.KeyFiles, Issuers: s.Issuers, Audiences: a.APIAudiences,
			MaxLife: s.MaxTokenExpiration, ExtendInjected: !s.NoExtendedExpiration, NoLookup: s.NoLookup,
		},
		ProxyCAFile: h.ClientCAFile,
		Proxy: authn.Proxy{
			Names: h.AllowedNames, UsernameHeaders: h.UsernameHeaders, UIDHeaders: h.UIDHeaders, GroupHeaders: h.GroupHeaders, ExtraPrefixes: h.ExtraHeadersPrefixes,
		},
	}
	if w.ConfigFile != "" {
		c.Webhook = &webhook.Config{File: w.ConfigFile, Version: w.Version, CacheTTL: max(0, cmp.Or(w.CacheTTL, webhook.DefaultCacheTTL))}
	}
	c.Issuers, err = a.issuers()
	return c, err
}

// issuers returns the configuration of the issuers of ID tokens; nil: there are none.
func (a *Authentication) issuers() (*issuers.Config, error) {
	disallowed := a.ServiceAccounts.Issuers
	if len(disallowed) == 0 {
		disallowed = []string{satoken.DefaultIssuer}
	}
	c := &issuers.Config{File: a.ConfigFile, Disallowed: disallowed}
	switch {
	case a.ConfigFile != "":
		return c, nil
	case a.OIDC.isZero():
		return nil, nil
	}
	one, err := a.OIDC.authenticator()
	c.JWT, c.Algorithms = []apiserver.JWTAuthenticator{one}, a.OIDC.SigningAlgs
	return c, err
}

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
