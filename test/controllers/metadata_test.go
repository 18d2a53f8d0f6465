package controllers

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tidemark-dev/tidemark/internal/await"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

// TestMetadataCache has controller-runtime's cache hold metadata alone, as operators do
// that look after many objects: it fills, finds by label, and follows changes.
func TestMetadataCache(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		for i := range 5 {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: fmt.Sprint("m", i), Labels: map[string]string{"odd": fmt.Sprint(i%2 == 1)}}}
			b.must(b.c.Create(b.ctx, cm))
		}
		objects, err := cache.New(b.server.Config, cache.Options{DefaultNamespaces: map[string]cache.Config{b.namespace: {}}})
		b.must(err)
		ctx, cancel := context.WithCancel(b.ctx)
		done := make(chan error, 1)
		go func() { done <- objects.Start(ctx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		if !objects.WaitForCacheSync(ctx) {
			t.Fatal("the cache does not start")
		}
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		b.must(objects.List(b.ctx, list, client.MatchingLabels{"odd": "true"}))
		if len(list.Items) != 2 || list.Items[0].UID == "" || list.Items[0].Kind != "ConfigMap" {
			t.Errorf("%+v", list.Items)
		}
		one := &metav1.PartialObjectMetadata{}
		one.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		one.Namespace, one.Name = b.namespace, "m3"
		b.must(b.c.Get(b.ctx, client.ObjectKeyFromObject(one), one))
		base := one.DeepCopy()
		one.Annotations = map[string]string{"seen": "yes"}
		b.must(b.c.Patch(b.ctx, one, client.MergeFrom(base)))
		cached := &metav1.PartialObjectMetadata{TypeMeta: one.TypeMeta}
		await.True(t, "the change in the cache", func() bool {
			b.must(objects.Get(b.ctx, client.ObjectKeyFromObject(one), cached))
			return cached.Annotations["seen"] == "yes" && cached.ResourceVersion == one.ResourceVersion
		})
		b.must(b.c.Delete(b.ctx, one))
		await.True(t, "the deletion in the cache", func() bool {
			return apierrors.IsNotFound(objects.Get(b.ctx, client.ObjectKeyFromObject(one), cached))
		})
	})
}
