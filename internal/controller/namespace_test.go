package controller_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const pod = `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`

// fill puts objects of many kinds into a namespace.
func (w *world) fill(namespace string) {
	w.make("pods", namespace, pod)
	for _, collection := range []string{"configmaps", "serviceaccounts", "leases.coordination.k8s.io", "roles.rbac.authorization.k8s.io"} {
		for i := range 3 {
			w.make(collection, namespace, fmt.Sprintf(`{"metadata":{"name":"o%d"}}`, i))
		}
	}
	w.make("secrets", namespace, `{"metadata":{"name":"s"}}`)
	w.make("persistentvolumeclaims", namespace, `{"metadata":{"name":"c"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`)
	w.make("events", namespace, fmt.Sprintf(`{"metadata":{"name":"e"},"involvedObject":{"namespace":%q}}`, namespace))
}

// content are the objects of a namespace.
func (w *world) content(namespace string) []string {
	var all []string
	for c := range w.store.Any().Collections() {
		for _, key := range w.keys(c, namespace+"/") {
			all = append(all, c+" "+key)
		}
	}
	return all
}

// TestNamespace checks that a namespace is deleted with its contents, pods first, and that other
// namespaces are unaffected.
func TestNamespace(t *testing.T) {
	w := newWorld(t)
	w.fill("n")
	w.fill("default")
	w.settle()
	before := w.content("default")
	recorded := w.recorded()
	w.erase("namespaces", "n", "")
	w.settle()
	w.want("namespaces", "n", false)
	if left := w.content("n"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if after := w.content("default"); strings.Join(after, ",") != strings.Join(before, ",") {
		t.Errorf("another namespace has %q, had %q", after, before)
	}
	var lastPod, firstOther store.Revision
	for _, c := range recorded() {
		switch {
		case c.After != nil || c.Collection == "namespaces":
		case c.Collection == "pods":
			lastPod = c.Revision
		case firstOther == 0:
			firstOther = c.Revision
		}
	}
	if lastPod == 0 || firstOther < lastPod {
		t.Errorf("the last pod went at %d, the first other object at %d", lastPod, firstOther)
	}
}

// conditions of a namespace: those that are true, with reason and message, and how
// many there are.
func (w *world) conditions(name string) (inTheWay string, n int) {
	var all []string
	for _, c := range w.namespace(name).Status.Conditions {
		n++
		if c.Status == corev1.ConditionTrue {
			all = append(all, fmt.Sprintf("%s %s: %s", c.Type, c.Reason, c.Message))
		}
	}
	return strings.Join(all, "\n"), n
}

// TestNamespaceWaits checks that objects with finalizers block the deletion, that the conditions
// name them, and that nothing else is deleted before the pods.
func TestNamespaceWaits(t *testing.T) { synctest.Test(t, testNamespaceWaits) }

func testNamespaceWaits(t *testing.T) {
	w := newWorld(t)
	w.make("pods", "n", `{"metadata":{"name":"p","finalizers":["a.b/pod"]},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"m","finalizers":["a.b/c","a.b/d"]}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"m2","finalizers":["a.b/c"]}}`)
	w.make("leases.coordination.k8s.io", "n", `{"metadata":{"name":"l","finalizers":["a.b/c"]}}`)
	w.make("secrets", "n", `{"metadata":{"name":"s"}}`)
	w.settle()
	w.erase("namespaces", "n", "")
	w.settle()
	w.want("secrets", "n/s", true)
	const first = `NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: pods. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a.b/pod in 1 resource instances`
	if got, n := w.conditions("n"); got != first || n != 5 {
		t.Errorf("%d conditions:\n%s\nwant\n%s", n, got, first)
	}
	w.release("pods", "n/p")
	w.settle()
	w.want("secrets", "n/s", false)
	const second = `NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 2 resource instances, leases.coordination.k8s.io has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a.b/c in 3 resource instances, a.b/d in 1 resource instances`
	if got, n := w.conditions("n"); got != second || n != 5 {
		t.Errorf("%d conditions:\n%s\nwant\n%s", n, got, second)
	}
	w.release("configmaps", "n/m")
	w.release("leases.coordination.k8s.io", "n/l")
	w.settle() // the conditions follow
	const third = `NamespaceContentRemaining SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances
NamespaceFinalizersRemaining SomeFinalizersRemain: Some content in the namespace has finalizers remaining: a.b/c in 1 resource instances`
	if got, _ := w.conditions("n"); got != third {
		t.Errorf("conditions:\n%s\nwant\n%s", got, third)
	}
	w.release("configmaps", "n/m2")
	w.settle()
	w.want("namespaces", "n", false)
}

// TestNamespaceOtherFinalizers: the content goes, and the namespace waits for its
// other finalizers.
func TestNamespaceOtherFinalizers(t *testing.T) {
	w := newWorld(t)
	w.make("namespaces", "", `{"metadata":{"name":"f"},"spec":{"finalizers":["a.b/c"]}}`)
	w.fill("f")
	w.erase("namespaces", "f", "")
	w.settle()
	if got := w.namespace("f").Spec.Finalizers; len(got) != 1 || got[0] != "a.b/c" {
		t.Errorf("finalizers %q", got)
	}
	if left := w.content("f"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if got, n := w.conditions("f"); got != "" || n != 5 {
		t.Errorf("%d conditions: %s", n, got)
	}
	w.change("namespaces", "f", "finalize", func(o metav1.Object) { o.(*corev1.Namespace).Spec.Finalizers = nil })
	w.settle()
	w.want("namespaces", "f", false)
}

// stray writes an object past the verbs, as a create does that was under way when
// its namespace went.
func (w *world) stray(namespace, name string) {
	w.Helper()
	o := w.get("configmaps", "n/kube-root-ca.crt")
	value := strings.Replace(string(o.Bytes()), fmt.Sprintf(`"resourceVersion":"%d"`, o.Modified), `"resourceVersion":""`, 1)
	w.commit(store.Write{Collection: "configmaps", Key: namespace + "/" + name, Value: []byte(value), RevisionAt: int(o.RevisionAt)})
}

// commit writes past the verbs.
func (w *world) commit(c store.Write) {
	w.Helper()
	if _, err := w.store.Commit(w.Context(), c); err != nil {
		w.Fatal(err)
	}
}

// TestStrays: objects that are stored after their namespace is gone are deleted, also when
// no loop ran at that time.
func TestStrays(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.stray("gone", "a")
	w.settle()
	w.want("configmaps", "gone/a", false)
	w.loops.Stop()
	w.stray("gone", "b")
	w.restart()
	w.settle()
	w.want("configmaps", "gone/b", false)
	w.want("configmaps", "n/kube-root-ca.crt", true)
}

// onDelete calls do once, before the first object of a namespace is deleted; the other deletions
// there wait for it. It begins with a restart.
func (w *world) onDelete(namespace string, do func()) {
	var once sync.Once
	w.plugins = append(w.plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Operation == "DELETE" && a.Namespace == namespace {
			once.Do(do)
		}
		return nil
	}})
}

// again creates a namespace again, with objects of its own: of kinds that are deleted before, with
// and after ConfigMaps, and a ConfigMap with the name of an old one.
func (w *world) again(namespace string) {
	w.make("namespaces", "", fmt.Sprintf(`{"metadata":{"name":%q}}`, namespace))
	w.make("pods", namespace, pod)
	w.make("configmaps", namespace, `{"metadata":{"name":"precious"}}`)
	w.make("secrets", namespace, `{"metadata":{"name":"precious"}}`)
	w.make("services", namespace, `{"metadata":{"name":"precious"},"spec":{"ports":[{"port":80}]}}`)
	w.make("events", namespace, fmt.Sprintf(`{"metadata":{"name":"precious"},"involvedObject":{"namespace":%q}}`, namespace))
}

// wantAgain checks that the namespace has exactly the objects that again created.
func (w *world) wantAgain(namespace string) {
	w.Helper()
	want := []string{"configmaps " + namespace + "/precious", "events " + namespace + "/precious", "pods " + namespace + "/p", "secrets " + namespace + "/precious", "services " + namespace + "/precious"}
	got := w.content(namespace)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		w.Errorf("the namespace that was made again has %q, want %q", got, want)
	}
	if o := w.namespace(namespace); o.DeletionTimestamp != nil {
		w.Errorf("the namespace that was made again is being deleted")
	}
}

// TestStraysRecreated checks that when a namespace is created again while leftovers of the old one
// are deleted, its own objects stay.
func TestStraysRecreated(t *testing.T) {
	w := newWorld(t, "namespace", "root-ca-certificate-publisher")
	w.settle()
	w.loops.Stop()
	w.stray("gone", "a")
	w.stray("gone", "precious")
	w.config.Enabled = []string{"namespace"}
	w.onDelete("gone", func() {
		w.commit(store.Write{Collection: "configmaps", Key: "gone/precious", If: w.get("configmaps", "gone/precious").Modified}) // it comes back as another object
		w.again("gone")
	})
	w.restart()
	w.settle()
	w.wantAgain("gone")
}

// TestNamespaceRecreated: another client removes the finalizer of a namespace before its
// content is deleted, and creates the namespace again. Its new objects stay, and the old
// ones are deleted.
func TestNamespaceRecreated(t *testing.T) {
	w := newWorld(t, "namespace")
	w.make("configmaps", "n", `{"metadata":{"name":"a"}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"precious"}}`)
	w.make("leases.coordination.k8s.io", "n", `{"metadata":{"name":"a"}}`)
	w.onDelete("n", func() {
		w.commit(store.Write{Collection: "configmaps", Key: "n/precious", If: w.get("configmaps", "n/precious").Modified})
		w.change("namespaces", "n", "finalize", func(o metav1.Object) { o.(*corev1.Namespace).Spec.Finalizers = nil })
		w.again("n")
	})
	w.restart()
	w.settle()
	w.erase("namespaces", "n", "")
	w.settle()
	w.wantAgain("n")
}

// TestNamespaceLetGo: another client removes the finalizer of a namespace before its
// content is deleted. The content is deleted nevertheless.
func TestNamespaceLetGo(t *testing.T) {
	w := newWorld(t)
	w.fill("n")
	w.onDelete("n", func() {
		w.change("namespaces", "n", "finalize", func(o metav1.Object) { o.(*corev1.Namespace).Spec.Finalizers = nil })
	})
	w.restart()
	w.settle()
	w.erase("namespaces", "n", "")
	w.settle()
	w.want("namespaces", "n", false)
	if left := w.content("n"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestNamespaceKilled: the deletion of a namespace goes on after a kill at any
// point.
func TestNamespaceKilled(t *testing.T) {
	killEverywhere(t,
		func(w *world) { w.fill("n") },
		func(w *world) { w.erase("namespaces", "n", "") },
		func(w *world) {
			w.want("namespaces", "n", false)
			if left := w.content("n"); len(left) > 0 {
				w.Errorf("left behind: %q", left)
			}
		})
}

// TestNamespaceConditionsKeepPace checks that the conditions are not written for each of many
// objects that are deleted one by one.
func TestNamespaceConditionsKeepPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const objects = 50
		for i := range objects {
			w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":"m%02d","finalizers":["a.b/c"]}}`, i))
		}
		w.erase("namespaces", "n", "")
		w.settle()
		recorded := w.recorded()
		for i := range objects {
			time.Sleep(100 * time.Millisecond)
			w.release("configmaps", fmt.Sprintf("n/m%02d", i))
			synctest.Wait()
		}
		w.want("namespaces", "n", false) // at once, with the last one
		writes := 0
		for _, c := range recorded() {
			if c.Collection == "namespaces" {
				writes++
			}
		}
		if writes < 4 || writes > 10 {
			t.Errorf("%d writes of the namespace in five seconds", writes)
		}
	})
}

// TestNamespaceFailures: the conditions and the log report the objects that could not be deleted,
// without the values in validation errors, and cut to a length.
func TestNamespaceFailures(t *testing.T) { synctest.Test(t, testNamespaceFailures) }

func testNamespaceFailures(t *testing.T) {
	var lines bytes.Buffer
	w := newWorld(t, "namespace")
	w.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
	w.make("secrets", "n", `{"metadata":{"name":"s"}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"m"}}`)
	var finalizers []string
	for i := range 60 {
		finalizers = append(finalizers, fmt.Sprintf("%q", "a.b/"+strings.Repeat(string('a'+rune(i%26)), 60)+strconv.Itoa(i)))
	}
	for i := range 3 {
		w.make("leases.coordination.k8s.io", "n", fmt.Sprintf(`{"metadata":{"name":"l%d","finalizers":[%s]}}`, i, strings.Join(finalizers[20*i:20*i+20], ",")))
	}
	w.plugins = append(w.plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Operation != "DELETE" || a.Namespace != "n" {
			return nil
		}
		switch a.Type.Collection {
		case "configmaps":
			return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, a.Name, errors.New(strings.Repeat("ä long story ", 1000)))
		case "secrets":
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, a.Name, field.ErrorList{field.Invalid(field.NewPath("data", "key"), "hush hush", "is wrong")})
		}
		return nil
	}})
	w.restart()
	w.erase("namespaces", "n", "")
	time.Sleep(time.Second)
	w.loops.Stop()
	text := lines.String()
	for _, c := range w.namespace("n").Status.Conditions {
		if len(c.Message) > 4096 || !utf8.ValidString(c.Message) {
			t.Errorf("a message of %d bytes: %s", len(c.Message), c.Message)
		}
		text += c.Message
	}
	if inTheWay, n := w.conditions("n"); n != 5 || strings.Count(inTheWay, "data.key") != 1 || !strings.Contains(inTheWay, "a.b/aaa") || !strings.Contains(inTheWay, "long story") {
		t.Errorf("the conditions say:\n%s", inTheWay)
	}
	if !strings.Contains(lines.String(), "data.key") || strings.Contains(text, "hush") {
		t.Errorf("log and conditions say:\n%s", text)
	}
}

// TestNamespacePanics: a panic in the deletion of an object, or in the edit of an orphan, is a failure that the log has.
// The server goes on, and deletes the other objects.
func TestNamespacePanics(t *testing.T) { synctest.Test(t, testNamespacePanics) }

func testNamespacePanics(t *testing.T) {
	var lines bytes.Buffer
	w := newWorld(t, "namespace", "garbage-collector")
	w.config.Log = slog.New(slog.NewTextHandler(&lines, nil))
	w.make("configmaps", "n", `{"metadata":{"name":"bad"}}`)
	w.make("configmaps", "n", `{"metadata":{"name":"good"}}`)
	w.make("namespaces", "", `{"metadata":{"name":"other"}}`)
	owner := w.make("configmaps", "other", `{"metadata":{"name":"owner"}}`)
	w.make("configmaps", "other", fmt.Sprintf(`{"metadata":{"name":"orphan","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, owner))
	w.plugins = append(w.plugins, registry.Plugin{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Operation == "DELETE" && a.Name == "bad" || a.Operation == "UPDATE" && a.Name == "orphan" {
			panic("no " + a.Name)
		}
		return nil
	}})
	w.restart()
	w.erase("namespaces", "n", "")
	w.erase("configmaps", "other/owner", metav1.DeletePropagationOrphan)
	time.Sleep(time.Second)
	w.loops.Stop()
	w.want("configmaps", "n/good", false)
	w.want("configmaps", "n/bad", true)
	w.want("configmaps", "other/owner", true)
	for _, want := range []string{"no bad", "no orphan"} {
		if !strings.Contains(lines.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, lines.String())
		}
	}
}

// BenchmarkNamespace deletes a namespace with 10,000 ConfigMaps.
func BenchmarkNamespace(b *testing.B) {
	w := newWorld(b)
	const objects = 10_000
	for b.Loop() {
		b.StopTimer()
		w.make("namespaces", "", `{"metadata":{"name":"big"}}`)
		for i := range objects {
			w.make("configmaps", "big", fmt.Sprintf(`{"metadata":{"name":"m%05d"},"data":{"k":"v"}}`, i))
		}
		w.settle()
		b.StartTimer()
		w.erase("namespaces", "big", "")
		w.settle()
	}
	w.want("namespaces", "big", false)
}
