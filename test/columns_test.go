package test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// printed is an object that both servers get, to see how kubectl prints it. The path
// and the object hold {ns} and {id} for the names of the run.
type printed struct {
	Path   string
	Object map[string]any
	Status map[string]any
}

// resource returns the resource of the path.
func (p *printed) resource() (r schema.GroupVersionResource, namespaced bool) {
	parts := strings.Split(strings.Trim(p.Path, "/"), "/")
	r.Resource, namespaced = parts[len(parts)-1], strings.Contains(p.Path, "/namespaces/")
	if r.Version = parts[1]; parts[0] == "apis" {
		r.Group, r.Version = parts[1], parts[2]
	}
	return r, namespaced
}

// toPrint reads the objects.
func toPrint(t *testing.T, namespace, id string) []printed {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "columns.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []printed
	text := strings.NewReplacer("{ns}", namespace, "{id}", id).Replace(string(b))
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// put creates an object with its status, and returns the server's object.
func (p *printed) put(t *testing.T, config *rest.Config, namespace string, object map[string]any) *unstructured.Unstructured {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	r, namespaced := p.resource()
	var of dynamic.ResourceInterface = client.Resource(r)
	if namespaced {
		of = client.Resource(r).Namespace(namespace)
	}
	made, err := of.Create(context.Background(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create of %s: %v", p.Path, err)
	}
	t.Cleanup(func() {
		now := int64(0)
		if err := of.Delete(context.Background(), made.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
			t.Error(err)
		}
		_, _ = of.Patch(context.Background(), made.GetName(), types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if r.Resource == "namespaces" { // kube-apiserver alone has no controller that finalizes them
			empty := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": made.GetName()}}}
			_, _ = of.Update(context.Background(), empty, metav1.UpdateOptions{}, "finalize")
		}
	})
	if p.Status == nil {
		return made
	}
	patch, err := json.Marshal(map[string]any{"status": p.Status})
	if err != nil {
		t.Fatal(err)
	}
	if made, err = of.Patch(context.Background(), made.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatalf("status of %s: %v", p.Path, err)
	}
	return made
}

// ages matches the parts that differ between two servers that got the same objects one after the
// other.
var ages = regexp.MustCompile(`\b\d+[smhdy](\d+[smhd])?\b|\b20(2[6-9]|[3-9]\d)-\d\d-\d\dT\d\d:\d\d:\d\dZ`)

// lines returns the lines of kubectl's output, with one space between columns.
func lines(out string) []string {
	var all []string
	for line := range strings.Lines(ages.ReplaceAllString(out, "AGE")) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	return all
}

// TestColumns compares the output of kubectl get and kubectl get -o wide for the same objects of
// every kind, line by line, from Tidemark and from a kube-apiserver. Both get the defaults of the
// other one: this is about columns.
func TestColumns(t *testing.T) {
	tier.Full(t)
	servers.Peer(t, func(t *testing.T, there servers.Server) {
		peer, namespace := there.Config, there.Namespace
		s := &tidemark.Server{Controllers: []string{"-*"}}
		if err := s.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		own := servers.Quick(s.RESTConfig())
		own.WarningHandler, peer.WarningHandler = rest.NoWarnings{}, rest.NoWarnings{}
		own.Impersonate = rest.ImpersonationConfig{UserName: whoIs(t, peer), Groups: []string{"system:masters"}} // some columns say who asked
		(&printed{Path: "/api/v1/namespaces"}).put(t, own, "", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}})
		theirs, ours := &kubectlIn{t: t, kubeconfig: os.Getenv(servers.PeerKubeconfig), home: t.TempDir()}, newKubectl(t, s)

		known := memory.NewMemCacheClient(discovery.NewDiscoveryClientForConfigOrDie(servers.Quick(peer)))
		names := map[string][]string{}
		for _, p := range toPrint(t, namespace, "t"+strings.TrimPrefix(namespace, "tidemark-test-")) {
			r, _ := p.resource()
			made := p.put(t, servers.Quick(peer), namespace, withKind(t, known, r, p.Object))
			p.put(t, own, namespace, unmade(made))
			names[r.GroupResource().String()] = append(names[r.GroupResource().String()], made.GetName())
		}
		allThere(t, known, names)
		for resource, of := range names {
			for _, wide := range [][]string{nil, {"-o", "wide"}} {
				args := slices.Concat([]string{"get", resource, "-n", namespace}, of, wide)
				want, got := lines(theirs.want("", args)), lines(ours.want("", args))
				if !slices.Equal(got, want) {
					t.Errorf("kubectl %s\ngot\n  %s\nwant\n  %s", strings.Join(args, " "), strings.Join(got, "\n  "), strings.Join(want, "\n  "))
				}
			}
		}
	})
}

// whoIs is the name of a client.
func whoIs(t *testing.T, config *rest.Config) string {
	t.Helper()
	review, err := kubernetes.NewForConfigOrDie(config).AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

// allThere requires objects of all that can be created and listed.
func allThere(t *testing.T, d discovery.DiscoveryInterface, names map[string][]string) {
	t.Helper()
	lists, err := d.ServerPreferredResources()
	if err != nil {
		t.Logf("discovery: %v", err) // of groups that others register
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || strings.Contains(gv.Group, "example") {
			continue
		}
		for _, r := range list.APIResources {
			resource := gv.WithResource(r.Name).GroupResource().String()
			if slices.Contains(r.Verbs, "create") && slices.Contains(r.Verbs, "list") && len(names[resource]) == 0 {
				t.Errorf("there is no object of %s", resource)
			}
		}
	}
}

// withKind gives an object the kind that its resource has.
func withKind(t *testing.T, d discovery.CachedDiscoveryInterface, r schema.GroupVersionResource, object map[string]any) map[string]any {
	t.Helper()
	list, err := d.ServerResourcesForGroupVersion(r.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(list.APIResources, func(a metav1.APIResource) bool { return a.Name == r.Resource })
	if i < 0 {
		t.Fatalf("there is no %s", r)
	}
	object["apiVersion"], object["kind"] = r.GroupVersion().String(), list.APIResources[i].Kind
	return object
}

// unmade removes the fields of an object that depend on its server.
func unmade(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetUID("")
	o.SetResourceVersion("")
	o.SetManagedFields(nil)
	return o.Object
}
