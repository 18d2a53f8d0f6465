package tidemark

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"k8s.io/client-go/util/cert"

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
	// RequestHeader configures front proxies.
	RequestHeader RequestHeader
}

// RequestHeader configures front proxies: servers that authenticate users on their own, and name them
// in headers of the requests that they forward.
type RequestHeader struct {
	// ClientCAFile holds the certificates (PEM) of the authorities that sign the client certificates
	// of front proxies. It is read again when it changes. Empty: there are no front proxies, and the
	// headers of all clients are ignored.
	ClientCAFile string
	// AllowedNames are the common names that a front proxy may have. Empty: any; then ClientCAFile
	// must not have a certificate in common with Server.ClientCAFile.
	AllowedNames []string
	// UsernameHeaders, UIDHeaders: the first header with a value counts. GroupHeaders: all values of
	// all headers count. Usual are X-Remote-User, X-Remote-Uid and X-Remote-Group.
	UsernameHeaders, UIDHeaders, GroupHeaders []string
	// ExtraHeadersPrefixes are the beginnings of the headers of extra fields; X-Remote-Extra- is usual.
	ExtraHeadersPrefixes []string
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
	var err error
	if c.Proxy, err = s.frontProxy(log); err != nil {
		return nil, err
	}
	if s.TokenAuthFile != "" {
		t, err := authn.TokenFile(s.TokenAuthFile, s.now, log)
		if err != nil {
			return nil, fmt.Errorf("the bearer tokens: %w", err)
		}
		c.Tokens = append(c.Tokens, authn.ForAudiences(c.Audiences, t))
	}
	c.Tokens = append(c.Tokens, r.tokens)
	return c, nil
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

func (s *Server) checkFrontProxy() error {
	h := &s.Authentication.RequestHeader
	for _, list := range [][]string{h.UsernameHeaders, h.UIDHeaders, h.GroupHeaders, h.ExtraHeadersPrefixes, h.AllowedNames} {
		if slices.ContainsFunc(list, func(name string) bool { return strings.TrimSpace(name) == "" }) {
			return errors.New("the headers and names of front proxies contain an empty value")
		}
	}
	if len(h.UIDHeaders) > 0 && !slices.ContainsFunc(h.UIDHeaders, func(n string) bool { return strings.EqualFold(n, "X-Remote-Uid") }) {
		return errors.New("the UID headers of front proxies lack the standard header X-Remote-Uid")
	}
	if len(h.AllowedNames) > 0 || s.ClientCAFile == "" {
		return nil
	}
	proxies, err := cert.CertsFromFile(h.ClientCAFile)
	if err != nil {
		return fmt.Errorf("the authorities of front proxies: %w", err)
	}
	clients, err := cert.CertsFromFile(s.ClientCAFile)
	if err != nil {
		return fmt.Errorf("the authorities of clients: %w", err)
	}
	for _, c := range clients {
		if slices.ContainsFunc(proxies, c.Equal) {
			return fmt.Errorf("%s and %s have a certificate in common: each client could name any user in headers; "+
				"restrict front proxies by their names (--requestheader-allowed-names)", h.ClientCAFile, s.ClientCAFile)
		}
	}
	return nil
}

// clientsData returns the data of the ConfigMap by which extension servers authenticate clients: the
// authorities of client certificates, and how front proxies name users.
func (s *Server) clientsData(own *pki.Authority) (map[string]string, error) {
	all := slices.Clip(own.CertificatePEM())
	if s.ClientCAFile != "" {
		given, err := os.ReadFile(s.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities of clients: %w", err)
		}
		all = append(all, given...)
	}
	data := map[string]string{"client-ca-file": string(all)}
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

// issuerPages let other servers verify service account tokens.
func (r *running) issuerPages() []httpapi.Page {
	const keys = "/openid/v1/jwks"
	return []httpapi.Page{
		{Path: "/.well-known/openid-configuration", Media: "application/json", Read: func() ([]byte, error) { return r.tokens.Discovery(r.url + keys) }},
		{Path: keys, Media: "application/jwk-set+json", Read: r.tokens.KeySet},
	}
}
