package main

import (
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/tidemark-dev/tidemark/internal/authz/config"
)

// webhookTTLs are the flags for how long responses of the authorization webhook are kept.
type webhookTTLs struct{ authorized, unauthorized time.Duration }

// registerAuthorization registers the flags of authorization.
func (f *serveFlags) registerAuthorization(flags *pflag.FlagSet) {
	a := &f.server.Authorization
	flags.StringSliceVar(&a.Modes, "authorization-mode", nil, "authorizers in their order (default Node,RBAC): "+strings.Join(config.Modes(), ", "))
	flags.StringVar(&a.ConfigFile, "authorization-config", "", "file with an AuthorizationConfiguration, in place of --authorization-mode and --authorization-webhook-*")
	flags.StringVar(&a.PolicyFile, "authorization-policy-file", "", "file of policies, a line of JSON each, for --authorization-mode=ABAC")
	flags.StringVar(&a.WebhookConfigFile, "authorization-webhook-config-file", "", "kubeconfig that names the service for --authorization-mode=Webhook")
	flags.StringVar(&a.WebhookVersion, "authorization-webhook-version", "v1beta1", "version of the SubjectAccessReview that the webhook gets: v1 or v1beta1")
	flags.DurationVar(&f.webhookTTLs.authorized, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long to keep responses of the webhook that allow a request; 0 keeps none")
	flags.DurationVar(&f.webhookTTLs.unauthorized, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long to keep other responses of the webhook; 0 keeps none")
}

// checkAuthorization copies the flags that were given to the server, and checks them.
func (f *serveFlags) checkAuthorization(changed func(string) bool) error {
	a := &f.server.Authorization
	if !changed("authorization-webhook-version") {
		a.WebhookVersion = ""
	}
	for _, ttl := range []struct {
		flag string
		from time.Duration
		to   *time.Duration
	}{
		{"authorization-webhook-cache-authorized-ttl", f.webhookTTLs.authorized, &a.WebhookCacheAuthorizedTTL},
		{"authorization-webhook-cache-unauthorized-ttl", f.webhookTTLs.unauthorized, &a.WebhookCacheUnauthorizedTTL},
	} {
		switch {
		case !changed(ttl.flag):
		case ttl.from <= 0:
			*ttl.to = -1
		default:
			*ttl.to = ttl.from
		}
	}
	return a.Check()
}
