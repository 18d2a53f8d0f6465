// Package webhook has the parts that the clients of remote services share: a kubeconfig names the
// service, and limits keep it from harming the server. Packages authn/webhook, authz/webhook and
// audit use it.
package webhook

import (
	"errors"
	"io"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"

	"github.com/tidemark-dev/tidemark/internal/tracing"
)

// responseBytes bounds a response of a service.
const responseBytes = 1 << 20

// Config reads a kubeconfig that names a service. Relative paths in it begin at its directory.
// Responses of more than 1 MiB are errors, and the rate of calls has no limit: the server limits its
// requests. The caller sets the timeout.
func Config(kubeconfig string) (*rest.Config, error) {
	file, err := (&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}).Load()
	if err != nil {
		return nil, err
	}
	c, err := clientcmd.NewDefaultClientConfig(*file, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, err
	}
	c.QPS = -1
	c.WarningHandler = rest.NoWarnings{}
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedResponses{traced{next}} })
	return c, nil
}

// Client returns a client of the service for calls with one URL. It follows no redirects.
func Client(c *rest.Config) (*rest.RESTClient, error) {
	h, err := HTTPClient(c)
	if err != nil {
		return nil, err
	}
	return rest.UnversionedRESTClientForConfigAndClient(c, h)
}

// HTTPClient returns an HTTP client with the credentials of a configuration. It follows no redirects.
func HTTPClient(c *rest.Config) (*http.Client, error) {
	settings, err := transportConfig(c)
	if err != nil {
		return nil, err
	}
	with, err := transport.New(settings)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: with, Timeout: c.Timeout, CheckRedirect: NoRedirect}, nil
}

// NoRedirect is for http.Client.CheckRedirect. A redirect would send the request, with its secrets,
// to another server.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// boundedResponses limits the responses of a service.
type boundedResponses struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b boundedResponses) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: responseBytes}
	}
	return response, err
}

// WrappedRoundTripper returns the transport, whose idle connections are closed.
func (b boundedResponses) WrappedRoundTripper() http.RoundTripper { return b.RoundTripper }

// traced records a span for each call that is a part of a request, and sends it to the service.
type traced struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t traced) RoundTrip(r *http.Request) (*http.Response, error) {
	if !tracing.Recording(r.Context()) {
		return t.RoundTripper.RoundTrip(r)
	}
	ctx, span := tracing.Start(r.Context(), "HTTP "+r.Method, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	r = r.Clone(ctx) // a RoundTripper must not change its request
	tracing.Inject(ctx, r.Header)
	span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname()))
	response, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		span.SetStatus(codes.Error, "")
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
	return response, nil
}

// WrappedRoundTripper returns the transport, whose idle connections are closed.
func (t traced) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// boundedBody is a body that fails after its limit.
type boundedBody struct {
	io.ReadCloser
	left int
}

var errLargeResponse = errors.New("the response of the webhook has more than 1 MiB")

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errLargeResponse
	}
	return n, err
}
