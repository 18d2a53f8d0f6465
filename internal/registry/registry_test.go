package registry_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// server is the verbs over an empty store in memory, with the namespace default.
type server struct {
	*registry.Registry
	t testing.TB
}

func newServer(t testing.TB, o store.Options) *server {
	t.Helper()
	if o.Log == nil && o.Shared == nil {
		o.Log = memlog.New()
	}
	s, err := stores.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Check(context.Background()); err != nil {
			t.Errorf("the store is not sound: %v", err)
		}
		s.Close()
	})
	srv := &server{&registry.Registry{Store: s, FutureWait: 10 * time.Millisecond}, t}
	srv.create("namespaces", "", `{"metadata":{"name":"default"}}`)
	return srv
}

// kind returns a type of the catalog by its plural; the group follows after a
// dot, the version after a slash.
func kind(t testing.TB, group, version, plural string) *resource.Type {
	t.Helper()
	typ := builtin.Catalog().Lookup(group, version, plural)
	if typ == nil {
		t.Fatalf("no kind %s %s %s", group, version, plural)
	}
	return typ
}

// target is an object or a collection of the core group.
func (s *server) target(plural, namespace, name string) registry.Target {
	return registry.Target{Type: kind(s.t, "", "v1", plural), Namespace: namespace, Name: name}
}

func body(text string) registry.Body {
	return registry.Body{Media: wire.JSON, Bytes: []byte(text)}
}

// create stores an object and requires that it works.
func (s *server) create(plural, namespace, text string) *store.Object {
	s.t.Helper()
	o, err := s.Create(context.Background(), s.target(plural, namespace, ""), body(text), registry.WriteOptions{})
	if err != nil {
		s.t.Fatalf("creating %s %s: %v", plural, text, err)
	}
	return o.Stored
}

func (s *server) update(plural, namespace, name, text string) *store.Object {
	s.t.Helper()
	o, err := s.Update(context.Background(), s.target(plural, namespace, name), body(text), registry.WriteOptions{})
	if err != nil {
		s.t.Fatalf("updating %s %s: %v", plural, text, err)
	}
	return o.Stored
}

func (s *server) delete(plural, namespace, name string) *registry.Object {
	s.t.Helper()
	o, err := s.Delete(context.Background(), s.target(plural, namespace, name), &metav1.DeleteOptions{}, nil)
	if err != nil {
		s.t.Fatalf("deleting %s %s: %v", plural, name, err)
	}
	return &o
}

// configMap is the body of a ConfigMap with a label and a value.
func configMap(name, label, value string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"l":%q}},"data":{"v":%q}}`, name, label, value)
}

// statusOf returns the Status of an error. The test ends if the error has none.
func statusOf(t testing.TB, err error) metav1.Status {
	t.Helper()
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		t.Fatalf("%v is no Status", err)
	}
	return s.Status()
}
