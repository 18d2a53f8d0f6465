package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/reload"
)

// answerBytes bounds an answer of the service.
const answerBytes = 1 << 20

// retries are those of kube-apiserver: five calls within about four seconds, if they fail at once.
var retries = wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 5}

// remote calls the service.
type remote struct {
	apiVersion string
	// kubeconfig holds the client of the file, which is made again when the file or one that it names
	// changes.
	kubeconfig *reload.Value[*reload.Value[*rest.RESTClient]]
}

func newRemote(c *Config) (*remote, error) {
	if c.Version != "v1" && c.Version != "v1beta1" {
		return nil, fmt.Errorf("unsupported authentication webhook version %q, supported versions are %q, %q", c.Version, "v1", "v1beta1")
	}
	r := &remote{apiVersion: "authentication.k8s.io/" + c.Version}
	var err error
	r.kubeconfig, err = reload.New(reload.Config[*reload.Value[*rest.RESTClient]]{
		Files: []string{c.File}, Load: func() (*reload.Value[*rest.RESTClient], error) { return clientOf(c) }, Now: c.Now, Log: c.Log,
	})
	return r, err
}

// clientOf returns the client of the kubeconfig file as it is now.
func clientOf(c *Config) (*reload.Value[*rest.RESTClient], error) {
	config, err := readKubeconfig(c.File)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, file := range []string{config.CAFile, config.CertFile, config.KeyFile, config.BearerTokenFile} {
		if file != "" {
			files = append(files, file)
		}
	}
	return reload.New(reload.Config[*rest.RESTClient]{
		Files: files, Load: func() (*rest.RESTClient, error) { return newClient(rest.CopyConfig(config)) }, Now: c.Now, Log: c.Log,
	})
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

func newClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.Timeout = callLimit
	config.QPS = -1 // the server limits requests, not its clients
	config.WarningHandler = rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return boundedAnswers{next} })
	return rest.UnversionedRESTClientFor(config)
}

// review sends a TokenReview, and again if a failure may pass.
func (r *remote) review(ctx context.Context, token string, audiences []string) (*authenticationv1.TokenReviewStatus, error) {
	sent, err := json.Marshal(&authenticationv1.TokenReview{
		TypeMeta: metav1.TypeMeta{APIVersion: r.apiVersion, Kind: "TokenReview"},
		Spec:     authenticationv1.TokenReviewSpec{Token: token, Audiences: audiences},
	})
	if err != nil {
		return nil, err
	}
	client := r.kubeconfig.Get().Get()
	var result rest.Result
	var last error
	err = wait.ExponentialBackoffWithContext(ctx, retries, func(ctx context.Context) (bool, error) {
		result = client.Post().SetHeader("Content-Type", runtime.ContentTypeJSON).Body(sent).Do(ctx)
		if last = result.Error(); last != nil && passing(last) {
			return false, nil
		}
		return last == nil, last
	})
	switch {
	case last != nil:
		return nil, last
	case err != nil:
		return nil, fmt.Errorf("webhook call failed: %w", err)
	}
	got, err := result.Raw()
	if err != nil {
		return nil, err
	}
	return r.decode(got)
}

// passing reports whether a failure may pass.
func passing(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	_, delayed := apierrors.SuggestsClientDelay(err)
	return delayed
}

// decode reads an answer. Both versions of a TokenReview have the same fields.
func (r *remote) decode(b []byte) (*authenticationv1.TokenReviewStatus, error) {
	var review authenticationv1.TokenReview
	if err := json.Unmarshal(b, &review); err != nil {
		return nil, errors.New("the answer of the token webhook is no TokenReview")
	}
	if review.Kind != "" && review.Kind != "TokenReview" || review.APIVersion != "" && review.APIVersion != r.apiVersion {
		return nil, fmt.Errorf("the answer of the token webhook is a %.100q of %.100q: want a TokenReview of %s", review.Kind, review.APIVersion, r.apiVersion)
	}
	return &review.Status, nil
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

// boundedBody is a body that fails after its limit.
type boundedBody struct {
	io.ReadCloser
	left int
}

var errLargeAnswer = errors.New("the answer of the token webhook has more than 1 MiB")

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errLargeAnswer
	}
	return n, err
}
