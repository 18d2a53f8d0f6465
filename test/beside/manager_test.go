package beside

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// manager is a kube-controller-manager of a server. It is not tested without the program.
func (c *cluster) manager(s *server) *process {
	c.Helper()
	program := filepath.Join(filepath.Dir(c.programs[kube]), "kube-controller-manager")
	if _, err := os.Stat(program); err != nil {
		c.Skip(err)
	}
	kubeconfig := filepath.Join(c.dir, "manager.kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: s.url, InsecureSkipTLSVerify: true}
	config.AuthInfos["a"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "a"}
	config.CurrentContext = "x"
	c.must(clientcmd.WriteToFile(*config, kubeconfig))
	return c.start(exec.Command(program, "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", freeport.Find(c.T)), "--cert-dir="+filepath.Join(c.dir, "manager"), "--use-service-account-credentials",
		"--service-account-private-key-file="+filepath.Join(c.dir, "accounts.key"), "--root-ca-file="+filepath.Join(c.dir, "server.crt"),
		"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms", "--concurrent-namespace-syncs=5"))
}

// TestControllerManager: a kube-controller-manager works at a server beside two others, one of them a kube-apiserver. The
// controllers of Tidemark pause until it has ended.
func TestControllerManager(t *testing.T) {
	tier.Full(t)
	c := newCluster(t)
	k, a, b := c.serve(kube, "192.0.2.1"), c.serve(tidemark, "192.0.2.2"), c.serve(tidemark, "192.0.2.3")
	pausing := func(s *server) bool {
		_, text := s.send("GET", "/readyz?verbose", nil)
		return strings.Contains(string(text), "[+]controller/garbage-collector ok, paused")
	}
	c.until("one of the servers leads", func() bool { return pausing(a) != pausing(b) })
	m := c.manager(a)
	c.until("the controllers of both pause", func() bool { return pausing(a) && pausing(b) })

	const in = "/api/v1/namespaces/apps"
	b.want(http.StatusCreated, "POST", "/api/v1/namespaces", object(`{"metadata":{"name":"apps"}}`))
	pod := `{"metadata":{"labels":{"app":"x"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`
	for i, s := range []*server{k, a, b} {
		c.until("the namespace takes objects", func() bool {
			code, _ := s.send("POST", "/apis/apps/v1/namespaces/apps/deployments", object(fmt.Sprintf(`{"metadata":{"name":"d%d"},"spec":{"replicas":3,"selector":{"matchLabels":{"app":"x"}},"template":%s}}`, i, pod)))
			return code == http.StatusCreated
		})
		s.want(http.StatusCreated, "POST", "/apis/batch/v1/namespaces/apps/jobs", object(fmt.Sprintf(`{"metadata":{"name":"j%d"},"spec":{"completions":2,"parallelism":2,"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, i)))
		s.want(http.StatusCreated, "POST", in+"/services", object(fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"selector":{"app":"x"},"ports":[{"port":80}]}}`, i)))
	}
	count := func(s *server, path string) int {
		items, _ := s.want(http.StatusOK, "GET", path, nil)["items"].([]any)
		return len(items)
	}
	for _, s := range []*server{k, a, b} {
		c.until("all pods are there", func() bool { return count(s, in+"/pods") == 3*(3+2) })
		c.until("all EndpointSlices are there", func() bool {
			return count(s, "/apis/discovery.k8s.io/v1/namespaces/apps/endpointslices") == 3
		})
	}
	c.until("the default account is there", func() bool {
		code, _ := k.send("GET", in+"/serviceaccounts/default", nil)
		return code == http.StatusOK
	})

	// The owner goes at one server, and its dependents at all.
	a.want(http.StatusOK, "DELETE", "/apis/apps/v1/namespaces/apps/deployments/d0", object(`{"propagationPolicy":"Foreground"}`))
	c.until("the dependents are gone", func() bool {
		return count(k, in+"/pods") == 2*3+3*2 && count(b, "/apis/apps/v1/namespaces/apps/replicasets") == 2
	})

	for i := range 3 { // their pods have a finalizer that only the manager removes
		b.want(http.StatusOK, "DELETE", fmt.Sprintf("/apis/batch/v1/namespaces/apps/jobs/j%d", i), object(`{"propagationPolicy":"Background"}`))
	}
	c.until("the pods of the jobs are gone", func() bool { return count(k, in+"/pods") == 2*3 })

	m.stop()
	c.until("one of the servers leads again", func() bool { return pausing(a) != pausing(b) })
	k.want(http.StatusOK, "DELETE", in, nil)
	for _, s := range []*server{k, a, b} {
		c.until("the namespace is gone", func() bool { code, _ := s.send("GET", in, nil); return code == http.StatusNotFound })
	}
}
