package registry_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/store/storetest/sharedmem"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// unguarded is a Shared whose transactions have no guards, like those of a kube-apiserver.
type unguarded struct{ *sharedmem.Member }

func (u unguarded) Propose(ctx context.Context, t *store.Txn) (store.Decision, error) {
	plain := *t
	plain.Guards = nil
	return u.Member.Propose(ctx, &plain)
}

// TestNamespaceOfPeer: a writer that claims no guards changes the namespace of a create while the request is decided. Nothing
// lands in a namespace that is being deleted or gone. The request does not start again if the namespace stays.
func TestNamespaceOfPeer(t *testing.T) {
	remove := func(t *testing.T, peer *server) {
		peer.delete("namespaces", "", "n")
		finalize := peer.target("namespaces", "", "n")
		finalize.Subresource = "finalize"
		if _, err := peer.Update(t.Context(), finalize, body(`{"metadata":{"name":"n"},"spec":{"finalizers":[]}}`), registry.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name     string
		change   func(t *testing.T, peer *server)
		err      string // empty: the object is created
		attempts int
	}{
		{"deleted", func(_ *testing.T, peer *server) { peer.delete("namespaces", "", "n") }, "because it is being terminated", 1},
		{"removed", remove, `namespaces "n" not found`, 1},
		{"created again", func(t *testing.T, peer *server) {
			remove(t, peer)
			peer.create("namespaces", "", `{"metadata":{"name":"n"}}`)
		}, "", 2},
		{"labelled", func(t *testing.T, peer *server) {
			patch := registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"labels":{"a":"b"}}}`)}
			if _, err := peer.Patch(t.Context(), peer.target("namespaces", "", "n"), patch, registry.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}, "", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := sharedmem.New(testrand.New(t), 95, sharedmem.Faults{})
				s := newServer(t, store.Options{Shared: log.Open()})
				other, err := stores.Open(t.Context(), store.Options{Shared: unguarded{log.Open()}})
				if err != nil {
					t.Fatal(err)
				}
				defer other.Close()
				peer := &server{&registry.Registry{Store: other}, t}
				s.create("namespaces", "", `{"metadata":{"name":"n"}}`)
				attempts := 0
				s.Plugins = []registry.Plugin{{Validate: func(context.Context, *registry.Attributes) error {
					if attempts++; attempts == 1 {
						c.change(t, peer)
					}
					return nil
				}}}
				_, err = s.Create(t.Context(), s.target("configmaps", "n", ""), body(configMap("late", "", "")), registry.WriteOptions{})
				switch {
				case c.err == "" && err != nil, c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
					t.Errorf("got %v, want %q", err, c.err)
				case (s.Store.Any().Get("configmaps", "n/late") != nil) != (c.err == ""):
					t.Errorf("after the error %v the object is or is not there", err)
				}
				if attempts != c.attempts {
					t.Errorf("the request was decided %d times, want %d", attempts, c.attempts)
				}
			})
		})
	}
}
