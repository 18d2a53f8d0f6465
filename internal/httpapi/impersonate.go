package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/authn"
)

// The headers that name the user to impersonate.
const (
	impersonateUser  = "Impersonate-User"
	impersonateGroup = "Impersonate-Group"
	impersonateUID   = "Impersonate-Uid"
	impersonateExtra = "Impersonate-Extra-"
)

// maxImpersonated bounds the groups and extra values to impersonate: each is a decision of its
// own, and may be a question to a webhook.
const maxImpersonated = 1000

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
// name, if the sender has the rights. The headers are removed: no server behind this one
// impersonates again.
func (q *request) impersonate() error {
	if !impersonates(q.r.Header) {
		return nil
	}
	want, err := wantedUser(q.r.Header)
	if err != nil {
		q.header()["X-Content-Type-Options"] = noSniff
		return err
	}
	if want == nil {
		return nil
	}
	granted, err := q.h.impersonation.Check(q.r.Context(), want, &q.info.Attributes)
	if err != nil {
		return err
	}
	for name := range q.r.Header {
		if strings.HasPrefix(name, "Impersonate-") {
			delete(q.r.Header, name)
		}
	}
	q.info.sender, q.info.constraint = q.info.User, granted.Constraint
	q.info.User = granted.User
	q.lap(&q.parts.impersonation)
	q.audited.impersonated(granted.User, granted.Constraint)
	return nil
}

// wantedUser returns the user that the headers name. It is nil if they have an empty name and
// nothing else, which means no impersonation.
func wantedUser(h http.Header) (*authn.User, error) {
	u := &authn.User{Name: h.Get(impersonateUser), UID: h.Get(impersonateUID)}
	u.Groups = append(u.Groups, h[impersonateGroup]...)
	values, extra := len(u.Groups), false
	for name, all := range h {
		key, ok := strings.CutPrefix(name, impersonateExtra)
		if !ok {
			continue
		}
		extra = true
		if len(all) == 0 {
			continue
		}
		key = strings.ToLower(key)
		if plain, err := url.PathUnescape(key); err == nil {
			key = plain
		}
		if u.Extra == nil {
			u.Extra = map[string][]string{}
		}
		u.Extra[key] = append(u.Extra[key], all...)
		values += len(all)
	}
	switch {
	case values > maxImpersonated:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the impersonation headers have more than %d groups and extra values", maxImpersonated))
	case u.Name != "":
		return u, nil
	case u.UID != "" || len(u.Groups) > 0 || extra:
		return nil, apierrors.NewBadRequest(fmt.Sprintf("requested &user.DefaultInfo{Name:%q, UID:%q, Groups:%#v, Extra:%#v} without impersonating a user name", u.Name, u.UID, u.Groups, u.Extra))
	}
	return nil, nil
}
