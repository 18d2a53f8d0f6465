// Package bubble tests real clients and a server together in bubbles of testing/synctest, where time passes
// at once when all goroutines wait.
package bubble

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/go-logr/logr"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// start starts a server in the bubble of the test.
func start(t *testing.T) *tidemark.Server {
	t.Helper()
	s := &tidemark.Server{InProcess: true}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// run runs a test in a bubble, and logs how long it takes outside.
func run(t *testing.T, test func(t *testing.T)) {
	begin := time.Now()
	synctest.Test(t, test)
	t.Logf("%v of real time", time.Since(begin))
}

// TestInformer runs an informer with a work queue for a day: relists, resyncs, watches that end.
func TestInformer(t *testing.T) {
	tier.Full(t)
	run(t, func(t *testing.T) {
		clients := kubernetes.NewForConfigOrDie(start(t).RESTConfig())
		ctx, cancel := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(clients, 10*time.Hour)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
		informer := factory.Core().V1().ConfigMaps().Informer()
		add := func(o any) {
			if m := o.(*corev1.ConfigMap); m.Namespace == "default" && m.Name == "a" {
				queue.Add(m.Name)
			}
		}
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }}); err != nil {
			t.Fatal(err)
		}
		var synced atomic.Int64
		go func() {
			for {
				name, stop := queue.Get()
				if stop {
					return
				}
				synced.Add(1)
				queue.Done(name)
			}
		}()
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		if _, err := clients.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := synced.Load(); n != 1 {
			t.Errorf("%d items after the create, want 1", n)
		}
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		if n := synced.Load(); n != 3 {
			t.Errorf("%d items after a day, want 3: two of them by resyncs", n)
		}
		cancel()
		queue.ShutDown()
		factory.Shutdown()
	})
}

// TestLeaderElection stops a leader without a release: the other candidate leads when the lease has expired.
func TestLeaderElection(t *testing.T) {
	tier.Full(t)
	run(t, func(t *testing.T) {
		c := start(t).RESTConfig()
		var leader atomic.Value
		candidate := func(ctx context.Context, name string) {
			clients := kubernetes.NewForConfigOrDie(c)
			leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
				Lock: &resourcelock.LeaseLock{
					LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "lock"}, Client: clients.CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: name},
				},
				LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
				Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: func(context.Context) { leader.Store(name) }, OnStoppedLeading: func() {}},
			})
		}
		first, crash := context.WithCancel(t.Context())
		go candidate(first, "first")
		time.Sleep(time.Second)
		second, stop := context.WithCancel(t.Context())
		go candidate(second, "second")
		time.Sleep(time.Hour)
		if leader.Load() != "first" {
			t.Errorf("%v leads", leader.Load())
		}
		crash()
		time.Sleep(5 * time.Second)
		if leader.Load() != "first" {
			t.Errorf("%v leads before the lease has expired", leader.Load())
		}
		time.Sleep(30 * time.Second)
		if leader.Load() != "second" {
			t.Errorf("%v leads after the lease has expired", leader.Load())
		}
		stop()
		synctest.Wait()
	})
}

// hourly asks to be called again after an hour.
type hourly struct {
	client.Client
	calls atomic.Int64
}

func (h *hourly) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	var m corev1.ConfigMap
	if err := h.Get(ctx, q.NamespacedName, &m); err != nil || m.Name != "a" {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	h.calls.Add(1)
	return ctrl.Result{RequeueAfter: time.Hour}, nil
}

// manage runs a manager of controller-runtime with a reconciler until the end of the test. Cleanups wait for it.
func manage(t *testing.T, c *rest.Config, r *hourly) client.Client {
	t.Helper()
	ctrl.SetLogger(logr.Discard())
	yes := true
	m, err := ctrl.NewManager(c, ctrl.Options{
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", Controller: config.Controller{SkipNameValidation: &yes},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Client = m.GetClient()
	if err := ctrl.NewControllerManagedBy(m).For(&corev1.ConfigMap{}).Complete(r); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- m.Start(t.Context()) }()
	t.Cleanup(func() { // t.Context has ended
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return m.GetClient()
}

// TestManager runs a manager whose reconciler returns RequeueAfter: an hour.
func TestManager(t *testing.T) {
	tier.Full(t)
	run(t, func(t *testing.T) {
		r := new(hourly)
		c := manage(t, start(t).RESTConfig(), r)
		if err := c.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := r.calls.Load(); n != 1 {
			t.Errorf("%d calls in a minute, want 1", n)
		}
		time.Sleep(time.Hour)
		if n := r.calls.Load(); n != 2 {
			t.Errorf("%d calls in an hour, want 2", n)
		}
	})
}
