package virtual

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// selfSubjectReview returns the user of the request. It ignores the body.
func (c *Config) selfSubjectReview(_ context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	return &authenticationv1.SelfSubjectReview{
		ObjectMeta: metav1.ObjectMeta{CreationTimestamp: c.now()},
		Status:     authenticationv1.SelfSubjectReviewStatus{UserInfo: call.By.Info()},
	}, nil
}

// tokenReview returns the user that a token authenticates. An invalid token is a response, not an
// error.
func (c *Config) tokenReview(ctx context.Context, call *registry.VirtualRequest) (runtime.Object, error) {
	review := call.Sent.(*authenticationv1.TokenReview)
	if review.Spec.Token == "" {
		return nil, apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	review.Status = authenticationv1.TokenReviewStatus{}
	review.ManagedFields = nil
	u, audiences, err := c.Review(ctx, review.Spec.Token, review.Spec.Audiences)
	if u == nil && errors.Is(err, authn.ErrBusy) {
		return nil, apierrors.NewTooManyRequests(authn.ErrBusy.Error(), 1)
	}
	if err != nil {
		review.Status.Error = err.Error()
		return review, nil
	}
	review.Status.Authenticated = true
	review.Status.User = u.Info()
	review.Status.Audiences = audiences
	return review, nil
}

// now returns the time as objects store it.
func (c *Config) now() metav1.Time { return metav1.NewTime(c.Now().UTC().Truncate(1e9)) }
