package config

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/apis/apiserver"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/authz/webhook"
)

// Parts are the authorizers that live as long as the server.
type Parts struct {
	// Node, RBAC and ABAC are used by these modes; nil: the mode was not chosen at the start.
	Node, RBAC, ABAC authz.Authorizer
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// backoff is the pause before the second call of a webhook; zero: the default.
	backoff time.Duration
}

// chain is the authorizers of a configuration: those of superusers first, then those that are
// configured.
type chain struct {
	union    authz.Union
	webhooks []*webhook.Webhook
}

// Authorize implements authz.Authorizer.
func (c *chain) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	return c.union.Authorize(ctx, a)
}

// Rules implements authz.Ruler.
func (c *chain) Rules(ctx context.Context, u *authn.User, namespace string) authz.Rules {
	return c.union.Rules(ctx, u, namespace)
}

// close closes the connections of webhooks. Requests may still use the chain.
func (c *chain) close() {
	for _, w := range c.webhooks {
		w.Close()
	}
}

// build makes the authorizers of a valid configuration.
func build(c *apiserver.AuthorizationConfiguration, p *Parts, m *metrics) (_ *chain, err error) {
	all := &chain{union: authz.Union{authz.Masters{}}}
	defer func() {
		if err != nil {
			all.close()
		}
	}()
	for i := range c.Authorizers {
		a := &c.Authorizers[i]
		one, err := p.part(string(a.Type))
		if err != nil {
			return nil, err
		}
		if a.Type == apiserver.TypeWebhook {
			w, err := buildWebhook(a, p, m)
			if err != nil {
				return nil, err
			}
			all.webhooks = append(all.webhooks, w)
			one = w
		}
		all.union = append(all.union, m.counted(string(a.Type), a.Name, one))
	}
	return all, nil
}

// part returns the authorizer of a mode, nil for webhooks.
func (p *Parts) part(mode string) (one authz.Authorizer, err error) {
	switch mode {
	case ModeAlwaysAllow:
		return authz.Always(authz.Allow), nil
	case ModeAlwaysDeny:
		return authz.Always(authz.Deny), nil
	case ModeNode:
		one = p.Node
	case ModeRBAC:
		one = p.RBAC
	case ModeABAC:
		one = p.ABAC
	case ModeWebhook:
		return nil, nil
	}
	if one == nil {
		return nil, fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", mode)
	}
	return one, nil
}

func buildWebhook(a *apiserver.AuthorizerConfiguration, p *Parts, m *metrics) (*webhook.Webhook, error) {
	conditions, faults := webhook.Compile(nil, expressions(a.Webhook))
	if err := faults.ToAggregate(); err != nil {
		return nil, err
	}
	c := webhook.Config{
		Name: a.Name, KubeconfigFile: *a.Webhook.ConnectionInfo.KubeConfigFile, Version: a.Webhook.SubjectAccessReviewVersion,
		Timeout: a.Webhook.Timeout.Duration, OnError: authz.NoOpinion, Conditions: conditions,
		Metrics: m.webhooks, Now: p.Now, Backoff: p.backoff,
	}
	if a.Webhook.FailurePolicy == apiserver.FailurePolicyDeny {
		c.OnError = authz.Deny
	}
	if a.Webhook.CacheAuthorizedRequests {
		c.AuthorizedTTL = a.Webhook.AuthorizedTTL.Duration
	}
	if a.Webhook.CacheUnauthorizedRequests {
		c.UnauthorizedTTL = a.Webhook.UnauthorizedTTL.Duration
	}
	return webhook.New(c)
}

// counted is an authorizer whose decisions are counted.
type counted struct {
	authz.Authorizer
	name            string
	allowed, denied prometheus.Counter
}

// Authorize implements authz.Authorizer.
func (c *counted) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	d, reason, err := c.Authorizer.Authorize(ctx, a)
	switch d {
	case authz.Allow:
		c.allowed.Inc()
	case authz.Deny:
		c.denied.Inc()
	case authz.NoOpinion:
		if reason != "" { // those of several authorizers are shown together
			reason = c.name + ": " + reason
		}
	}
	return d, reason, err
}

// Rules implements authz.Ruler.
func (c *counted) Rules(ctx context.Context, u *authn.User, namespace string) authz.Rules {
	if r, ok := c.Authorizer.(authz.Ruler); ok {
		return r.Rules(ctx, u, namespace)
	}
	return authz.Rules{}
}
