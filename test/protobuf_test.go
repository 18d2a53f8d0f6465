package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	clientfeatures "k8s.io/client-go/features"
	clientfeaturestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/test/servers"
)

// onlyProtobuf is a configuration of clients that send protobuf and take nothing else.
func onlyProtobuf(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf"
	return c
}

// eachList runs a test with and without streaming lists.
func eachList(t *testing.T, test func(t *testing.T)) {
	for _, stream := range []bool{true, false} {
		t.Run(fmt.Sprintf("WatchListClient=%v", stream), func(t *testing.T) {
			clientfeaturestesting.SetFeatureDuringTest(t, clientfeatures.WatchListClient, stream)
			test(t)
		})
	}
}

// TestProtobufClients writes, reads, watches and deletes by typed clients that know
// nothing but protobuf: the objects are those that a client of JSON sees, errors too.
func TestProtobufClients(t *testing.T) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
		ctx := t.Context()
		binary, text := kubernetes.NewForConfigOrDie(onlyProtobuf(s.Config)), kubernetes.NewForConfigOrDie(s.Config)
		w, err := binary.AppsV1().Deployments(s.Namespace).Watch(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		testProtobufWrites(t, ctx, binary, s.Namespace)
		for _, want := range []string{"ADDED", "MODIFIED", "MODIFIED", "MODIFIED"} {
			if e := <-w.ResultChan(); string(e.Type) != want || e.Object.(*appsv1.Deployment).Spec.Template.Spec.Containers[0].Name != "web" {
				t.Errorf("%s %v, want %s", e.Type, e.Object, want)
			}
		}
		testProtobufErrors(t, ctx, binary, s.Namespace)
		testProtobufReads(t, ctx, binary, text, s.Namespace)
		testProtobufDeletion(t, ctx, binary, s.Namespace)
	})
}

func shopDeployment() *appsv1.Deployment {
	labels := map[string]string{"app": "shop"}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: "shop:1", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": apiresource.MustParse("0.5"), "memory": apiresource.MustParse("1Gi")}},
		}}}},
	}}
}

func testProtobufWrites(t *testing.T, ctx context.Context, cs kubernetes.Interface, ns string) {
	t.Helper()
	deployments := cs.AppsV1().Deployments(ns)
	if _, err := deployments.Create(ctx, shopDeployment(), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Fatal(err)
	}
	made, err := deployments.Create(ctx, shopDeployment(), metav1.CreateOptions{FieldManager: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if *made.Spec.Replicas != 1 || made.Spec.Template.Spec.Containers[0].ImagePullPolicy != corev1.PullIfNotPresent || made.UID == "" || len(made.ManagedFields) != 1 {
		t.Errorf("%+v", made)
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		made.Spec.Template.Spec.Containers[0].Image = "shop:2"
		made, err = deployments.Update(ctx, made, metav1.UpdateOptions{})
		return err
	})
	if err != nil || made.Generation != 2 {
		t.Fatalf("%d, %v", made.Generation, err)
	}
	made.Status.Replicas, made.Status.ObservedGeneration = 1, 2
	if made, err = deployments.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil || made.Status.Replicas != 1 {
		t.Fatal(err)
	}
	scale, err := deployments.GetScale(ctx, "shop", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 1 || scale.Status.Selector != "app=shop" {
		t.Fatalf("%+v, %v", scale, err)
	}
	patch := []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"A","value":"1"}]}]}}}}`)
	patched, err := deployments.Patch(ctx, "shop", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil || patched.Spec.Template.Spec.Containers[0].Env[0].Name != "A" {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Data: map[string][]byte{"key": {0, 1, 0xff}, "none": {}}}
	if secret, err = cs.CoreV1().Secrets(ns).Create(ctx, secret, metav1.CreateOptions{}); err != nil || string(secret.Data["key"]) != "\x00\x01\xff" {
		t.Fatalf("%v, %v", secret, err)
	}
}

func testProtobufErrors(t *testing.T, ctx context.Context, cs kubernetes.Interface, ns string) {
	t.Helper()
	deployments := cs.AppsV1().Deployments(ns)
	_, err := deployments.Get(ctx, "none", metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("get of a missing object: %v", err)
	}
	if _, err = deployments.Create(ctx, shopDeployment(), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create of an existing object: %v", err)
	}
	wrong := shopDeployment()
	wrong.Name, wrong.Spec.Template.Labels = "wrong", map[string]string{"app": "other"}
	_, err = deployments.Create(ctx, wrong, metav1.CreateOptions{})
	status, _ := err.(apierrors.APIStatus)
	if !apierrors.IsInvalid(err) || status == nil || len(status.Status().Details.Causes) != 1 || status.Status().Details.Causes[0].Field != "spec.template.metadata.labels" {
		t.Errorf("create of an invalid object: %#v", err)
	}
	stale := shopDeployment()
	stale.ResourceVersion = "1"
	if _, err = deployments.Update(ctx, stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Errorf("update of another version: %v", err)
	}
}

func testProtobufReads(t *testing.T, ctx context.Context, binary, text kubernetes.Interface, ns string) {
	t.Helper()
	for _, options := range []metav1.ListOptions{{}, {ResourceVersion: "0"}, {LabelSelector: "app=shop"}, {Limit: 1}} {
		a, err := binary.AppsV1().Deployments(ns).List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		b, err := text.AppsV1().Deployments(ns).List(ctx, options)
		if err != nil {
			t.Fatal(err)
		}
		if len(a.Items) != 1 || a.ResourceVersion == "" || !equality.Semantic.DeepEqual(a.Items, b.Items) {
			t.Errorf("%v: protobuf and JSON are not the same:\n%+v\n%+v", options, a, b)
		}
	}
	a, err := binary.CoreV1().Secrets(ns).Get(ctx, "shop", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := text.CoreV1().Secrets(ns).Get(ctx, "shop", metav1.GetOptions{}); err != nil || !equality.Semantic.DeepEqual(a, b) {
		t.Errorf("%v: protobuf and JSON are not the same:\n%+v\n%+v", err, a, b)
	}
}

func testProtobufDeletion(t *testing.T, ctx context.Context, cs kubernetes.Interface, ns string) {
	t.Helper()
	other := types.UID("other")
	err := cs.AppsV1().Deployments(ns).Delete(ctx, "shop", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	if !apierrors.IsConflict(err) {
		t.Errorf("delete of another uid: %v", err)
	}
	if err := cs.AppsV1().Deployments(ns).Delete(ctx, "shop", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		t.Error(err)
	}
	if err := cs.CoreV1().Secrets(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=shop"}); err != nil {
		t.Error(err)
	}
	if _, err := cs.CoreV1().Secrets(ns).Get(ctx, "shop", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a deleted object still exists: %v", err)
	}
}

// TestProtobufInformers fills informers of every built-in kind that client-go has a type of, as
// kube-state-metrics and controller managers do, by clients that support only protobuf. They hold
// the objects that a client of JSON lists, and get changes.
func TestProtobufInformers(t *testing.T) {
	eachList(t, func(t *testing.T) {
		config := servers.Quick(servers.Start(t).RESTConfig())
		ctx, end := context.WithCancel(t.Context())
		text := kubernetes.NewForConfigOrDie(config)
		factory := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(onlyProtobuf(config)), 0)
		defer factory.Shutdown()
		defer end()
		for i := range 50 {
			create(t, ctx, text, fmt.Sprintf("c%02d", i))
		}
		resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
		if err != nil {
			t.Fatal(err)
		}
		all := map[schema.GroupVersionResource]cache.SharedIndexInformer{}
		for gvr := range watchable(t, resources) {
			if i, err := factory.ForResource(gvr); err == nil { // client-go has no type of definitions of resources and of APIServices
				all[gvr] = i.Informer()
			}
		}
		if len(all) < 50 {
			t.Errorf("%d kinds", len(all))
		}
		changed := make(chan string, 100)
		maps := factory.Core().V1().ConfigMaps().Informer()
		maps.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) { changed <- o.(*corev1.ConfigMap).Data["k"] }})
		factory.Start(ctx.Done())
		for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
			if !ok {
				t.Errorf("the cache of %v did not fill", kind)
			}
		}
		list, err := text.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		compareMaps(t, list.Items, maps.GetStore().List())
		list.Items[7].Data["k"] = "changed"
		if _, err := text.CoreV1().ConfigMaps("default").Update(ctx, &list.Items[7], metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := await.Value(t, "an update", changed); got != "changed" {
			t.Errorf("an update says %q", got)
		}
		for gvr, i := range all {
			if gvr.Resource == "priorityclasses" || gvr.Resource == "flowschemas" || gvr.Resource == "clusterroles" {
				if len(i.GetStore().List()) == 0 {
					t.Errorf("there are no %s", gvr.Resource)
				}
			}
		}
	})
}

func compareMaps(t *testing.T, want []corev1.ConfigMap, held []any) {
	t.Helper()
	byName := map[string]*corev1.ConfigMap{}
	for _, o := range held {
		byName[o.(*corev1.ConfigMap).Namespace+"/"+o.(*corev1.ConfigMap).Name] = o.(*corev1.ConfigMap)
	}
	if len(held) != len(want) {
		t.Errorf("the cache holds %d of %d", len(held), len(want))
	}
	for i := range want {
		w := &want[i]
		if got := byName[w.Namespace+"/"+w.Name]; !equality.Semantic.DeepEqual(got, w) {
			t.Errorf("the cache has\n%+v\nwant\n%+v", got, w)
		}
	}
}

// TestMetadataInformers fills informers that hold metadata alone, of every kind of
// discovery, as garbage collectors do: in protobuf, with a fallback to JSON.
func TestMetadataInformers(t *testing.T) {
	eachList(t, func(t *testing.T) {
		config := servers.Quick(servers.Start(t).RESTConfig())
		ctx := t.Context()
		text := kubernetes.NewForConfigOrDie(config)
		for i := range 20 {
			create(t, ctx, text, fmt.Sprintf("c%02d", i))
		}
		resources, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
		if err != nil {
			t.Fatal(err)
		}
		client := metadata.NewForConfigOrDie(metadata.ConfigFor(config))
		factory := metadatainformer.NewSharedInformerFactory(client, 0)
		for gvr := range watchable(t, resources) {
			factory.ForResource(gvr).Informer()
		}
		maps := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		var mu sync.Mutex
		var seen []string
		gone := make(chan struct{})
		maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(o any) {
				mu.Lock()
				defer mu.Unlock()
				if m := o.(*metav1.PartialObjectMetadata); m.Namespace == "default" {
					seen = append(seen, m.Name)
				}
			},
			DeleteFunc: func(any) { close(gone) },
		})
		factory.Start(ctx.Done())
		for kind, ok := range factory.WaitForCacheSync(ctx.Done()) {
			if !ok {
				t.Errorf("the cache of %v did not fill", kind)
			}
		}
		held, err := maps.Lister().ByNamespace("default").List(everything)
		if err != nil || len(held) != 20 {
			t.Errorf("the cache holds %d of 20: %v", len(held), err)
		}
		if err := client.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("default").Delete(ctx, "c07", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		await.Value(t, "a deletion", gone)
		mu.Lock()
		defer mu.Unlock()
		if slices.Sort(seen); len(seen) != 20 || !strings.HasPrefix(seen[0], "c00") {
			t.Errorf("%v", seen)
		}
	})
}
