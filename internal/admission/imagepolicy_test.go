package admission_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tidemark-dev/tidemark/internal/admission/imagepolicy"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
)

// service responds to reviews: it refuses the image "bad", fails twice for "late", and always for "fail".
type service struct {
	*httptest.Server
	calls atomic.Int32
	last  atomic.Pointer[v1alpha1.ImageReviewSpec]
}

func newService(t *testing.T) *service {
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls := s.calls.Add(1)
		var review v1alpha1.ImageReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		s.last.Store(&review.Spec)
		image := review.Spec.Containers[0].Image
		if image == "fail" || image == "late" && calls <= 2 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		review.Status = v1alpha1.ImageReviewStatus{Allowed: image != "bad", Reason: "it is bad", AuditAnnotations: map[string]string{"seen": image}}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(s.Close)
	return s
}

// configuration returns a configuration with further settings.
func (s *service) configuration(t *testing.T, settings string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	kubeconfig := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}", s.URL)
	if err := os.WriteFile(path, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, "imagePolicy: {kubeConfigFile: %q%s}", path, settings)
}

// plugin returns the plugin with a configuration and a clock.
func (s *service) plugin(t *testing.T, settings string, now func() time.Time) registry.Plugin {
	t.Helper()
	c, err := imagepolicy.Parse(s.configuration(t, settings))
	if err != nil {
		t.Fatal(err)
	}
	return imagepolicy.Plugin(c, now)
}

// imagePod returns the creation of a Pod with an image.
func imagePod(image string) *registry.Attributes {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: image}}}}
	return &registry.Attributes{
		Target:    registry.Target{Type: builtin.Catalog().Lookup("", "v1", "pods"), Namespace: "n", Name: "p"},
		Operation: admissionv1.Create, Object: p,
	}
}

// TestImagePolicyParse: times have bounds, zero is the default, and -1 is none.
func TestImagePolicyParse(t *testing.T) {
	s := newService(t)
	c, err := imagepolicy.Parse(s.configuration(t, ""))
	if err != nil || c.AllowTTL != 5*time.Minute || c.DenyTTL != 30*time.Second || c.Backoff != 500*time.Millisecond || c.DefaultAllow {
		t.Errorf("defaults: %+v, %v", c, err)
	}
	c, err = imagepolicy.Parse(s.configuration(t, ", allowTTL: 1, denyTTL: -1, retryBackoff: 1, defaultAllow: true"))
	if err != nil || c.AllowTTL != time.Second || c.DenyTTL != 0 || c.Backoff != time.Millisecond || !c.DefaultAllow {
		t.Errorf("set: %+v, %v", c, err)
	}
	for settings, want := range map[string]string{
		", allowTTL: 1801":                "valid value is between 1s and 30m0s, got 30m1s",
		", denyTTL: -2":                   "valid value is between 1s and 30m0s, got -2s",
		", retryBackoff: 300001":          "valid value is between 1ns and 5m0s, got 5m0.001s",
		", allowTTL: 9223372036854775807": "valid value is between 1s and 30m0s",
	} {
		if _, err := imagepolicy.Parse(s.configuration(t, settings)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", settings, err, want)
		}
	}
	for text, want := range map[string]string{
		"imagePolicy: {kubeConfigFile: /does/not/exist}": "no such file",
		"imagePolicy: {allowTTL: soon}":                  "imagePolicyWebhookConfig.imagePolicy",
	} {
		if _, err := imagepolicy.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := imagepolicy.Parse(nil); err == nil {
		t.Error("the plugin has no configuration, and there is no error")
	}
}

// TestImagePolicyResponses: the service allows and denies images, and its responses are cached for a time.
func TestImagePolicyResponses(t *testing.T) {
	s := newService(t)
	now := time.Unix(0, 0)
	p := s.plugin(t, ", denyTTL: -1", func() time.Time { return now })
	validate := func(image string, calls int32) (*registry.Attributes, error) {
		t.Helper()
		s.calls.Store(0)
		a := imagePod(image)
		a.Object.(*corev1.Pod).Annotations = map[string]string{"x.image-policy.k8s.io/ticket": "1", "other": "2"}
		err := p.Validate(t.Context(), a)
		if got := s.calls.Load(); got != calls {
			t.Errorf("%s: %d calls, want %d", image, got, calls)
		}
		return a, err
	}
	a, err := validate("good", 1)
	if err != nil || a.Annotations()["imagepolicywebhook.image-policy.k8s.io/seen"] != "good" {
		t.Errorf("allowed: %v, %v", a.Annotations(), err)
	}
	if sent := s.last.Load(); sent.Namespace != "n" || len(sent.Annotations) != 1 || sent.Annotations["x.image-policy.k8s.io/ticket"] != "1" {
		t.Errorf("the service got %+v", sent)
	}
	if _, err := validate("good", 0); err != nil {
		t.Errorf("allowed before: %v", err)
	}
	now = now.Add(6 * time.Minute)
	if _, err := validate("good", 1); err != nil {
		t.Errorf("the response is too old: %v", err)
	}
	for range 2 { // a denyTTL of -1 caches no denial
		if _, err := validate("bad", 1); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "image policy webhook backend denied one or more images: it is bad") {
			t.Errorf("refused: %v", err)
		}
	}
}

// TestImagePolicyFailures checks that a failed call is repeated, and that defaultAllow decides when
// all attempts fail.
func TestImagePolicyFailures(t *testing.T) {
	s := newService(t)
	if err := s.plugin(t, ", retryBackoff: -1", nil).Validate(t.Context(), imagePod("late")); err != nil || s.calls.Load() != 3 {
		t.Errorf("%d calls, %v, want success with the third", s.calls.Load(), err)
	}
	if err := s.plugin(t, ", retryBackoff: -1", nil).Validate(t.Context(), imagePod("fail")); !apierrors.IsForbidden(err) {
		t.Errorf("fails: %v, want 403", err)
	}
	a := imagePod("fail")
	err := s.plugin(t, ", retryBackoff: -1, defaultAllow: true", nil).Validate(t.Context(), a)
	if err != nil || a.Annotations()["imagepolicywebhook.image-policy.k8s.io/failed-open"] != "true" ||
		a.Object.(*corev1.Pod).Annotations["alpha.image-policy.k8s.io/failed-open"] != "true" {
		t.Errorf("fails open: %v, %v", a.Annotations(), err)
	}
}

// TestImagePolicyHandles checks that the plugin handles only requests that can change images: those
// of Pods and their ephemeral containers.
func TestImagePolicyHandles(t *testing.T) {
	p := imagepolicy.Plugin(imagepolicy.Config{}, nil)
	for _, row := range []struct {
		resource, subresource string
		operation             admissionv1.Operation
		want                  bool
	}{
		{"pods", "", admissionv1.Create, true},
		{"pods", "", admissionv1.Update, true},
		{"pods", "ephemeralcontainers", admissionv1.Update, true},
		{"pods", "status", admissionv1.Update, false},
		{"pods", "", admissionv1.Delete, false},
		{"configmaps", "", admissionv1.Create, false},
	} {
		at := registry.Target{Type: builtin.Catalog().Lookup("", "v1", row.resource), Subresource: row.subresource}
		if got := p.Handles(nil, at, row.operation); got != row.want {
			t.Errorf("%s %s/%s: %t, want %t", row.operation, row.resource, row.subresource, got, row.want)
		}
	}
}
