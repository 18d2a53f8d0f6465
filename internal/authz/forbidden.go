package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Forbidden returns the answer to a request that is not allowed: 403, in kube-apiserver's words.
// The reason is that of the authorizers; it may be empty.
func Forbidden(a *Attributes, reason string) *apierrors.StatusError {
	message := markup.Replace(refused(a))
	if reason != "" {
		message += ": " + reason
	}
	var resource schema.GroupResource
	if a.IsResource {
		resource = schema.GroupResource{Group: a.Group, Resource: a.Resource}
	}
	return apierrors.NewForbidden(resource, a.Name, errors.New(message))
}

// Require returns an error unless an authorizer allows a request: that of Forbidden, or 429 if the authorizer is too busy
// to decide.
func Require(ctx context.Context, z Authorizer, a *Attributes) error {
	d, reason, err := z.Authorize(ctx, a)
	switch {
	case d == Allow:
		return nil
	case errors.Is(err, ErrBusy):
		return apierrors.NewTooManyRequests(ErrBusy.Error(), 1)
	case err != nil && reason != "":
		reason = err.Error() + ": " + reason
	case err != nil:
		reason = err.Error()
	}
	return Forbidden(a, reason)
}

// markup escapes what HTML could contain in names that clients choose, as kube-apiserver does.
var markup = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// refused says what the user may not do.
func refused(a *Attributes) string {
	if !a.IsResource {
		return fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path)
	}
	what := a.Resource
	if a.Subresource != "" {
		what += "/" + a.Subresource
	}
	where := "at the cluster scope"
	if a.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", a.Namespace)
	}
	return fmt.Sprintf("User %q cannot %s resource %q in API group %q %s", a.User.Name, a.Verb, what, a.Group, where)
}
