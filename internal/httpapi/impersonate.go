package httpapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
)

// The headers that name the user to impersonate.
const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

// impersonates reports whether the request has impersonation headers.
func impersonates(h http.Header) bool {
	for name := range h {
		what, ok := strings.CutPrefix(name, "Impersonate-")
		if ok && (what == "User" || what == "Group" || what == "Uid" || strings.HasPrefix(what, "Extra-")) {
			return true
		}
	}
	return false
}

// impersonate replaces the user of the request by the user that the impersonation headers
// name. Each user name, group, uid and extra value needs its own permission. An empty name
// without other headers is ignored.
func (q *request) impersonate() error {
	h := q.r.Header
	if !impersonates(h) {
		return nil
	}
	extra := extraHeaders(h)
	as := &authn.User{Name: h.Get(impersonateUser), UID: h.Get(impersonateUID), Groups: slices.Clone(h[impersonateGroup]), Extra: extra.values}
	if as.Name == "" {
		if as.UID != "" || len(as.Groups) > 0 || len(extra.keys) > 0 {
			return apierrors.NewBadRequest("the headers Impersonate-Group, Impersonate-Uid and Impersonate-Extra-* say more of the user that Impersonate-User names: it is missing")
		}
		return nil
	}
	if err := q.mayImpersonate(as, extra.keys); err != nil {
		return err
	}
	if namespace, _, ok := serviceAccount(as.Name); ok && len(as.Groups) == 0 {
		as.Groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	}
	as.Groups = withStanding(as)
	for name := range h { // so that no server behind this one impersonates again
		if strings.HasPrefix(name, "Impersonate-") {
			delete(h, name)
		}
	}
	q.audited.impersonated(as, "")
	q.info.User = as
	return nil
}

// withStanding returns the groups of a user, with system:authenticated or, for the anonymous
// user, system:unauthenticated.
func withStanding(u *authn.User) []string {
	const unauthenticated = "system:unauthenticated"
	has := func(group string) bool { return slices.Contains(u.Groups, group) }
	switch anonymous := u.Name == authn.Anonymous.Name; {
	case anonymous && !has(unauthenticated):
		return append(u.Groups, unauthenticated)
	case !anonymous && !has(unauthenticated) && !has(authn.Authenticated):
		return append(u.Groups, authn.Authenticated)
	}
	return u.Groups
}

// mayImpersonate returns an error unless the user has all permissions that the impersonation
// needs.
func (q *request) mayImpersonate(as *authn.User, extra []string) error {
	ask := authz.Attributes{User: q.info.User, Verb: "impersonate", IsResource: true, Version: "v1", Path: q.r.URL.Path}
	user := ask
	user.Resource, user.Name = "users", as.Name
	if namespace, name, ok := serviceAccount(as.Name); ok {
		user.Resource, user.Namespace, user.Name = "serviceaccounts", namespace, name
	}
	rights := []authz.Attributes{user}
	for _, group := range as.Groups {
		a := ask
		a.Resource, a.Name = "groups", group
		rights = append(rights, a)
	}
	ask.Group = "authentication.k8s.io"
	for _, key := range extra {
		for _, value := range as.Extra[key] {
			a := ask
			a.Resource, a.Subresource, a.Name = "userextras", key, value
			rights = append(rights, a)
		}
	}
	if as.UID != "" {
		a := ask
		a.Resource, a.Name = "uids", as.UID
		rights = append(rights, a)
	}
	for i := range rights {
		if err := q.may(&rights[i]); err != nil {
			return err
		}
	}
	return nil
}

// extras are the extra attributes of a user in the headers.
type extras struct {
	keys   []string // sorted
	values map[string][]string
}

// extraHeaders reads the extra attributes. Keys are in lower case and unescaped.
func extraHeaders(h http.Header) extras {
	var e extras
	for name, values := range h {
		key, ok := strings.CutPrefix(name, impersonateExtra)
		if !ok {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if e.values == nil {
			e.values = map[string][]string{}
		}
		e.values[key] = append(e.values[key], values...)
		e.keys = append(e.keys, key)
	}
	slices.Sort(e.keys)
	e.keys = slices.Compact(e.keys)
	return e
}

// serviceAccount splits the user name of a service account. ok is false for other users.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, _ = strings.Cut(rest, ":")
	valid := len(validation.ValidateNamespaceName(namespace, false)) == 0 && len(validation.ValidateServiceAccountName(name, false)) == 0
	return namespace, name, valid
}
