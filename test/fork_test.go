package test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestInformersOfFork runs an informer against a fork, whose address has a path.
func TestInformersOfFork(t *testing.T) { testInformerOn(t, servers.Fork(t).Config) }

// TestKubectlOfFork uses kubectl in a fork as users do in a cluster, and checks the objects of the
// server.
func TestKubectlOfFork(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	s := servers.Start(t)
	root := newKubectl(t, s)
	root.want(configMap, []string{"create", "-f", "-"}, "configmap/a created")
	f, err := s.Root().Fork(t.Context(), tidemark.ForkOptions{Name: "try"})
	if err != nil {
		t.Fatal(err)
	}
	k := &kubectlIn{t: t, home: t.TempDir()}
	k.kubeconfig = filepath.Join(k.home, "kubeconfig")
	if err := os.WriteFile(k.kubeconfig, f.Kubeconfig(), 0o600); err != nil {
		t.Fatal(err)
	}
	k.want("", []string{"cluster-info"}, "/fork/try")
	k.want("", []string{"api-resources"}, "deployments", "customresourcedefinitions")
	k.want("", []string{"explain", "deployment.spec.strategy"}, "RollingUpdate")
	k.want("", []string{"get", "cm", "-A", "-o", "name"}, "configmap/a")
	k.want(strings.Replace(configMap, `"k":"1"`, `"k":"2"`, 1), []string{"apply", "--server-side", "--force-conflicts", "-f", "-"}, "serverside-applied")
	k.want("", []string{"wait", "--for=jsonpath={.data.k}=2", "configmap/a", "--timeout=5m"}, "condition met")
	k.want("", []string{"create", "namespace", "shop"}, "namespace/shop created")
	k.want("", []string{"-n", "shop", "create", "deployment", "web", "--image=nginx"}, "deployment.apps/web created")
	k.want("", []string{"get", "deployments", "-A"}, "web")
	k.want("", []string{"auth", "can-i", "create", "pods"}, "yes")
	k.want("", []string{"create", "token", "default"})
	k.want("", []string{"delete", "namespace", "shop", "--timeout=5m"}, `namespace "shop" deleted`)
	root.want("", []string{"get", "cm", "a", "-o", "jsonpath={.data.k}"}, "1")
	root.wantError("", []string{"get", "namespace", "shop"}, "NotFound")

	child, err := f.Fork(t.Context(), tidemark.ForkOptions{Name: "child"})
	if err != nil {
		t.Fatal(err)
	}
	if c, err := clientcmd.RESTConfigFromKubeConfig(child.Kubeconfig()); err != nil || c.Host != s.URL()+"/fork/child" {
		t.Errorf("the kubeconfig of a fork of a fork: %v, %v", c, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	k.wantError("", []string{"get", "namespaces"}, `fork "try" not found`)
}
