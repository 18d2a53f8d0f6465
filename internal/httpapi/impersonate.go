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

// The headers that ask to be served as somebody else.
const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

// impersonates tells whether the request asks to be served as somebody else.
func impersonates(h http.Header) bool {
	for name := range h {
		what, ok := strings.CutPrefix(name, "Impersonate-")
		if ok && (what == "User" || what == "Group" || what == "Uid" || strings.HasPrefix(what, "Extra-")) {
			return true
		}
	}
	return false
}

// impersonate makes the request one of whoever its headers name: row X19. Each
// thing that they say of that user is a right of its own. An empty name alone asks
// for nobody else.
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
	for name := range h { // nobody behind this server may take them for a wish of their own
		if strings.HasPrefix(name, "Impersonate-") {
			delete(h, name)
		}
	}
	q.info.User = as
	return nil
}

// withStanding are the groups of a user with the one of all who are authenticated,
// or of all who are not.
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

// mayImpersonate asks for each right that it takes.
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

// extras are what headers say of a user beside the name, the uid and the groups.
type extras struct {
	keys   []string // sorted
	values map[string][]string
}

// extraHeaders reads the keys in lower case, with their escapes taken back.
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

// serviceAccount takes the name of a service account's user apart; ok is false for
// any other user.
func serviceAccount(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, "system:serviceaccount:")
	if !ok {
		return "", "", false
	}
	namespace, name, _ = strings.Cut(rest, ":")
	valid := len(validation.ValidateNamespaceName(namespace, false)) == 0 && len(validation.ValidateServiceAccountName(name, false)) == 0
	return namespace, name, valid
}
