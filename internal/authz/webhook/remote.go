package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// answerBytes bounds an answer of the service.
const answerBytes = 1 << 20

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
	config, err := readKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	config.Timeout = timeout
	config.QPS = -1 // the server limits requests, not its clients
	config.ContentType = runtime.ContentTypeJSON
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(gv)
	config.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper { return boundedAnswers{rt} })
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	client.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &remote{client: client, version: version}, nil
}

// readKubeconfig reads a file with the address of the service. Its relative paths begin at its
// directory.
func readKubeconfig(path string) (*rest.Config, error) {
	c, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: path}).Load()
	if err != nil {
		return nil, err
	}
	return clientcmd.NewDefaultClientConfig(*c, &clientcmd.ConfigOverrides{}).ClientConfig()
}

func (r *remote) close() { utilnet.CloseIdleConnectionsFor(r.client.Client.Transport) }

// review sends one SubjectAccessReview. code is the HTTP status code, zero if there was none.
func (r *remote) review(ctx context.Context, spec *authorizationv1.SubjectAccessReviewSpec) (s status, code int, err error) {
	if r.version == "v1" {
		var answer authorizationv1.SubjectAccessReview
		result := r.client.Post().Body(&authorizationv1.SubjectAccessReview{Spec: *spec}).Do(ctx)
		err = result.StatusCode(&code).Into(&answer)
		return answer.Status, code, err
	}
	var answer authorizationv1beta1.SubjectAccessReview
	result := r.client.Post().Body(&authorizationv1beta1.SubjectAccessReview{Spec: betaSpec(spec)}).Do(ctx)
	err = result.StatusCode(&code).Into(&answer)
	b := answer.Status
	return status{Allowed: b.Allowed, Denied: b.Denied, Reason: b.Reason, EvaluationError: b.EvaluationError}, code, err
}

// boundedAnswers limits the answers of the service.
type boundedAnswers struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedAnswers) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{ReadCloser: answer.Body, left: answerBytes}
	}
	return answer, err
}

// WrappedRoundTripper returns the transport, whose idle connections are closed.
func (b boundedAnswers) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

type boundedBody struct {
	io.ReadCloser
	left int
}

var errLargeAnswer = errors.New("the answer of the webhook has more than 1 MiB")

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errLargeAnswer
	}
	return n, err
}
