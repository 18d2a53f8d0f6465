package controller

import (
	"context"
	"log"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"

	webv1 "example.com/website/api/v1"
)

// world is the initial state of each test.
var world = tidemarktest.World{
	CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
	ErrorIfCRDPathMissing: true,
}

const home = `
apiVersion: web.example.com/v1
kind: Website
metadata: {name: home}
spec: {title: Hello}
`

func init() {
	utilruntime.Must(webv1.AddToScheme(scheme.Scheme))
	ctrl.SetLogger(logr.Discard()) // zap.New() shows the operator's log
}

// run runs the operator until the context ends. When it fails, it starts again, as it would in a cluster.
func run(ctx context.Context, env *tidemarktest.Env) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := runManager(ctx, kube.Config(env)); err != nil && ctx.Err() == nil {
			log.Print(err)
		}
	}, 100*time.Millisecond)
}

func runManager(ctx context.Context, config *rest.Config) error {
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)}, // each test has a controller of this name
	})
	if err != nil {
		return err
	}
	if err := (&WebsiteReconciler{Client: mgr.GetClient(), Scheme: mgr.GetScheme()}).SetupWithManager(mgr); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// start runs the operator until the test ends.
func start(t *testing.T, env *tidemarktest.Env) {
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		run(ctx, env)
	}()
	t.Cleanup(func() {
		stop()
		<-stopped
	})
}

// eventually polls a condition.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return condition(), nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestWebsite(t *testing.T) {
	t.Parallel()
	env := world.Fork(t)
	start(t, env)
	c, err := client.New(kube.Config(env), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "default", Name: "home"}
	var server appsv1.Deployment
	var service corev1.Service

	// A Website gets a Deployment and a Service.
	env.Apply(t, home)
	eventually(t, func() bool { return c.Get(t.Context(), key, &service) == nil })
	if err := c.Get(t.Context(), key, &server); err != nil {
		t.Fatal(err)
	}
	if title := server.Spec.Template.Spec.Containers[0].Env[0].Value; title != "Hello" {
		t.Errorf("the title is %q", title)
	}

	// They are deleted with it.
	var site webv1.Website
	if err := c.Get(t.Context(), key, &site); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), &site); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return apierrors.IsNotFound(c.Get(t.Context(), key, &server)) })
	eventually(t, func() bool { return apierrors.IsNotFound(c.Get(t.Context(), key, &service)) })
}

func TestHistory(t *testing.T) {
	t.Parallel()
	env := world.Fork(t)
	start(t, env)
	env.Apply(t, home)
	services := tidemarktest.Match{Resource: "services"}
	eventually(t, func() bool { return len(env.Changes(t).Match(services).All()) > 0 })
	env.Settle(t)

	changes := env.Changes(t)
	changes.Before(tidemarktest.Match{Resource: "deployments"}, services)
	changes.Never(tidemarktest.Match{Verb: "delete"})
	changes.NoHotLoop()
	env.Golden(t, "testdata/home.yaml")
}

func TestCrashes(t *testing.T) {
	t.Parallel()
	env := world.Fork(t)
	env.Apply(t, home)
	tidemarktest.EveryPrefix(t, env, run, tidemarktest.SameEnd())
}
