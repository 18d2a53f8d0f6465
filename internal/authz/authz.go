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
	// Authorize reports whether the request is allowed; reason is for the answer to
	// the client, and may be empty.
	Authorize(a *Attributes) (allowed bool, reason string)
}

// Masters allows everything to the group system:masters, the health endpoints
// and /version to everybody, to whoever is authenticated what a client has to know
// of itself and of the API, and nothing else.
type Masters struct{}

// Authorize implements Authorizer.
func (Masters) Authorize(a *Attributes) (bool, string) {
	for i := range grants {
		g := &grants[i]
		if g.group != "" && !slices.Contains(a.User.Groups, g.group) {
			continue
		}
		for j := range g.rules {
			if g.rules[j].allows(a) {
				return true, ""
			}
		}
	}
	return false, ""
}

// Rules implements Ruler.
func (Masters) Rules(u *authn.User, _ string) []Rule {
	var all []Rule
	for _, g := range grants {
		if g.group == "" || slices.Contains(u.Groups, g.group) {
			all = append(all, g.rules...)
		}
	}
	return all
}
