package authz

import (
	"context"
	"slices"
)

// SuperGroup is the group whose members may do everything, whatever the authorizers say.
const SuperGroup = "system:masters"

// Superusers allows everything to the members of SuperGroup, and has no opinion about others. It
// comes before all other authorizers.
type Superusers struct{}

// Authorize implements Authorizer.
func (Superusers) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if slices.Contains(a.User.Groups, SuperGroup) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}
