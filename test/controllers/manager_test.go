package controllers

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const keep = "example.com/outside"

// reconciler keeps a ConfigMap for each Deployment, something outside that nothing
// owns, and a status that says which generation it has seen.
type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	var d appsv1.Deployment
	if err := r.Get(ctx, q.NamespacedName, &d); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	outside := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "outside-" + d.Name}}
	if !d.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(&d, keep) {
			return ctrl.Result{}, nil
		}
		if err := r.Delete(ctx, outside); client.IgnoreNotFound(err) != nil {
			return ctrl.Result{}, err
		}
		base := d.DeepCopy()
		controllerutil.RemoveFinalizer(&d, keep)
		return ctrl.Result{}, client.IgnoreNotFound(r.Patch(ctx, &d, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
	}
	if controllerutil.AddFinalizer(&d, keep) {
		if err := r.Update(ctx, &d); err != nil {
			return ctrl.Result{}, err
		}
	}
	if _, err := controllerutil.CreateOrUpdate(ctx, r, outside, func() error { return nil }); err != nil {
		return ctrl.Result{}, err
	}
	child := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	_, err := controllerutil.CreateOrPatch(ctx, r, child, func() error {
		child.Data = map[string]string{"replicas": fmt.Sprint(*d.Spec.Replicas)}
		return controllerutil.SetControllerReference(&d, child, scheme.Scheme)
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	base := d.DeepCopy()
	d.Status.ObservedGeneration = d.Generation
	return ctrl.Result{}, r.Status().Patch(ctx, &d, client.MergeFrom(base))
}

// startManager runs the reconciler until the test ends.
func (b *bed) startManager() {
	b.t.Helper()
	m, err := ctrl.NewManager(servers.Quick(b.server.Config), ctrl.Options{
		Scheme: scheme.Scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "test.example.com", LeaderElectionNamespace: b.namespace, LeaderElectionReleaseOnCancel: true,
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{b.namespace: {}}},
		Controller: config.Controller{SkipNameValidation: new(true), MaxConcurrentReconciles: 4},
	})
	b.must(err)
	b.must(ctrl.NewControllerManagedBy(m).For(&appsv1.Deployment{}).Owns(&corev1.ConfigMap{}).Complete(&reconciler{m.GetClient()}))
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	b.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.t.Errorf("the manager: %v", err)
		}
	})
}

// await watches the objects of a list's kind until the condition holds.
func (b *bed) await(list client.ObjectList, what string, holds func() bool) {
	b.t.Helper()
	w, err := b.c.Watch(b.ctx, list, client.InNamespace(b.namespace))
	b.must(err)
	defer w.Stop()
	for !holds() {
		if _, ok := <-w.ResultChan(); !ok {
			b.t.Fatalf("this did not come: %s", what)
		}
	}
}

// TestManager: controllers restore the desired state after any change to their objects.
func TestManager(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		b.startManager()
		const n = 12
		for i := range n {
			b.must(b.c.Create(b.ctx, b.deployment(fmt.Sprintf("d%02d", i))))
		}
		var all appsv1.DeploymentList
		settled := func() bool {
			b.must(b.c.List(b.ctx, &all, client.InNamespace(b.namespace)))
			for _, d := range all.Items {
				if d.Status.ObservedGeneration != d.Generation || !controllerutil.ContainsFinalizer(&d, keep) {
					return false
				}
			}
			return len(all.Items) == n
		}
		b.await(&appsv1.DeploymentList{}, "every Deployment is seen", settled)
		for i := range all.Items {
			base := all.Items[i].DeepCopy()
			all.Items[i].Spec.Replicas = new(int32(5))
			b.must(b.c.Patch(b.ctx, &all.Items[i], client.MergeFrom(base)))
		}
		child := b.configMap("d00", nil)
		b.must(b.c.Delete(b.ctx, child))
		b.await(&corev1.ConfigMapList{}, "children follow, and come back", func() bool {
			var l corev1.ConfigMapList
			b.must(b.c.List(b.ctx, &l, client.InNamespace(b.namespace)))
			right := 0
			for _, c := range l.Items {
				if c.Data["replicas"] == "5" && metav1.GetControllerOf(&c) != nil {
					right++
				}
			}
			return right == n
		})
		b.await(&appsv1.DeploymentList{}, "every change is seen", settled)
		b.must(b.c.DeleteAllOf(b.ctx, &appsv1.Deployment{}, client.InNamespace(b.namespace)))
		b.await(&appsv1.DeploymentList{}, "every Deployment goes", func() bool {
			b.must(b.c.List(b.ctx, &all, client.InNamespace(b.namespace)))
			return len(all.Items) == 0
		})
		if !b.server.Peer { // which collects no garbage
			b.await(&corev1.ConfigMapList{}, "what was owned goes", func() bool {
				var l corev1.ConfigMapList
				b.must(b.c.List(b.ctx, &l, client.InNamespace(b.namespace)))
				return len(l.Items) == 0
			})
		}
		var outside corev1.SecretList
		b.must(b.c.List(b.ctx, &outside, client.InNamespace(b.namespace)))
		if len(outside.Items) != 0 {
			b.t.Errorf("%d things outside are left", len(outside.Items))
		}
	})
}
