package follower_test

import (
	"fmt"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
	"github.com/tidemark-dev/tidemark/internal/webhook/webhooktest"
)

// TestNamespaceDeletion: a webhook delays the creation of an object while its namespace is deleted through another
// server. The creation is refused, so the object does not outlive the namespace.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	p := start(t, &tidemark.Server{Storage: &datadir.Dir{Path: t.TempDir()}, Controllers: []string{"-*"}})
	f := start(t, following(p.RESTConfig(), t.TempDir()))
	hook := webhooktest.Start(t)
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
		hook.On("/"+c.name, func(w http.ResponseWriter, r *webhooktest.Review) {
			close(arrived)
			select {
			case <-proceed:
			case <-r.HTTP.Context().Done():
			}
			webhooktest.Allow(w, r)
		})
		_, err := clients(p).CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.name}}, metav1.CreateOptions{})
		must(t, err)
		must(t, c.creator.AdmissionregistrationV1().RESTClient().Post().Resource("validatingwebhookconfigurations").Body(fmt.Appendf(nil,
			`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":%q},"webhooks":[{
				"name":"slow.example.com","admissionReviewVersions":["v1"],"sideEffects":"None","timeoutSeconds":30,"clientConfig":%s,
				"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]}]}`,
			c.name, hook.Config("/"+c.name))).Do(ctx).Error())
		created := make(chan error, 1)
		go func() {
			_, err := c.creator.CoreV1().ConfigMaps(c.name).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "late"}}, metav1.CreateOptions{})
			created <- err
		}()
		select {
		case <-arrived:
		case err := <-created:
			t.Fatalf("%s: the webhook was not called: %v", c.name, err)
		}
		must(t, c.deletion.CoreV1().Namespaces().Delete(ctx, c.name, metav1.DeleteOptions{}))
		close(proceed)
		if err := <-created; !apierrors.IsForbidden(err) {
			t.Errorf("%s: an object was created after the deletion of its namespace: %v", c.name, err)
		}
		must(t, c.creator.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, c.name, metav1.DeleteOptions{}))
	}
}
