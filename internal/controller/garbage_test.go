package controller_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/controller"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testkinds"
	"github.com/tidemark-dev/tidemark/internal/tier"
)

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// family makes an owner with two dependents. One dependent blocks the owner and has a dependent
// itself.
func (w *world) family() {
	w.Helper()
	owner := w.owned("n", "owner")
	child := w.owned("n", "child", blocking("ConfigMap", "owner", owner))
	w.owned("n", "other", reference("ConfigMap", "owner", owner))
	w.owned("n", "grandchild", blocking("ConfigMap", "child", child))
}

// ends are the revisions at which objects went, by key.
func ends(changes []store.CollectionChange) map[string]store.Revision {
	all := map[string]store.Revision{}
	for _, c := range changes {
		if c.After == nil {
			all[c.Key()] = c.Revision
		}
	}
	return all
}

func TestBackground(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{"", background} {
		w := newWorld(t)
		w.family()
		w.settle()
		w.want("configmaps", "n/grandchild", true)
		recorded := w.recorded()
		w.erase("configmaps", "n/owner", policy)
		w.want("configmaps", "n/owner", false)
		w.settle()
		end := ends(recorded())
		if len(end) != 4 || end["n/owner"] > end["n/child"] || end["n/owner"] > end["n/other"] || end["n/child"] > end["n/grandchild"] {
			t.Errorf("%q: they went in the order %v", policy, end)
		}
	}
}

func TestForeground(t *testing.T) {
	w := newWorld(t)
	w.family()
	w.settle()
	recorded := w.recorded()
	w.erase("configmaps", "n/owner", foreground)
	w.settle()
	end := ends(recorded())
	if len(end) != 4 || end["n/owner"] < end["n/child"] || end["n/child"] < end["n/grandchild"] {
		t.Errorf("they went in the order %v", end)
	}
}

// TestForegroundWaits checks that the owner waits for a dependent that blocks it and has a
// finalizer, and not for one that does not block it.
func TestForegroundWaits(t *testing.T) {
	w := newWorld(t)
	owner := w.owned("n", "owner")
	dependent := func(name, reference string) {
		w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["a.b/c"],"ownerReferences":[%s]}}`, name, reference))
	}
	dependent("blocks", blocking("ConfigMap", "owner", owner))
	dependent("released", blocking("ConfigMap", "owner", owner))
	dependent("free", reference("ConfigMap", "owner", owner))
	w.settle()
	w.erase("configmaps", "n/owner", foreground)
	w.settle()
	for _, key := range []string{"n/owner", "n/blocks", "n/released", "n/free"} {
		if o := w.get("configmaps", key); !registry.MetadataOf(o).Deleting {
			t.Errorf("%s is not being deleted", key)
		}
	}
	w.release("configmaps", "n/blocks")
	w.settle()
	w.want("configmaps", "n/blocks", false)
	w.want("configmaps", "n/owner", true)
	w.change("configmaps", "n/released", "", func(o metav1.Object) { o.SetOwnerReferences(nil) })
	w.settle()
	w.want("configmaps", "n/owner", false)
	w.want("configmaps", "n/free", true)
	w.want("configmaps", "n/released", true)
}

// TestForegroundCircle checks that two objects that own and block each other are both deleted.
func TestForegroundCircle(t *testing.T) {
	w := newWorld(t)
	a := w.owned("n", "a")
	b := w.owned("n", "b", blocking("ConfigMap", "a", a))
	w.change("configmaps", "n/a", "", func(o metav1.Object) {
		yes := true
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "b", UID: types.UID(b), BlockOwnerDeletion: &yes}})
	})
	w.settle()
	w.want("configmaps", "n/a", true)
	w.erase("configmaps", "n/a", foreground)
	w.settle()
	w.want("configmaps", "n/a", false)
	w.want("configmaps", "n/b", false)
}

// TestForegroundKnots checks that objects that block each other, or themselves, are deleted once
// nothing else blocks them.
func TestForegroundKnots(t *testing.T) {
	w := newWorld(t)
	uids := map[string]string{}
	for _, name := range []string{"a", "b", "c", "self", "held"} {
		uids[name] = w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["a.b/c"]}}`, name))
	}
	yes := true
	for name, owners := range map[string][]string{"a": {"c"}, "b": {"a"}, "c": {"b"}, "self": {"self"}, "held": {"a"}} {
		w.change("configmaps", "n/"+name, "", func(o metav1.Object) {
			var all []metav1.OwnerReference
			for _, owner := range owners {
				all = append(all, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner, UID: types.UID(uids[owner]), BlockOwnerDeletion: &yes})
			}
			o.SetOwnerReferences(all)
		})
	}
	for _, name := range []string{"a", "b", "c", "self"} {
		w.erase("configmaps", "n/"+name, foreground)
	}
	w.settle()
	drop := func(name string) {
		w.change("configmaps", "n/"+name, "", func(o metav1.Object) {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == "a.b/c" }))
		})
	}
	for _, name := range []string{"self", "a", "b", "c"} {
		drop(name)
	}
	w.settle()
	w.want("configmaps", "n/self", false)
	w.want("configmaps", "n/a", true) // for held is no part of the circle
	drop("held")
	w.settle()
	for _, name := range []string{"a", "b", "c", "held"} {
		w.want("configmaps", "n/"+name, false)
	}
}

// clique deletes n objects in the foreground that all block each other, and returns the CPU time until all are gone.
func clique(t *testing.T, n int) time.Duration {
	t.Helper()
	w := newWorld(t)
	yes := true
	var all []metav1.OwnerReference
	for i := range n {
		name := fmt.Sprint("o", i)
		uid := w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":["a.b/c"]}}`, name))
		all = append(all, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(uid), BlockOwnerDeletion: &yes})
	}
	for _, r := range all {
		w.change("configmaps", "n/"+r.Name, "", func(o metav1.Object) { o.SetOwnerReferences(all) })
	}
	w.settle()
	begin := testkinds.CPUTime()
	for _, r := range all {
		w.erase("configmaps", "n/"+r.Name, foreground)
	}
	w.settle()
	for _, r := range all {
		w.change("configmaps", "n/"+r.Name, "", func(o metav1.Object) {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == "a.b/c" }))
		})
	}
	w.settle()
	for _, r := range all {
		w.want("configmaps", "n/"+r.Name, false)
	}
	return testkinds.CPUTime() - begin
}

// TestForegroundClique checks that objects that all block each other are deleted.
func TestForegroundClique(t *testing.T) {
	clique(t, 12)
}

// TestForegroundCliqueTime: an object of a clique takes time in proportion to the references in the clique.
func TestForegroundCliqueTime(t *testing.T) {
	tier.Full(t)
	const n, most = 20, 256 // four times the objects have 64 times as many references to read in all
	for range 3 {
		few, many := clique(t, n), clique(t, 4*n)
		t.Logf("%d objects: %v, %d objects: %v", n, few, 4*n, many)
		if many < most*few {
			return
		}
	}
	t.Errorf("four times as many objects take over %d times as long", most)
}

func TestOrphan(t *testing.T) {
	w := newWorld(t)
	w.family()
	keeps := w.owned("n", "keeps")
	owner := string(registry.MetadataOf(w.get("configmaps", "n/owner")).UID)
	w.owned("n", "shared", reference("ConfigMap", "owner", owner), reference("ConfigMap", "keeps", keeps))
	w.settle()
	w.erase("configmaps", "n/owner", orphan)
	w.settle()
	w.want("configmaps", "n/owner", false)
	for key, want := range map[string]string{"n/child": "", "n/other": "", "n/grandchild": "child", "n/shared": "keeps"} {
		if w.want("configmaps", key, true); strings.Join(w.owners("configmaps", key), ",") != want {
			t.Errorf("%s has owners %q, want %q", key, w.owners("configmaps", key), want)
		}
	}
}

// TestAbsentOwners: an object goes when all its owners are absent, and loses the
// references to some that are.
func TestAbsentOwners(t *testing.T) {
	w := newWorld(t)
	here := w.owned("n", "here")
	for name, owners := range map[string][]string{
		"goes-never-there":     {reference("ConfigMap", "missing", "u1")},
		"goes-another-uid":     {reference("ConfigMap", "here", "u2")},
		"goes-another-name":    {reference("ConfigMap", "missing", here)},
		"goes-another-kind":    {reference("Secret", "here", here)},
		"goes-two":             {reference("ConfigMap", "missing", "u1"), reference("Node", "missing", "u3")},
		"stays":                {reference("ConfigMap", "here", here)},
		"stays-one-of-two":     {reference("ConfigMap", "missing", "u1"), reference("ConfigMap", "here", here)},
		"stays-unknown-kind":   {`{"apiVersion":"a.b/v1","kind":"Unknown","name":"x","uid":"u4"}`},
		"stays-unknown-absent": {reference("ConfigMap", "missing", "u5"), `{"apiVersion":"a.b/v1","kind":"Unknown","name":"x","uid":"u4"}`},
		"stays-no-owner":       nil,
	} {
		w.owned("n", name, owners...)
	}
	node := w.make("nodes", "", `{"metadata":{"name":"node"}}`)
	w.owned("n", "stays-cluster-owner", reference("Node", "node", node))
	w.settle()
	for _, key := range w.keys("configmaps", "n/goes") {
		t.Errorf("%s is still there", key)
	}
	if stay := w.keys("configmaps", "n/stays"); len(stay) != 6 {
		t.Errorf("there are %q", stay)
	}
	if got := w.owners("configmaps", "n/stays-one-of-two"); len(got) != 1 || got[0] != "here" {
		t.Errorf("owners %q, want here alone", got)
	}
	// Owners can change.
	w.change("configmaps", "n/stays-no-owner", "", func(o metav1.Object) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "x", UID: "u9"}})
	})
	w.erase("nodes", "node", "")
	w.settle()
	w.want("configmaps", "n/stays-no-owner", false)
	w.want("configmaps", "n/stays-cluster-owner", false)
}

// TestSecondOwner checks that a dependent is deleted with its last owner, not with the first one.
func TestSecondOwner(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{background, foreground} {
		w := newWorld(t)
		a, b := w.owned("n", "a"), w.owned("n", "b")
		w.owned("n", "dependent", blocking("ConfigMap", "a", a), blocking("ConfigMap", "b", b))
		w.settle()
		w.erase("configmaps", "n/a", policy)
		w.settle()
		w.want("configmaps", "n/a", false)
		if got := w.owners("configmaps", "n/dependent"); len(got) != 1 || got[0] != "b" {
			t.Errorf("%s: owners %q, want b alone", policy, got)
		}
		w.erase("configmaps", "n/b", policy)
		w.settle()
		w.want("configmaps", "n/b", false)
		w.want("configmaps", "n/dependent", false)
	}
}

// TestOtherNamespaces: owners do not cross namespaces. One event reports it.
func TestOtherNamespaces(t *testing.T) {
	w := newWorld(t)
	elsewhere := w.owned("default", "elsewhere")
	uid := w.owned("n", "dependent", reference("ConfigMap", "elsewhere", elsewhere))
	class := w.make("storageclasses.storage.k8s.io", "", fmt.Sprintf(`{"metadata":{"name":"class","ownerReferences":[%s]},"provisioner":"a.b/c"}`, reference("ConfigMap", "elsewhere", elsewhere)))
	w.settle()
	w.want("configmaps", "n/dependent", false)
	w.want("storageclasses.storage.k8s.io", "class", true)
	w.restart()
	w.settle()
	type reported struct {
		namespace string
		involved  corev1.ObjectReference
		message   string
	}
	var got []reported
	for o := range w.store.Any().Snapshot("events").Scan("", "") {
		var e corev1.Event
		if err := json.Unmarshal(o.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if e.Reason != "OwnerRefInvalidNamespace" || e.Type != "Warning" || e.Source.Component != "garbage-collector-controller" {
			t.Errorf("the event is %s", o.Bytes())
		}
		got = append(got, reported{e.Namespace, e.InvolvedObject, e.Message})
	}
	want := []reported{
		{"default", corev1.ObjectReference{Kind: "StorageClass", APIVersion: "storage.k8s.io/v1", Name: "class", UID: types.UID(class)},
			fmt.Sprintf(`ownerRef [v1/ConfigMap, namespace: , name: elsewhere, uid: %s] does not exist in namespace ""`, elsewhere)},
		{"n", corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "n", Name: "dependent", UID: types.UID(uid)},
			fmt.Sprintf(`ownerRef [v1/ConfigMap, namespace: n, name: elsewhere, uid: %s] does not exist in namespace "n"`, elsewhere)},
	}
	if !slices.Equal(got, want) {
		t.Errorf("reported %+v, want %+v", got, want)
	}
}

// TestManyOtherNamespaces checks that for an object with very many absent owners, all namespaces
// are searched for some of them, and that the others count as absent, too.
func TestManyOtherNamespaces(t *testing.T) {
	const owners, most = 200, 64
	w := newWorld(t)
	var references []string
	for i := range owners {
		name := fmt.Sprint("owner-", i)
		references = append(references, reference("ConfigMap", name, w.owned("default", name)))
	}
	w.owned("n", "dependent", references...)
	w.settle()
	w.want("configmaps", "n/dependent", false)
	if events := w.keys("events", "n/"); len(events) != most {
		t.Errorf("%d owners in another namespace are reported, want %d", len(events), most)
	}
}

// TestKindsComeAndGo checks that a dependent of an owner whose kind is not served stays until the
// kind is served, and that dependents of an owner that was deleted with its kind are deleted.
func TestKindsComeAndGo(t *testing.T) {
	var catalog atomic.Pointer[resource.Catalog]
	with := func(kinds ...string) {
		groups := slices.Clone(builtin.Catalog().Groups())
		if len(kinds) > 0 {
			own := resource.Group{Name: "a.b", Versions: []resource.Version{{Name: "v1"}}}
			for _, kind := range kinds {
				copied := *builtin.Catalog().Lookup("", "v1", "configmaps")
				copied.Group, copied.Kind, copied.Resource = "a.b", kind, strings.ToLower(kind)+"s"
				copied.Collection = copied.Resource + ".a.b"
				own.Versions[0].Types = append(own.Versions[0].Types, &copied)
			}
			groups = append(groups, own)
		}
		catalog.Store(resource.NewCatalog(groups))
	}
	with()
	w := newWorld(t)
	w.loops.Stop()
	w.config.Catalog, w.types = catalog.Load, catalog.Load
	w.restart()
	w.owned("n", "early", `{"apiVersion":"a.b/v1","kind":"Thing","name":"x","uid":"u1"}`)
	w.settle()
	w.want("configmaps", "n/early", true)

	with("Thing")
	thing := w.make("things.a.b", "n", `{"metadata":{"name":"thing"}}`) // the change after which the loops look
	of := fmt.Sprintf(`{"apiVersion":"a.b/v1","kind":"Thing","name":"thing","uid":%q}`, thing)
	w.owned("n", "of-thing", of)
	w.settle()
	w.want("configmaps", "n/early", false)
	w.want("configmaps", "n/of-thing", true)
	w.make("things.a.b", "n", fmt.Sprintf(`{"metadata":{"name":"thing2","ownerReferences":[%s]}}`, of))
	w.settle()

	w.erase("things.a.b", "n/thing", "")
	with()
	w.settle()
	w.want("configmaps", "n/of-thing", false)
}

// TestGarbageKilled checks that garbage collection continues after a kill at any point, for each
// propagation policy.
func TestGarbageKilled(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		t.Run(string(policy), func(t *testing.T) {
			killEverywhere(t,
				func(w *world) {
					w.family()
					w.owned("n", "bystander", reference("ConfigMap", "kube-root-ca.crt", w.uid("configmaps", "n/kube-root-ca.crt")))
				},
				func(w *world) { w.erase("configmaps", "n/owner", policy) },
				func(w *world) {
					w.want("configmaps", "n/owner", false)
					w.want("configmaps", "n/child", policy == orphan)
					w.want("configmaps", "n/grandchild", policy == orphan)
					w.want("configmaps", "n/bystander", true)
					if policy == orphan && len(w.owners("configmaps", "n/child"))+len(w.owners("configmaps", "n/other")) > 0 {
						w.Errorf("the dependents still name their owner")
					}
				})
		})
	}
}

// uid waits for an object that a loop makes.
func (w *world) uid(collection, key string) string {
	w.Helper()
	w.settle()
	return string(registry.MetadataOf(w.get(collection, key)).UID)
}

// TestHalfGone checks that an object is deleted if the server was killed between the two steps of
// its removal.
func TestHalfGone(t *testing.T) {
	w := newWorld(t)
	w.make("pods", "n", pod)
	w.settle()
	w.loops.Stop()
	w.log.live(1) // the mark of the pod, and not its removal
	if _, err := w.Delete(t.Context(), w.target("pods", "n/p"), &metav1.DeleteOptions{}, nil); err == nil {
		t.Fatal("the pod was removed in one step")
	}
	w.log.live(-1)
	w.restart()
	w.settle()
	w.want("pods", "n/p", false)
}

// TestManyDependents checks an owner with many dependents. Some of them are deleted.
func TestManyDependents(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		w := newWorld(t)
		owner := w.owned("n", "owner")
		const dependents = 300
		for i := range dependents {
			w.owned("n", fmt.Sprintf("d%03d", i), blocking("ConfigMap", "owner", owner))
		}
		w.settle()
		for i := range 10 {
			w.erase("configmaps", fmt.Sprintf("n/d%03d", i*7), "")
		}
		w.change("configmaps", "n/d001", "", func(o metav1.Object) { o.SetOwnerReferences(nil) })
		w.settle()
		w.erase("configmaps", "n/owner", policy)
		w.settle()
		w.want("configmaps", "n/owner", false)
		want := 1
		if policy == orphan {
			want = dependents - 10
		}
		left := w.keys("configmaps", "n/d")
		if len(left) != want {
			t.Errorf("%s: %d are left, want %d", policy, len(left), want)
		}
		for _, key := range left {
			if len(w.owners("configmaps", key)) > 0 {
				t.Errorf("%s: %s still has an owner", policy, key)
			}
		}
	}
}

// BenchmarkGarbage deletes an owner with 10,000 dependents.
func BenchmarkGarbage(b *testing.B) {
	for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
		b.Run(string(policy), func(b *testing.B) {
			w := newWorld(b)
			for b.Loop() {
				b.StopTimer()
				owner := w.owned("n", "owner")
				for i := range 10_000 {
					w.make("configmaps", "n", fmt.Sprintf(`{"metadata":{"generateName":"d","labels":{"i":"%d"},"ownerReferences":[%s]}}`, i, blocking("ConfigMap", "owner", owner)))
				}
				w.settle()
				b.StartTimer()
				w.erase("configmaps", "n/owner", policy)
				w.settle()
			}
		})
	}
}

// BenchmarkFollow measures the cost of the loops for each write: updates of a pod that has an
// owner, without the loops and with them.
func BenchmarkFollow(b *testing.B) {
	for _, enabled := range []string{"-*", "*"} {
		b.Run(enabled, func(b *testing.B) {
			w := newWorld(b, enabled)
			owner := w.owned("n", "owner")
			w.make("pods", "n", fmt.Sprintf(`{"metadata":{"name":"p","ownerReferences":[%s]},"spec":{"containers":[{"name":"c","image":"i"}]}}`, reference("ConfigMap", "owner", owner)))
			w.settle()
			value := w.get("pods", "n/p")
			text := string(value.Bytes()[:value.RevisionAt]) + string(value.Bytes()[int(value.RevisionAt)+len(fmt.Sprint(value.Modified)):])
			last := value.Modified
			for b.Loop() {
				o, err := w.store.Commit(b.Context(), store.Write{Collection: "pods", Key: "n/p", Value: []byte(text), RevisionAt: int(value.RevisionAt), If: last})
				if err != nil {
					b.Fatal(err)
				}
				last = o.Modified
			}
			w.settle()
		})
	}
}

// BenchmarkBegin measures the start of the loops with 100,000 objects that have owners; bytes are
// those of the index.
func BenchmarkBegin(b *testing.B) {
	w := newWorld(b)
	owner := ""
	for i := range 100_000 {
		if i%10 == 0 {
			owner = w.owned("n", fmt.Sprintf("owner%d", i))
		}
		w.owned("n", fmt.Sprintf("d%d", i), reference("ConfigMap", fmt.Sprintf("owner%d", i/10*10), owner))
	}
	w.settle()
	w.loops.Stop()
	var before, after runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		loops, err := controller.Start(w.config)
		if err != nil {
			b.Fatal(err)
		}
		if err := loops.Settled(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		loops.Stop()
		b.StartTimer()
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/100_000, "bytes/dependent")
}
