package tidemark

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// # Rights in forks
//
// A fork has the roles and bindings of its parent as of the moment that it begins with. Two kinds of requests need the same
// right on the server, as of now, in addition:
//
//   - all requests to a fork of the past, one that began with an older state than the newest. It would give rights back that
//     were taken away since, to the client that makes it and to others. So do its own forks.
//   - requests for Secrets with tokens that open the server.

// access returns the authorizer of the requests to a world.
func (w *World) access() authz.Authorizer {
	if w.fork == nil {
		return w.authorizer
	}
	return forkAccess{w}
}

// forkAccess authorizes the requests to a fork.
type forkAccess struct{ w *World }

// Authorize implements authz.Authorizer.
func (f forkAccess) Authorize(ctx context.Context, a *authz.Attributes) (authz.Decision, string, error) {
	d, reason, err := f.w.authorizer.Authorize(ctx, a)
	if d != authz.Allow || !f.w.fork.past && !f.w.fork.credentials.concern(a) {
		return d, reason, err
	}
	if p := f.w.fork.ancestor.Value(); f.w.fork.past && p != nil && p.fork != nil {
		if err := p.use(); err != nil {
			return authz.NoOpinion, "", err
		}
		if d, reason, err := p.access().Authorize(ctx, a); d != authz.Allow {
			return d, reason, err
		}
	}
	d, _, err = f.w.running.root.authorizer.Authorize(ctx, a)
	if d != authz.Allow {
		return d, "the fork allows it, and the server does not", err
	}
	return d, reason, err
}

// serverTokens are the Secrets of a fork whose tokens open the server, by namespace and name.
type serverTokens map[string]map[string]bool

// concern reports whether a request may show a token.
func (s serverTokens) concern(a *authz.Attributes) bool {
	switch {
	case len(s) == 0, !a.IsResource, a.Group != "", a.Resource != "secrets", a.Verb == "create":
		return false
	case a.Namespace == "":
		return true
	case a.Name == "":
		return len(s[a.Namespace]) > 0
	}
	return s[a.Namespace][a.Name]
}

// serverTokens finds the Secrets whose tokens open the server. It is called before the first request, which may delete
// some: watches and exact reads still show them.
func (w *World) serverTokens() serverTokens {
	all := serverTokens{}
	for o := range w.store.Any().Snapshot("secrets").Scan("", "") {
		var s struct {
			Metadata struct{ Name, Namespace string } `json:"metadata"`
			Type     corev1.SecretType                `json:"type"`
			Data     map[string][]byte                `json:"data"`
		}
		if o.Unreadable() != "" || json.Unmarshal(o.Bytes(), &s) != nil {
			continue
		}
		switch {
		case s.Type == corev1.SecretTypeBootstrapToken:
		case s.Type != corev1.SecretTypeServiceAccountToken, satoken.OfFork(string(s.Data[corev1.ServiceAccountTokenKey])):
			continue
		}
		if all[s.Metadata.Namespace] == nil {
			all[s.Metadata.Namespace] = map[string]bool{}
		}
		all[s.Metadata.Namespace][s.Metadata.Name] = true
	}
	return all
}
