// Package policytest runs plugins of policies in a registry, for tests.
package policytest

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/builtin"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/store/memlog"
	"github.com/tidemark-dev/tidemark/internal/store/stores"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Server has the built-in kinds, the Namespace n, and plugins.
type Server struct {
	registry *registry.Registry
	types    map[string]*resource.Type // by collection
}

// New returns a server with plugins. It lasts as long as the test.
func New(t testing.TB, plugins ...registry.Plugin) *Server {
	t.Helper()
	log, err := stores.Open(context.Background(), store.Options{Log: memlog.New()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	})
	s := &Server{&registry.Registry{Store: log, Plugins: plugins}, map[string]*resource.Type{}}
	for one := range builtin.Catalog().Types() {
		if one.Collection != "" && one.Conversion == nil {
			s.types[one.Collection] = one
		}
	}
	s.Must(t, "namespaces", "", `{"metadata":{"name":"n"}}`)
	return s
}

// target returns the target of a collection ("configmaps", "GROUP-RESOURCE.GROUP").
func (s *Server) target(collection, namespace, name string) registry.Target {
	return registry.Target{Type: s.types[collection], Namespace: namespace, Name: name}
}

// Create creates an object, in the Namespace n if its kind has namespaces.
func (s *Server) Create(collection, body string) (registry.Object, error) {
	return s.create(context.Background(), collection, "n", body, registry.WriteOptions{})
}

// CreateWith is Create with a context.
func (s *Server) CreateWith(ctx context.Context, collection, body string) (registry.Object, error) {
	return s.create(ctx, collection, "n", body, registry.WriteOptions{})
}

// DryRun is Create, but stores nothing.
func (s *Server) DryRun(collection, body string) (registry.Object, error) {
	return s.create(context.Background(), collection, "n", body, registry.WriteOptions{DryRun: []string{metav1.DryRunAll}})
}

func (s *Server) create(ctx context.Context, collection, namespace, body string, o registry.WriteOptions) (registry.Object, error) {
	if !s.types[collection].Namespaced {
		namespace = ""
	}
	o.FieldManager, o.By = "test", &authn.User{Name: "jane", Groups: []string{authn.Authenticated}}
	return s.registry.Create(ctx, s.target(collection, namespace, ""), registry.Body{Media: wire.JSON, Bytes: []byte(body)}, o)
}

// Must creates an object, which must not fail.
func (s *Server) Must(t testing.TB, collection, namespace, body string) {
	t.Helper()
	if _, err := s.create(context.Background(), collection, namespace, body, registry.WriteOptions{}); err != nil {
		t.Fatalf("%s: %v\n%s", collection, err, body)
	}
}

// Delete deletes an object of a kind without namespaces, which must not fail.
func (s *Server) Delete(t testing.TB, collection, name string) {
	t.Helper()
	if _, err := s.registry.Delete(context.Background(), s.target(collection, "", name), nil, nil); err != nil {
		t.Fatal(err)
	}
}

// Status returns the Status of an error, which must have one.
func Status(t testing.TB, err error) metav1.Status {
	t.Helper()
	var s apierrors.APIStatus
	if !errors.As(err, &s) {
		t.Fatalf("got %v, want a Status", err)
	}
	return s.Status()
}
