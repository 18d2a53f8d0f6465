package authz

import (
	"context"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Masters allows everything to the group system:masters; health endpoints and /version to all
// users; discovery, OpenAPI and reviews of themselves to authenticated users; the issuer
// documents to service accounts; and nothing else.
type Masters struct{}

// Authorize implements Authorizer.
func (Masters) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	for i := range grants {
		g := &grants[i]
		if g.group != "" && !slices.Contains(a.User.Groups, g.group) {
			continue
		}
		for j := range g.rules {
			if g.rules[j].allows(a) {
				return Allow, "", nil
			}
		}
	}
	return NoOpinion, "", nil
}

// Rules implements Ruler.
func (Masters) Rules(_ context.Context, u *authn.User, _ string) Rules {
	var all Rules
	for _, g := range grants {
		if g.group != "" && !slices.Contains(u.Groups, g.group) {
			continue
		}
		for _, r := range g.rules {
			if len(r.Resources) > 0 {
				all.Resources = append(all.Resources, ResourceRule{Verbs: r.Verbs, Groups: r.Groups, Resources: r.Resources})
			}
			if len(r.Paths) > 0 {
				all.NonResources = append(all.NonResources, NonResourceRule{Verbs: r.Verbs, Paths: r.Paths})
			}
		}
	}
	return all
}
