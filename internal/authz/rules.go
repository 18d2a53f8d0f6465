package authz

import (
	"slices"
	"strings"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// Rule allows verbs, on resources or on paths. "*" is everything; a path that ends
// with * is all that begin so.
type Rule struct {
	Verbs []string
	// Groups and Resources are of API groups and their resources.
	Groups, Resources []string
	// Paths are those of no resource.
	Paths []string
}

// Ruler tells what a user may do in a namespace, as far as it can be said by rules.
// It is safe for concurrent use.
type Ruler interface {
	// Rules returns those of the user; the caller must not change them.
	Rules(u *authn.User, namespace string) []Rule
}

// granted are the rules of a group of users.
type granted struct {
	group string // empty: everybody
	rules []Rule
}

// grants are what there is without roles of one's own: of kube-apiserver's roles
// cluster-admin, system:public-info-viewer, system:basic-user, system:discovery and
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

// allows reports whether a rule is of the request.
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
