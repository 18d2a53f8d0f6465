// Package impersonation decides whether a user may send a request as another user.
//
// There are five modes. They are tried in order, and the first one that allows the request
// decides about the user's groups:
//
//	associated-node   a service account acts as the node that its pod runs on
//	arbitrary-node    any user acts as a node
//	serviceaccount    any user acts as a service account
//	user-info         any user acts as a user that is neither a node nor a service account
//	legacy            any user acts as anyone, for all requests
//
// A constrained mode M needs two kinds of rights: the verb impersonate-on:M:VERB on the target of
// the request, and the verb impersonate:M on the name, the UID, each group and each extra value of
// the user. The legacy mode needs the verb impersonate on these.
package impersonation

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/utils/lru"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// Observer counts the results of a Checker. Its methods are safe for concurrent use.
type Observer interface {
	// Attempt counts a request with impersonation headers. mode is "" if it was refused.
	Attempt(mode string, allowed bool, took time.Duration)
	// Authorization counts a decision that a mode needed.
	Authorization(mode string, allowed bool, took time.Duration)
}

// Checker decides about impersonation. It is safe for concurrent use.
type Checker struct {
	authz authz.Authorizer
	seen  Observer

	// last is the mode that allowed a user's most recent impersonation. It is tried first, and its
	// error is the one that the user gets. Users are kept by hash: a collision changes the order of
	// modes and nothing else.
	last *lru.Cache
	seed maphash.Seed
}

// maxUsers bounds the users whose last mode is kept.
const maxUsers = 10_000

// New returns a Checker. The observer may be nil.
func New(a authz.Authorizer, o Observer) *Checker {
	if o == nil {
		o = noObserver{}
	}
	return &Checker{authz: a, seen: o, last: lru.New(maxUsers), seed: maphash.MakeSeed()}
}

type noObserver struct{}

func (noObserver) Attempt(string, bool, time.Duration)       {}
func (noObserver) Authorization(string, bool, time.Duration) {}

// Grant is a user that may be impersonated.
type Grant struct {
	// User has the groups that follow from its name, too.
	User *authn.User
	// Constraint is the verb that allowed it, "" for the legacy mode.
	Constraint string
}

var errNone = errors.New("all impersonation modes failed")

// Check returns the user as which the sender of a request, a.User, acts. want is the user in the
// headers. The error is a 403, which names the missing right, or that of authz.Undecided.
func (c *Checker) Check(ctx context.Context, want *authn.User, a *authz.Attributes) (Grant, error) {
	start := time.Now()
	g, mode, err := c.check(ctx, want, a)
	c.seen.Attempt(mode, err == nil, time.Since(start))
	return g, err
}

func (c *Checker) check(ctx context.Context, want *authn.User, a *authz.Attributes) (g Grant, name string, err error) {
	key := maphash.String(c.seed, a.User.Name)
	first := -1
	if i, ok := c.last.Get(key); ok {
		first = i.(int)
	}
	var refusal, undecided error
	attempt := func(i int) bool {
		p := permission{c: c, mode: &modes[i], by: a.User, want: want}
		user, err := p.check(ctx, a)
		refusal, undecided = cmp.Or(refusal, err), cmp.Or(undecided, p.undecided)
		if user == nil {
			return false
		}
		g, name = Grant{User: user, Constraint: modes[i].constraint()}, modes[i].name
		return true
	}
	if first >= 0 && attempt(first) {
		return g, name, nil
	}
	for i := range modes {
		if i != first && attempt(i) {
			c.last.Add(key, i)
			return g, name, nil
		}
	}
	return Grant{}, "", cmp.Or(undecided, refusal, errNone)
}

// mode is a way to impersonate.
type mode struct {
	name string
	// applies reports whether the mode can be used for the user at all.
	applies func(want, by *authn.User) bool
}

const (
	associatedNode = "associated-node"
	legacy         = "legacy"
)

var modes = []mode{
	{associatedNode, func(want, by *authn.User) bool {
		node, ok := nodeName(want.Name)
		return ok && onlyName(want) && NodeOf(by) == node
	}},
	{"arbitrary-node", func(want, _ *authn.User) bool {
		_, ok := nodeName(want.Name)
		return ok && onlyName(want)
	}},
	{"serviceaccount", func(want, _ *authn.User) bool {
		_, _, ok := ServiceAccount(want.Name)
		return ok && onlyName(want)
	}},
	{"user-info", func(want, _ *authn.User) bool {
		_, node := nodeName(want.Name)
		_, _, account := ServiceAccount(want.Name)
		return !node && !account
	}},
	{legacy, func(_, _ *authn.User) bool { return true }},
}

// constraint is the verb on users that the mode needs, as audit events show it.
func (m *mode) constraint() string {
	if m.name == legacy {
		return ""
	}
	return m.verb()
}

// verb is the verb on users that the mode needs.
func (m *mode) verb() string {
	if m.name == legacy {
		return "impersonate"
	}
	return "impersonate:" + m.name
}

// onlyName reports whether the headers name a user and nothing else.
func onlyName(u *authn.User) bool { return u.UID == "" && len(u.Groups) == 0 && len(u.Extra) == 0 }

// nodeName returns the node of a user name. ok is false for other users.
func nodeName(user string) (name string, ok bool) {
	name, ok = strings.CutPrefix(user, "system:node:")
	return name, ok && len(validation.NameIsDNSSubdomain(name, false)) == 0
}

// ServiceAccount splits the user name of a service account. ok is false for other users.
func ServiceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, _ = strings.Cut(rest, ":")
	valid := len(validation.ValidateNamespaceName(namespace, false)) == 0 && len(validation.ValidateServiceAccountName(name, false)) == 0
	return namespace, name, valid
}

// NodeOf returns the node that the token of a service account names as that of its pod; empty for other users.
func NodeOf(u *authn.User) string {
	_, _, account := ServiceAccount(u.Name)
	if on := u.Extra["authentication.kubernetes.io/node-name"]; account && len(on) == 1 && len(validation.NameIsDNSSubdomain(on[0], false)) == 0 {
		return on[0]
	}
	return ""
}

// withoutNode returns the service account as the rules of associated-node see it: on whatever node
// its pod runs, it is the same user.
func withoutNode(u *authn.User) *authn.User {
	copied := *u
	copied.Extra = map[string][]string{
		"authentication.kubernetes.io/associated-node-keys": slices.Sorted(maps.Keys(u.Extra)),
	}
	return &copied
}
