package fault

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// defaultWebhook is the name of a webhook that does not exist.
const defaultWebhook = "webhook.tidemark.example"

// Err returns the error of a request for a Conflict, a Status, a Gone or a WebhookTimeout;
// nil for other kinds.
func (r *Rule) Err(q *Request) error {
	resource := schema.GroupResource{Group: q.Group, Resource: q.Resource}
	switch r.Fault {
	case Conflict:
		return apierrors.NewConflict(resource, q.Name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	case Status:
		return r.status(resource, q.Verb)
	case Gone:
		return apierrors.NewResourceExpired("The resourceVersion for the provided " + q.Verb + " is too old.")
	case WebhookTimeout:
		name := cmp.Or(r.Webhook, defaultWebhook)
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: failed to call webhook: Post %q: context deadline exceeded", name, "https://"+name+"/?timeout=10s"))
	}
	return nil
}

// status is the Status that an overloaded, failing or slow server sends.
func (r *Rule) status(resource schema.GroupResource, verb string) error {
	var err *apierrors.StatusError
	switch r.Code {
	case http.StatusTooManyRequests:
		err = apierrors.NewTooManyRequestsError("Too many requests, please try again later.")
	case http.StatusServiceUnavailable:
		err = apierrors.NewServiceUnavailable("the server is currently unable to handle the request")
	case http.StatusGatewayTimeout:
		err = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
	default:
		if r.RetryAfterSeconds > 0 {
			return apierrors.NewServerTimeout(resource, verb, r.RetryAfterSeconds)
		}
		return apierrors.NewInternalError(errors.New("the server failed on purpose"))
	}
	if r.RetryAfterSeconds > 0 {
		if err.ErrStatus.Details == nil {
			err.ErrStatus.Details = &metav1.StatusDetails{}
		}
		err.ErrStatus.Details.RetryAfterSeconds = int32(r.RetryAfterSeconds)
	}
	return err
}
