package follower_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/servertest"
)

// pair is a server and its follower.
func pair(t *testing.T) [2]*tidemark.Server {
	t.Helper()
	p := primary(t, t.TempDir())
	return [2]*tidemark.Server{p, start(t, following(p.RESTConfig(), t.TempDir()))}
}

// both calls a function for the numbers up to n, in turn for either server, several at a time.
func both(all [2]*tidemark.Server, n int, f func(i int, c *kubernetes.Clientset)) {
	var wg sync.WaitGroup
	for w := range 8 {
		c := clients(all[w%2])
		wg.Go(func() {
			for i := w; i < n; i += 8 {
				f(i, c)
			}
		})
	}
	wg.Wait()
}

// TestAllocate makes Services through both servers. No address and no port is given twice, and the responses have the
// resource versions that are read back.
func TestAllocate(t *testing.T) {
	t.Parallel()
	all := pair(t)
	var mu sync.Mutex
	made := map[string]*corev1.Service{}
	both(all, 80, func(i int, c *kubernetes.Clientset) {
		s, err := c.CoreV1().Services("default").Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}}}}, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("service %d: %v", i, err)
			return
		}
		mu.Lock()
		made[s.Name] = s
		mu.Unlock()
	})
	seen := map[string]string{}
	for _, server := range all {
		list, err := clients(server).CoreV1().Services("default").List(t.Context(), metav1.ListOptions{})
		must(t, err)
		clear(seen)
		for _, s := range list.Items {
			if m := made[s.Name]; m != nil && m.ResourceVersion != s.ResourceVersion {
				t.Errorf("%s: the response had the resource version %s, and %s is stored", s.Name, m.ResourceVersion, s.ResourceVersion)
			}
			for _, what := range []string{s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].NodePort)} {
				if other := seen[what]; what != "0" && other != "" {
					t.Errorf("%s and %s have %s", other, s.Name, what)
				}
				seen[what] = s.Name
			}
		}
	}
}

// TestQuota creates ConfigMaps through both servers, under a quota.
func TestQuota(t *testing.T) {
	t.Parallel()
	all := pair(t)
	_, err := clients(all[1]).CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "small"}}, metav1.CreateOptions{})
	must(t, err)
	_, err = clients(all[0]).CoreV1().ResourceQuotas("small").Create(t.Context(), &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/secrets": resource.MustParse("10")}}}, metav1.CreateOptions{})
	must(t, err)
	await.True(t, "the quota has a status", func() bool {
		q, err := clients(all[1]).CoreV1().ResourceQuotas("small").Get(t.Context(), "q", metav1.GetOptions{})
		return err == nil && len(q.Status.Hard) > 0
	})
	var mu sync.Mutex
	count := 0
	both(all, 40, func(i int, c *kubernetes.Clientset) {
		_, err := c.CoreV1().Secrets("small").Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("s", i)}}, metav1.CreateOptions{})
		switch {
		case err == nil:
			mu.Lock()
			count++
			mu.Unlock()
		case !apierrors.IsForbidden(err):
			t.Errorf("secret %d: %v", i, err)
		}
	})
	if count != 10 {
		t.Errorf("%d secrets were created under a quota of 10", count)
	}
}

// TestDefinition makes a definition and a custom resource through a follower: the controllers of the server establish
// it.
func TestDefinition(t *testing.T) {
	t.Parallel()
	all := pair(t)
	definition := &apiextensionsv1.CustomResourceDefinition{
		TypeMeta: metav1.TypeMeta{APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinition"}, ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}}}}},
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	must(t, err)
	client := dynamic.NewForConfigOrDie(all[1].RESTConfig())
	_, err = client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Create(t.Context(), &unstructured.Unstructured{Object: content}, metav1.CreateOptions{})
	must(t, err)
	things := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
	thing := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "a"}}}
	await.True(t, "a custom resource is made", func() bool {
		_, err = client.Resource(things).Namespace("default").Create(t.Context(), thing, metav1.CreateOptions{})
		return err == nil
	})
	if _, err := dynamic.NewForConfigOrDie(all[0].RESTConfig()).Resource(things).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	namespaces := clients(all[1]).CoreV1().Namespaces()
	_, err = namespaces.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, namespaces.Delete(t.Context(), "gone", metav1.DeleteOptions{}))
	await.True(t, "the namespace is gone", func() bool {
		_, err := namespaces.Get(t.Context(), "gone", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

// TestInformer checks that an informer of a follower ends with the state of the server, under
// writes through both.
func TestInformer(t *testing.T) {
	t.Parallel()
	all := pair(t)
	informer := cache.NewSharedInformer(cache.NewListWatchFromClient(clients(all[1]).CoreV1().RESTClient(), "configmaps", metav1.NamespaceAll, fields.Everything()), &corev1.ConfigMap{}, 0)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	defer running.Wait()
	defer cancel()
	cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
	both(all, 200, func(i int, c *kubernetes.Clientset) {
		maps := c.CoreV1().ConfigMaps("default")
		m, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}}, metav1.CreateOptions{})
		if err == nil && i%3 == 0 {
			m.Data = map[string]string{"v": "2"}
			_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
		}
		if err == nil && i%5 == 0 {
			err = maps.Delete(t.Context(), m.Name, metav1.DeleteOptions{})
		}
		if err != nil {
			t.Errorf("%d: %v", i, err)
		}
	})
	list, err := clients(all[0]).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	await.True(t, "the informer has what the server has", func() bool {
		for i := range list.Items {
			m, found, err := informer.GetStore().Get(&list.Items[i])
			if err != nil || !found || m.(*corev1.ConfigMap).ResourceVersion != list.Items[i].ResourceVersion {
				return false
			}
		}
		return len(informer.GetStore().List()) >= len(list.Items)
	})
}

// TestRights: a user follows a server with the rights for its paths alone.
func TestRights(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	account, err := clients(p).CoreV1().ServiceAccounts("default").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "standby"}}, metav1.CreateOptions{})
	must(t, err)
	config := rest.CopyConfig(p.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:default:" + account.Name}
	if err := following(config, t.TempDir()).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("without rights: %v", err)
	}
	for _, path := range []string{"/replication/v1/head", "/replication/v1/changes"} {
		servertest.WantCode(t, config, path, http.StatusForbidden, fmt.Sprintf("forbidden: User %q cannot get path %q", config.Impersonate.UserName, path))
	}
	_, err = clients(p).RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "follower"}, Rules: []rbacv1.PolicyRule{
		{NonResourceURLs: []string{"/backup", "/replication/*"}, Verbs: []string{"get", "post"}},
	}}, metav1.CreateOptions{})
	must(t, err)
	_, err = clients(p).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "follower"},
		RoleRef: rbacv1.RoleRef{APIGroup: "rbac.authorization.k8s.io", Kind: "ClusterRole", Name: "follower"}, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: account.Name}}}, metav1.CreateOptions{})
	must(t, err)
	f := start(t, following(config, t.TempDir()))
	_, err = maps(f)(t.Context(), "a", "1")
	must(t, err)
}

// TestWrongRequests sends requests that no follower sends.
func TestWrongRequests(t *testing.T) {
	t.Parallel()
	p := primary(t, t.TempDir())
	c := p.RESTConfig()
	for path, code := range map[string]int{
		"/replication/v1/head?revision=x": 400, "/replication/v1/changes": 400, "/replication/v1/changes?after=-1": 400,
		"/replication/v1/changes?after=18446744073709551615": 409, "/replication/v1/transactions": 405, "/replication/v1": 404, "/replication/v1/other": 404,
	} {
		if got, text := servertest.Get(t, c, path); got != code {
			t.Errorf("GET %s: %d %s, want %d", path, got, text, code)
		}
	}
	before := state(t, p)
	for _, body := range []string{"", "\x00", "\x00\x00\x00", "\xff\xff\xff\xff\xff\xff\xff\xff\x01", "\x01\x04pods\x01a\x01\x00\x09\x01x\x00\x00", strings.Repeat("\x80", 100), "\x01\x00\x00\x00\x00\x00\x00"} {
		r, err := servertest.Client(t, c).Post(p.URL()+"/replication/v1/transactions", "application/octet-stream", strings.NewReader(body))
		must(t, err)
		if r.Body.Close(); r.StatusCode != 400 {
			t.Errorf("%q: %d, want 400", body, r.StatusCode)
		}
	}
	if after := state(t, p); after != before {
		t.Errorf("the server has\n%s\nbefore it had\n%s", after, before)
	}
	fork, err := p.Root().Fork(t.Context(), tidemark.ForkOptions{})
	must(t, err)
	servertest.WantCode(t, fork.RESTConfig(), "/replication/v1/head", http.StatusNotFound, "")
}
