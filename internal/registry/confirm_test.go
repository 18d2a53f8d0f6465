package registry_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// TestConfirmed: a response that writes nothing rests on all writes that another server has
// acknowledged before, also if this server has not received them yet.
func TestConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		member := log.Open()
		a := newServer(t, store.Options{Shared: log.Open()})
		other, err := stores.Open(t.Context(), store.Options{Shared: member})
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
			type response struct {
				o   registry.Object
				err error
			}
			got := make(chan response, 1)
			go func() {
				o, err := f()
				got <- response{o, err}
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
// once, though its response has the version from before.
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

// gated is a Shared that delivers no batch above a revision until it is opened for it.
type gated struct {
	*sharedmem.Member
	limit  atomic.Uint64 // zero: none
	opened chan struct{}
}

func (g *gated) Follow(ctx context.Context, after store.Revision) iter.Seq2[store.Batch, error] {
	return func(yield func(store.Batch, error) bool) {
		for b, err := range g.Member.Follow(ctx, after) {
			for limit := g.limit.Load(); limit != 0 && uint64(b.Through) > limit; limit = g.limit.Load() {
				select {
				case <-g.opened:
				case <-ctx.Done():
					return
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// open lets batches through up to a revision; zero: all.
func (g *gated) open(limit store.Revision) {
	g.limit.Store(uint64(limit))
	g.opened <- struct{}{}
	synctest.Wait()
}

// calledOnce is a context that calls a function when it is looked at for the first time.
type calledOnce struct {
	context.Context
	f func()
}

func (c *calledOnce) Err() error {
	if f := c.f; f != nil {
		c.f = nil
		f()
	}
	return c.Context.Err()
}

// TestConfirmedMeanwhile: an update that changes nothing is confirmed although the object has changed since the
// request began, by another server.
func TestConfirmedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
		a := newServer(t, store.Options{Shared: log.Open()})
		gate := &gated{Member: log.Open(), opened: make(chan struct{})}
		other, err := stores.Open(t.Context(), store.Options{Shared: gate})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		b := &server{&registry.Registry{Store: other}, t}
		at := a.target("configmaps", "default", "m")
		a.create("configmaps", "default", configMap("m", "", ""))
		synctest.Wait()
		start := other.Any().Revision()
		gate.limit.Store(uint64(start))
		var versions []store.Revision
		for _, data := range []string{"1", "2"} {
			o, err := a.Update(t.Context(), at, body(configMap("m", data, "")), registry.WriteOptions{})
			if err != nil {
				t.Fatal(err)
			}
			versions = append(versions, o.Stored.Modified)
			synctest.Wait()
		}
		begun := make(chan struct{})
		ctx := &calledOnce{t.Context(), func() { <-begun }}
		made := make(chan registry.Object, 1)
		go func() {
			o, err := b.Update(ctx, b.target("configmaps", "default", "m"), body(configMap("m", "1", "")), registry.WriteOptions{})
			if err != nil {
				t.Error(err)
			}
			made <- o
		}()
		synctest.Wait()
		gate.open(versions[0]) // b gets the first update within its request, and not the second one
		if at := other.Any().Revision(); at != versions[0] {
			t.Fatalf("the server is at %d, want %d", at, versions[0])
		}
		close(begun)
		synctest.Wait()
		select {
		case o := <-made:
			t.Errorf("responded at %d, before the update at %d was there", o.Stored.Modified, versions[1])
		default:
			gate.open(0)
			if o := <-made; o.Stored.Modified <= versions[1] {
				t.Errorf("the response is of %d, and the update at %d was before", o.Stored.Modified, versions[1])
			}
		}
	})
}
