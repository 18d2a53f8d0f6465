package authz

import (
	"context"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Always gives the same answer to all requests: Allow for AlwaysAllow, NoOpinion for
// AlwaysDeny, which refuses what no other authorizer allows.
type Always Decision

// Authorize implements Authorizer.
func (d Always) Authorize(context.Context, *Attributes) (Decision, string, error) {
	if Decision(d) == Allow {
		return Allow, "", nil
	}
	return NoOpinion, "Everything is forbidden.", nil
}

// Rules implements Ruler.
func (d Always) Rules(context.Context, *authn.User, string) Rules {
	if Decision(d) != Allow {
		return Rules{}
	}
	all := []string{"*"}
	return Rules{
		Resources:    []ResourceRule{{Verbs: all, Groups: all, Resources: all}},
		NonResources: []NonResourceRule{{Verbs: all, Paths: all}},
	}
}
