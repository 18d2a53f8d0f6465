package controller_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/testrand"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// crowd are writers that make, own, hold and delete objects, all at once.
type crowd struct {
	*world
	mu      sync.Mutex
	known   []known         // every object ever made
	deleted map[string]bool // UIDs that a writer deleted
	made    int
}

type known struct{ collection, key, kind, uid string }

var crowded = map[string]string{"configmaps": "ConfigMap", "secrets": "Secret", "serviceaccounts": "ServiceAccount"}

// TestGarbageAmongWriters has writers make and delete objects with owners and
// finalizers while the collector runs. In the end no object is left whose owners are
// all absent, and the history has no object that the collector deleted although one
// of its owners was there and stayed.
func TestGarbageAmongWriters(t *testing.T) {
	chance := testrand.New(t)
	w := &crowd{world: newWorld(t), deleted: map[string]bool{}}
	recorded := w.recorded()
	var writers sync.WaitGroup
	for range 4 {
		own := rand.New(rand.NewPCG(chance.Uint64(), 0))
		writers.Go(func() {
			for range 400 {
				w.act(own)
			}
		})
	}
	writers.Wait()
	for w.settle(); w.releaseAll(); {
		w.settle()
	}
	t.Logf("%d objects made, %d deleted by writers, %d left", w.made, len(w.deleted), len(w.keys("configmaps", ""))+len(w.keys("secrets", ""))+len(w.keys("serviceaccounts", "")))
	w.checkLeft()
	w.checkHistory(recorded())
}

// act makes a random change.
func (w *crowd) act(chance *rand.Rand) {
	w.mu.Lock()
	var o known
	if len(w.known) > 0 {
		o = w.known[chance.IntN(len(w.known))]
	}
	w.mu.Unlock()
	switch pick := chance.IntN(20); {
	case pick < 9 || o.uid == "":
		w.add(chance)
	case pick < 13:
		policy := []metav1.DeletionPropagation{background, foreground, orphan}[chance.IntN(3)]
		uid := types.UID(o.uid)
		w.mu.Lock()
		w.deleted[o.uid] = true
		w.mu.Unlock()
		_, err := w.Delete(w.Context(), w.target(o.collection, o.key), &metav1.DeleteOptions{PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &uid}}, nil)
		w.allow(err, metav1.StatusReasonNotFound, metav1.StatusReasonConflict)
	case pick < 15:
		w.alter(o, func(m metav1.Object) { m.SetFinalizers(nil) })
	case pick < 17:
		owners := w.owning(chance)
		w.alter(o, func(m metav1.Object) {
			if m.GetDeletionTimestamp() == nil {
				m.SetOwnerReferences(owners)
			}
		})
	default:
		w.alter(o, func(m metav1.Object) { m.SetLabels(map[string]string{"n": fmt.Sprint(chance.IntN(100))}) })
	}
}

func (w *crowd) allow(err error, reasons ...metav1.StatusReason) {
	if err != nil && !slices.Contains(reasons, status(err)) {
		w.Error(err)
	}
}

// alter edits an object without its finalizers of the collector.
func (w *crowd) alter(o known, edit func(metav1.Object)) {
	_, err := w.Edit(w.Context(), w.target(o.collection, o.key), "test", func(m metav1.Object) error {
		if string(m.GetUID()) != o.uid {
			return nil
		}
		kept := slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return strings.Contains(f, "/") })
		edit(m)
		if m.GetFinalizers() == nil {
			m.SetFinalizers(kept)
		}
		return nil
	})
	w.allow(err, metav1.StatusReasonNotFound)
}

// owning returns up to three owners among all objects that were ever created.
func (w *crowd) owning(chance *rand.Rand) []metav1.OwnerReference {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []metav1.OwnerReference
	for range chance.IntN(4) {
		if len(w.known) == 0 {
			break
		}
		// Mostly new ones, which are there.
		o := w.known[max(0, len(w.known)-1-chance.IntN(min(len(w.known), 25)))]
		_, name, _ := strings.Cut(o.key, "/")
		blocks := chance.IntN(2) == 0
		if !slices.ContainsFunc(all, func(r metav1.OwnerReference) bool { return string(r.UID) == o.uid }) {
			all = append(all, metav1.OwnerReference{APIVersion: "v1", Kind: o.kind, Name: name, UID: types.UID(o.uid), BlockOwnerDeletion: &blocks})
		}
	}
	return all
}

func (w *crowd) add(chance *rand.Rand) {
	collections := []string{"configmaps", "secrets", "serviceaccounts"}
	collection := collections[chance.IntN(len(collections))]
	namespace := []string{"n", "n", "n", "default"}[chance.IntN(4)]
	w.mu.Lock()
	w.made++
	name := fmt.Sprintf("o%04d", w.made)
	w.mu.Unlock()
	var owners []string
	for _, r := range w.owning(chance) {
		reference := reference(r.Kind, r.Name, string(r.UID))
		if *r.BlockOwnerDeletion {
			reference = blocking(r.Kind, r.Name, string(r.UID))
		}
		owners = append(owners, reference)
	}
	finalizers := ""
	if chance.IntN(5) == 0 {
		finalizers = `"a.b/c"`
	}
	body := fmt.Sprintf(`{"metadata":{"name":%q,"finalizers":[%s],"ownerReferences":[%s]}}`, name, finalizers, strings.Join(owners, ","))
	made, err := w.Create(w.Context(), registry.Target{Type: w.kind(collection), Namespace: namespace}, registry.Body{Media: wire.JSON, Bytes: []byte(body)}, registry.WriteOptions{})
	if err != nil {
		w.Error(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known = append(w.known, known{collection, namespace + "/" + name, crowded[collection], string(registry.MetadataOf(made.Stored).UID)})
}

// releaseAll removes the finalizers that no loop removes, and reports whether there were
// any.
func (w *crowd) releaseAll() bool {
	some := false
	for _, o := range w.known {
		m := registry.MetadataOf(w.get(o.collection, o.key))
		if string(m.UID) == o.uid && m.Deleting && strings.Contains(string(m.Finalizers), "a.b/c") {
			some = true
			w.alter(o, func(m metav1.Object) { m.SetFinalizers(nil) })
		}
	}
	return some
}

// there reports whether the owner of an object is in a state, and stays.
func there(state map[string]*store.Object, key string, r metav1.OwnerReference, staying bool) bool {
	namespace, _, _ := strings.Cut(key, "/")
	for collection, kind := range crowded {
		if kind == r.Kind {
			m := registry.MetadataOf(state[collection+" "+namespace+"/"+r.Name])
			return string(m.UID) == string(r.UID) && !(staying && m.Deleting)
		}
	}
	return false
}

func (w *crowd) checkLeft() {
	state := map[string]*store.Object{}
	for collection := range crowded {
		for o := range w.store.Any().Snapshot(collection).Scan("", "") {
			state[collection+" "+o.Key] = o
		}
	}
	for name, o := range state {
		m := registry.MetadataOf(o)
		owners, err := m.Owners()
		if err != nil {
			w.Fatal(err)
		}
		_, key, _ := strings.Cut(name, " ")
		if len(owners) > 0 && !slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return there(state, key, r, false) }) {
			w.Errorf("%s is left, and none of its owners: %s", name, o.Bytes())
		}
		if m.Deleting {
			w.Errorf("%s does not go: %s", name, o.Bytes())
		}
	}
}

func (w *crowd) checkHistory(changes []store.CollectionChange) {
	state, collected := map[string]*store.Object{}, 0
	for _, c := range changes {
		name := c.Collection + " " + c.Key()
		was, is := registry.MetadataOf(c.Before), registry.MetadataOf(c.After)
		begins := c.Before != nil && !was.Deleting && (c.After == nil || is.Deleting)
		if begins && crowded[c.Collection] != "" && !w.deleted[string(was.UID)] {
			collected++
			owners, err := was.Owners()
			if err != nil {
				w.Fatal(err)
			}
			if len(owners) == 0 || slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool { return there(state, c.Key(), r, true) }) {
				w.Errorf("at %d %s was deleted, and an owner is there: %s", c.Revision, name, c.Before.Bytes())
			}
		}
		if c.After != nil {
			state[name] = c.After
		} else {
			delete(state, name)
		}
	}
	if collected == 0 {
		w.Error("nothing was collected")
	}
	w.Logf("%d objects were collected", collected)
}
