package match

import (
	"context"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/expression"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// authorizerValues sets the values of authorizer and authorizer.requestResource.
func (in *Input) authorizerValues(ctx context.Context, a *registry.Attributes, az authz.Authorizer) {
	checks := &checker{ctx: ctx, authorizer: az, user: a.Client()}
	in.checks = checks
	info := &user.DefaultInfo{}
	if u := checks.user; u != nil {
		info.Name, info.UID, info.Groups, info.Extra = u.Name, u.UID, u.Groups, u.Extra
	}
	in.Authorizer = &expression.Lazy{Make: func() (any, error) { return library.NewAuthorizerVal(info, checks), nil }}
	in.RequestResource = &expression.Lazy{Make: func() (any, error) {
		return library.NewResourceAuthorizerVal(info, checks, target{a}), nil
	}}
}

// Undecided returns the error of authz.Undecided if the request must be refused because the authorizer could not decide a
// check of an expression. denied reports whether the expressions deny the request, or fail.
//
// If the authorizer was too busy, every request is refused: allowed() was false, which may have disabled a policy or a
// webhook. Expressions can handle other failures of the authorizer with errored(). These matter if the request is denied.
func (in *Input) Undecided(denied bool) error {
	if in.checks == nil || !denied && !errors.Is(in.checks.undecided, authz.ErrBusy) {
		return nil
	}
	return authz.Undecided(in.checks.undecided)
}

// target is the requested resource, in the form that the library of CEL takes.
type target struct{ a *registry.Attributes }

func (t target) GetName() string                          { return t.a.ShownName() }
func (t target) GetNamespace() string                     { return Namespace(t.a) }
func (t target) GetResource() schema.GroupVersionResource { return t.a.RequestedResource() }
func (t target) GetSubresource() string                   { return t.a.Subresource }

// maxDecisions bounds the decisions that are remembered for one request.
const maxDecisions = 256

// checker makes the authorization checks of the expressions of one request. It caches their
// results, so that equal checks call a remote authorizer once.
type checker struct {
	ctx        context.Context // of the request: the library of CEL passes one without a deadline
	authorizer authz.Authorizer
	user       *authn.User
	decided    map[check]decision
	undecided  error // of a check that could not be decided, authz.ErrBusy rather than others; nil: all were decided
}

// check identifies a check. The user is the client of the request, or a service account.
type check struct {
	user, uid                                                             string
	resource                                                              bool
	verb, group, version, name, namespace, kind, subresource, path, field string
	label                                                                 string
}

type decision struct {
	decision authorizer.Decision
	reason   string
	err      error
}

// Authorize implements authorizer.Authorizer.
func (c *checker) Authorize(_ context.Context, r authorizer.Attributes) (authorizer.Decision, string, error) {
	who := r.GetUser()
	a := &authz.Attributes{
		User: &authn.User{Name: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups(), Extra: who.GetExtra()},
		Verb: r.GetVerb(), IsResource: r.IsResourceRequest(), Group: r.GetAPIGroup(), Version: r.GetAPIVersion(), Resource: r.GetResource(),
		Subresource: r.GetSubresource(), Namespace: r.GetNamespace(), Name: r.GetName(), Path: r.GetPath(),
	}
	if c.user != nil && a.User.Name == c.user.Name && a.User.UID == c.user.UID {
		a.User = c.user
	}
	if all, err := r.GetFieldSelector(); err == nil {
		a.FieldSelector = fieldText(all)
	}
	if all, err := r.GetLabelSelector(); err == nil {
		a.LabelSelector = labelText(all)
	}
	key := check{
		user: a.User.Name, uid: a.User.UID, resource: a.IsResource, verb: a.Verb, group: a.Group, version: a.Version, name: a.Name,
		namespace: a.Namespace, kind: a.Resource, subresource: a.Subresource, path: a.Path, field: a.FieldSelector, label: a.LabelSelector,
	}
	if d, ok := c.decided[key]; ok {
		return d.decision, d.reason, d.err
	}
	d := c.decide(a)
	if c.decided == nil {
		c.decided = map[check]decision{}
	}
	if len(c.decided) < maxDecisions {
		c.decided[key] = d
	}
	return d.decision, d.reason, d.err
}

func (c *checker) decide(a *authz.Attributes) decision {
	made, reason, err := c.authorizer.Authorize(c.ctx, a)
	if made != authz.Allow && err != nil && !errors.Is(c.undecided, authz.ErrBusy) {
		c.undecided = err
	}
	d := decision{authorizer.DecisionNoOpinion, reason, err}
	switch made {
	case authz.Allow:
		d.decision = authorizer.DecisionAllow
	case authz.Deny:
		d.decision = authorizer.DecisionDeny
	}
	return d
}

// fieldText returns a selector with the requirements.
func fieldText(all fields.Requirements) string {
	terms := make([]string, len(all))
	for i, r := range all {
		terms[i] = r.Field + string(r.Operator) + fields.EscapeValue(r.Value)
	}
	return strings.Join(terms, ",")
}

// labelText returns a selector with the requirements.
func labelText(all labels.Requirements) string {
	terms := make([]string, len(all))
	for i := range all {
		terms[i] = all[i].String()
	}
	return strings.Join(terms, ",")
}
