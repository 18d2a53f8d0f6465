package registry_test

import (
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestConfirmed: an answer that writes nothing rests on what another server has acknowledged before, also
// if this server has not got it yet.
func TestConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		member := log.Open()
		a := newServer(t, store.Options{Shared: log.Open()})
		other, err := store.Open(t.Context(), store.Options{Shared: member})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		b := &server{&registry.Registry{Store: other}, t}
		// behind makes a call of b while b lacks the writes of a.
		behind := func(write func(), f func() (registry.Object, error)) (registry.Object, error) {
			t.Helper()
			synctest.Wait()
			member.Pause()
			write()
			type answer struct {
				o   registry.Object
				err error
			}
			got := make(chan answer, 1)
			go func() {
				o, err := f()
				got <- answer{o, err}
			}()
			synctest.Wait()
			member.Resume()
			r := <-got
			return r.o, r.err
		}
		at := b.target("configmaps", "default", "m")
		create := func(name string, o registry.WriteOptions) func() (registry.Object, error) {
			return func() (registry.Object, error) {
				return b.Create(t.Context(), b.target("configmaps", "default", ""), body(configMap(name, "", "")), o)
			}
		}
		remove := func(s *server, name string) func() (registry.Object, error) {
			return func() (registry.Object, error) {
				return s.Delete(t.Context(), s.target("configmaps", "default", name), nil, nil)
			}
		}
		if _, err := behind(func() { a.create("configmaps", "default", configMap("m", "", "")) }, func() (registry.Object, error) {
			return b.Update(t.Context(), at, body(configMap("m", "x", "1")), registry.WriteOptions{})
		}); err != nil {
			t.Errorf("an update of what another server has created: %v", err)
		}
		if _, err := behind(func() { a.create("configmaps", "default", configMap("n", "", "")) }, remove(b, "n")); err != nil {
			t.Errorf("a deletion of what another server has created: %v", err)
		}
		gone := func() {
			if _, err := remove(a, "m")(); err != nil {
				t.Error(err)
			}
		}
		if _, err := behind(gone, create("m", registry.WriteOptions{})); err != nil {
			t.Errorf("a create of what another server has deleted: %v", err)
		}
		if _, err := behind(gone, create("m", registry.WriteOptions{DryRun: []string{metav1.DryRunAll}})); err != nil {
			t.Errorf("a dry-run of it: %v", err)
		}
		taken := func() { a.create("configmaps", "default", configMap("m", "", "")) }
		if _, err := behind(taken, create("m", registry.WriteOptions{DryRun: []string{metav1.DryRunAll}})); !apierrors.IsAlreadyExists(err) {
			t.Errorf("a dry-run of what another server has created: %v", err)
		}
		var changed store.Revision
		change := func() {
			o, err := a.Update(t.Context(), a.target("configmaps", "default", "m"), body(configMap("m", "x", "2")), registry.WriteOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			changed = o.Stored.Modified
		}
		same, err := behind(change, func() (registry.Object, error) {
			return b.Update(t.Context(), at, body(configMap("m", "", "")), registry.WriteOptions{})
		})
		if err != nil || same.Stored.Modified <= changed {
			t.Errorf("an update that changes nothing of what is behind: %+v, %v, want a change after %d", same, err, changed)
		}
	})
}

// TestConfirmedRemoval: an update that removes the last finalizer of an object that is being deleted is made
// once, though its answer has the version from before.
func TestConfirmedRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		a := newServer(t, store.Options{Shared: log.Open()})
		at, final := a.target("configmaps", "default", "m"), `{"metadata":{"name":"m","finalizers":["a/b"]}}`
		free := `{"metadata":{"name":"m"}}`
		for what, release := range map[string]func() (registry.Object, error){
			"an update": func() (registry.Object, error) {
				return a.Update(t.Context(), at, body(free), registry.WriteOptions{})
			},
			"a patch": func() (registry.Object, error) {
				return a.Patch(t.Context(), at, registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"finalizers":null}}`)}, registry.WriteOptions{})
			},
		} {
			a.create("configmaps", "default", final)
			if _, err := a.Delete(t.Context(), at, nil, nil); err != nil {
				t.Fatal(err)
			}
			if made, err := release(); err != nil || made.Stored == nil {
				t.Errorf("%s: %+v, %v", what, made, err)
			}
			if a.Store.Any().Get("configmaps", "default/m") != nil {
				t.Errorf("%s did not remove the object", what)
			}
		}
	})
}
