package world

import (
	"cmp"
	"encoding/json"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authz/abac"
	"github.com/tidemark-dev/tidemark/internal/authz/config"
	"github.com/tidemark-dev/tidemark/internal/authz/node"
	"github.com/tidemark-dev/tidemark/internal/authz/rbac"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/httpapi"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// accounts returns the tokens of the service accounts of a store. All worlds of a server share the keys; the
// objects of the store decide whether a token is valid.
func accounts(objects *store.Store, keys *satoken.Authority, now func() time.Time) *satoken.Authority {
	catalog := builtin.Catalog()
	find := func(name, namespace, object string) (satoken.Found, bool) {
		i, ok := registry.IdentityOf(objects.Any(), registry.Target{Type: catalog.Lookup("", "v1", name), Namespace: namespace, Name: object})
		return satoken.Found{UID: i.UID, Deleted: i.Deleted}, ok
	}
	return keys.For(find, storedSecrets(objects), now)
}

// storedSecrets returns a function that finds the Secrets that hold tokens of service accounts.
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

// systemSecret returns a Secret of kube-system, nil if there is none.
func systemSecret(objects *store.Store, name string) *corev1.Secret {
	o := objects.Any().Get("secrets", metav1.NamespaceSystem+"/"+name)
	if o == nil {
		return nil
	}
	secret := new(corev1.Secret)
	if err := json.Unmarshal(o.Bytes(), secret); err != nil {
		return nil
	}
	return secret
}

// authorization starts the authorizer of all requests to a store.
func (p *process) authorization(objects *store.Store, roles *rbac.Authorizer) (*config.Authorizer, error) {
	parts, source := config.Parts{Now: p.Now}, p.Authorization
	if source.Uses(config.ModeRBAC) {
		parts.RBAC = roles
	}
	if source.Uses(config.ModeNode) {
		parts.Node = node.New(objects)
	}
	if source.Uses(config.ModeABAC) {
		policies, err := abac.Load(p.PolicyFile)
		if err != nil {
			return nil, err
		}
		parts.ABAC = policies
	}
	return source.Start(parts, p.logOf(logAuthorization))
}

// issuerPages let other servers verify service account tokens. There are none for an issuer that is no
// https URL.
func (p *process) issuerPages(tokens *satoken.Authority, url string) []httpapi.Page {
	const keys = "/openid/v1/jwks"
	issuers := p.Authentication.Tokens.Issuers
	if len(issuers) > 0 && !discoverable(issuers[0]) {
		return nil
	}
	at := cmp.Or(p.Authentication.JWKSURI, url+keys)
	return []httpapi.Page{
		{Path: "/.well-known/openid-configuration", Media: "application/json", Read: func() ([]byte, error) { return tokens.Discovery(at) }},
		{Path: keys, Media: "application/jwk-set+json", Read: tokens.KeySet},
	}
}

// discoverable reports whether an issuer can have a discovery document (OpenID Connect Discovery 1.0).
func discoverable(issuer string) bool {
	u, err := url.Parse(issuer)
	return err == nil && u.Scheme == "https" && u.RawQuery == "" && u.Fragment == ""
}
