// Package virtual answers what is created and never stored under its name: reviews
// of who a user is and what the user may do, tokens of service accounts, bindings
// and evictions of Pods (row A10). Each is one function, an entry of the table that Actions
// returns. Sources returns what is only read.
package virtual

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// Config is what the answers rest on. Every field without "nil" in its comment is
// required.
type Config struct {
	Registry *registry.Registry
	Catalog  func() *resource.Catalog
	// Review tells who a token is of, as authn.Credentials does.
	Review func(token string, audiences []string) (*authn.User, []string, error)
	Authz  authz.Authorizer
	Rules  authz.Ruler
	Tokens *satoken.Authority
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

const (
	authenticationGroup = "authentication.k8s.io"
	authorizationGroup  = "authorization.k8s.io"
)

// Actions returns what answers, by what is asked. What it returns may be changed.
func Actions(c Config) map[registry.Place]registry.Action {
	if c.Now == nil {
		c.Now = time.Now
	}
	at := func(group, name, sub string) registry.Place {
		return registry.Place{GroupResource: schema.GroupResource{Group: group, Resource: name}, Subresource: sub}
	}
	return map[registry.Place]registry.Action{
		at(authenticationGroup, "selfsubjectreviews", ""):       c.selfSubjectReview,
		at(authenticationGroup, "tokenreviews", ""):             c.tokenReview,
		at(authorizationGroup, "subjectaccessreviews", ""):      c.subjectAccessReview,
		at(authorizationGroup, "localsubjectaccessreviews", ""): c.localSubjectAccessReview,
		at(authorizationGroup, "selfsubjectaccessreviews", ""):  c.selfSubjectAccessReview,
		at(authorizationGroup, "selfsubjectrulesreviews", ""):   c.selfSubjectRulesReview,
		at("", "serviceaccounts", "token"):                      c.tokenRequest,
		at("", "bindings", ""):                                  c.binding,
		at("", "pods", "binding"):                               c.binding,
		at("", "pods", "eviction"):                              c.eviction,
	}
}

// Sources returns what makes the objects of kinds that are read and never stored.
func Sources() map[schema.GroupResource]registry.Source {
	return map[schema.GroupResource]registry.Source{{Resource: "componentstatuses"}: components()}
}
