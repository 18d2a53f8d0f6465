package resourceversion_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/resourceversion"
)

func ExampleCompare() {
	order, err := resourceversion.Compare("9", "10")
	fmt.Println(order, err)
	_, err = resourceversion.Compare("9", "0x10")
	fmt.Println(err)
	// Output:
	// -1 <nil>
	// resource version "0x10" cannot be compared: 'x' at byte 1 is no decimal digit
}

// A migration of the storage is done when every object was written at or past the
// version at which it began (KEP-5504, Story 1).
func ExampleCompare_storageMigration() {
	const began = "1000"
	done := func(pods []corev1.Pod) (bool, error) {
		for _, pod := range pods {
			old, err := resourceversion.Less(pod.ResourceVersion, began)
			if err != nil || old {
				return false, err
			}
		}
		return true, nil
	}
	pods := []corev1.Pod{podAt("a", "1003"), podAt("b", "998")}
	fmt.Println(done(pods))
	pods[1].ResourceVersion = "1004" // rewritten
	fmt.Println(done(pods))
	// Output:
	// false <nil>
	// true <nil>
}

// An aggregated server may have versions that are not integers (KEP-5504, Story 3). They
// can only be compared for equality: a different version may be older or newer.
func ExampleInvalidError_opaqueVersions() {
	needsWork := func(handled, now string) bool {
		newer, err := resourceversion.Less(handled, now)
		if _, opaque := errors.AsType[*resourceversion.InvalidError](err); opaque {
			return handled != now
		}
		return newer
	}
	fmt.Println(needsWork("41", "42"), needsWork("43", "42"))
	fmt.Println(needsWork("rev-a", "rev-b"), needsWork("rev-b", "rev-b"))
	// Output:
	// true false
	// true false
}

// A controller that wrote an object waits until its cache has seen the write before
// it decides again (KEP-5504, Story 2).
func ExampleWatermark_readYourWrites() {
	var seen resourceversion.Watermark[corev1.Pod]
	cache := map[string]corev1.Pod{}
	updated := make(chan corev1.Pod)
	filled := make(chan struct{})
	go func() { // an informer's handler: first the cache, then the watermark
		defer close(filled)
		for pod := range updated {
			cache[pod.Name] = pod
			if err := seen.Advance(resourceversion.Of(&pod)); err != nil {
				fmt.Println(err)
			}
		}
	}()

	written := podAt("a", "17") // what the server responded to the write
	go func() {
		updated <- podAt("a", "16")
		updated <- written
		close(updated)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := seen.Wait(ctx, resourceversion.Of(&written)); err != nil {
		fmt.Println(err)
		return
	}
	<-filled // only so that this example reads a plain map
	fmt.Println(cache["a"].ResourceVersion)
	// Output: 17
}

// A leader leaves the version of its last write in the Lease; its successor begins
// once its cache is at least as new, and does not repeat the work.
func ExampleWatermark_leaderHandOver() {
	const lastWrite = "example.com/last-pod-write"
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{lastWrite: "120"}}}

	var seen resourceversion.Watermark[corev1.Pod]
	for _, version := range []string{"118", "119", "121"} { // the successor's cache catches up
		if err := seen.Advance(resourceversion.Version[corev1.Pod](version)); err != nil {
			fmt.Println(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := seen.Wait(ctx, resourceversion.Version[corev1.Pod](lease.Annotations[lastWrite])); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("leading, at", seen.Seen())
	// Output: leading, at 121
}

func podAt(name, version string) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}
