package imagepolicy

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/webhook"
)

const (
	// cached is how many responses are kept, of at most cachedBytes each.
	cached, cachedBytes = 1024, 8 << 10
	// attempts and callTimeout bound a call; the request's own deadline does, too.
	attempts    = 5
	callTimeout = 30 * time.Second

	auditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	// failedOpen is the annotation of a Pod that is allowed because the service failed.
	failedOpen = "alpha.image-policy.k8s.io/failed-open"
)

// policy calls the service. It is safe for concurrent use.
type policy struct {
	Config
	responses *utilcache.LRUExpireCache // by the hash of the spec; values are v1alpha1.ImageReviewStatus
}

// Plugin returns the plugin. Now is the clock of the cache; nil: time.Now.
func Plugin(c Config, now func() time.Time) registry.Plugin {
	if now == nil {
		now = time.Now
	}
	p := &policy{Config: c, responses: utilcache.NewLRUExpireCacheWithClock(cached, clock(now))}
	return registry.Plugin{
		Handles: func(_ *store.State, t registry.Target, o admissionv1.Operation) bool {
			return t.Type.Collection == "pods" && (t.Subresource == "" || t.Subresource == "ephemeralcontainers") &&
				(o == admissionv1.Create || o == admissionv1.Update)
		},
		Validate: p.validate,
	}
}

// clock implements the clock of LRUExpireCache.
type clock func() time.Time

// Now returns the time.
func (c clock) Now() time.Time { return c() }

func clientOf(remote *rest.Config) (*rest.RESTClient, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // Status
	remote.Timeout, remote.ContentType = callTimeout, runtime.ContentTypeJSON
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(v1alpha1.SchemeGroupVersion)
	remote.NegotiatedSerializer = serializer.NegotiatedSerializerWrapper(runtime.SerializerInfo{Serializer: codec})
	return webhook.Client(remote)
}

func (p *policy) validate(ctx context.Context, a *registry.Attributes) error {
	pod := a.Object.(*corev1.Pod)
	status, err := p.review(ctx, specOf(a, pod))
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the request has ended
	case err != nil && !p.DefaultAllow:
		return a.Forbidden("%w", err)
	case err != nil:
		a.Annotate(auditPrefix+"failed-open", "true")
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, failedOpen, "true") // after all that mutates, as in kube-apiserver
		return nil
	}
	for key, value := range status.AuditAnnotations {
		a.Annotate(auditPrefix+key, value)
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return a.Forbidden("image policy webhook backend denied one or more images: %s", status.Reason)
	}
	return a.Forbidden("one or more images rejected by webhook backend")
}

// specOf returns the spec of the review that is sent to the service.
func specOf(a *registry.Attributes, pod *corev1.Pod) v1alpha1.ImageReviewSpec {
	spec := v1alpha1.ImageReviewSpec{Namespace: a.Namespace, Annotations: map[string]string{}}
	add := func(image string) {
		spec.Containers = append(spec.Containers, v1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if a.Subresource == "ephemeralcontainers" {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
	} else {
		for i := range pod.Spec.Containers {
			add(pod.Spec.Containers[i].Image)
		}
		for i := range pod.Spec.InitContainers {
			add(pod.Spec.InitContainers[i].Image)
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, ".image-policy.k8s.io/") {
			spec.Annotations[key] = value
		}
	}
	return spec
}

// review returns the service's response, perhaps an earlier one.
func (p *policy) review(ctx context.Context, spec v1alpha1.ImageReviewSpec) (v1alpha1.ImageReviewStatus, error) {
	text, err := json.Marshal(&spec)
	if err != nil {
		return v1alpha1.ImageReviewStatus{}, err
	}
	key := sha256.Sum256(text)
	if kept, ok := p.responses.Get(key); ok {
		return kept.(v1alpha1.ImageReviewStatus), nil
	}
	var status v1alpha1.ImageReviewStatus
	err = fairness.Wait(ctx, int64(len(text)), func() (err error) {
		status, err = p.call(ctx, spec)
		return err
	})
	ttl := p.DenyTTL
	if status.Allowed {
		ttl = p.AllowTTL
	}
	if err == nil && ttl > 0 && status.Size() <= cachedBytes {
		p.responses.Add(key, status, ttl)
	}
	return status, err
}

// call calls the service, again if an error may pass.
func (p *policy) call(ctx context.Context, spec v1alpha1.ImageReviewSpec) (status v1alpha1.ImageReviewStatus, err error) {
	pauses := wait.Backoff{Duration: p.Backoff, Factor: 1.5, Jitter: 0.2, Steps: attempts}
	ended := wait.ExponentialBackoffWithContext(ctx, pauses, func(ctx context.Context) (bool, error) {
		var (
			response v1alpha1.ImageReview
			code     int
		)
		result := p.Client.Post().Body(&v1alpha1.ImageReview{Spec: spec}).Do(ctx).StatusCode(&code)
		if err = result.Error(); err == nil && (code < 200 || code >= 300) {
			//lint:ignore ST1005 the words of kube-apiserver
			err = fmt.Errorf("Error contacting webhook: %d", code)
		}
		if err == nil {
			err = result.Into(&response)
		}
		status = response.Status
		return !passing(err), nil
	})
	if err == nil && ended != nil { // the context ended before the first attempt
		err = fmt.Errorf("webhook call failed: %w", ended)
	}
	if err != nil {
		err = errors.New(webhook.Cut(err.Error()))
	}
	return status, err
}

// passing reports whether an error may be gone at the next attempt.
func passing(err error) bool {
	if utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err) {
		return true
	}
	_, later := apierrors.SuggestsClientDelay(err)
	return later
}
