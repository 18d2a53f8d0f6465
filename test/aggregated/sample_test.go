package aggregated

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/servertest"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

var (
	apiServices = schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	flunders    = schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}
)

// TestSampleAPIServer: sample-apiserver serves its kinds behind the server, with the users, rights and namespaces of the server.
func TestSampleAPIServer(t *testing.T) {
	tier.Full(t)
	s := servertest.Start(t, &tidemark.Server{})
	sample := startSample(t, s, startEtcd(t))
	c, err := dynamic.NewForConfig(s.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	register(t, s, c, sample)

	d := discovery.NewDiscoveryClientForConfigOrDie(s.RESTConfig())
	_, lists, err := d.ServerGroupsAndResources()
	if err != nil || !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool { return l.GroupVersion == "wardle.example.com/v1alpha1" }) {
		t.Errorf("discovery: %v", err)
	}
	if doc, err := d.OpenAPISchema(); err != nil || !strings.Contains(doc.String(), "/apis/wardle.example.com/v1alpha1/namespaces/{namespace}/flunders") {
		await.True(t, "OpenAPI v2 has flunders", func() bool {
			doc, err := d.OpenAPISchema()
			return err == nil && strings.Contains(doc.String(), "/apis/wardle.example.com/v1alpha1/namespaces/{namespace}/flunders")
		})
	}
	paths, err := d.OpenAPIV3().Paths()
	if err != nil || paths["apis/wardle.example.com/v1alpha1"] == nil {
		t.Errorf("OpenAPI v3 has %d pages, %v", len(paths), err)
	} else if _, err := paths["apis/wardle.example.com/v1alpha1"].Schema("application/json"); err != nil {
		t.Errorf("the page of OpenAPI v3: %v", err)
	}

	// A watch streams through.
	in := c.Resource(flunders).Namespace("default")
	w, err := in.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	flunder := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": map[string]any{"name": "f"}}}
	if _, err := in.Create(t.Context(), flunder, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if e := await.Value(t, "an event", w.ResultChan()); e.Type != "ADDED" || e.Object.(*unstructured.Unstructured).GetName() != "f" {
		t.Errorf("event %v", e)
	}
	config, err := s.RESTConfigFor("jane")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dynamic.NewForConfigOrDie(config).Resource(flunders).Namespace("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a user without rights: %v", err)
	}

	// The flunders of a namespace go with it.
	clients := kubernetes.NewForConfigOrDie(s.RESTConfig())
	if _, err := clients.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resource(flunders).Namespace("shop").Create(t.Context(), flunder, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := clients.CoreV1().Namespaces().Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the namespace goes", func() bool {
		_, err := clients.CoreV1().Namespaces().Get(t.Context(), "shop", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	all, err := c.Resource(flunders).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Errorf("%v, %v", all, err)
	}

	// A killed process is noticed, and its kinds are stale.
	if err := sample.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	await.Nil(t, "the condition", func() error { return condition(t.Context(), c, "False") })
	if _, _, err := d.ServerGroupsAndResources(); !discovery.IsGroupDiscoveryFailedError(err) {
		t.Errorf("discovery of a dead extension server: %v", err)
	}
}

// register creates the Service of sample-apiserver and its APIService, and waits until it is available.
func register(t *testing.T, s *tidemark.Server, c dynamic.Interface, sample *program) {
	t.Helper()
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "wardle"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}}
	if _, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": "v1alpha1.wardle.example.com"},
		"spec": map[string]any{
			"group": flunders.Group, "version": flunders.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(15), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "default", "name": "wardle", "port": int64(sample.port)},
		},
	}}
	if _, err := c.Resource(apiServices).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Nil(t, "the condition", func() error {
		if err := condition(t.Context(), c, "True"); err != nil {
			return fmt.Errorf("%w\n%s", err, sample.tail())
		}
		return nil
	})
}

// condition returns an error unless the condition of the APIService has a status.
func condition(ctx context.Context, c dynamic.Interface, want string) error {
	o, err := c.Resource(apiServices).Get(ctx, "v1alpha1.wardle.example.com", metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	if len(conditions) == 0 || conditions[0].(map[string]any)["status"] != want {
		return fmt.Errorf("the conditions are %v, want %s", conditions, want)
	}
	return nil
}

// program is a running sample-apiserver.
type program struct {
	cmd  *exec.Cmd
	port int
	log  string
}

func (p *program) tail() string {
	b, _ := os.ReadFile(p.log)
	return string(b[max(0, len(b)-4000):])
}

// startSample starts this program as sample-apiserver, with a kubeconfig of the server.
func startSample(t *testing.T, s *tidemark.Server, etcd string) *program {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	if err := s.WriteKubeconfig(kubeconfig); err != nil {
		t.Fatal(err)
	}
	p := &program{port: freeport.Find(t), log: filepath.Join(dir, "log")}
	p.cmd = exec.Command(os.Args[0],
		fmt.Sprintf("--secure-port=%d", p.port), "--bind-address=127.0.0.1", "--cert-dir="+dir, "--etcd-servers="+etcd, "--kubeconfig="+kubeconfig,
		"--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig, "--enable-priority-and-fairness=false")
	p.cmd.Env = append(os.Environ(), asSample+"=1")
	out, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Log(p.tail())
		}
	})
	return p
}

// startEtcd starts an etcd in this process, and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	address := func() url.URL {
		return url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", fmt.Sprint(freeport.Find(t)))}
	}
	client, peer := address(), address()
	o := embed.NewConfig()
	o.Dir, o.Name = t.TempDir(), "etcd"
	o.ListenClientUrls, o.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	o.ListenPeerUrls, o.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	o.InitialCluster, o.LogLevel = "etcd="+peer.String(), "error"
	e, err := embed.StartEtcd(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	await.Value(t, "etcd", e.Server.ReadyNotify())
	return client.String()
}
