// Package authz authorizes requests. The packages below it hold the authorizers: rbac, node,
// abac and webhook.
package authz

import (
	"context"
	"errors"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"

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

	// FieldSelector and LabelSelector are those of a list, watch or deletecollection, as the
	// client wrote them (KEP-4601). Authorizers that use them parse them.
	FieldSelector, LabelSelector string
}

// Decision is the decision of an authorizer. The zero value is NoOpinion.
type Decision uint8

const (
	// NoOpinion leaves the decision to the next authorizer. If none allows the request, it is
	// denied.
	NoOpinion Decision = iota
	// Allow allows the request; no other authorizer is called.
	Allow
	// Deny denies the request; no other authorizer is called.
	Deny
)

// ErrBusy is the error of an authorizer that is too busy with other requests to decide. Its decision is Deny,
// and the response is 429.
var ErrBusy = errors.New("too many requests are waiting for an authorizer, please try again later")

// Authorizer authorizes requests. It is safe for concurrent use.
type Authorizer interface {
	// Authorize decides. The reason may be empty; it is for the response to the client and for the
	// audit log. The error, which may come with any decision, is why the authorizer could not
	// evaluate all of its rules. ctx ends with the request.
	Authorize(ctx context.Context, a *Attributes) (d Decision, reason string, err error)
}

// Ruler lists the rights of a user. It is safe for concurrent use.
type Ruler interface {
	// Rules returns the rules of the user in a namespace. The caller must not change them.
	Rules(ctx context.Context, u *authn.User, namespace string) Rules
}

// Rules are the rights of a user.
type Rules struct {
	Resources    []ResourceRule
	NonResources []NonResourceRule
	// Incomplete is set if there may be more rules. Err is the reason; it may be nil.
	Incomplete bool
	Err        error
}

// ResourceRule allows verbs on resources; "*" means all of them. No names: all names.
type ResourceRule struct {
	Verbs, Groups, Resources, Names []string
}

// NonResourceRule allows verbs on paths. A path that ends with * is a prefix.
type NonResourceRule struct {
	Verbs, Paths []string
}

// Union calls authorizers in order. The first one that allows or denies decides. If none does, the
// reasons and errors of all are joined.
type Union []Authorizer

// Authorize implements Authorizer.
func (u Union) Authorize(ctx context.Context, a *Attributes) (Decision, string, error) {
	var reasons string
	var errs []error
	for _, one := range u {
		d, reason, err := one.Authorize(ctx, a)
		if err != nil {
			errs = append(errs, err)
		}
		switch {
		case d != NoOpinion:
			return d, reason, err
		case reason == "":
		case reasons == "":
			reasons = reason
		default:
			reasons += "\n" + reason
		}
	}
	return NoOpinion, reasons, joined(errs)
}

// Rules implements Ruler: the rules of all authorizers that are Rulers.
func (u Union) Rules(ctx context.Context, who *authn.User, namespace string) Rules {
	var all Rules
	var errs []error
	for _, one := range u {
		ruler, ok := one.(Ruler)
		if !ok {
			continue
		}
		r := ruler.Rules(ctx, who, namespace)
		all.Resources = append(all.Resources, r.Resources...)
		all.NonResources = append(all.NonResources, r.NonResources...)
		all.Incomplete = all.Incomplete || r.Incomplete
		if r.Err != nil {
			errs = append(errs, r.Err)
		}
	}
	all.Err = joined(errs)
	return all
}

// joined returns one error with the texts of all, as kube-apiserver joins them; nil if there is
// none.
func joined(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return utilerrors.NewAggregate(errs)
}
