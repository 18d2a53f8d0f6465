package impersonation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

const authenticationGroup = "authentication.k8s.io"

// manyValues is the number of groups or extra values from which on a constrained mode first checks
// the right to all of them.
const manyValues = 4

// permission checks the rights that one mode needs.
type permission struct {
	c    *Checker
	mode *mode
	by   *authn.User
	want *authn.User
	// undecided is the error of the first right that the authorizer could not decide.
	undecided error
}

// check returns the user, or nil if the mode is not for it.
func (p *permission) check(ctx context.Context, a *authz.Attributes) (*authn.User, error) {
	if !p.mode.applies(p.want, p.by) {
		return nil, nil
	}
	if p.mode.name == associatedNode {
		p.by = withoutNode(p.by)
	}
	if p.constrained() {
		on := *a
		on.User, on.Verb = p.by, "impersonate-on:"+p.mode.name+":"+a.Verb
		if err := p.ask(ctx, &on); err != nil {
			return nil, err
		}
	}
	as := *p.want
	for _, step := range [...]func(context.Context, *authn.User) error{p.name, p.uid, p.groups, p.extra} {
		if err := step(ctx, &as); err != nil {
			return nil, err
		}
	}
	as.Groups = withStanding(&as)
	return &as, nil
}

func (p *permission) constrained() bool { return p.mode.name != legacy }

// right returns the attributes of the right to impersonate a name of a resource. Users and groups
// have no API group in the legacy mode.
func (p *permission) right(resource, name string) authz.Attributes {
	a := authz.Attributes{
		User: p.by, Verb: p.mode.verb(), IsResource: true,
		Group: authenticationGroup, Version: "v1", Resource: resource, Name: name,
	}
	if !p.constrained() && resource != "uids" && resource != "userextras" {
		a.Group = ""
	}
	return a
}

// name checks the right to the user's name, and adds the groups that follow from it.
func (p *permission) name(ctx context.Context, as *authn.User) error {
	a := p.right("users", as.Name)
	if node, ok := nodeName(as.Name); ok && p.constrained() {
		a.Resource, a.Name = "nodes", node
		if p.mode.name == associatedNode {
			a.Name = "*" // the right is to whatever node the pod runs on
		}
		as.Groups = []string{"system:nodes"}
	}
	if namespace, name, ok := ServiceAccount(as.Name); ok {
		a.Resource, a.Namespace, a.Name = "serviceaccounts", namespace, name
		if len(as.Groups) == 0 {
			as.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
		}
	}
	return p.ask(ctx, &a)
}

func (p *permission) uid(ctx context.Context, as *authn.User) error {
	if as.UID == "" {
		return nil
	}
	a := p.right("uids", as.UID)
	return p.ask(ctx, &a)
}

func (p *permission) groups(ctx context.Context, _ *authn.User) error {
	groups := p.want.Groups
	a := p.right("groups", "")
	if p.constrained() {
		if slices.Contains(groups, "") {
			return authz.Forbidden(&a, "impersonating the empty string group is not allowed")
		}
		if slices.Contains(groups, authz.SystemMasters) {
			a.Name = authz.SystemMasters
			return authz.Forbidden(&a, "impersonating the "+authz.SystemMasters+" group is not allowed")
		}
		if len(groups) >= manyValues {
			a.Name = "*"
			if p.ask(ctx, &a) == nil {
				return nil
			}
		}
	}
	for _, group := range groups {
		a.Name = group
		if err := p.ask(ctx, &a); err != nil {
			return err
		}
	}
	return nil
}

func (p *permission) extra(ctx context.Context, _ *authn.User) error {
	extra := p.want.Extra
	a := p.right("userextras", "")
	keys := slices.Sorted(maps.Keys(extra))
	if p.constrained() {
		values := 0
		for _, key := range keys {
			if err := checkExtra(key, extra[key]); err != nil {
				return authz.Forbidden(&a, err.Error())
			}
			values += len(extra[key])
		}
		if values >= manyValues {
			a.Subresource, a.Name = "*", "*"
			if p.ask(ctx, &a) == nil {
				return nil
			}
		}
	}
	for _, key := range keys {
		a.Subresource = key
		for _, value := range extra[key] {
			a.Name = value
			if err := p.ask(ctx, &a); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkExtra returns why no constrained mode allows an extra attribute, or nil.
func checkExtra(key string, values []string) error {
	switch err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); {
	case key == "":
		return errors.New("impersonating the empty string key in extra is not allowed")
	case err != nil:
		return fmt.Errorf("impersonating an invalid key in extra is not allowed: %w", err)
	case key != strings.ToLower(key):
		return fmt.Errorf("impersonating a non-lowercase key in extra is not allowed: %q", key)
	case len(values) == 0:
		return errors.New("impersonating empty values in extra is not allowed")
	case slices.Contains(values, ""):
		return errors.New("impersonating the empty string value in extra is not allowed")
	}
	return nil
}

// ask returns an error unless the authorizer allows a right.
func (p *permission) ask(ctx context.Context, a *authz.Attributes) error {
	start := time.Now()
	err := authz.Require(ctx, p.c.authz, a)
	if authz.IsUndecided(err) {
		p.undecided = cmp.Or(p.undecided, err)
	}
	p.c.seen.Authorization(p.mode.name, err == nil, time.Since(start))
	return err
}

// withStanding returns the groups of a user, with system:authenticated or, for the anonymous
// user, system:unauthenticated.
func withStanding(u *authn.User) []string {
	const unauthenticated = "system:unauthenticated"
	group := authn.Authenticated
	switch {
	case u.Name == authn.Anonymous.Name:
		group = unauthenticated
	case slices.Contains(u.Groups, unauthenticated):
		return u.Groups
	}
	if slices.Contains(u.Groups, group) {
		return u.Groups
	}
	return append(slices.Clip(u.Groups), group)
}
