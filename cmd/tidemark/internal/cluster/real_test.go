//go:build unix

package cluster_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-dev/tidemark/cmd/tidemark/internal/cluster"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/pki"
	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// programs names, in the environment, the folder of the programs kube-controller-manager, kube-scheduler and kwok, and of
// metrics-server for TestTop.
const programs = "TIDEMARK_TEST_CLUSTER_PROGRAMS"

// deployments and replicas are the size of a rollout.
const deployments, replicas = 50, 3

// real is a cluster with real components.
type real struct {
	*testing.T
	*cluster.Cluster
	dir, bin string
	client   *http.Client
}

// startReal starts a cluster. It is not tested without the programs.
func startReal(t *testing.T, dir string) *real {
	t.Helper()
	bin := os.Getenv(programs)
	if bin == "" {
		t.Skipf("%s names no folder with kube-controller-manager, kube-scheduler and kwok", programs)
	}
	r := &real{T: t, dir: dir, bin: bin}
	port, nodes := 0, 10
	o := cluster.Options{Dir: dir, Program: testprogram.Path(t), BinDir: bin, Port: &port, Nodes: &nodes}
	o.Progress.W = t.Output()
	var err error
	r.Cluster, err = cluster.Start(t.Context(), o)
	r.must(err)
	r.client = r.connect("tester", "system:masters")
	return r
}

// issue issues a certificate for a user, and returns the one of its authority, too.
func (r *real) issue(user string, groups ...string) (authority, certificate, key []byte) {
	r.Helper()
	issuer, err := pki.ReadIssuer(filepath.Join(r.dir, "data", "pki"))
	r.must(err)
	certificate, key, err = issuer.IssueClient(user, groups, time.Now(), 24*time.Hour)
	r.must(err)
	return issuer.CertificatePEM(), certificate, key
}

// connect returns the client of a user.
func (r *real) connect(user string, groups ...string) *http.Client {
	r.Helper()
	authority, certificate, key := r.issue(user, groups...)
	pair, err := tls.X509KeyPair(certificate, key)
	r.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}
}

func (r *real) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// send sends a request until the server responds, and decodes the response.
func (r *real) send(method, path, body string, into any) (code int) {
	r.Helper()
	await.Nil(r.T, method+" "+path, func() error {
		request, err := http.NewRequest(method, r.URL+path, bytes.NewReader([]byte(body)))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			request.Header.Set("Content-Type", "application/strategic-merge-patch+json")
		}
		response, err := r.client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if code = response.StatusCode; err != nil || into == nil || code >= http.StatusMultipleChoices {
			return err
		}
		return json.Unmarshal(text, into)
	})
	return code
}

const shop = "/apis/apps/v1/namespaces/shop/deployments"

func manifest(name, image string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":%q}},"template":{"metadata":{"labels":{"app":%[1]q}},"spec":{"containers":[{"name":"c","image":%[4]q}]}}}}`, name, replicas, name, image)
}

// patch changes the image of all deployments, and calls half when half of them are changed.
func (r *real) patch(image string, half func()) {
	r.Helper()
	for i := range deployments {
		if i == deployments/2 {
			half()
		}
		body := fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, image)
		if code := r.send(http.MethodPatch, fmt.Sprintf("%s/d%d", shop, i), body, nil); code != http.StatusOK {
			r.Fatalf("a patch of d%d: %d", i, code)
		}
	}
}

// rolledOut waits until all deployments have their pods with an image, and no others.
func (r *real) rolledOut(image string) {
	r.Helper()
	await.Nil(r.T, "all deployments have "+image, func() error {
		var list struct {
			Items []struct {
				Metadata struct {
					Name       string
					Generation int64
				}
				Status struct {
					ObservedGeneration                           int64
					Replicas, UpdatedReplicas, AvailableReplicas int
				}
			}
		}
		r.send(http.MethodGet, shop, "", &list)
		if len(list.Items) != deployments {
			return fmt.Errorf("%d deployments", len(list.Items))
		}
		for _, d := range list.Items {
			if s := d.Status; s.ObservedGeneration != d.Metadata.Generation || s.Replicas != replicas || s.UpdatedReplicas != replicas || s.AvailableReplicas != replicas {
				return fmt.Errorf("%s: %+v", d.Metadata.Name, s)
			}
		}
		var pods struct {
			Items []struct {
				Spec   struct{ Containers []struct{ Image string } }
				Status struct{ Phase, PodIP string }
			}
		}
		r.send(http.MethodGet, "/api/v1/namespaces/shop/pods", "", &pods)
		addresses := map[string]bool{}
		for _, p := range pods.Items {
			if p.Spec.Containers[0].Image != image || p.Status.Phase != "Running" {
				return fmt.Errorf("a pod has %s and is %s", p.Spec.Containers[0].Image, p.Status.Phase)
			}
			addresses[p.Status.PodIP] = true
		}
		if n := deployments * replicas; len(pods.Items) != n || len(addresses) != n {
			return fmt.Errorf("%d pods with %d addresses", len(pods.Items), len(addresses))
		}
		return nil
	})
}

// holder returns the holder of the Lease of kube-controller-manager.
func (r *real) holder() string {
	r.Helper()
	var lease struct {
		Spec struct{ HolderIdentity string }
	}
	r.send(http.MethodGet, leases+cluster.ControllerManager, "", &lease)
	return lease.Spec.HolderIdentity
}

// second starts another kube-controller-manager, which waits for the Lease.
func (r *real) second() *exec.Cmd {
	r.Helper()
	file := func(name string) string { return filepath.Join(r.dir, name) }
	cmd := exec.Command(filepath.Join(r.bin, cluster.ControllerManager), "--kubeconfig="+file("controller-manager.conf"),
		"--secure-port=0", "--use-service-account-credentials", "--service-account-private-key-file="+file("sa.key"),
		"--root-ca-file="+file("data/pki/ca.crt"), "--cluster-signing-cert-file="+file("data/pki/ca.crt"), "--cluster-signing-key-file="+file("data/pki/ca.pem"))
	log, err := os.Create(file("logs/second.log"))
	r.must(err)
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	r.must(cmd.Start())
	return cmd
}

// faults matches lines of logs that no component has when the server behaves as kube-apiserver.
var faults = regexp.MustCompile(`panic|fatal error|runtime error|no kind is registered|the server could not find the requested resource|Unprocessable|is forbidden`)

// logs reports faults in the logs of the components.
func (r *real) logs() {
	r.Helper()
	files, err := filepath.Glob(filepath.Join(r.dir, "logs", "*.log"))
	r.must(err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		r.must(err)
		seen := 0
		for line := range strings.Lines(string(text)) {
			if faults.MatchString(line) {
				if seen++; seen <= 5 {
					r.Errorf("%s: %s", filepath.Base(file), line)
				}
			}
		}
	}
}

// TestRollouts: nothing is stuck after kill -9 of the server and of the leader, each during a rollout of 50 Deployments, and
// a second start goes on.
func TestRollouts(t *testing.T) {
	tier.Full(t)
	dir := t.TempDir()
	r := startReal(t, dir)
	defer r.Stop()
	if code := r.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`, nil); code != http.StatusCreated {
		t.Fatal(code)
	}
	for i := range deployments {
		if code := r.send(http.MethodPost, shop, manifest(fmt.Sprintf("d%d", i), "one"), nil); code != http.StatusCreated {
			t.Fatal(code)
		}
	}
	r.rolledOut("one")

	r.patch("two", func() { kill(t, r.PID(cluster.Tidemark)) })
	r.rolledOut("two")

	r.patch("three", func() { kill(t, r.PID(cluster.ControllerManager)) })
	r.rolledOut("three")

	second := r.second()
	defer second.Wait()
	defer second.Process.Kill()
	before := r.holder()
	r.patch("four", func() { kill(t, r.PID(cluster.ControllerManager)) })
	await.True(t, "another leader", func() bool { now := r.holder(); return now != "" && now != before })
	r.rolledOut("four")

	r.send(http.MethodDelete, "/api/v1/namespaces/shop", "", nil)
	await.True(t, "the namespace is gone", func() bool {
		return r.send(http.MethodGet, "/api/v1/namespaces/shop", "", nil) == http.StatusNotFound
	})
	r.must(r.Stop())
	r.logs()

	again := startReal(t, dir)
	defer again.Stop()
	again.send(http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"again"}}`, nil)
	again.send(http.MethodPost, "/apis/apps/v1/namespaces/again/deployments", manifest("d", "one"), nil)
	await.True(t, "the deployment of the second start", func() bool {
		var d struct {
			Status struct{ AvailableReplicas int }
		}
		again.send(http.MethodGet, "/apis/apps/v1/namespaces/again/deployments/d", "", &d)
		return d.Status.AvailableReplicas == replicas
	})
}

// TestGenerations: the status of a simulated Pod has the generation of the Pod, also after a change.
func TestGenerations(t *testing.T) {
	tier.Full(t)
	r := startReal(t, t.TempDir())
	defer r.Stop()
	const pods = "/api/v1/namespaces/default/pods"
	await.True(t, "a Pod is created", func() bool { // the namespace gets its service account
		return r.send(http.MethodPost, pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"one"}]}}`, nil) == http.StatusCreated
	})
	for i, image := range []string{"one", "two"} {
		generation := i + 1
		body := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","image":%q}]}}`, image)
		if code := r.send(http.MethodPatch, pods+"/p", body, nil); code != http.StatusOK {
			t.Fatal(code)
		}
		await.True(t, fmt.Sprintf("generation %d is observed", generation), func() bool {
			var p struct {
				Metadata struct{ Generation int }
				Status   struct{ ObservedGeneration int }
			}
			r.send(http.MethodGet, pods+"/p", "", &p)
			return p.Metadata.Generation == generation && p.Status.ObservedGeneration == generation
		})
	}
}
