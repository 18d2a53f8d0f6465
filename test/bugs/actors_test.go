package bugs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// bug names a bug; empty: the controller is correct.
type bug string

// An actor is a controller that can be added to a manager.
type actor interface{ setUp(m ctrl.Manager) error }

// The times between two tries of a reconciliation: shorter than a search waits for the next write.
const (
	retryFirst = 5 * time.Millisecond
	retryLimit = 100 * time.Millisecond
)

// options are those of all controllers.
func options() controller.Options {
	return controller.Options{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryFirst, retryLimit)}
}

// run returns a function that runs actors in a new manager until the context ends. As in a cluster, a
// manager that gives up is started again.
func run(actors func() []actor) func(ctx context.Context, env *tidemarktest.Env) {
	return func(ctx context.Context, env *tidemarktest.Env) {
		for ctx.Err() == nil {
			if err := runOnce(ctx, env, actors()); err != nil {
				select {
				case <-ctx.Done():
				case <-time.After(retryLimit):
				}
			}
		}
	}
}

func runOnce(ctx context.Context, env *tidemarktest.Env, actors []actor) error {
	graceful := time.Duration(-1)
	m, err := ctrl.NewManager(kube.Config(env), ctrl.Options{
		Scheme: scheme, Logger: logr.Discard(),
		MapperProvider:          func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
		Metrics:                 server.Options{BindAddress: "0"},
		GracefulShutdownTimeout: &graceful,
		Controller:              config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return err
	}
	for _, a := range actors {
		if err := a.setUp(m); err != nil {
			return err
		}
	}
	return m.Start(ctx)
}

// newest returns an error if an object of a cache is not the newest one: it has another specification
// now, or is being deleted, or is gone.
func newest(ctx context.Context, live client.Reader, cached client.Object) error {
	now := cached.DeepCopyObject().(client.Object)
	if err := live.Get(ctx, client.ObjectKeyFromObject(cached), now); err != nil {
		return err
	}
	if now.GetUID() != cached.GetUID() || now.GetGeneration() != cached.GetGeneration() {
		return fmt.Errorf("%s is at generation %d in the cache, and at %d in the cluster", cached.GetName(), cached.GetGeneration(), now.GetGeneration())
	}
	return nil
}

// function is an actor that is a function, called for each object of a type.
type function struct {
	name   string
	object client.Object
	call   func(ctx context.Context, c client.Client, key client.ObjectKey) error
}

func (f function) setUp(m ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(m).Named(f.name).For(f.object).WithOptions(options()).Complete(reconcile.Func(func(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
		return ctrl.Result{}, client.IgnoreNotFound(f.call(ctx, m.GetClient(), q.NamespacedName))
	}))
}

// deployments makes the servers of Deployments ready.
var deployments = function{"deployments", &appsv1.Deployment{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var d appsv1.Deployment
	if err := c.Get(ctx, key, &d); err != nil || available(&d) {
		return err
	}
	d.Status.ObservedGeneration, d.Status.Replicas, d.Status.ReadyReplicas = d.Generation, *d.Spec.Replicas, *d.Spec.Replicas
	return c.Status().Update(ctx, &d)
}}

// statefulSets makes the servers of StatefulSets ready.
var statefulSets = function{"statefulsets", &appsv1.StatefulSet{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var s appsv1.StatefulSet
	if err := c.Get(ctx, key, &s); err != nil || s.Status.ObservedGeneration == s.Generation {
		return err
	}
	s.Status.ObservedGeneration, s.Status.Replicas, s.Status.ReadyReplicas = s.Generation, *s.Spec.Replicas, *s.Spec.Replicas
	return c.Status().Update(ctx, &s)
}}

// cloud gives a Service its address. It takes its time: until the website waits for it.
var cloud = function{"cloud", &Website{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var w Website
	if err := c.Get(ctx, key, &w); err != nil || w.Status.Phase != "WaitingForAddress" {
		return err
	}
	var s corev1.Service
	if err := c.Get(ctx, key, &s); err != nil {
		return fmt.Errorf("the Service is not in the cache yet: %v", err) // not IsNotFound: try again
	}
	if len(s.Status.LoadBalancer.Ingress) > 0 {
		return nil
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	return c.Status().Update(ctx, &s)
}}

// minReplicas is the value that the autoscaler sets.
const minReplicas = 4

// autoscaler sets the replicas of Deployments.
var autoscaler = function{"autoscaler", &appsv1.Deployment{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var d appsv1.Deployment
	if err := c.Get(ctx, key, &d); err != nil || *d.Spec.Replicas >= minReplicas {
		return err
	}
	*d.Spec.Replicas = minReplicas
	return c.Update(ctx, &d)
}}

// issuer fills the Secrets of credentials. It takes its time: until the credential waits for it.
var issuer = function{"issuer", &Credential{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var k Credential
	if err := c.Get(ctx, key, &k); err != nil || k.Status.Phase != "Waiting" {
		return err
	}
	var s corev1.Secret
	if err := c.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: secretName(&k, k.Status.Version)}, &s); err != nil {
		return fmt.Errorf("the Secret is not in the cache yet: %v", err) // not IsNotFound: try again
	}
	if len(s.Data) > 0 {
		return nil
	}
	s.Data = map[string][]byte{"password": []byte("the password " + s.Name)}
	return c.Update(ctx, &s)
}}

// restarter restarts the servers of a website with a new image once, as `kubectl rollout restart` does.
var restarter = function{"restarter", &appsv1.Deployment{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var d appsv1.Deployment
	if err := c.Get(ctx, key, &d); err != nil || !available(&d) || d.Spec.Template.Spec.Containers[0].Image != newImage {
		return err
	}
	var w Website
	if err := c.Get(ctx, key, &w); err != nil || w.Annotations[restartWanted] == "" {
		return err
	}
	d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "today"}
	if err := c.Update(ctx, &d); err != nil {
		return err
	}
	delete(w.Annotations, restartWanted)
	return c.Update(ctx, &w)
}}

// grower lets a pool grow when its first shards are there.
var grower = function{"grower", &Pool{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var p Pool
	if err := c.Get(ctx, key, &p); err != nil || p.Status.Created == 0 || p.Status.Created != p.Spec.Shards || p.Spec.Shards >= grownShards {
		return err
	}
	p.Spec.Shards = grownShards
	return c.Update(ctx, &p)
}}

// installer creates the database that a ConfigMap describes. It waits until a former one is gone.
var installer = function{"installer", &corev1.ConfigMap{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var m corev1.ConfigMap
	if err := c.Get(ctx, key, &m); err != nil || m.Data["storage"] == "" {
		return err
	}
	db := Database{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: DatabaseSpec{Replicas: 1, Storage: m.Data["storage"]}}
	err := c.Get(ctx, key, &db)
	switch {
	case apierrors.IsNotFound(err):
		return c.Create(ctx, &db)
	case err == nil && !db.DeletionTimestamp.IsZero():
		return errors.New("the former database is still there")
	}
	return err
}}

// janitor deletes backups that are done.
var janitor = function{"janitor", &Backup{}, func(ctx context.Context, c client.Client, key client.ObjectKey) error {
	var b Backup
	if err := c.Get(ctx, key, &b); err != nil || b.Status.Phase != "Done" || !b.DeletionTimestamp.IsZero() {
		return err
	}
	return c.Delete(ctx, &b, client.Preconditions{UID: &b.UID})
}}
