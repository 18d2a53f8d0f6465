package follower_test

import (
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// TestNamespaceDeletion: a webhook delays the creation of an object while its namespace is deleted through another
// server. The creation is refused, so the object does not outlive the namespace.
func TestNamespaceDeletion(t *testing.T) {
	ctx := t.Context()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	f := start(t, following(p.RESTConfig(), t.TempDir()))
	for _, c := range []struct {
		name              string
		creator, deletion kubernetes.Interface
	}{
		{"server-server", clients(p), clients(p)},
		{"server-follower", clients(p), clients(f)},
		{"follower-server", clients(f), clients(p)},
		{"follower-follower", clients(f), clients(f)},
	} {
		arrived, proceed := make(chan struct{}), make(chan struct{})
		hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			arrived <- struct{}{}
			<-proceed
			review.Response, review.Request = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}, nil
			if err := json.NewEncoder(w).Encode(review); err != nil {
				t.Error(err)
			}
		}))
		t.Cleanup(hook.Close)
		_, err := clients(p).CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.name}}, metav1.CreateOptions{})
		must(t, err)
		none, seconds := admissionregistrationv1.SideEffectClassNone, int32(30)
		hooks := c.creator.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		_, err = hooks.Create(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: c.name},
			Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "slow.example.com", AdmissionReviewVersions: []string{"v1"}, SideEffects: &none, TimeoutSeconds: &seconds,
				ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &hook.URL, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw})},
				Rules: []admissionregistrationv1.RuleWithOperations{{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
				}},
			}},
		}, metav1.CreateOptions{})
		must(t, err)
		created := make(chan error, 1)
		go func() {
			_, err := c.creator.CoreV1().ConfigMaps(c.name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
			created <- err
		}()
		<-arrived
		must(t, c.deletion.CoreV1().Namespaces().Delete(ctx, c.name, metav1.DeleteOptions{}))
		close(proceed)
		if err := <-created; !apierrors.IsForbidden(err) {
			t.Errorf("%s: an object was created after the deletion of its namespace: %v", c.name, err)
		}
		must(t, hooks.Delete(ctx, c.name, metav1.DeleteOptions{}))
	}
}
