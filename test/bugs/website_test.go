package bugs

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Website is a website with servers behind a load balancer.
type Website = Custom[WebsiteSpec, WebsiteStatus]

// WebsiteSpec is the desired state.
type WebsiteSpec struct {
	Image string `json:"image"`
	Port  int32  `json:"port"`
	// Replicas is the number of servers at the beginning. Then the autoscaler decides.
	Replicas int32 `json:"replicas"`
}

// WebsiteStatus is the observed state.
type WebsiteStatus struct {
	Phase   string `json:"phase,omitempty"`
	Address string `json:"address,omitempty"`
	Checked string `json:"checked,omitempty"` // with heartbeatInStatus
}

const (
	// Hot loop: each status has the time, so each reconciliation causes the next one:
	// kubeflow/notebooks#1343, paperclipinc/openclaw-operator#161.
	heartbeatInStatus bug = "each status has the time of the check"
	// Hot loop: two controllers write the same field, and each write wakes up the other: the replicas of a
	// Deployment with a HorizontalPodAutoscaler, as in operator-framework/operator-sdk#3367.
	fightForReplicas bug = "the replicas are reset after the autoscaler has changed them"
	// Unobserved state: the transition to "ready" is an event, and the event is lost when the controller
	// is not running: instaclustr/cassandra-operator#398.
	readyByEvent bug = "readiness is learned from an event, not from the state"
	// An error of one object is logged, and the reconciliation ends: the events of the other one lead to another try, unless
	// they come before the error ends.
	serviceErrorLogged bug = "the error of the Service is logged, and events of the Deployment hide it"
	// Stale state: an update without a resourceVersion replaces a newer object by one from the cache. The restart
	// of the servers by another client is lost, as in gardener/gardener#8463.
	blindUpdate bug = "an update without a resourceVersion overwrites what is newer"
)

const (
	// restartWanted is the annotation of a website that restarter has to restart when it has newImage.
	restartWanted = "example.com/restart"
	newImage      = "web:2"
)

// blind is a client whose updates have no resourceVersion.
type blind struct{ client.Client }

// Update implements client.Writer.
func (b blind) Update(ctx context.Context, o client.Object, options ...client.UpdateOption) error {
	o.SetResourceVersion("")
	return b.Client.Update(ctx, o, options...)
}

// addressInterval is how often a website is looked at that has no address yet.
const addressInterval = 20 * time.Millisecond

// websites is the operator of websites.
type websites struct {
	client.Client
	live client.Client
	bug  bug

	mu    sync.Mutex
	ready map[types.NamespacedName]bool // with readyByEvent
}

func (r *websites) setUp(m ctrl.Manager) error {
	r.Client, r.ready = m.GetClient(), map[types.NamespacedName]bool{}
	var err error
	if r.live, err = client.New(m.GetConfig(), client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: m.GetHTTPClient()}); err != nil {
		return err
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	if r.bug == heartbeatInStatus {
		changed = builder.WithPredicates()
	}
	observe := predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		old, d := e.ObjectOld.(*appsv1.Deployment), e.ObjectNew.(*appsv1.Deployment)
		if !available(old) && available(d) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.ready[client.ObjectKeyFromObject(d)] = true
		}
		return true
	}}
	return ctrl.NewControllerManagedBy(m).For(&Website{}, changed).Owns(&appsv1.Deployment{}, builder.WithPredicates(observe)).WithOptions(options()).Complete(r)
}

func available(d *appsv1.Deployment) bool {
	return d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == *d.Spec.Replicas
}

// Reconcile implements reconcile.Reconciler.
func (r *websites) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	var w Website
	if err := r.Get(ctx, q.NamespacedName, &w); err != nil || !w.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	d, err := r.deployment(ctx, &w)
	if err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.service(ctx, &w)
	if err != nil && r.bug == serviceErrorLogged {
		return ctrl.Result{}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	ready := available(d)
	if r.bug == readyByEvent {
		r.mu.Lock()
		ready = r.ready[q.NamespacedName]
		r.mu.Unlock()
	}
	// A website that was up stays up while it is scaled.
	ready = ready || w.Status.Phase == "WaitingForAddress" || w.Status.Phase == "Ready"
	status := WebsiteStatus{Phase: "Deploying"}
	if ready {
		status.Phase = "WaitingForAddress"
		if addresses := s.Status.LoadBalancer.Ingress; len(addresses) > 0 {
			status.Phase, status.Address = "Ready", fmt.Sprintf("%s:%d", addresses[0].IP, s.Spec.Ports[0].Port)
		}
	}
	if r.bug == heartbeatInStatus {
		status.Checked = time.Now().Format(time.RFC3339Nano)
	}
	if status != w.Status {
		w.Status = status
		if err := r.Status().Update(ctx, &w); err != nil {
			return ctrl.Result{}, err
		}
	}
	if status.Phase == "WaitingForAddress" {
		return ctrl.Result{RequeueAfter: addressInterval}, nil
	}
	return ctrl.Result{}, nil
}

func (r *websites) deployment(ctx context.Context, w *Website) (*appsv1.Deployment, error) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	c := r.Client
	if r.bug == blindUpdate {
		c = blind{c}
	}
	_, err := controllerutil.CreateOrUpdate(ctx, c, d, func() error {
		labels := map[string]string{"website": w.Name}
		if d.Spec.Replicas == nil || r.bug == fightForReplicas {
			d.Spec.Replicas = &w.Spec.Replicas
		}
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
		d.Spec.Template.Labels = labels
		if len(d.Spec.Template.Spec.Containers) == 0 {
			d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "server"}}
		}
		d.Spec.Template.Spec.Containers[0].Image = w.Spec.Image
		return controllerutil.SetControllerReference(w, d, scheme)
	})
	return d, err
}

// service creates or updates the Service. It is read without a cache: the operator does not watch
// all Services of the cluster.
func (r *websites) service(ctx context.Context, w *Website) (*corev1.Service, error) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: w.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.live, s, func() error {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.Selector = map[string]string{"website": w.Name}
		if len(s.Spec.Ports) == 0 {
			s.Spec.Ports = make([]corev1.ServicePort, 1)
		}
		s.Spec.Ports[0].Port = w.Spec.Port
		return controllerutil.SetControllerReference(w, s, scheme)
	})
	return s, err
}
