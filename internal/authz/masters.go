package authz

import (
	"context"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// SystemMasters is the group whose members may do everything.
const SystemMasters = "system:masters"

// Masters allows everything to the group system:masters, whatever other authorizers decide. So
// the administrator keeps access whatever roles are stored.
type Masters struct{}

// Authorize implements Authorizer.
func (Masters) Authorize(_ context.Context, a *Attributes) (Decision, string, error) {
	if IsMaster(a.User) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// IsMaster reports whether a user is in the group system:masters.
func IsMaster(u *authn.User) bool { return slices.Contains(u.Groups, SystemMasters) }
