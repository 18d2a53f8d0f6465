// Package authz tells what a user may do.
package authz

import (
	"slices"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Attributes describe a request to decide on.
type Attributes struct {
	User *authn.User
	// Verb is that of RBAC for a resource, the method in lower case otherwise.
	Verb string
	// Resource requests have IsResource set, others only a Path.
	IsResource                                             bool
	Group, Version, Resource, Subresource, Namespace, Name string
	Path                                                   string
}

// Authorizer decides. It is safe for concurrent use.
type Authorizer interface {
	// Authorize tells whether the request is allowed; reason is for the answer to
	// the client, and may be empty.
	Authorize(a *Attributes) (allowed bool, reason string)
}

// Masters allows everything to the group system:masters, the health endpoints
// and /version to everybody, and nothing else.
type Masters struct{}

// Authorize implements Authorizer.
func (Masters) Authorize(a *Attributes) (bool, string) {
	if slices.Contains(a.User.Groups, "system:masters") {
		return true, ""
	}
	if !a.IsResource && a.Verb == "get" && open(a.Path) {
		return true, ""
	}
	return false, ""
}
