package authz

import (
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Rule allows verbs on resources or on paths. "*" means all. A path that ends with * is a
// prefix.
type Rule struct {
	Verbs []string
	// Groups and Resources are API groups and their resources.
	Groups, Resources []string
	// Paths are paths that are not resources.
	Paths []string
}

// Ruler lists what a user may do. It is safe for concurrent use.
type Ruler interface {
	// Rules returns the rules of the user in a namespace. The caller must not change them.
	Rules(u *authn.User, namespace string) []Rule
}

// granted are the rules of a group of users.
type granted struct {
	group string // empty: all users
	rules []Rule
}

// grants are the rules of kube-apiserver's default roles cluster-admin,
// system:public-info-viewer, system:basic-user, system:discovery and
// system:service-account-issuer-discovery.
var grants = []granted{
	{"system:masters", []Rule{
		{Verbs: []string{"*"}, Groups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, Paths: []string{"*"}},
	}},
	{"", []Rule{
		{Verbs: []string{"get"}, Paths: []string{"/healthz", "/livez", "/readyz", "/version", "/version/"}},
		{Verbs: []string{"get"}, Paths: []string{"/healthz/*", "/livez/*", "/readyz/*"}},
	}},
	{authn.Authenticated, []Rule{
		{Verbs: []string{"create"}, Groups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
		{Verbs: []string{"create"}, Groups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
		{Verbs: []string{"get"}, Paths: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"}},
	}},
	{"system:serviceaccounts", []Rule{
		{Verbs: []string{"get"}, Paths: []string{"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"}},
	}},
}

// allows reports whether the rule allows the request.
func (r *Rule) allows(a *Attributes) bool {
	if !has(r.Verbs, a.Verb) {
		return false
	}
	if !a.IsResource {
		return slices.ContainsFunc(r.Paths, func(p string) bool {
			begin, open := strings.CutSuffix(p, "*")
			return p == a.Path || open && strings.HasPrefix(a.Path, begin)
		})
	}
	return has(r.Groups, a.Group) && (slices.Contains(r.Resources, "*") || a.Subresource == "" && slices.Contains(r.Resources, a.Resource))
}

func has(all []string, one string) bool {
	return slices.Contains(all, "*") || slices.Contains(all, one)
}
