// Package e2e is a suite of e2e-framework, as its documents show one: the cluster is that of --kubeconfig.
package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/e2e-framework/klient/decoder"
	"sigs.k8s.io/e2e-framework/klient/k8s"
	"sigs.k8s.io/e2e-framework/klient/k8s/resources"
	"sigs.k8s.io/e2e-framework/klient/wait"
	"sigs.k8s.io/e2e-framework/klient/wait/conditions"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"
	"sigs.k8s.io/e2e-framework/pkg/envfuncs"
	"sigs.k8s.io/e2e-framework/pkg/features"
)

var testEnv env.Environment

func TestMain(m *testing.M) {
	cfg, err := envconf.NewFromFlags()
	if err != nil {
		panic(err)
	}
	testEnv = env.NewWithConfig(cfg)
	namespace := envconf.RandomName("e2e", 16)
	crds := os.Getenv("E2E_CRDS")
	testEnv.Setup(envfuncs.CreateNamespace(namespace), envfuncs.SetupCRDs(filepath.Dir(crds), filepath.Base(crds)))
	testEnv.Finish(envfuncs.TeardownCRDs(filepath.Dir(crds), filepath.Base(crds)), envfuncs.DeleteNamespace(namespace))
	os.Exit(testEnv.Run(m))
}

const limit = time.Minute

func TestObjects(t *testing.T) {
	settings := func(c *envconf.Config) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: c.Namespace()}, Data: map[string]string{"a": "1"}}
	}
	f := features.New("objects").
		Setup(func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			if err := c.Client().Resources().Create(ctx, settings(c)); err != nil {
				t.Fatal(err)
			}
			return ctx
		}).
		Assess("a watch sees a patch", func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			seen := make(chan struct{}, 10)
			r := c.Client().Resources(c.Namespace())
			w := r.Watch(&corev1.ConfigMapList{}, resources.WithFieldSelector("metadata.name=settings")).WithUpdateFunc(func(object any) {
				if object.(*corev1.ConfigMap).Data["a"] == "2" {
					seen <- struct{}{}
				}
			})
			if err := w.Start(ctx); err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			patch := k8s.Patch{PatchType: "application/merge-patch+json", Data: []byte(`{"data":{"a":"2"}}`)}
			if err := r.Patch(ctx, settings(c), patch); err != nil {
				t.Fatal(err)
			}
			select {
			case <-seen:
			case <-time.After(limit):
				t.Error("the watch has not seen the patch")
			}
			return ctx
		}).
		Assess("conditions wait", func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			r := c.Client().Resources(c.Namespace())
			is2 := func(o k8s.Object) bool { return o.(*corev1.ConfigMap).Data["a"] == "2" }
			if err := wait.For(conditions.New(r).ResourceMatch(settings(c), is2), wait.WithTimeout(limit)); err != nil {
				t.Error(err)
			}
			if err := wait.For(conditions.New(r).ResourceListN(&corev1.ServiceAccountList{}, 1), wait.WithTimeout(limit)); err != nil {
				t.Errorf("the ServiceAccount of the namespace: %v", err)
			}
			return ctx
		}).
		Assess("a custom resource is decoded and created", func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			file, err := os.Open(os.Getenv("E2E_OBJECT"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			r := c.Client().Resources(c.Namespace())
			if err := decoder.DecodeEach(ctx, file, decoder.CreateHandler(r), decoder.MutateNamespace(c.Namespace())); err != nil {
				t.Error(err)
			}
			return ctx
		}).
		Teardown(func(ctx context.Context, t *testing.T, c *envconf.Config) context.Context {
			r := c.Client().Resources(c.Namespace())
			if err := r.Delete(ctx, settings(c)); err != nil {
				t.Error(err)
			}
			if err := wait.For(conditions.New(r).ResourceDeleted(settings(c)), wait.WithTimeout(limit)); err != nil {
				t.Error(err)
			}
			return ctx
		}).Feature()
	testEnv.Test(t, f)
}
