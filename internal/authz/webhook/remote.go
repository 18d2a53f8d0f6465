package webhook

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/webhook"
)

// remote calls the service. It is safe for concurrent use.
type remote struct {
	client  *rest.RESTClient
	version string
}

func newRemote(kubeconfig, version string, timeout time.Duration) (*remote, error) {
	var gv schema.GroupVersion
	scheme := runtime.NewScheme()
	add := authorizationv1.AddToScheme
	switch version {
	case "v1":
		gv = authorizationv1.SchemeGroupVersion
	case "v1beta1":
		gv, add = authorizationv1beta1.SchemeGroupVersion, authorizationv1beta1.AddToScheme
	default:
		return nil, fmt.Errorf("unsupported webhook authorizer version %q, supported versions are %q, %q", version, "v1", "v1beta1")
	}
	if err := add(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	config, err := webhook.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = timeout
	config.ContentType = runtime.ContentTypeJSON
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(gv)
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	client, err := webhook.Client(config)
	if err != nil {
		return nil, err
	}
	return &remote{client: client, version: version}, nil
}

func (r *remote) close() { utilnet.CloseIdleConnectionsFor(r.client.Client.Transport) }

// review sends one SubjectAccessReview. code is the HTTP status code, zero if there was none.
func (r *remote) review(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (s status, code int, err error) {
	if r.version == "v1" {
		var response authorizationv1.SubjectAccessReview
		result := r.client.Post().Body(&authorizationv1.SubjectAccessReview{Spec: *spec}).Do(ctx)
		err = result.StatusCode(&code).Into(&response)
		return response.Status, code, err
	}
	var response authorizationv1beta1.SubjectAccessReview
	result := r.client.Post().Body(&authorizationv1beta1.SubjectAccessReview{Spec: betaSpec(spec)}).Do(ctx)
	err = result.StatusCode(&code).Into(&response)
	b := response.Status
	return status{Allowed: b.Allowed, Denied: b.Denied, Reason: b.Reason, EvaluationError: b.EvaluationError}, code, err
}
