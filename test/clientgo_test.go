package test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// TestInformers runs informers with and without streaming lists, in each
// encoding that client-go asks for.
func TestInformers(t *testing.T) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchListClient=%v", stream), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, stream)
			testInformer(t)
		})
	}
}

func testInformer(t *testing.T) {
	testInformerOn(t, servers.Quick(servers.Start(t).RESTConfig()))
}

func testInformerOn(t *testing.T, c *rest.Config) {
	cs := kubernetes.NewForConfigOrDie(c)
	ctx := t.Context()
	for i := range 20 {
		create(t, ctx, cs, fmt.Sprintf("before-%02d", i))
	}
	factory := informers.NewSharedInformerFactory(cs, 0)
	informer := factory.Core().V1().ConfigMaps()
	type event struct{ kind, name string }
	events := make(chan event, 1000)
	informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { events <- event{"add", o.(*corev1.ConfigMap).Name} },
		UpdateFunc: func(_, o any) { events <- event{"update", o.(*corev1.ConfigMap).Name} },
		DeleteFunc: func(o any) { events <- event{"delete", o.(metav1.Object).GetName()} },
	})
	factory.Start(ctx.Done())
	for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Fatalf("the cache of %v did not fill", kind)
		}
	}
	list, err := informer.Lister().ConfigMaps("default").List(everything)
	if err != nil || len(list) != 20 {
		t.Fatalf("the informer holds %d of 20 objects: %v", len(list), err)
	}
	cm := create(t, ctx, cs, "later")
	cm.Data = map[string]string{"k": "2"}
	if _, err := cs.CoreV1().ConfigMaps("default").Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := cs.CoreV1().ConfigMaps("default").Delete(ctx, "later", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want := []event{{"add", "later"}, {"update", "later"}, {"delete", "later"}}
	for len(want) > 0 {
		if e := await.Value(t, fmt.Sprintf("the events %v", want), events); e == want[0] {
			want = want[1:]
		}
	}
}

func create(t *testing.T, ctx context.Context, cs kubernetes.Interface, name string) *corev1.ConfigMap {
	t.Helper()
	cm, err := cs.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": "1"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return cm
}

// TestDynamicEveryKind lists and watches every kind of discovery by the dynamic
// client, as kube-state-metrics, Argo CD and garbage collectors do.
func TestDynamicEveryKind(t *testing.T) {
	config := servers.Quick(servers.Start(t).RESTConfig())
	ctx := t.Context()
	resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	client := dynamic.NewForConfigOrDie(config)
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	kinds := 0
	for gvr := range watchable(t, resources) {
		kinds++
		if _, err := client.Resource(gvr).List(ctx, metav1.ListOptions{Limit: 500}); err != nil {
			t.Errorf("list %v: %v", gvr, err)
		}
		factory.ForResource(gvr).Informer()
	}
	if kinds < 50 {
		t.Errorf("discovery names %d kinds that can be listed and watched", kinds)
	}
	factory.Start(ctx.Done())
	for gvr, ok := range factory.WaitForCacheSync(ctx.Done()) {
		if !ok {
			t.Errorf("the cache of %v did not fill", gvr)
		}
	}
}

func watchable(t *testing.T, lists []*metav1.APIResourceList) map[schema.GroupVersionResource]bool {
	t.Helper()
	all := map[schema.GroupVersionResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			verbs := map[string]bool{}
			for _, v := range r.Verbs {
				verbs[v] = true
			}
			if verbs["list"] && verbs["watch"] {
				all[gv.WithResource(r.Name)] = true
			}
		}
	}
	return all
}

// TestDynamicRoundTrip writes and reads an object without its Go type.
func TestDynamicRoundTrip(t *testing.T) {
	client := dynamic.NewForConfigOrDie(servers.Quick(servers.Start(t).RESTConfig()))
	ctx := t.Context()
	deployments := client.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("default")
	w, err := deployments.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "web"},
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
			},
		},
	}}
	made, err := deployments.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.GetGeneration() != 1 || made.GetUID() == "" || made.GetResourceVersion() == "" {
		t.Errorf("created with generation %d, uid %q, version %q", made.GetGeneration(), made.GetUID(), made.GetResourceVersion())
	}
	event := <-w.ResultChan()
	if event.Type != watch.Added || event.Object.(*unstructured.Unstructured).GetName() != "web" {
		t.Errorf("the watch sent %v %v", event.Type, event.Object)
	}
}

var everything = labels.Everything()
