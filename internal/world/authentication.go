package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"k8s.io/client-go/util/cert"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authn/issuers"
	"github.com/tidemark-dev/tidemark/internal/authn/webhook"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// openTokens reads the keys of service account tokens. It must be called after openStore, which locks
// the data directory.
func (p *process) openTokens() (err error) {
	c := p.Authentication.Tokens
	c.Dir, c.Now, c.Log = p.pkiDir(), p.Now, p.logOf(logAuthentication)
	p.keys, err = satoken.Open(c)
	return err
}

// administrator returns the user of the tokens of the administrator.
func administrator() *authn.User {
	return &authn.User{Name: "admin", Groups: []string{"system:masters", authn.Authenticated}}
}

// openAuthentication reads the files of authentication. The kinds of tokens are in the order of
// kube-apiserver: the administrator's token, the token file, service accounts, and then those that
// may ask a remote server.
func (p *process) openAuthentication() (err error) {
	a, c, log := &p.authentication, &p.Authentication, p.logOf(logAuthentication)
	a.base = authn.Credentials{
		Now:         p.Now,
		Authorities: []authn.Authority{p.authority.Pool},
		Audiences:   p.keys.Audiences(),
		Anonymous:   authn.AnonymousPolicy{Enabled: p.anonymous()},
		Metrics:     authn.NewMetrics(),
	}
	p.collectors = append(p.collectors, a.base.Metrics.Collectors()...)
	a.first = append(a.first, a.forServer(authn.OneToken(p.authority.AdminToken(), administrator())))
	if c.ClientCAFile != "" {
		clients, err := authn.AuthorityFile(c.ClientCAFile, p.Now, log)
		if err != nil {
			return fmt.Errorf("the authorities of clients: %w", err)
		}
		a.base.Authorities = append(a.base.Authorities, clients)
	}
	if a.base.Proxy, err = p.frontProxy(); err != nil {
		return err
	}
	if c.TokenFile != "" {
		t, err := authn.TokenFile(c.TokenFile, p.Now, log)
		if err != nil {
			return fmt.Errorf("the bearer tokens: %w", err)
		}
		a.first = append(a.first, a.forServer(t))
	}
	if err := p.openIssuers(); err != nil {
		return err
	}
	if c.Webhook != nil {
		t, err := p.tokenWebhook(*c.Webhook)
		if err != nil {
			return fmt.Errorf("the token webhook: %w", err)
		}
		a.last = append(a.last, t)
	}
	return nil
}

// anonymous reports whether requests without credentials are accepted. With the mode AlwaysAllow,
// they could do everything.
func (p *process) anonymous() bool {
	c := &p.Authentication
	if c.AlwaysAllow && !c.DisableAnonymous {
		p.logOf(logAuthentication).Warn("anonymous requests are refused, because the authorization mode AlwaysAllow would allow them everything")
	}
	return !c.DisableAnonymous && !c.AlwaysAllow
}

// forServer returns tokens that are valid for the audiences of the server.
func (a *authentication) forServer(t authn.Tokens) authn.Tokens {
	return authn.ForAudiences(a.base.Audiences, t)
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
func (p *process) tokenWebhook(c webhook.Config) (*webhook.Tokens, error) {
	c.Metrics = webhook.NewMetrics()
	p.collectors = append(p.collectors, c.Metrics.Collectors()...)
	c.Audiences, c.Now, c.Log = p.keys.Audiences(), p.Now, p.logOf(logAuthentication)
	return webhook.New(c)
}

var errAnonymousTwice = errors.New("anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")

// openIssuers opens the issuers of ID tokens, if any are configured. It adds their tokens and metrics, and the policy for
// anonymous requests of their file.
func (p *process) openIssuers() error {
	if p.Authentication.Issuers == nil {
		return nil
	}
	c := *p.Authentication.Issuers
	host, err := os.Hostname()
	if err != nil {
		host = "" // it is only a label of metrics
	}
	c.ServerID, c.Now, c.Log = host, p.Now, p.logOf(logAuthentication)
	opened, err := issuers.Open(c)
	if err != nil {
		return err
	}
	if opened.Anonymous() != nil && p.Authentication.DisableAnonymous {
		opened.Close()
		return errAnonymousTwice
	}
	p.issuers = opened
	a := &p.authentication
	a.last = append(a.last, a.forServer(opened))
	p.collectors = append(p.collectors, opened.Collectors()...)
	if policy := opened.Anonymous(); policy != nil {
		a.base.Anonymous = authn.AnonymousPolicy{Enabled: policy.Enabled}
		for _, condition := range policy.Conditions {
			a.base.Anonymous.Paths = append(a.base.Anonymous.Paths, condition.Path)
		}
	}
	return nil
}

func (p *process) closeIssuers() {
	if p.issuers != nil {
		p.issuers.Close()
	}
}

// frontProxy returns the authenticator of front proxies, nil if there are none.
func (p *process) frontProxy() (*authn.Proxy, error) {
	c := &p.Authentication
	if c.ProxyCAFile == "" {
		return nil, nil
	}
	if err := p.checkFrontProxy(); err != nil {
		return nil, err
	}
	a, err := authn.AuthorityFile(c.ProxyCAFile, p.Now, p.logOf(logAuthentication))
	if err != nil {
		return nil, fmt.Errorf("the authorities of front proxies: %w", err)
	}
	proxy := c.Proxy
	proxy.Authority = a
	return &proxy, nil
}

// checkFrontProxy returns an error if each client could pass for a front proxy.
func (p *process) checkFrontProxy() error {
	a := &p.Authentication
	if len(a.Proxy.Names) > 0 || a.ClientCAFile == "" {
		return nil
	}
	proxies, err := cert.CertsFromFile(a.ProxyCAFile)
	if err != nil {
		return fmt.Errorf("the authorities of front proxies: %w", err)
	}
	clients, err := cert.CertsFromFile(a.ClientCAFile)
	if err != nil {
		return fmt.Errorf("the authorities of clients: %w", err)
	}
	for _, c := range clients {
		if slices.ContainsFunc(proxies, c.Equal) {
			return fmt.Errorf("%s and %s have a certificate in common: each client could name any user in headers; "+
				"restrict front proxies by their names (--requestheader-allowed-names)", a.ProxyCAFile, a.ClientCAFile)
		}
	}
	return nil
}

// clientsData returns the data of the ConfigMap by which extension servers authenticate clients: the
// authorities of client certificates, and how front proxies name users.
func (p *process) clientsData() (map[string]string, error) {
	a := &p.Authentication
	var all []byte
	if p.keepsAuthority() {
		all = slices.Clip(p.authority.CertificatePEM())
	}
	if a.ClientCAFile != "" {
		given, err := os.ReadFile(a.ClientCAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities of clients: %w", err)
		}
		all = append(all, given...)
	}
	data := map[string]string{}
	if len(all) > 0 {
		data["client-ca-file"] = string(all)
	}
	h := &a.Proxy
	switch {
	case a.ProxyCAFile != "":
		proxies, err := os.ReadFile(a.ProxyCAFile)
		if err != nil {
			return nil, fmt.Errorf("the authorities of front proxies: %w", err)
		}
		data["requestheader-client-ca-file"] = string(proxies)
	case p.issuesFrontProxy():
		_, own, err := p.authority.FrontProxy()
		if err != nil {
			return nil, err
		}
		data["requestheader-client-ca-file"] = string(own)
		h = &authn.Proxy{
			Names: []string{pki.FrontProxyName}, UsernameHeaders: []string{"X-Remote-User"}, UIDHeaders: []string{"X-Remote-Uid"},
			GroupHeaders: []string{"X-Remote-Group"}, ExtraPrefixes: []string{"X-Remote-Extra-"},
		}
	default:
		return data, nil
	}
	for key, list := range map[string][]string{
		"username-headers": h.UsernameHeaders, "uid-headers": h.UIDHeaders, "group-headers": h.GroupHeaders,
		"extra-headers-prefix": h.ExtraPrefixes, "allowed-names": h.Names,
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
