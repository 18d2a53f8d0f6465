package consistentlist_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/tidemark-dev/tidemark"
	"github.com/tidemark-dev/tidemark/consistentlist"
)

// namespaces is a client of a new server, which has the four namespaces of every
// cluster, and whatever is written.
func namespaces(ctx context.Context) (dynamic.ResourceInterface, func() error) {
	var s tidemark.Server
	if err := s.Start(ctx); err != nil {
		panic(err)
	}
	return dynamic.NewForConfigOrDie(s.RESTConfig()).Resource(corev1.SchemeGroupVersion.WithResource("namespaces")), s.Close
}

// A list in pages of two, all of one version, which is at least as new as the moment
// of the request.
func ExampleList() {
	ctx := context.Background()
	client, stop := namespaces(ctx)
	defer stop()
	for page, err := range consistentlist.List(ctx, client, consistentlist.MostRecent, consistentlist.Options{Limit: 2}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if page.First {
			fmt.Println("a list begins: forget what came before")
		}
		for _, namespace := range page.List.Items {
			fmt.Println(namespace.GetName())
		}
	}
	// Output:
	// a list begins: forget what came before
	// default
	// kube-node-lease
	// kube-public
	// kube-system
}

// A guarantee that cannot be kept is an error with a kind, never an older list.
func ExampleError() {
	ctx := context.Background()
	client, stop := namespaces(ctx)
	defer stop()
	for page, err := range consistentlist.List(ctx, client, consistentlist.Exact("0"), consistentlist.Options{}) {
		if e, ok := errors.AsType[*consistentlist.Error](err); ok {
			fmt.Println(e.Kind, "-", e.Detail)
			return
		}
		fmt.Println(page.List.GetResourceVersion(), err)
	}
	// Output: Invalid - for 0 a server sends any version: use Any
}

// A list, and every change since.
func ExampleFollowFrom() {
	ctx := context.Background()
	client, stop := namespaces(ctx)
	defer stop()
	var last consistentlist.Page[*unstructured.UnstructuredList]
	for page, err := range consistentlist.List(ctx, client, consistentlist.MostRecent, consistentlist.Options{}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		last = page
	}
	team := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "team"}}}
	if _, err := client.Create(ctx, team, metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	for event, err := range consistentlist.FollowFrom(ctx, last) {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch event.Type {
		case consistentlist.Reset: // history was lost: forget everything, a new state follows
		case consistentlist.Synced: // the state is complete
		case watch.Bookmark: // nothing changed up to event.ResourceVersion
		case watch.Added, watch.Modified, watch.Deleted:
			fmt.Println(event.Type, event.Object.(*unstructured.Unstructured).GetName())
			return
		}
	}
	// Output: ADDED team
}
