//go:build unix

package cluster_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/kubeconfig"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	metricsServer = "metrics-server"
	metricsAPI    = "/apis/metrics.k8s.io/v1beta1"
	rbac          = "/apis/rbac.authorization.k8s.io/v1"
)

// TestTop: metrics-server behind the cluster serves the metrics that kwok simulates, to users with the right and to a
// HorizontalPodAutoscaler. While it is dead, its group alone is unavailable.
func TestTop(t *testing.T) {
	tier.Full(t)
	if bin := os.Getenv(programs); bin != "" {
		if _, err := os.Stat(filepath.Join(bin, metricsServer)); err != nil {
			t.Skipf("the folder of %s: %v", programs, err)
		}
	}
	r := startReal(t, t.TempDir())
	defer r.Stop()
	port := freeport.Find(t)
	r.registerMetrics(port)
	process := r.startMetrics(port)
	r.available("True")
	r.post("/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"shop"},"spec":{"replicas":2,"selector":{"matchLabels":{"app":"shop"}},"template":{
		"metadata":{"labels":{"app":"shop"},"annotations":{"kwok.x-k8s.io/usage-cpu":"400m","kwok.x-k8s.io/usage-memory":"64Mi"}},
		"spec":{"containers":[{"name":"shop","image":"shop","resources":{"requests":{"cpu":"500m","memory":"128Mi"}}}]}}}}`)
	r.post("/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"shop"},"spec":{"minReplicas":2,"maxReplicas":10,
		"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"shop"},"metrics":[
		{"type":"Resource","resource":{"name":"memory","target":{"type":"Utilization","averageUtilization":25}}}]}}`)

	// Two Pods use 50 % of the memory that they request, where 25 % is the target.
	await.Nil(t, "the autoscaler scales", func() error {
		var a struct {
			Status struct {
				DesiredReplicas int
				CurrentMetrics  []struct {
					Resource struct {
						Current struct {
							AverageUtilization int
							AverageValue       string
						}
					}
				}
			}
		}
		r.send(http.MethodGet, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/shop", "", &a)
		if s := a.Status; s.DesiredReplicas < 4 || len(s.CurrentMetrics) != 1 || s.CurrentMetrics[0].Resource.Current.AverageUtilization != 50 || s.CurrentMetrics[0].Resource.Current.AverageValue != "64Mi" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
	r.measured(2)

	// A user with a right in one namespace
	r.post(rbac+"/namespaces/default/roles", `{"metadata":{"name":"top"},"rules":[{"apiGroups":["metrics.k8s.io"],"resources":["pods"],"verbs":["get","list"]}]}`)
	r.post(rbac+"/namespaces/default/rolebindings", `{"metadata":{"name":"top"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"top"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"jane"}]}`)
	jane := *r
	jane.client = r.connect("jane")
	for path, want := range map[string]int{"/namespaces/default/pods": http.StatusOK, "/pods": http.StatusForbidden, "/nodes": http.StatusForbidden} {
		if code := jane.send(http.MethodGet, metricsAPI+path, "", nil); code != want {
			t.Errorf("jane gets %s: %d, want %d", path, code, want)
		}
	}

	// Killed, and back
	kill(t, process.Process.Pid)
	_ = process.Wait()
	for _, path := range []string{metricsAPI + "/nodes", metricsAPI} {
		if code := r.send(http.MethodGet, path, "", nil); code != http.StatusServiceUnavailable {
			t.Errorf("%s of a dead server: %d", path, code)
		}
	}
	r.available("False")
	for _, path := range []string{"/apis", "/apis/apps/v1", "/apis/apps/v1/deployments", "/api/v1/nodes"} {
		if code := r.send(http.MethodGet, path, "", nil); code != http.StatusOK {
			t.Errorf("%s while metrics-server is dead: %d", path, code)
		}
	}
	r.startMetrics(port)
	r.available("True")
	r.measured(4)
}

// post creates an object.
func (r *real) post(path, body string) {
	r.Helper()
	if code := r.send(http.MethodPost, path, body, nil); code != http.StatusCreated {
		r.Fatalf("%s: %d", path, code)
	}
}

// registerMetrics creates the APIService of metrics-server at a port, its Service, and the rights of its user.
func (r *real) registerMetrics(port int) {
	r.Helper()
	const user = `"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"` + metricsServer + `"}]}`
	r.post("/api/v1/namespaces/kube-system/services", `{"metadata":{"name":"metrics-server"},"spec":{"type":"ExternalName","externalName":"localhost"}}`)
	r.post("/apis/apiregistration.k8s.io/v1/apiservices", fmt.Sprintf(`{"metadata":{"name":"v1beta1.metrics.k8s.io"},"spec":{"group":"metrics.k8s.io","version":"v1beta1",
		"groupPriorityMinimum":100,"versionPriority":100,"insecureSkipTLSVerify":true,"service":{"namespace":"kube-system","name":"metrics-server","port":%d}}}`, port))
	r.post(rbac+"/clusterroles", `{"metadata":{"name":"metrics-server"},"rules":[{"apiGroups":[""],"resources":["nodes","pods"],"verbs":["get","list","watch"]}]}`)
	for _, role := range []string{metricsServer, "system:auth-delegator"} {
		r.post(rbac+"/clusterrolebindings", fmt.Sprintf(`{"metadata":{"name":"metrics-server:%s"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%[1]q},`, role)+user)
	}
	r.post(rbac+"/namespaces/kube-system/rolebindings", `{"metadata":{"name":"metrics-server"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"extension-apiserver-authentication-reader"},`+user)
}

// startMetrics starts metrics-server with a user of its own.
func (r *real) startMetrics(port int) *exec.Cmd {
	r.Helper()
	authority, certificate, key := r.issue(metricsServer)
	config := kubeconfig.Config{Server: r.URL, CA: authority, User: metricsServer, Certificate: certificate, Key: key}
	file := filepath.Join(r.dir, metricsServer+".kubeconfig")
	r.must(os.WriteFile(file, config.YAML(), 0o600))
	cmd := exec.Command(filepath.Join(r.bin, metricsServer), "--kubeconfig="+file, "--authentication-kubeconfig="+file, "--authorization-kubeconfig="+file,
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir="+filepath.Join(r.dir, metricsServer),
		"--kubelet-insecure-tls", "--kubelet-use-node-status-port", "--kubelet-preferred-address-types=InternalIP",
		"--metric-resolution=10s", "--kubelet-request-timeout=9s")
	log, err := os.OpenFile(filepath.Join(r.dir, "logs", metricsServer+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	r.must(err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	r.must(cmd.Start())
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// available waits until the condition Available of the APIService of metrics-server has a status.
func (r *real) available(want string) {
	r.Helper()
	await.Nil(r.T, "Available is "+want, func() error {
		var s struct {
			Status struct {
				Conditions []struct{ Status, Message string }
			}
		}
		r.send(http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io", "", &s)
		if c := s.Status.Conditions; len(c) != 1 || c[0].Status != want {
			return fmt.Errorf("%v", c)
		}
		return nil
	})
}

// measured waits until metrics-server has the usage of n Pods, and of a node.
func (r *real) measured(n int) {
	r.Helper()
	type list struct {
		Items []struct {
			Usage      struct{ CPU, Memory string }
			Containers []struct {
				Usage struct{ CPU, Memory string }
			}
		}
	}
	await.Nil(r.T, fmt.Sprintf("metrics of %d Pods", n), func() error {
		var pods, nodes list
		r.send(http.MethodGet, metricsAPI+"/namespaces/default/pods?labelSelector=app%3Dshop", "", &pods)
		r.send(http.MethodGet, metricsAPI+"/nodes", "", &nodes)
		if len(pods.Items) < n || len(nodes.Items) == 0 {
			return fmt.Errorf("%d Pods, %d nodes", len(pods.Items), len(nodes.Items))
		}
		for _, p := range pods.Items {
			if len(p.Containers) != 1 || p.Containers[0].Usage.Memory != "64Mi" || p.Containers[0].Usage.CPU == "0" {
				return fmt.Errorf("%+v", p)
			}
		}
		return nil
	})
}
