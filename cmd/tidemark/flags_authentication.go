package main

import (
	"github.com/spf13/pflag"
	"github.com/tidemark-dev/tidemark/internal/authn/webhook"
)

// registerAuthentication registers the flags of authentication.
func (f *serveFlags) registerAuthentication(flags *pflag.FlagSet) {
	flags.StringVar(&f.server.Authentication.TokenFile, "token-auth-file", "", `CSV file of bearer tokens, with lines of token,user,uid,"group1,group2"`)
	flags.StringVar(&f.server.Authentication.ClientCAFile, "client-ca-file", "", "PEM file of certificate authorities for client certificates: the common name is the user, organizations are groups")
	a := &f.server.Authentication.ServiceAccounts
	flags.StringArrayVar(&a.Issuers, "service-account-issuer", []string{"https://kubernetes.default.svc.cluster.local"}, "issuer of service account tokens, a URL; repeated: the first issues tokens, and those of all are accepted")
	flags.StringSliceVar(&f.server.Authentication.APIAudiences, "api-audiences", nil, "audiences of this server: a token must be for one of them; also the default audiences of service account tokens (default: the issuers)")
	flags.StringVar(&a.SigningKeyFile, "service-account-signing-key-file", "", "PEM file of the private key (RSA or ECDSA) that signs service account tokens (default: a key in the data directory)")
	flags.StringArrayVar(&a.KeyFiles, "service-account-key-file", nil, "PEM file of keys that verify service account tokens in addition to the one that signs, public or private; may be repeated")
	flags.DurationVar(&a.MaxTokenExpiration, "service-account-max-token-expiration", 0, "longest lifetime of a new service account token, an hour or more; longer ones are shortened, with a warning (default: 2^32 seconds)")
	flags.BoolVar(&f.extendTokens, "service-account-extend-token-expiration", true, "issue the tokens that admission requests for Pods for a year instead of an hour")
	flags.StringVar(&a.JWKSURI, "service-account-jwks-uri", "", "https URL of the public keys in the discovery document of the issuer (default: on this server)")
	flags.BoolVar(&f.lookupTokens, "service-account-lookup", true, "accept a token of a Secret only while the Secret holds it and the ServiceAccount exists; the objects that other tokens are bound to are always looked up")
	flags.BoolVar(&f.server.Authentication.BootstrapTokens, "enable-bootstrap-token-auth", false, "accept the tokens of Secrets of type bootstrap.kubernetes.io/token in kube-system")
	h := &f.server.Authentication.RequestHeader
	flags.StringVar(&h.ClientCAFile, "requestheader-client-ca-file", "", "PEM file of certificate authorities for the client certificates of front proxies, which name users in headers; without it the headers are ignored")
	flags.StringSliceVar(&h.AllowedNames, "requestheader-allowed-names", nil, "common names that the certificate of a front proxy may have (default: any)")
	flags.StringSliceVar(&h.UsernameHeaders, "requestheader-username-headers", nil, "headers in which front proxies name the user; X-Remote-User is common")
	flags.StringSliceVar(&h.UIDHeaders, "requestheader-uid-headers", nil, "headers in which front proxies name the user's UID; must contain X-Remote-Uid")
	flags.StringSliceVar(&h.GroupHeaders, "requestheader-group-headers", nil, "headers in which front proxies name the user's groups; X-Remote-Group is common")
	flags.StringSliceVar(&h.ExtraHeadersPrefixes, "requestheader-extra-headers-prefix", nil, "beginnings of headers in which front proxies send extra fields of the user; X-Remote-Extra- is common")
	w := &f.server.Authentication.Webhook
	flags.StringVar(&w.ConfigFile, "authentication-token-webhook-config-file", "", "kubeconfig file of a service that is asked about bearer tokens that nothing else knows")
	flags.StringVar(&w.Version, "authentication-token-webhook-version", webhook.DefaultVersion, "version of the TokenReview that the service gets: v1 or v1beta1")
	flags.DurationVar(&f.tokenTTL, "authentication-token-webhook-cache-ttl", webhook.DefaultCacheTTL, "how long responses of the service are kept; 0 keeps none")
	flags.BoolVar(&f.anonymous, "anonymous-auth", true, "accept requests without credentials as the user system:anonymous; false refuses them with 401")
}
