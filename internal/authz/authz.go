// Package authz authorizes requests.
package authz

import (
	"slices"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Attributes describe a request to authorize.
type Attributes struct {
	User *authn.User
	// Verb is the verb of RBAC for a resource, or else the HTTP method in lower case.
	Verb string
	// IsResource: the request is for a resource, and the following fields name it. Otherwise
	// only Path counts.
	IsResource                                             bool
	Group, Version, Resource, Subresource, Namespace, Name string
	Path                                                   string
}

// Authorizer authorizes requests. It is safe for concurrent use.
type Authorizer interface {
	// Authorize reports whether the request is allowed. reason is for the answer to the
	// client, and may be empty.
	Authorize(a *Attributes) (allowed bool, reason string)
}

// Masters allows everything to the group system:masters; health endpoints and /version to all
// users; discovery, OpenAPI and reviews of themselves to authenticated users; the issuer
// documents to service accounts; and nothing else.
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
