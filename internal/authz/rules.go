package authz

import (
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// rule allows verbs on resources or on paths. "*" means all. A path that ends with * is a
// prefix.
type rule struct {
	Verbs []string
	// Groups and Resources are API groups and their resources.
	Groups, Resources []string
	// Paths are paths that are not resources.
	Paths []string
}

// granted are the rules of a group of users.
type granted struct {
	group string // empty: all users
	rules []rule
}

// grants are the rules of kube-apiserver's default roles cluster-admin,
// system:public-info-viewer, system:basic-user, system:discovery and
// system:service-account-issuer-discovery.
var grants = []granted{
	{"system:masters", []rule{
		{Verbs: []string{"*"}, Groups: []string{"*"}, Resources: []string{"*"}},
		{Verbs: []string{"*"}, Paths: []string{"*"}},
	}},
	{"", []rule{
		{Verbs: []string{"get"}, Paths: []string{"/healthz", "/livez", "/readyz", "/version", "/version/"}},
		{Verbs: []string{"get"}, Paths: []string{"/healthz/*", "/livez/*", "/readyz/*"}},
	}},
	{authn.Authenticated, []rule{
		{Verbs: []string{"create"}, Groups: []string{"authorization.k8s.io"}, Resources: []string{"selfsubjectaccessreviews", "selfsubjectrulesreviews"}},
		{Verbs: []string{"create"}, Groups: []string{"authentication.k8s.io"}, Resources: []string{"selfsubjectreviews"}},
		{Verbs: []string{"get"}, Paths: []string{"/api", "/api/*", "/apis", "/apis/*", "/openapi", "/openapi/*"}},
	}},
	{"system:serviceaccounts", []rule{
		{Verbs: []string{"get"}, Paths: []string{"/.well-known/openid-configuration", "/.well-known/openid-configuration/", "/openid/v1/jwks", "/openid/v1/jwks/"}},
	}},
}

// allows reports whether the rule allows the request.
func (r *rule) allows(a *Attributes) bool {
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
