package registry_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestAfterWrites: what is said waits for the writes that have begun, in whatever order
// and way they end, and for none that begins later.
func TestAfterWrites(t *testing.T) {
	s := newServer(t, store.Options{})
	var said []string
	var mu sync.Mutex
	after := func(what string) {
		s.AfterWrites(func() { mu.Lock(); defer mu.Unlock(); said = append(said, what) })
	}
	want := func(what ...string) {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(said, what) {
			t.Errorf("%q was said, want %q", said, what)
		}
	}
	after("none")
	want("none")

	began, gates := make(chan struct{}), map[string]chan error{"a": make(chan error), "b": make(chan error)}
	var ends sync.Map // by name: closed when the write has ended
	s.Admission = []registry.Step{{
		Wants: func(t registry.Target, _ string) bool { return t.Type.Collection == "configmaps" },
		Admit: func(_ context.Context, a *registry.Admission) error {
			gate := gates[nameOf(a.Object)]
			if gate == nil {
				return nil
			}
			began <- struct{}{}
			return <-gate
		},
	}}
	begin := func(name string) {
		end := make(chan struct{})
		ends.Store(name, end)
		go func() {
			defer close(end)
			_, _ = s.Create(context.Background(), s.target("configmaps", "default", ""), body(configMap(name, "l", "v")), registry.WriteOptions{})
		}()
		<-began
	}
	end := func(name string, err error) {
		gates[name] <- err
		done, _ := ends.Load(name)
		<-done.(chan struct{})
	}
	begin("a")
	after("first")
	begin("b")
	after("second")
	after("third")
	s.create("configmaps", "default", configMap("c", "l", "v"))
	s.update("configmaps", "default", "c", configMap("c", "l", "w"))
	s.delete("configmaps", "default", "c")
	want("none")
	end("b", nil)
	want("none") // those before are not through
	end("a", errors.New("refused"))
	want("none", "first", "second", "third")

	begin("b") // it is there already
	after("fourth")
	end("b", nil)
	after("fifth")
	want("none", "first", "second", "third", "fourth", "fifth")
}

func nameOf(o runtime.Object) string {
	if o == nil {
		return ""
	}
	return o.(interface{ GetName() string }).GetName()
}
