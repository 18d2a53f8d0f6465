// Package servers has the servers that these suites run against: Tidemark in the
// test's own process, and a kube-apiserver where there is one.
package servers

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark"
)

// PeerKubeconfig names, in the environment, a kubeconfig of a kube-apiserver to run
// tests against too. They need the right to create namespaces and everything in them.
const PeerKubeconfig = "TIDEMARK_TEST_PEER_KUBECONFIG"

// Start starts a Tidemark in this process, in memory, for the length of a test. It
// makes no ConfigMaps of its own, which tests count.
func Start(t testing.TB) *tidemark.Server {
	t.Helper()
	return StartWith(t, nil)
}

// StartWith starts one as Start does, with feature gates.
func StartWith(t testing.TB, gates map[string]bool) *tidemark.Server {
	t.Helper()
	s := &tidemark.Server{Controllers: []string{"*", "-root-ca-certificate-publisher"}, FeatureGates: gates}
	if err := s.Start(context.Background()); err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

// Quick is a configuration without the client's own limits.
func Quick(c *rest.Config) *rest.Config {
	c.QPS, c.Burst = 10_000, 10_000
	return c
}

// A Server is one that a test runs against.
type Server struct {
	Config *rest.Config
	// Kubeconfig has the same connection. Its current context has Namespace.
	Kubeconfig *api.Config
	// Namespace is the test's own.
	Namespace string
	// Peer: it is a kube-apiserver without controllers.
	Peer bool
}

// Each runs a test against Tidemark, and against kube-apiserver where there is one,
// in a namespace of its own.
func Each(t *testing.T, test func(t *testing.T, s Server)) {
	t.Run("tidemark", func(t *testing.T) {
		s := Start(t)
		file, err := clientcmd.Load(s.Kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		test(t, Server{Config: Quick(s.RESTConfig()), Kubeconfig: file, Namespace: "default"})
	})
	Peer(t, test)
}

// Fork returns a fork of a Tidemark that it starts. It ends before its server.
func Fork(t testing.TB) Server {
	t.Helper()
	f, err := Start(t).Root().Fork(t.Context(), tidemark.ForkOptions{Name: "try"})
	if err != nil {
		t.Fatal(err)
	}
	file, err := clientcmd.Load(f.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	return Server{Config: Quick(f.RESTConfig()), Kubeconfig: file, Namespace: "default"}
}

// Peer runs a test against kube-apiserver alone, where there is one.
func Peer(t *testing.T, test func(t *testing.T, s Server)) {
	t.Run("kube-apiserver", func(t *testing.T) { test(t, peer(t)) })
}

func peer(t *testing.T) Server {
	t.Helper()
	path := os.Getenv(PeerKubeconfig)
	if path == "" {
		t.Skipf("%s names no kubeconfig", PeerKubeconfig)
	}
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.NewDefaultClientConfig(*file, nil).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	cs := kubernetes.NewForConfigOrDie(Quick(config))
	ns, err := cs.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "tidemark-test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cs.CoreV1().Namespaces().Delete(context.Background(), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	// Pods need it, and no controller makes it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := cs.CoreV1().ServiceAccounts(ns.Name).Create(t.Context(), account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	file.Contexts[file.CurrentContext].Namespace = ns.Name
	return Server{Config: config, Kubeconfig: file, Namespace: ns.Name, Peer: true}
}
