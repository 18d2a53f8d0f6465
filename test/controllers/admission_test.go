package controllers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// deploymentHooks is an operator's defaulter and validator, as the builder registers them.
type deploymentHooks struct{}

// Default labels a Deployment, and gives it a revision limit.
func (deploymentHooks) Default(ctx context.Context, d *appsv1.Deployment) error {
	r, err := admission.RequestFromContext(ctx)
	if err != nil {
		return err
	}
	if d.Labels == nil {
		d.Labels = map[string]string{}
	}
	d.Labels["last"] = string(r.Operation)
	if *d.Spec.RevisionHistoryLimit == 10 {
		*d.Spec.RevisionHistoryLimit = 3
	}
	return nil
}

// ValidateCreate warns of several replicas, and refuses images without a tag.
func (deploymentHooks) ValidateCreate(_ context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	for _, c := range d.Spec.Template.Spec.Containers {
		if !strings.Contains(c.Image, ":") {
			return nil, fmt.Errorf("the image %s has no tag", c.Image)
		}
	}
	if *d.Spec.Replicas > 1 {
		return admission.Warnings{"several replicas share a volume"}, nil
	}
	return nil, nil
}

// ValidateUpdate refuses fewer replicas, with a Status of its own.
func (deploymentHooks) ValidateUpdate(_ context.Context, old, d *appsv1.Deployment) (admission.Warnings, error) {
	if *d.Spec.Replicas < *old.Spec.Replicas {
		return nil, apierrors.NewConflict(appsv1.Resource("deployments"), d.Name, errors.New("it only grows"))
	}
	return nil, nil
}

// ValidateDelete refuses the deletion of Deployments with the annotation keep.
func (deploymentHooks) ValidateDelete(_ context.Context, d *appsv1.Deployment) (admission.Warnings, error) {
	if d.Annotations["keep"] != "" {
		return nil, errors.New("it is kept")
	}
	return nil, nil
}

// warnings keeps the warnings of responses.
type warnings struct {
	mu  sync.Mutex
	all []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// operator starts a manager with the hooks, and installs their configurations as envtest does.
func operator(t *testing.T, ctx context.Context, s servers.Server) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	rules := []admissionregistrationv1.RuleWithOperations{{
		Operations: []admissionregistrationv1.OperationType{"CREATE", "UPDATE", "DELETE"},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}}
	at := func(path string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "system", Name: "webhook", Path: &path}}
	}
	none, own := admissionregistrationv1.SideEffectClassNone, &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: s.Namespace}}
	mutating := admissionregistrationv1.MutatingWebhook{Name: "m.example.com", Rules: []admissionregistrationv1.RuleWithOperations{rules[0]}, ClientConfig: at("/mutate-apps-v1-deployment"), SideEffects: &none, NamespaceSelector: own, AdmissionReviewVersions: []string{"v1"}}
	mutating.Rules[0].Operations = []admissionregistrationv1.OperationType{"CREATE", "UPDATE"}
	validating := admissionregistrationv1.ValidatingWebhook{Name: "v.example.com", Rules: rules, ClientConfig: at("/validate-apps-v1-deployment"), SideEffects: &none, NamespaceSelector: own, AdmissionReviewVersions: []string{"v1"}}
	hooks := envtest.WebhookInstallOptions{
		MutatingWebhooks:   []*admissionregistrationv1.MutatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "m-" + s.Namespace}, Webhooks: []admissionregistrationv1.MutatingWebhook{mutating}}},
		ValidatingWebhooks: []*admissionregistrationv1.ValidatingWebhookConfiguration{{ObjectMeta: metav1.ObjectMeta{Name: "v-" + s.Namespace}, Webhooks: []admissionregistrationv1.ValidatingWebhook{validating}}},
	}
	must(hooks.PrepWithoutInstalling())
	t.Cleanup(func() { must(hooks.Cleanup()) })
	m, err := ctrl.NewManager(s.Config, ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)},
		WebhookServer: webhook.NewServer(webhook.Options{Host: hooks.LocalServingHost, Port: hooks.LocalServingPort, CertDir: hooks.LocalServingCertDir}),
	})
	must(err)
	must(ctrl.NewWebhookManagedBy(m, &appsv1.Deployment{}).WithDefaulter(deploymentHooks{}).WithValidator(deploymentHooks{}).Complete())
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(<-ended)
	})
	await.Nil(t, "the webhook server", func() error { return m.GetWebhookServer().StartedChecker()(nil) })
	must(hooks.Install(s.Config))
	t.Cleanup(func() {
		c, err := client.New(s.Config, client.Options{})
		must(err)
		must(client.IgnoreNotFound(c.Delete(context.Background(), hooks.MutatingWebhooks[0])))
		must(client.IgnoreNotFound(c.Delete(context.Background(), hooks.ValidatingWebhooks[0])))
	})
}

// TestAdmission: the webhooks of an operator that controller-runtime built default and validate, on
// create, update, patch, apply, scale, delete and dry-run.
func TestAdmission(t *testing.T) {
	tier.Full(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		ctx := t.Context()
		operator(t, ctx, s)
		said := &warnings{}
		quiet := rest.CopyConfig(s.Config)
		quiet.WarningHandler = said
		c, err := client.New(quiet, client.Options{Scheme: scheme.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		of := func(name, image string, replicas int32) *appsv1.Deployment {
			labels := map[string]string{"app": name}
			return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}, Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}},
			}}
		}
		const denied = `admission webhook "v.example.com" denied the request: `
		// A kube-apiserver sees new configurations a moment later.
		await.True(t, "the webhooks to be in effect", func() bool {
			if err = c.Create(ctx, of("probe", "i", 1), client.DryRunAll); err == nil && !s.Peer {
				t.Fatal("the webhooks are not in effect with the next request")
			}
			return err != nil
		})
		if !apierrors.IsForbidden(err) || err.Error() != denied+"the image i has no tag" {
			t.Errorf("a dry-run: %v", err)
		}
		d := of("a", "i:1", 2)
		if err := c.Create(ctx, d); err != nil {
			t.Fatal(err)
		}
		if d.Labels["last"] != "CREATE" || *d.Spec.RevisionHistoryLimit != 3 {
			t.Errorf("after a create: %v %v", d.Labels, *d.Spec.RevisionHistoryLimit)
		}
		if got := said.take(); !slices.Equal(got, []string{"several replicas share a volume"}) {
			t.Errorf("warnings of a create: %q", got)
		}
		*d.Spec.Replicas = 1
		if err := c.Update(ctx, d); !apierrors.IsConflict(err) || !strings.HasSuffix(err.Error(), "it only grows") {
			t.Errorf("fewer replicas: %v", err)
		}
		if err := c.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		base := d.DeepCopy()
		d.Annotations = map[string]string{"keep": "yes"}
		if err := c.Patch(ctx, d, client.MergeFrom(base)); err != nil || d.Labels["last"] != "UPDATE" {
			t.Errorf("a patch: %v, %v", err, d.Labels)
		}
		if err := c.Delete(ctx, d); !apierrors.IsForbidden(err) || err.Error() != denied+"it is kept" {
			t.Errorf("a deletion: %v", err)
		}
		if err := c.DeleteAllOf(ctx, &appsv1.Deployment{}, client.InNamespace(s.Namespace)); !apierrors.IsForbidden(err) {
			t.Errorf("a deletion of all: %v", err)
		}
		base = d.DeepCopy()
		d.Annotations = nil
		if err := c.Patch(ctx, d, client.MergeFrom(base)); err != nil {
			t.Fatal(err)
		}
		owned := slices.ContainsFunc(d.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
			return strings.Contains(string(f.FieldsV1.GetRawBytes()), "f:revisionHistoryLimit")
		})
		if !owned {
			t.Errorf("the default that the webhook changed has no owner: %v", d.ManagedFields)
		}
		if err := c.Delete(ctx, d); err != nil {
			t.Error(err)
		}
	})
}
