package authz

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Always makes the same decision for all requests: Allow for AlwaysAllow, NoOpinion for AlwaysDeny,
// which denies requests that no other authorizer allows. AlwaysAllow has no opinion on anonymous
// users: clients without credentials must not get all rights.
type Always Decision

// Authorize implements Authorizer.
func (d Always) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if Decision(d) == Allow {
		if a.User.IsAnonymous() {
			return NoOpinion, "", nil
		}
		return Allow, "", nil
	}
	return NoOpinion, "Everything is forbidden.", nil
}

// Rules implements Ruler.
func (d Always) Rules(_ context.Context, u *authn.User, _ string) Rules {
	if Decision(d) != Allow || u.IsAnonymous() {
		return Rules{}
	}
	all := []string{"*"}
	return Rules{
		Resources:    []ResourceRule{{Verbs: all, Groups: all, Resources: all}},
		NonResources: []NonResourceRule{{Verbs: all, Paths: all}},
	}
}
