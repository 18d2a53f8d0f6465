package virtual

import (
	"context"
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// busy is an authorizer that is too busy to decide.
type busy struct{}

func (busy) Authorize(context.Context, *authz.Attributes) (authz.Decision, string, error) {
	return authz.Deny, "", fmt.Errorf("the webhook: %w", authz.ErrBusy)
}

// TestBusyReviews: a review by an authorizer that is too busy is 429. A client would keep a denial.
func TestBusyReviews(t *testing.T) {
	c := &Config{Authz: busy{}, Review: func(context.Context, string, []string) (*authn.User, []string, error) { return nil, nil, authn.ErrBusy }}
	what := &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "n"}
	spec := authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: what}
	for name, row := range map[string]struct {
		handle registry.VirtualHandler
		sent   runtime.Object
	}{
		"SubjectAccessReview":      {c.subjectAccessReview, &authorizationv1.SubjectAccessReview{Spec: spec}},
		"LocalSubjectAccessReview": {c.localSubjectAccessReview, &authorizationv1.LocalSubjectAccessReview{ObjectMeta: metav1.ObjectMeta{Namespace: "n"}, Spec: spec}},
		"SelfSubjectAccessReview":  {c.selfSubjectAccessReview, &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}},
		"TokenReview":              {c.tokenReview, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: "t"}}},
	} {
		_, err := row.handle(t.Context(), &registry.VirtualRequest{Sent: row.sent, By: &authn.User{Name: "u"}, Target: registry.Target{Namespace: "n"}})
		if !apierrors.IsTooManyRequests(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
