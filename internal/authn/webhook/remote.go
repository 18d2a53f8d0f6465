package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

	"github.com/tidemark-dev/tidemark/internal/reload"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

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
	config, err := webhook.Config(c.File)
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

func newClient(config *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.ContentType = runtime.ContentTypeJSON
	config.Timeout = callLimit
	return webhook.Client(config)
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

// decode reads a response. Both versions of a TokenReview have the same fields.
func (r *remote) decode(b []byte) (*authenticationv1.TokenReviewStatus, error) {
	var review authenticationv1.TokenReview
	if err := json.Unmarshal(b, &review); err != nil {
		return nil, errors.New("the response of the token webhook is no TokenReview")
	}
	if review.Kind != "" && review.Kind != "TokenReview" || review.APIVersion != "" && review.APIVersion != r.apiVersion {
		return nil, fmt.Errorf("the response of the token webhook is a %.100q of %.100q: want a TokenReview of %s", review.Kind, review.APIVersion, r.apiVersion)
	}
	return &review.Status, nil
}
