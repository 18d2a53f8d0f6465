package tidemark

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// # Rights in forks
//
// A fork begins with the roles and bindings of its parent at that time. Two kinds of requests also require the same right in
// the current state of the server:
//
//   - All requests to a fork of the past, which began with an older state than the newest, and to its own forks. Otherwise
//     such a fork would return rights that were removed since to the client that makes it, and to others.
//   - Requests for Secrets with tokens that the server accepts.

// access returns the authorizer for requests to a world.
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

// serverTokens are the Secrets of a fork with tokens that the server accepts, by namespace and name.
type serverTokens map[string]map[string]bool

// concern reports whether a request may return such a token.
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

// serverTokens finds the Secrets with tokens that the server accepts. It also finds those in the history of the fork, because
// exact reads and watches return deleted Secrets.
func (w *World) serverTokens() (serverTokens, error) {
	all := serverTokens{}
	for o := range w.store.Any().Snapshot("secrets").Scan("", "") {
		all.add(o)
	}
	for {
		err := w.oldServerTokens(all)
		if !errors.As(err, new(*store.ExpiredError)) { // the history was compacted meanwhile
			return all, err
		}
	}
}

// oldServerTokens adds those of the versions that were replaced or deleted.
func (w *World) oldServerTokens(all serverTokens) error {
	floor, _ := w.store.Bounds()
	changes, err := w.store.Watch("secrets", "", floor)
	if err != nil {
		return err
	}
	defer changes.Close()
	for room := make([]*store.Change, 256); ; {
		n, err := changes.TryNext(w.running.root.ending, room)
		if err != nil || n == 0 {
			return err
		}
		for _, c := range room[:n] {
			all.add(c.Before)
		}
	}
}

// add adds a Secret if the server accepts its token. The object may be nil.
func (s serverTokens) add(o *store.Object) {
	var secret struct {
		Metadata struct{ Name, Namespace string } `json:"metadata"`
		Type     corev1.SecretType                `json:"type"`
		Data     map[string][]byte                `json:"data"`
	}
	if o == nil || o.Unreadable() != "" || json.Unmarshal(o.Bytes(), &secret) != nil {
		return
	}
	switch secret.Type {
	case corev1.SecretTypeBootstrapToken:
	case corev1.SecretTypeServiceAccountToken:
		if satoken.OfFork(string(secret.Data[corev1.ServiceAccountTokenKey])) {
			return
		}
	default:
		return
	}
	namespace, name := secret.Metadata.Namespace, secret.Metadata.Name
	if s[namespace] == nil {
		s[namespace] = map[string]bool{}
	}
	s[namespace][name] = true
}
