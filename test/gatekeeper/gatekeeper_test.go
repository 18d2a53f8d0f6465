package gatekeeper

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	yamls "sigs.k8s.io/yaml"

	"github.com/tidemark-dev/tidemark/internal/freeport"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

const (
	module = "github.com/open-policy-agent/gatekeeper/v3"
	system = "gatekeeper-system"
	denied = `admission webhook "validation.gatekeeper.sh" denied the request: `
)

// build returns the program of the version that the environment names, and the directory of its module.
func build(t *testing.T) (program, dir string) {
	t.Helper()
	version := os.Getenv("TIDEMARK_TEST_GATEKEEPER")
	if version == "" {
		t.Skip("TIDEMARK_TEST_GATEKEEPER names no version")
	}
	bin := t.TempDir()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "GOWORK=off", "GOBIN="+bin), os.Stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		return out
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(run("mod", "download", "-json", module+"@"+version), &downloaded); err != nil {
		t.Fatal(err)
	}
	run("install", module+"@"+version)
	return filepath.Join(bin, "gatekeeper"), downloaded.Dir
}

// gatekeeper is an instance that runs against a server.
type gatekeeper struct {
	t       *testing.T
	ctx     context.Context
	c       client.Client
	dir     string // of its module
	server  servers.Server
	program string

	warnings *warnings // of the responses to c
}

// warnings keeps the warnings that a client receives. The client sends one request at a time.
type warnings struct{ all []string }

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.all = append(w.all, text) }

func (g *gatekeeper) must(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// until repeats a request until done returns no error.
func (g *gatekeeper) until(what string, done func() error) {
	g.t.Helper()
	for {
		err := done()
		if err == nil {
			return
		}
		if g.ctx.Err() != nil {
			g.t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// objects returns the objects in a file of the module, after text replacements.
func (g *gatekeeper) objects(file string, replace ...string) (all []*unstructured.Unstructured) {
	g.t.Helper()
	text, err := os.ReadFile(filepath.Join(g.dir, file))
	g.must(err)
	text = []byte(strings.NewReplacer(replace...).Replace(string(text)))
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		one, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		g.must(err)
		o := &unstructured.Unstructured{}
		g.must(yamls.Unmarshal(one, &o.Object))
		if len(o.Object) > 0 {
			all = append(all, o)
		}
	}
}

// create creates the first object of a file.
func (g *gatekeeper) create(file string, replace ...string) error {
	g.t.Helper()
	return g.c.Create(g.ctx, g.objects(file, replace...)[0])
}

// created creates it when its kind is served, and the webhooks know it.
func (g *gatekeeper) created(file string, replace ...string) {
	g.t.Helper()
	g.until(file, func() error {
		err := g.create(file, replace...)
		if apierrors.IsForbidden(err) {
			g.t.Fatalf("%s: %v", file, err)
		}
		return err
	})
}

// refused compares the words of a denial.
func (g *gatekeeper) refused(err error, want string) {
	g.t.Helper()
	if err == nil || err.Error() != want {
		g.t.Errorf("%v\nwant %s", err, want)
	}
}

// start installs the manifests, and runs the webhooks and controllers on loopback.
func (g *gatekeeper) start() {
	g.t.Helper()
	manifest := filepath.Join(g.dir, "deploy", "gatekeeper.yaml")
	hooks := envtest.WebhookInstallOptions{Paths: []string{manifest}}
	g.must(hooks.PrepWithoutInstalling())
	g.t.Cleanup(func() { hooks.Cleanup() })
	_, err := envtest.InstallCRDs(g.server.Config, envtest.CRDInstallOptions{Paths: []string{manifest}, ErrorIfPathMissing: true})
	g.must(err)
	var template map[string]any
	for _, o := range g.objects("deploy/gatekeeper.yaml") {
		switch o.GetKind() {
		case "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
		case "Deployment":
			g.must(g.c.Create(g.ctx, o))
			if o.GetName() == "gatekeeper-controller-manager" {
				template = o.Object["spec"].(map[string]any)["template"].(map[string]any)
			}
		default:
			g.must(g.c.Create(g.ctx, o))
		}
	}
	// The program's status objects belong to its Pod: one of the Deployment's template.
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]}}
	pod.SetNamespace(system)
	pod.SetName("manager")
	g.must(g.c.Create(g.ctx, pod))
	kubeconfig := filepath.Join(g.t.TempDir(), "kubeconfig")
	g.must(clientcmd.WriteToFile(*g.server.Kubeconfig, kubeconfig))
	health := freeport.Address(g.t)
	cmd := exec.Command(g.program, "--kubeconfig="+kubeconfig, "--host="+hooks.LocalServingHost, fmt.Sprintf("--port=%d", hooks.LocalServingPort),
		"--cert-dir="+hooks.LocalServingCertDir, "--disable-cert-rotation", "--tls-min-version=1.2", "--health-addr="+health, "--metrics-backend=opentelemetry", "--otlp-endpoint=127.0.0.1:1",
		"--exempt-namespace="+system, "--operation=webhook", "--operation=mutation-webhook", "--operation=status", "--operation=mutation-status",
		"--operation=mutation-controller", "--operation=generate", "--default-wait-for-vapb-generation=0", "--shutdown-delay=0")
	cmd.Env = append(os.Environ(), "POD_NAMESPACE="+system, "POD_NAME=manager")
	log := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = log, log
	g.must(cmd.Start())
	g.t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		cmd.Wait()
		if g.t.Failed() {
			g.t.Logf("the log ends with\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
	g.until("readiness", func() error {
		r, err := http.Get("http://" + health + "/readyz")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
	g.must(hooks.Install(g.server.Config))
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// TestGatekeeper: Gatekeeper's own manifests, webhooks, templates, mutators and generated policies.
func TestGatekeeper(t *testing.T) {
	tier.Full(t)
	program, dir := build(t)
	servers.Each(t, func(t *testing.T, s servers.Server) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		t.Cleanup(cancel)
		heard, config := &warnings{}, rest.CopyConfig(s.Config)
		config.WarningHandler = heard
		c, err := client.New(config, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		g := &gatekeeper{t: t, ctx: ctx, c: c, dir: dir, server: s, program: program, warnings: heard}
		g.start()
		g.templates()
		g.constraints()
		g.mutators()
		g.generated()
	})
}

// templates: a template that does not compile is refused, one that does becomes a kind.
func (g *gatekeeper) templates() {
	g.t.Helper()
	// A kube-apiserver sees the configurations a moment later.
	g.until("webhooks", func() error {
		err := g.c.Create(g.ctx, g.objects("demo/basic/bad/bad_template.yaml")[0], client.DryRunAll)
		if err == nil {
			return errors.New("not in effect")
		}
		return nil
	})
	g.refused(g.create("demo/basic/bad/bad_template.yaml"),
		denied+`invalid ConstraintTemplate: the ConstraintTemplate's name "k8suniquelabels" is not equal to the lowercase of CRD's Kind: "k8suniquelabel"`)
	g.refused(g.c.Create(g.ctx, namespace("ignored", map[string]string{"admission.gatekeeper.sh/ignore": "yes"})),
		`admission webhook "check-ignore-label.gatekeeper.sh" denied the request: Only exempt namespace can have the admission.gatekeeper.sh/ignore label`)
	g.created("demo/basic/templates/k8srequiredlabels_template.yaml")
}

// constraints: objects of the template's kind are checked by its schema, and deny namespaces.
func (g *gatekeeper) constraints() {
	g.t.Helper()
	g.created("demo/basic/constraints/all_ns_must_have_gatekeeper_dryrun.yaml", "enforcementAction: dryrun", "enforcementAction: warn")
	g.until("the constraint that warns", func() error {
		g.warnings.all = nil
		g.must(g.c.Create(g.ctx, namespace("probe", nil), client.DryRunAll))
		if !slices.Equal(g.warnings.all, []string{`[ns-must-have-gk-dryrun] you must provide labels: {"gatekeeper"}`}) {
			return fmt.Errorf("the warnings are %q", g.warnings.all)
		}
		return nil
	})
	g.created("demo/basic/constraints/all_ns_must_have_gatekeeper.yaml")
	g.until("the constraint", func() error {
		if err := g.c.Create(g.ctx, namespace("probe", nil), client.DryRunAll); err != nil {
			return nil
		}
		return errors.New("it does not deny")
	})
	const want = denied + `[ns-must-have-gk] you must provide labels: {"gatekeeper"}`
	g.refused(g.create("demo/basic/bad/bad_ns.yaml"), want)
	g.must(g.create("demo/basic/good/good_ns.yaml"))
	ns := &corev1.Namespace{}
	g.must(g.c.Get(g.ctx, client.ObjectKey{Name: "good-ns"}, ns))
	base := ns.DeepCopy()
	delete(ns.Labels, "gatekeeper")
	g.refused(g.c.Patch(g.ctx, ns, client.MergeFrom(base)), want)
	const invalid = `K8sRequiredLabels.constraints.gatekeeper.sh "bad-schema" is invalid: `
	for file, want := range map[string]string{
		"bad_schema.yaml":  denied + `invalid Constraint: spec.labelSelector.matchExpressions[0].operator: Invalid value: "not_a_good_operator": not a valid selector operator`,
		"bad_schema2.yaml": invalid + `spec.match.kinds: Invalid value: "object": spec.match.kinds in body must be of type array: "object"`,
		"bad_schema3.yaml": invalid + `spec.match.namespaces: Invalid value: "string": spec.match.namespaces in body must be of type array: "string"`,
	} {
		g.refused(g.create("demo/basic/bad/"+file, "K8sRequiredLabel\n", "K8sRequiredLabels\n"), want)
	}
}

// mutators: an AssignImage changes the images of Pods.
func (g *gatekeeper) mutators() {
	g.t.Helper()
	g.must(g.c.Create(g.ctx, namespace("pods", map[string]string{"gatekeeper": "true"})))
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "default"}}
	if err := g.c.Create(g.ctx, account); err != nil && !apierrors.IsAlreadyExists(err) {
		g.t.Fatal(err)
	}
	g.created("demo/mutation/assignimagedemo.yaml")
	const want = "mycompany.registry.io/nginx"
	pod := &corev1.Pod{}
	g.until("the mutator", func() error {
		pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", GenerateName: "nginx-"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx"}}}}
		g.must(g.c.Create(g.ctx, pod))
		if pod.Spec.Containers[0].Image != want {
			return errors.New("it does not change images")
		}
		return nil
	})
	g.must(g.c.Get(g.ctx, client.ObjectKeyFromObject(pod), pod))
	if got := pod.Spec.Containers[0].Image; got != want {
		g.t.Errorf("the stored image is %s", got)
	}
}

// generated: a template with CEL becomes a ValidatingAdmissionPolicy, a constraint its binding.
func (g *gatekeeper) generated() {
	g.t.Helper()
	const demo = "demo/k8s-validating-admission-policy/"
	other := []string{"k8srequiredlabels", "k8srequiredowners", "K8sRequiredLabels", "K8sRequiredOwners"}
	g.created(demo+"k8srequiredlabels_template_usevap.yaml", other...)
	g.created(demo+"owner_must_be_provided.yaml", other...)
	labels := map[string]string{"gatekeeper": "true"}
	const want = `namespaces "unowned" is forbidden: ValidatingAdmissionPolicy 'gatekeeper-k8srequiredowners' with binding 'gatekeeper-k8srequiredowners-all-must-have-owner' denied request: missing required label, requires all of: owner`
	var err error
	g.until("the generated policy", func() error {
		err = g.c.Create(g.ctx, namespace("unowned", labels), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") {
			return fmt.Errorf("it does not deny: %v", err)
		}
		return nil
	})
	g.refused(err, want)
	labels["owner"] = "me.agilebank.demo"
	g.must(g.c.Create(g.ctx, namespace("owned", labels)))
}
