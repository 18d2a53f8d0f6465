package tidemark_test

import (
	"context"
	"fmt"
	"log"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/datadir"
)

// The zero Server keeps its objects in memory. Any client of Kubernetes can use it.
func ExampleServer() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")

	hello := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}, Data: map[string]string{"k": "v"}}
	if _, err := maps.Create(ctx, hello, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	got, err := maps.Get(ctx, "hello", metav1.GetOptions{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(got.Data["k"])
	// Output: v
}

// A server on a data directory goes on where the one before it stopped.
func ExampleServer_dataDirectory() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "tidemark-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for range 2 {
		s := tidemark.Server{Storage: &datadir.Dir{Path: dir}}
		if err := s.Start(ctx); err != nil {
			log.Fatal(err)
		}
		namespaces := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Namespaces()
		_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}, metav1.CreateOptions{})
		fmt.Println("already exists:", apierrors.IsAlreadyExists(err))
		if err := s.Close(); err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// already exists: false
	// already exists: true
}

// Objects of a custom resource can be created as soon as its definition is stored.
func ExampleServer_customResource() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	client := dynamic.NewForConfigOrDie(s.RESTConfig())
	apply := func(resource schema.GroupVersionResource, namespace, name, file string) *unstructured.Unstructured {
		text, err := os.ReadFile(file)
		if err != nil {
			log.Fatal(err)
		}
		o, err := client.Resource(resource).Namespace(namespace).Patch(ctx, name, types.ApplyYAMLPatchType, text, metav1.PatchOptions{FieldManager: "example"})
		if err != nil {
			log.Fatal(err)
		}
		return o
	}
	apply(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", "databases.example.com", "examples/definition.yaml")
	orders := apply(schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "databases"}, "default", "orders", "examples/object.yaml")
	fmt.Println(orders.Object["spec"])
	// Output: map[engine:postgres replicas:1]
}

// A user without rights: only the group system:masters has any.
func ExampleServer_RESTConfigFor() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	config, err := s.RESTConfigFor("ann", "developers")
	if err != nil {
		log.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	fmt.Println(err)
	// Output: namespaces is forbidden: User "ann" cannot list resource "namespaces" in API group "" at the cluster scope
}

// Every revision of the last hour can be read again.
func ExampleHistory() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("kube-public")
	before, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "later", Labels: map[string]string{"example": ""}}}, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	for _, o := range []metav1.ListOptions{
		{LabelSelector: "example"},
		{LabelSelector: "example", ResourceVersion: before.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact},
	} {
		list, err := maps.List(ctx, o)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(len(list.Items))
	}
	// Output:
	// 1
	// 0
}

// A fork begins with the objects of its parent, and has its own from then on.
func ExampleWorld_Fork() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	f, err := s.Root().Fork(ctx, tidemark.ForkOptions{Name: "try"})
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if err := kubernetes.NewForConfigOrDie(f.RESTConfig()).CoreV1().Namespaces().Delete(ctx, "kube-node-lease", metav1.DeleteOptions{}); err != nil {
		log.Fatal(err)
	}
	_, err = kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Namespaces().Get(ctx, "kube-node-lease", metav1.GetOptions{})
	fmt.Println(f.Name(), err)
	// Output: try <nil>
}

// A replica stands at an old state until it is moved, as a watch cache that is behind.
func ExampleWorld_Replica() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	r, err := s.Root().Replica(tidemark.ReplicaOptions{At: s.Root().Revision()})
	if err != nil {
		log.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	if _, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		log.Fatal(err)
	}
	late := kubernetes.NewForConfigOrDie(r.RESTConfig()).CoreV1().Namespaces()
	_, err = late.Get(ctx, "team", metav1.GetOptions{ResourceVersion: "0"})
	fmt.Println("found:", err == nil)
	r.CatchUp()
	_, err = late.Get(ctx, "team", metav1.GetOptions{ResourceVersion: "0"})
	fmt.Println("found:", err == nil)
	// Output:
	// found: false
	// found: true
}

// The first update of a ConfigMap conflicts, as if another client had been faster.
func ExampleWorld_AddFault() {
	ctx := context.Background()
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	maps := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")
	hello, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "hello"}}, metav1.CreateOptions{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := s.Root().AddFault(tidemark.Fault{Fault: "conflict", Resource: "configmaps", Times: 1}); err != nil {
		log.Fatal(err)
	}
	for range 2 {
		hello.Data = map[string]string{"k": "v"}
		_, err := maps.Update(ctx, hello, metav1.UpdateOptions{})
		fmt.Println("conflict:", apierrors.IsConflict(err))
	}
	// Output:
	// conflict: true
	// conflict: false
}
