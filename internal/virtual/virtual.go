// Package virtual has the resources that are not stored: token reviews and access reviews, tokens
// of service accounts, bindings and evictions of Pods. Each has a handler in the table of New.
// ComponentStatuses can only be read.
package virtual

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/satoken"
)

// Config has the dependencies of the handlers. Every field is required, unless its zero value has a
// meaning.
type Config struct {
	Catalog func() *resource.Catalog
	// Review authenticates a token, as authn.Credentials does.
	Review func(ctx context.Context, token string, audiences []string) (*authn.User, []string, error)
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

// Resources are the virtual resources and subresources. They implement registry.Virtual.
type Resources struct {
	handlers map[subresource]registry.VirtualHandler
	sources  map[schema.GroupResource]*registry.Source
}

// subresource is a resource, or one of its subresources.
type subresource struct {
	schema.GroupResource
	sub string
}

// New returns the virtual resources.
func New(c Config) *Resources {
	if c.Now == nil {
		c.Now = time.Now
	}
	at := func(group, name, sub string) subresource {
		return subresource{schema.GroupResource{Group: group, Resource: name}, sub}
	}
	return &Resources{
		handlers: map[subresource]registry.VirtualHandler{
			at(authenticationGroup, "selfsubjectreviews", ""):       admitted(c.selfSubjectReview),
			at(authenticationGroup, "tokenreviews", ""):             admitted(c.tokenReview),
			at(authorizationGroup, "subjectaccessreviews", ""):      admitted(c.subjectAccessReview),
			at(authorizationGroup, "localsubjectaccessreviews", ""): admitted(c.localSubjectAccessReview),
			at(authorizationGroup, "selfsubjectaccessreviews", ""):  admitted(c.selfSubjectAccessReview),
			at(authorizationGroup, "selfsubjectrulesreviews", ""):   admitted(c.selfSubjectRulesReview),
			at("", "serviceaccounts", "token"):                      c.tokenRequest,
			at("", "bindings", ""):                                  admitted(c.binding),
			at("", "pods", "binding"):                               admitted(c.binding),
			at("", "pods", "eviction"):                              admitted(c.eviction),
		},
		sources: map[schema.GroupResource]*registry.Source{{Resource: "componentstatuses"}: components()},
	}
}

// admitted makes a handler call the validating plugins before it begins.
func admitted(handle registry.VirtualHandler) registry.VirtualHandler {
	return func(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
		if err := call.Admit(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, call)
	}
}

// Handler implements registry.Virtual.
func (r *Resources) Handler(t registry.Target) registry.VirtualHandler {
	return r.handlers[subresource{t.Type.GroupResource(), t.Subresource}]
}

// Source implements registry.Virtual.
func (r *Resources) Source(t registry.Target) *registry.Source {
	return r.sources[t.Type.GroupResource()]
}
