package controller

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	webv1 "example.com/website/api/v1"
)

// WebsiteReconciler keeps a Deployment and a Service for each Website.
type WebsiteReconciler struct {
	client.Client
	Scheme *runtime.Scheme
}

// +kubebuilder:rbac:groups=web.example.com,resources=websites,verbs=get;list;watch
// +kubebuilder:rbac:groups=web.example.com,resources=websites/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;update
// +kubebuilder:rbac:groups=core,resources=services,verbs=get;list;watch;create;update

// Reconcile creates and updates the Deployment and the Service of a Website.
func (r *WebsiteReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var site webv1.Website
	if err := r.Get(ctx, req.NamespacedName, &site); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	meta := metav1.ObjectMeta{Namespace: site.Namespace, Name: site.Name}
	server, service := &appsv1.Deployment{ObjectMeta: meta}, &corev1.Service{ObjectMeta: meta}
	_, err := ctrl.CreateOrUpdate(ctx, r.Client, server, func() error {
		r.setServer(&site, server)
		return ctrl.SetControllerReference(&site, server, r.Scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	_, err = ctrl.CreateOrUpdate(ctx, r.Client, service, func() error {
		r.setService(&site, service)
		return ctrl.SetControllerReference(&site, service, r.Scheme)
	})
	return ctrl.Result{}, err
}

func (r *WebsiteReconciler) setServer(site *webv1.Website, d *appsv1.Deployment) {
	labels := map[string]string{"website": site.Name}
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	pod := &d.Spec.Template.Spec
	if len(pod.Containers) == 0 {
		pod.Containers = []corev1.Container{{Name: "server", Image: "example.com/server:v1"}}
	}
	pod.Containers[0].Env = []corev1.EnvVar{{Name: "TITLE", Value: site.Spec.Title}}
}

func (r *WebsiteReconciler) setService(site *webv1.Website, s *corev1.Service) {
	s.Spec.Selector = map[string]string{"website": site.Name}
	if len(s.Spec.Ports) == 0 {
		s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	}
}

// SetupWithManager adds the controller to a manager.
func (r *WebsiteReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&webv1.Website{}).
		Owns(&appsv1.Deployment{}).
		Owns(&corev1.Service{}).
		Named("website").
		Complete(r)
}
