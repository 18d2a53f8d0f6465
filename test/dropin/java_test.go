package dropin

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/testprogram"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// javaHarness acts like kube-api-test of fabric8's kubernetes-client (jenvtest in former versions,
// with the same flags), without Java: it has the same files, command lines, readiness checks and
// kubectl commands.
type javaHarness struct {
	dir      string // KUBE_API_TEST_DIR
	programs string
}

// newJavaHarness puts the programs where kube-api-test looks for them, and creates its certificates: RSA,
// self-signed, that of the client without any extension.
func newJavaHarness(t *testing.T) *javaHarness {
	t.Helper()
	assets(t)
	dir := t.TempDir()
	out, err := exec.Command(filepath.Join(built.assets, "kube-apiserver"), "--version").Output()
	version, found := strings.CutPrefix(strings.TrimSpace(string(out)), "Kubernetes v")
	if err != nil || !found {
		t.Fatalf("kube-apiserver --version: %q %v", out, err)
	}
	h := &javaHarness{dir: dir, programs: filepath.Join(dir, "k8s", fmt.Sprintf("%s-%s-%s", version, runtime.GOOS, runtime.GOARCH))}
	if out, err := exec.Command(testprogram.Path(t), "envtest-assets", "--kubectl="+kubectlProgram(t), h.programs).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	h.selfSigned(t, "apiserver", &x509.Certificate{
		Subject:     pkix.Name{CommonName: "example.org"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		DNSNames:    []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster", "kubernetes.default.svc.cluster.local"},
	})
	h.selfSigned(t, "client", &x509.Certificate{Subject: pkix.Name{Organization: []string{"system:masters"}, CommonName: "kubeapitest"}})
	return h
}

// selfSigned writes NAME.key and NAME.crt.
func (h *javaHarness) selfSigned(t *testing.T, name string, template *x509.Certificate) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixMilli())
	template.NotBefore, template.NotAfter = time.Now(), time.Now().AddDate(1, 0, 0)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		h.path(name + ".key"): {Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)},
		h.path(name + ".crt"): {Type: "CERTIFICATE", Bytes: der},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func (h *javaHarness) path(name string) string { return filepath.Join(h.dir, name) }

// javaServer is the result of KubeAPIServer.start.
type javaServer struct {
	etcd, server *exec.Cmd
	log          bytes.Buffer // of the server; complete after stop
	url          string
	port         int
}

// start starts etcd and, at once, kube-apiserver.
func (h *javaHarness) start(t *testing.T) *javaServer {
	t.Helper()
	client, peer := freeport.Find(t), freeport.Find(t)
	at, peers := fmt.Sprintf("http://0.0.0.0:%d", client), fmt.Sprintf("http://localhost:%d", peer)
	s := &javaServer{port: freeport.Find(t)}
	s.url = fmt.Sprintf("https://127.0.0.1:%d", s.port)
	s.etcd = exec.Command(filepath.Join(h.programs, "etcd"), "-data-dir", t.TempDir(), "-wal-dir", t.TempDir(),
		"--listen-client-urls", at, "--advertise-client-urls", at,
		"--initial-cluster", "default="+peers, "--initial-advertise-peer-urls", peers, "--listen-peer-urls", peers)
	key := h.path("apiserver.key")
	s.server = exec.Command(filepath.Join(h.programs, "kube-apiserver"), "--cert-dir", h.dir, "--secure-port", fmt.Sprint(s.port),
		"--etcd-servers", at, "--authorization-mode", "RBAC", "--service-account-issuer", "https://localhost",
		"--service-account-signing-key-file", key, "--service-account-signing-key-file", key, "--service-account-key-file", key,
		"--service-account-issuer", h.path("apiserver.crt"), "--disable-admission-plugins", "ServiceAccount",
		"--client-ca-file", h.path("client.crt"), "--service-cluster-ip-range", "10.0.0.0/24", "--allow-privileged")
	s.server.Stdout, s.server.Stderr = &s.log, &s.log
	for _, cmd := range []*exec.Cmd{s.etcd, s.server} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(cmd) })
	}
	return s
}

// kill is Java's destroyForcibly and waitFor.
func kill(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}

// stop is KubeAPIServer.stop.
func (s *javaServer) stop() {
	kill(s.server)
	kill(s.etcd)
}

// waitUntilReady polls /readyz over HTTP/1.1, as the released versions do without a certificate, and as later ones
// with that of the client. Java repeats a refused connection; every other error ends the suite.
func (s *javaServer) waitUntilReady(t *testing.T, certificates ...tls.Certificate) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		resp, err := client.Get(s.url + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK || resp.ProtoMajor != 1 {
				t.Fatalf("the first response of readyz: %s %s", resp.Proto, resp.Status)
			}
			return
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline) {
			s.stop()
			t.Fatalf("%v\n%s", err, &s.log)
		}
	}
}

// kubectl runs the kubectl beside the programs.
func (h *javaHarness) kubectl(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(h.programs, "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+h.dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("kubectl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// kubeconfigYAML returns the text of getKubeConfigYaml, by the names in its template.
func (h *javaHarness) kubeconfigYAML(s *javaServer) string {
	return fmt.Sprintf(`apiVersion: v1
clusters:
  - cluster:
      certificate-authority: %s
      server: https://127.0.0.1:%d
    name: jenvtest
contexts:
  - context:
      cluster: jenvtest
      namespace: default
      user: jenvtest
    name: jenvtest
current-context: jenvtest
kind: Config
preferences: {}
users:
  - name: jenvtest
    user:
      client-certificate: %s
      client-key: %s
`, h.path("apiserver.crt"), s.port, h.path("client.crt"), h.path("client.key"))
}

// TestKubeAPITest: the whole sequence of fabric8's kube-api-test, twice in one directory, as for two test classes: start,
// wait, connect, SIGKILL. The second server has nothing of the first one.
func TestKubeAPITest(t *testing.T) {
	tier.Full(t)
	h := newJavaHarness(t)
	s := h.start(t)
	s.waitUntilReady(t)
	byFlags := []string{"--client-certificate=" + h.path("client.crt"), "--client-key=" + h.path("client.key"),
		"--certificate-authority=" + h.path("apiserver.crt"), "--server=" + s.url, "--request-timeout=30s", "get", "ns", "default"}
	if out := h.kubectl(t, h.path(".kubeconfig"), byFlags...); !strings.Contains(out, "Active") {
		t.Errorf("kubectl get ns default: %s", out)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig([]byte(h.kubeconfigYAML(s)))
	if err != nil {
		t.Fatal(err)
	}
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	watch, err := maps.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if event := <-watch.ResultChan(); event.Type != "ADDED" {
		t.Errorf("the watch: %v", event)
	}
	s.stop()

	s = h.start(t)
	pair, err := tls.LoadX509KeyPair(h.path("client.crt"), h.path("client.key"))
	if err != nil {
		t.Fatal(err)
	}
	s.waitUntilReady(t, pair)
	h.updateKubeConfig(t, s)
	s.stop()
	if strings.Contains(s.log.String(), "WARN") {
		t.Errorf("warnings:\n%s", &s.log)
	}
}

// updateKubeConfig implements the option of that name: it adds the server to the kubeconfig of the
// user, and removes it at the end.
func (h *javaHarness) updateKubeConfig(t *testing.T, s *javaServer) {
	t.Helper()
	const name = "kubeapitest"
	kubeconfig := h.path("config-of-the-user")
	for _, line := range [][]string{
		{"set-cluster", name, "--server=" + s.url, "--certificate-authority=" + h.path("apiserver.crt")},
		{"set-credentials", name, "--client-certificate=" + h.path("client.crt"), "--client-key=" + h.path("client.key")},
		{"set-context", name, "--cluster=" + name, "--namespace=default", "--user=" + name},
		{"use-context", name},
	} {
		h.kubectl(t, kubeconfig, append([]string{"config"}, line...)...)
	}
	if out := h.kubectl(t, kubeconfig, "get", "ns", "default"); !strings.Contains(out, "Active") {
		t.Errorf("kubectl get ns default: %s", out)
	}
	if out := h.kubectl(t, kubeconfig, "get", "configmaps"); !strings.Contains(out, "No resources found") {
		t.Errorf("the objects of the server before: %s", out)
	}
	for _, target := range []string{"contexts." + name, "clusters." + name, "users." + name, "current-context"} {
		h.kubectl(t, kubeconfig, "config", "unset", target)
	}
}
