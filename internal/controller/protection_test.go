package controller_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

const (
	claim  = `{"metadata":{"name":%q},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
	volume = `{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"csi":{"driver":"a.b","volumeHandle":"x"},"volumeAttributesClassName":"class"}}`
)

func user(name, claim, node string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":%q,"terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i"}],"volumes":[{"name":"x","persistentVolumeClaim":{"claimName":%q}}]}}`, name, node, claim)
}

// TestClaims: a claim stays while a pod that has a node uses it.
func TestClaims(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"used", "unused", "unscheduled", "later"} {
		w.make("persistentvolumeclaims", "n", fmt.Sprintf(claim, name))
	}
	w.make("pods", "n", user("a", "used", "node"))
	w.make("pods", "n", user("b", "used", "node"))
	w.make("pods", "n", user("c", "unscheduled", ""))
	w.make("pods", "default", user("d", "unused", "node"))
	w.settle()
	for _, name := range []string{"used", "unused", "unscheduled"} {
		w.erase("persistentvolumeclaims", "n/"+name, "")
	}
	w.settle()
	w.want("persistentvolumeclaims", "n/used", true)
	w.want("persistentvolumeclaims", "n/unused", false)
	w.want("persistentvolumeclaims", "n/unscheduled", false)
	w.want("persistentvolumeclaims", "n/later", true)
	w.erase("pods", "n/a", "")
	w.settle()
	w.want("persistentvolumeclaims", "n/used", true)
	w.restart()
	w.settle()
	w.erase("pods", "n/b", "")
	w.settle()
	w.want("persistentvolumeclaims", "n/used", false)
	// Who takes it off has it back.
	w.release("persistentvolumeclaims", "n/later")
	w.settle()
	if m := registry.MetadataOf(w.get("persistentvolumeclaims", "n/later")); string(m.Finalizers) != `["kubernetes.io/pvc-protection"]` {
		t.Errorf("finalizers %s", m.Finalizers)
	}
}

// TestEphemeralClaims: a pod's own claim waits for the pod, but not for one that
// is shut down and may wait for the claim.
func TestEphemeralClaims(t *testing.T) {
	w := newWorld(t, "persistentvolumeclaim-protection")
	uid := w.make("pods", "n", `{"metadata":{"name":"p","finalizers":["a.b/c"]},"spec":{"nodeName":"node","terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i"}],
		"volumes":[{"name":"x","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}}]}}`)
	w.make("persistentvolumeclaims", "n", fmt.Sprintf(`{"metadata":{"name":"p-x","ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":%q,"controller":true}]},
		"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`, uid))
	w.erase("persistentvolumeclaims", "n/p-x", "")
	w.settle()
	w.want("persistentvolumeclaims", "n/p-x", true)
	w.erase("pods", "n/p", "")
	w.settle()
	w.want("pods", "n/p", true)
	w.want("persistentvolumeclaims", "n/p-x", false)
}

// TestClaimsAmongPods creates and deletes pods with claims at random while claims are deleted: at
// any time, a deleted claim exists exactly as long as a pod uses it.
func TestClaimsAmongPods(t *testing.T) {
	chance := testrand.New(t)
	w := newWorld(t, "persistentvolumeclaim-protection")
	w.make("namespaces", "", `{"metadata":{"name":"n2"}}`)
	const claims = "persistentvolumeclaims"
	uses := map[string]string{} // by pods, keys all
	for round := range 60 {
		namespace := []string{"n", "n2"}[chance.IntN(2)]
		name := fmt.Sprintf("c%d", chance.IntN(5))
		pod := fmt.Sprintf("%s/p%d", namespace, chance.IntN(12))
		stored := w.get(claims, namespace+"/"+name)
		switch used, there := uses[pod]; {
		case there:
			w.erase("pods", pod, "")
			delete(uses, pod)
			t.Logf("%d: %s leaves %s", round, pod, used)
		case stored == nil:
			w.make(claims, namespace, fmt.Sprintf(claim, name))
			t.Logf("%d: claim %s", round, name)
		case chance.IntN(3) > 0:
			if w.settle(); w.get(claims, namespace+"/"+name) == nil {
				continue // it was on its way
			}
			w.make("pods", namespace, user(strings.TrimPrefix(pod, namespace+"/"), name, "node"))
			uses[pod] = namespace + "/" + name
			t.Logf("%d: %s uses %s", round, pod, name)
		case registry.MetadataOf(stored).Deleting:
			continue // the controller may remove it at any time
		default:
			w.erase(claims, namespace+"/"+name, "")
			t.Logf("%d: %s/%s is deleted", round, namespace, name)
		}
		if chance.IntN(2) == 0 {
			continue
		}
		w.settle()
		for _, used := range uses {
			w.want(claims, used, true)
		}
		for _, key := range append(w.keys(claims, "n/"), w.keys(claims, "n2/")...) {
			deleting := registry.MetadataOf(w.get(claims, key)).Deleting
			if deleting && !slices.Contains(slices.Collect(maps.Values(uses)), key) {
				w.want(claims, key, false)
			}
		}
	}
}

// BenchmarkClaims deletes 2,000 claims that pods use, and then the pods.
func BenchmarkClaims(b *testing.B) {
	w := newWorld(b, "persistentvolumeclaim-protection")
	const claims = 2000
	for b.Loop() {
		b.StopTimer()
		for i := range claims {
			w.make("persistentvolumeclaims", "n", fmt.Sprintf(claim, fmt.Sprintf("c%04d", i)))
			w.make("pods", "n", user(fmt.Sprintf("p%04d", i), fmt.Sprintf("c%04d", i), "node"))
		}
		w.settle()
		b.StartTimer()
		all := func(collection string) {
			target := w.target(collection, "n/")
			if _, err := w.DeleteCollection(b.Context(), target, nil, &metainternal.ListOptions{}, nil); err != nil {
				b.Fatal(err)
			}
			w.settle()
		}
		all("persistentvolumeclaims")
		all("pods")
		if left := w.keys("persistentvolumeclaims", ""); len(left) > 0 {
			b.Fatalf("%d claims are left", len(left))
		}
	}
}

// TestVolumes: a volume stays while it is bound, a class while something names it.
func TestVolumes(t *testing.T) {
	const classes = "volumeattributesclasses.storage.k8s.io"
	w := newWorld(t)
	w.make(classes, "", `{"metadata":{"name":"class"},"driverName":"a.b","parameters":{"a":"b"}}`)
	w.make("persistentvolumes", "", volume)
	phase := func(p corev1.PersistentVolumePhase) {
		w.change("persistentvolumes", "v", "status", func(o metav1.Object) { o.(*corev1.PersistentVolume).Status.Phase = p })
	}
	phase(corev1.VolumeBound)
	w.erase("persistentvolumes", "v", "")
	w.erase(classes, "class", "")
	w.settle()
	w.want("persistentvolumes", "v", true)
	w.want(classes, "class", true)
	phase(corev1.VolumeReleased)
	w.settle()
	w.want("persistentvolumes", "v", false)
	w.want(classes, "class", false)
}

// TestClasses checks that each kind of reference to a class of volume attributes protects it.
func TestClasses(t *testing.T) {
	const classes, claims = "volumeattributesclasses.storage.k8s.io", "persistentvolumeclaims"
	for place, edit := range map[string]func(c *corev1.PersistentVolumeClaim, class *string){
		"spec": func(c *corev1.PersistentVolumeClaim, class *string) { c.Spec.VolumeAttributesClassName = class },
		"current": func(c *corev1.PersistentVolumeClaim, class *string) {
			c.Status.CurrentVolumeAttributesClassName = class
		},
		"target": func(c *corev1.PersistentVolumeClaim, class *string) {
			c.Status.ModifyVolumeStatus = nil
			if class != nil {
				c.Status.ModifyVolumeStatus = &corev1.ModifyVolumeStatus{TargetVolumeAttributesClassName: *class, Status: corev1.PersistentVolumeClaimModifyVolumePending}
			}
		},
	} {
		t.Run(place, func(t *testing.T) {
			w := newWorld(t)
			w.make(classes, "", `{"metadata":{"name":"class"},"driverName":"a.b","parameters":{"a":"b"}}`)
			w.make(claims, "n", fmt.Sprintf(claim, "c"))
			subresource := "status"
			if place == "spec" {
				w.change(claims, "n/c", subresource, func(o metav1.Object) { o.(*corev1.PersistentVolumeClaim).Status.Phase = corev1.ClaimBound })
				subresource = ""
			}
			name := "class"
			w.change(claims, "n/c", subresource, func(o metav1.Object) { edit(o.(*corev1.PersistentVolumeClaim), &name) })
			w.erase(classes, "class", "")
			w.settle()
			w.want(classes, "class", true)
			w.change(claims, "n/c", subresource, func(o metav1.Object) { edit(o.(*corev1.PersistentVolumeClaim), nil) })
			w.settle()
			w.want(classes, "class", false)
		})
	}
}
