package tidemark

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/webhook"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/store"
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
	// ServiceAccounts configures the tokens of service accounts.
	ServiceAccounts ServiceAccounts
	// BootstrapTokens accepts the tokens of the Secrets of type bootstrap.kubernetes.io/token in
	// kube-system, by which new nodes join a cluster.
	BootstrapTokens bool
	// RequestHeader configures front proxies.
	RequestHeader RequestHeader
	// Webhook configures a service that is asked about tokens that nothing else knows.
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

// discoverable reports whether an issuer can have a discovery document (OpenID Connect Discovery 1.0).
func discoverable(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && u.Scheme == "https" && u.RawQuery == "" && u.Fragment == ""
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
	// CacheTTL is how long the service's answers are in effect; zero: 2 minutes; negative: for the
	// requests alone that wait for them.
	CacheTTL time.Duration
}

func (w *TokenWebhook) check() error {
	if w.Version != "" && w.Version != "v1" && w.Version != "v1beta1" {
		return fmt.Errorf("the version %q of the token webhook: want v1 or v1beta1", w.Version)
	}
	return nil
}

// openTokens reads the keys of service account tokens. It must be called after openStore, which locks
// the data directory.
func (s *Server) openTokens(dir string, log *slog.Logger) (*satoken.Authority, error) {
	a := &s.Authentication.ServiceAccounts
	return satoken.Open(satoken.Config{
		Dir: dir, SigningKeyFile: a.SigningKeyFile, KeyFiles: a.KeyFiles, Issuers: a.Issuers, Audiences: s.Authentication.APIAudiences,
		MaxLife: a.MaxTokenExpiration, ExtendInjected: !a.NoExtendedExpiration, NoLookup: a.NoLookup, Now: s.now, Log: log,
	})
}

// accounts returns the tokens of a world's service accounts. All worlds of a server share the keys; the
// objects of the world decide whether a token is valid.
func (w *World) accounts(keys *satoken.Authority) *satoken.Authority {
	catalog := builtin.Catalog()
	find := func(name, namespace, object string) (satoken.Found, bool) {
		i, ok := registry.IdentityOf(w.store.Any(), registry.Target{Type: catalog.Lookup("", "v1", name), Namespace: namespace, Name: object})
		return satoken.Found{UID: i.UID, Deleted: i.Deleted}, ok
	}
	return keys.For(find, storedSecrets(w.store), w.now)
}

// storedSecrets returns a function that finds what Secrets say of the tokens that they hold.
func storedSecrets(objects *store.Store) func(namespace, name string) (satoken.StoredSecret, bool) {
	secrets := derived.NewMemo(1024, registry.Decode[corev1.Secret])
	return func(namespace, name string) (satoken.StoredSecret, bool) {
		o := objects.Any().Get("secrets", namespace+"/"+name)
		if o == nil {
			return satoken.StoredSecret{}, false
		}
		s, err := secrets.Of(o)
		if err != nil || s.Type != corev1.SecretTypeServiceAccountToken {
			return satoken.StoredSecret{}, false
		}
		return satoken.StoredSecret{
			Token: s.Data[corev1.ServiceAccountTokenKey], Deleting: s.DeletionTimestamp != nil,
			Invalid: s.Labels["kubernetes.io/legacy-token-invalid-since"] != "",
		}, true
	}
}

// storedToken makes a token for a Secret.
func (w *World) storedToken(namespace, secret, account, uid string) (string, error) {
	return w.tokens.IssueStored(namespace, secret, satoken.Ref{Name: account, UID: uid})
}

// authentication is what all worlds of a server share of authentication.
type authentication struct {
	base authn.Credentials // without tokens
	// first and last are the kinds of tokens before and after those that a world's objects determine.
	first, last []authn.Tokens
}

// administrator returns the user of the tokens of the administrator.
func administrator() *authn.User {
	return &authn.User{Name: "admin", Groups: []string{"system:masters", authn.Authenticated}}
}

// openAuthentication reads the files of authentication. The kinds of tokens are in the order of
// kube-apiserver: the administrator's token, the token file, service accounts, and then those that
// may ask a remote server.
func (s *Server) openAuthentication(r *running) (err error) {
	a := &r.authentication
	a.base = authn.Credentials{
		Now:         s.now,
		Authorities: []authn.Authority{r.authority.Pool},
		Audiences:   r.keys.Audiences(),
		Anonymous:   authn.AnonymousPolicy{Enabled: s.anonymous(s.logOf(logAuthentication))},
		Metrics:     authn.NewMetrics(),
	}
	r.collectors = append(r.collectors, a.base.Metrics.Collectors()...)
	a.first = append(a.first, a.forServer(authn.OneToken(r.authority.AdminToken(), administrator())))
	if s.Authentication.ClientCAFile != "" {
		clients, err := authn.AuthorityFile(s.Authentication.ClientCAFile, s.now, s.logOf(logAuthentication))
		if err != nil {
			return fmt.Errorf("the authorities of clients: %w", err)
		}
		a.base.Authorities = append(a.base.Authorities, clients)
	}
	if a.base.Proxy, err = s.frontProxy(s.logOf(logAuthentication)); err != nil {
		return err
	}
	if s.Authentication.TokenFile != "" {
		t, err := authn.TokenFile(s.Authentication.TokenFile, s.now, s.logOf(logAuthentication))
		if err != nil {
			return fmt.Errorf("the bearer tokens: %w", err)
		}
		a.first = append(a.first, a.forServer(t))
	}
	if r.issuers, err = s.openIssuers(s.logOf(logAuthentication)); err != nil {
		return err
	}
	a.addIssuers(r)
	if s.Authentication.Webhook.ConfigFile != "" {
		t, err := s.tokenWebhook(r)
		if err != nil {
			return fmt.Errorf("the token webhook: %w", err)
		}
		a.last = append(a.last, t)
	}
	return nil
}

// forServer returns tokens that are valid for the audiences of the server.
func (a *authentication) forServer(t authn.Tokens) authn.Tokens {
	return authn.ForAudiences(a.base.Audiences, t)
}

// authenticator returns the authenticator of a world. A fork knows the users of its parents.
func (w *World) authenticator() *authn.Credentials {
	a, own := &w.running.authentication, []authn.Tokens{w.tokens}
	if w.server.Authentication.BootstrapTokens {
		own = append(own, a.forServer(&authn.BootstrapTokens{Secret: w.systemSecret, Now: w.now}))
	}
	return a.with(w.issued, own...)
}

// with returns the authenticator of a world: issued are the tokens of users that the control API added, own are those
// that the objects of the world determine.
func (a *authentication) with(issued []*authn.Issued, own ...authn.Tokens) *authn.Credentials {
	c := a.base
	c.Tokens = slices.Clone(a.first)
	for _, i := range issued {
		c.Tokens = append(c.Tokens, a.forServer(i))
	}
	c.Tokens = append(c.Tokens, own...)
	c.Tokens = append(c.Tokens, a.last...)
	return &c
}

// tokenWebhook returns the tokens that a remote service knows.
func (s *Server) tokenWebhook(r *running) (*webhook.Tokens, error) {
	w := &s.Authentication.Webhook
	metrics := webhook.NewMetrics()
	r.collectors = append(r.collectors, metrics.Collectors()...)
	return webhook.New(webhook.Config{
		File: w.ConfigFile, Version: w.Version, CacheTTL: max(0, cmp.Or(w.CacheTTL, webhook.DefaultCacheTTL)),
		Audiences: r.keys.Audiences(), Metrics: metrics, Now: s.now, Log: s.logOf(logAuthentication),
	})
}

// systemSecret returns a Secret of kube-system, nil if there is none.
func (w *World) systemSecret(name string) *corev1.Secret {
	o := w.store.Any().Get("secrets", metav1.NamespaceSystem+"/"+name)
	if o == nil {
		return nil
	}
	secret := new(corev1.Secret)
	if err := json.Unmarshal(o.Bytes(), secret); err != nil {
		return nil
	}
	return secret
}

// frontProxy returns the authenticator of front proxies, nil if there are none.
func (s *Server) frontProxy(log *slog.Logger) (*authn.Proxy, error) {
	h := &s.Authentication.RequestHeader
	if h.ClientCAFile == "" {
		return nil, nil
	}
	if err := s.checkFrontProxy(); err != nil {
		return nil, err
	}
	a, err := authn.AuthorityFile(h.ClientCAFile, s.now, log)
	if err != nil {
		return nil, fmt.Errorf("the authorities of front proxies: %w", err)
	}
	return &authn.Proxy{
		Authority: a, Names: h.AllowedNames,
		UsernameHeaders: h.UsernameHeaders, UIDHeaders: h.UIDHeaders, GroupHeaders: h.GroupHeaders, ExtraPrefixes: h.ExtraHeadersPrefixes,
	}, nil
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

// checkFrontProxy returns an error if each client could pass for a front proxy.
func (s *Server) checkFrontProxy() error {
	h := &s.Authentication.RequestHeader
	if len(h.AllowedNames) > 0 || s.Authentication.ClientCAFile == "" {
		return nil
	}
	proxies, err := cert.CertsFromFile(h.ClientCAFile)
	if err != nil {
		return fmt.Errorf("the authorities of front proxies: %w", err)
	}
	clients, err := cert.CertsFromFile(s.Authentication.ClientCAFile)
	if err != nil {
		return fmt.Errorf("the authorities of clients: %w", err)
	}
	for _, c := range clients {
		if slices.ContainsFunc(proxies, c.Equal) {
			return fmt.Errorf("%s and %s have a certificate in common: each client could name any user in headers; "+
				"restrict front proxies by their names (--requestheader-allowed-names)", h.ClientCAFile, s.Authentication.ClientCAFile)
		}
	}
	return nil
}

// clientsData returns the data of the ConfigMap by which extension servers authenticate clients: the
// authorities of client certificates, and how front proxies name users.
func (s *Server) clientsData(r *running) (map[string]string, error) {
	var all []byte
	if r.keepsAuthority() {
		all = slices.Clip(r.authority.CertificatePEM())
	}
	if s.Authentication.ClientCAFile != "" {
		given, err := os.ReadFile(s.Authentication.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities of clients: %w", err)
		}
		all = append(all, given...)
	}
	data := map[string]string{}
	if len(all) > 0 {
		data["client-ca-file"] = string(all)
	}
	h := &s.Authentication.RequestHeader
	if h.ClientCAFile == "" {
		return data, nil
	}
	proxies, err := os.ReadFile(h.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("the authorities of front proxies: %w", err)
	}
	data["requestheader-client-ca-file"] = string(proxies)
	for key, list := range map[string][]string{
		"username-headers": h.UsernameHeaders, "uid-headers": h.UIDHeaders, "group-headers": h.GroupHeaders,
		"extra-headers-prefix": h.ExtraHeadersPrefixes, "allowed-names": h.AllowedNames,
	} {
		if key == "uid-headers" && len(list) == 0 { // as in kube-apiserver
			continue
		}
		text, err := json.Marshal(append([]string{}, list...))
		if err != nil {
			return nil, err
		}
		data["requestheader-"+key] = string(text)
	}
	return data, nil
}

// issuerPages let other servers verify service account tokens. There are none for an issuer that is no
// https URL.
func (s *Server) issuerPages(w *World) []httpapi.Page {
	const keys = "/openid/v1/jwks"
	a := &s.Authentication.ServiceAccounts
	if len(a.Issuers) > 0 && !discoverable(a.Issuers[0]) {
		return nil
	}
	at := cmp.Or(a.JWKSURI, w.URL()+keys)
	return []httpapi.Page{
		{Path: "/.well-known/openid-configuration", Media: "application/json", Read: func() ([]byte, error) { return w.tokens.Discovery(at) }},
		{Path: keys, Media: "application/jwk-set+json", Read: w.tokens.KeySet},
	}
}
