package test

import (
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// mediaSeen are the media types that went over the wire.
type mediaSeen struct {
	mu             sync.Mutex
	sent, received map[string]int
}

func (m *mediaSeen) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		m.mu.Lock()
		defer m.mu.Unlock()
		if r.Body != nil {
			m.sent[r.Header.Get("Content-Type")]++
		}
		if err == nil {
			m.received[resp.Header.Get("Content-Type")]++
		}
		return resp, err
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// preferCBOR has client-go use CBOR, and records the media types it uses. Clients with
// generated types default to protobuf, so the config names CBOR.
func preferCBOR(t *testing.T, gates map[string]bool) (*rest.Config, *mediaSeen) {
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsAllowCBOR, true)
	clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.ClientsPreferCBOR, true)
	seen := &mediaSeen{sent: map[string]int{}, received: map[string]int{}}
	c := servers.Quick(servers.StartWith(t, gates).RESTConfig())
	c.ContentType, c.AcceptContentTypes = "application/cbor", "application/cbor,application/json"
	c.Wrap(seen.wrap)
	return c, seen
}

var cborOn = map[string]bool{"CBORServingAndStorage": true}

func wantMedia(t *testing.T, what string, got map[string]int, want ...string) {
	t.Helper()
	for _, w := range want {
		if got[w] == 0 {
			t.Errorf("%s: %v, want %s among it", what, got, w)
		}
		delete(got, w)
	}
	if len(got) > 0 {
		t.Errorf("%s: also %v, want only %v", what, got, want)
	}
}

// TestTypedClientInCBOR: a typed client that prefers CBOR speaks nothing else.
func TestTypedClientInCBOR(t *testing.T) {
	c, seen := preferCBOR(t, cborOn)
	cs, ctx := kubernetes.NewForConfigOrDie(c), t.Context()
	secrets := cs.CoreV1().Secrets("default")
	made, err := secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string][]byte{"k": {0xff, 0xd9, 0}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	made.Annotations = map[string]string{"l": "<é>"}
	if made, err = secrets.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	applied, err := secrets.Apply(ctx, corev1ac.Secret("a", "default").WithData(map[string][]byte{"j": {1, 2}}), metav1.ApplyOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := secrets.Get(ctx, "a", metav1.GetOptions{})
	if err != nil || string(got.Data["k"]) != "\xff\xd9\x00" || string(got.Data["j"]) != "\x01\x02" || got.Annotations["l"] != "<é>" || got.ResourceVersion != applied.ResourceVersion || got.UID != made.UID {
		t.Errorf("%v %+v", err, got)
	}
	pod, err := cs.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}, metav1.CreateOptions{})
	if err != nil || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || len(pod.ManagedFields) == 0 {
		t.Errorf("%v %+v", err, pod)
	}
	if err := secrets.Delete(ctx, "none", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("deleting a missing object: %v", err)
	}
	if err := secrets.Delete(ctx, "a", *metav1.NewPreconditionDeleteOptions(string(got.UID))); err != nil {
		t.Error(err)
	}
	list, err := secrets.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 0 || list.ResourceVersion == "" {
		t.Errorf("%v %+v", err, list)
	}
	wantMedia(t, "sent", seen.sent, "application/cbor", "application/apply-patch+cbor")
	wantMedia(t, "received", seen.received, "application/cbor")
}

// TestDynamicClientInCBOR checks that integers and floats keep their types, and that lists and
// watches are complete.
func TestDynamicClientInCBOR(t *testing.T) {
	c, seen := preferCBOR(t, cborOn)
	client, ctx := dynamic.NewForConfigOrDie(c), t.Context()
	schema3 := map[string]any{"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "metadata": map[string]any{"name": "widgets.example.com"},
		"spec": map[string]any{"group": "example.com", "scope": "Namespaced", "names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema3}}}},
	}}
	if _, err := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).Create(ctx, definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}).Namespace("default")
	for {
		if _, err := widgets.List(ctx, metav1.ListOptions{}); err == nil {
			break
		} else if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	watcher, err := widgets.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	spec := map[string]any{"big": int64(1)<<60 + 1, "half": 0.5, "list": []any{int64(1), "é", true}}
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "Widget", "apiVersion": "example.com/v1", "metadata": map[string]any{"name": "a"}, "spec": spec}}
	made, err := widgets.Create(ctx, o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	applied, err := widgets.Apply(ctx, "b", &unstructured.Unstructured{Object: map[string]any{"kind": "Widget", "apiVersion": "example.com/v1", "metadata": map[string]any{"name": "b"}, "spec": spec}}, metav1.ApplyOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := widgets.Get(ctx, "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := widgets.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 || list.GetKind() != "WidgetList" {
		t.Fatalf("%v %v", err, list)
	}
	event := <-watcher.ResultChan()
	for _, u := range []*unstructured.Unstructured{made, applied, got, &list.Items[0], &list.Items[1], event.Object.(*unstructured.Unstructured)} {
		if u.GetKind() != "Widget" || !reflect.DeepEqual(u.Object["spec"], map[string]any(spec)) {
			t.Errorf("%v", u.Object)
		}
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, m := range []string{"application/cbor", "application/cbor-seq"} {
		if seen.received[m] == 0 {
			t.Errorf("received: %v", seen.received)
		}
	}
}

// TestInformersInCBOR: typed and dynamic informers see every object and every event,
// with and without streaming lists.
func TestInformersInCBOR(t *testing.T) {
	for _, stream := range []bool{true, false} {
		clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, stream)
		c, seen := preferCBOR(t, cborOn)
		cs, ctx := kubernetes.NewForConfigOrDie(c), t.Context()
		for _, name := range []string{"a", "b", "c"} {
			create(t, ctx, cs, name)
		}
		events := make(chan string, 100)
		factory := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(c), 0)
		informer := factory.ForResource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Informer()
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { events <- "add " + o.(metav1.Object).GetName() },
			DeleteFunc: func(o any) { events <- "delete " + o.(metav1.Object).GetName() },
		})
		if err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			t.Fatal("the cache did not fill")
		}
		create(t, ctx, cs, "d")
		if err := cs.CoreV1().ConfigMaps("default").Delete(ctx, "d", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{"add a": true, "add b": true, "add c": true, "add d": true, "delete d": true}
		for len(want) > 0 {
			delete(want, await.Value(t, fmt.Sprintf("the events %v", want), events))
		}
		seen.mu.Lock()
		if seen.received["application/cbor-seq"] == 0 || seen.received["application/json"] > 0 {
			t.Errorf("received: %v", seen.received)
		}
		seen.mu.Unlock()
		c, seen = preferCBOR(t, cborOn)
		testInformerOn(t, c)
		seen.mu.Lock()
		if seen.received["application/json"] > 0 || seen.received["application/cbor-seq"] == 0 {
			t.Errorf("received: %v", seen.received)
		}
		seen.mu.Unlock()
	}
}

// TestCBOROff: if CBOR is off, a client that prefers it is refused once, and continues with
// JSON.
func TestCBOROff(t *testing.T) {
	c, seen := preferCBOR(t, nil)
	maps, ctx := kubernetes.NewForConfigOrDie(c).CoreV1().ConfigMaps("default"), t.Context()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	if _, err := maps.Create(ctx, o, metav1.CreateOptions{}); !apierrors.IsUnsupportedMediaType(err) {
		t.Errorf("the first write: %v", err)
	}
	if _, err := maps.Create(ctx, o, metav1.CreateOptions{}); err != nil {
		t.Errorf("the second write: %v", err)
	}
	if _, err := maps.Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	wantMedia(t, "sent", seen.sent, "application/cbor", "application/json")
	wantMedia(t, "received", seen.received, "application/json")
}
