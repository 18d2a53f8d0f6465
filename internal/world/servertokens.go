package world

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/satoken"
	"github.com/tidemark-dev/tidemark/internal/store"
)

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

// findServerTokens finds the Secrets with tokens that the server accepts. It also finds those in the history of the fork, because
// exact reads and watches return deleted Secrets.
func findServerTokens(ctx context.Context, objects *store.Store) (serverTokens, error) {
	all := serverTokens{}
	for o := range objects.Any().Snapshot("secrets").Scan("", "") {
		all.add(o)
	}
	for {
		err := all.addOld(ctx, objects)
		if !errors.As(err, new(*store.ExpiredError)) { // the history was compacted meanwhile
			return all, err
		}
	}
}

// addOld adds those of the versions that were replaced or deleted.
func (s serverTokens) addOld(ctx context.Context, objects *store.Store) error {
	floor, _ := objects.Bounds()
	changes, err := objects.Watch("secrets", "", floor)
	if err != nil {
		return err
	}
	defer changes.Close()
	for room := make([]*store.Change, 256); ; {
		n, err := changes.TryNext(ctx, room)
		if err != nil || n == 0 {
			return err
		}
		for _, c := range room[:n] {
			s.add(c.Before)
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
