package authz

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Forbidden returns the error of a request that is not allowed: 403, with kube-apiserver's message.
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

// Require returns an error unless an authorizer allows a request. The error is that of Forbidden or of Undecided.
func Require(ctx context.Context, z Authorizer, a *Attributes) error {
	switch ok, reason, err := Allowed(ctx, z, a); {
	case ok:
		return nil
	case err != nil:
		return err
	default:
		return Forbidden(a, reason)
	}
}

// Allowed reports whether an authorizer allows a request, and its reason. The error is that of Undecided. Code that
// checks a right beyond the one to send the request uses Allowed or Require. It returns the error to the client unless
// another right suffices.
func Allowed(ctx context.Context, z Authorizer, a *Attributes) (bool, string, error) {
	d, reason, err := z.Authorize(ctx, a)
	if d == Allow {
		return true, reason, nil
	}
	return false, reason, Undecided(err)
}

// Undecided returns the error for a request that an authorizer could not decide because of err: 429 if the authorizer is
// too busy, and 500 otherwise. Clients try again after these, unlike after 403 and 422. It returns nil if err is nil.
func Undecided(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrBusy):
		return apierrors.NewTooManyRequests(ErrBusy.Error(), 1)
	}
	return apierrors.NewInternalError(fmt.Errorf("the authorizer could not decide: %w", err))
}

// IsUndecided reports whether an error is one of Undecided.
func IsUndecided(err error) bool {
	return apierrors.IsTooManyRequests(err) || apierrors.IsInternalError(err)
}

// markup escapes HTML in names that clients choose, as kube-apiserver does.
var markup = strings.NewReplacer(`&`, "&amp;", `<`, "&lt;", `>`, "&gt;")

// refused returns the message without the reason.
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
