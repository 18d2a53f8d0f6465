package controller

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidemark-dev/tidemark/tidemarktest"
	"github.com/tidemark-dev/tidemark/tidemarktest/kube"
)

// TestVersions runs the operator on four versions of Kubernetes, at the same time and on one server.
func TestVersions(t *testing.T) {
	for _, version := range []string{"1.34", "1.35", "1.36", "1.37"} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			w := &tidemarktest.World{
				KubernetesVersion: version, CRDDirectoryPaths: world.CRDDirectoryPaths, ErrorIfCRDPathMissing: true,
			}
			env := w.Fork(t)
			start(t, env)
			c, err := client.New(kube.Config(env), client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			env.Apply(t, home)
			var server appsv1.Deployment
			eventually(t, func() bool {
				return c.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "home"}, &server) == nil
			})
		})
	}
}
