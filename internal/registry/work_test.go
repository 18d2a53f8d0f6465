package registry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// TestManyValues checks that a write of an object with many values waits for other large requests,
// however short its body is, and wherever the values come from. Each of them can be an error with a
// long text.
func TestManyValues(t *testing.T) {
	const values = 5000
	dense := strings.TrimSuffix(strings.Repeat(`"a/b",`, values), ",")
	object := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","finalizers":[` + dense + `]}}`
	copies := `[{"op":"add","path":"/data","value":{}},{"op":"add","path":"/metadata/ownerReferences","value":[{}` + strings.Repeat(`,{}`, 100) + `]}`
	for _, c := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		copies += `,{"op":"copy","from":"/metadata/ownerReferences","path":"/data/` + c + `"}`
	}
	patch := func(typ types.PatchType, text string) func(context.Context, *server) error {
		return func(ctx context.Context, s *server) error {
			_, err := s.Patch(ctx, s.target("configmaps", "default", "old"), registry.Patch{Type: typ, Bytes: []byte(text)}, registry.WriteOptions{FieldManager: "m"})
			return err
		}
	}
	named := strings.Replace(object, `"a"`, `"old"`, 1)
	for _, test := range []struct {
		name  string
		large bool
		write func(context.Context, *server) error
	}{
		{"create", true, func(ctx context.Context, s *server) error {
			_, err := s.Create(ctx, s.target("configmaps", "default", ""), registry.Body{Media: wire.JSON, Bytes: []byte(object)}, registry.WriteOptions{})
			return err
		}},
		{"update", true, func(ctx context.Context, s *server) error {
			_, err := s.Update(ctx, s.target("configmaps", "default", "old"), registry.Body{Media: wire.JSON, Bytes: []byte(named)}, registry.WriteOptions{})
			return err
		}},
		{"apply", true, patch(types.ApplyYAMLPatchType, named)},
		{"merge patch", true, patch(types.MergePatchType, object)},
		{"strategic merge patch", true, patch(types.StrategicMergePatchType, object)},
		{"JSON patch that copies", true, patch(types.JSONPatchType, copies+"]")},
		{"JSON patch that doubles", true, patch(types.JSONPatchType, `[{"op":"add","path":"/data","value":{}},{"op":"c\u006fpy","from":"/metadata","path":"/data/a"}]`)},
		{"usual JSON patch", false, patch(types.JSONPatchType, `[{"op":"add","path":"/data","value":{"a":"b"}}]`)},
		{"usual patch", false, patch(types.MergePatchType, `{"data":{"a":"b"}}`)},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, store.Options{})
				s.create("configmaps", "default", configMap("old", "", "x"))
				g := fairness.New(fairness.Config{Bytes: 64 << 20, Watches: 10, Large: 1})
				g.Configure([]fairness.Level{{Name: "l", Shares: 1, Queues: 16, HandSize: 1, QueueLength: 50}}, 100)
				other, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 1, Large: true})
				if err != nil {
					t.Fatal(err)
				}
				own, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 2, Write: true})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- test.write(fairness.WithSeat(t.Context(), own), s) }()
				synctest.Wait()
				if waits := len(done) == 0; waits != test.large {
					t.Errorf("the write waits: %t, want %t", waits, test.large)
				}
				other.Release()
				<-done // some are refused
				own.Release()
			})
		})
	}
}

// TestReadAllWork: reading all objects of a namespace is as large as they are, and ends with its context.
func TestReadAllWork(t *testing.T) {
	for name, size := range map[string]int{"small": 1 << 10, "large": fairness.SeatBytes} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, store.Options{})
				s.create("namespaces", "", `{"metadata":{"name":"other"}}`)
				for _, name := range []string{"a", "b", "c"} {
					s.create("configmaps", "default", configMap(name, "", strings.Repeat("x", size)))
				}
				s.create("configmaps", "other", configMap("a", "", strings.Repeat("x", fairness.SeatBytes)))
				g := fairness.New(fairness.Config{Bytes: 64 << 20, Watches: 10, Large: 1})
				g.Configure([]fairness.Level{{Name: "l", Shares: 1, Queues: 16, HandSize: 1, QueueLength: 50}}, 100)
				other, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 1, Large: true})
				if err != nil {
					t.Fatal(err)
				}
				own, err := g.Acquire(t.Context(), fairness.Request{Level: "l", Flow: 2, Write: true})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(fairness.WithSeat(t.Context(), own))
				defer cancel()
				read := 0
				done := make(chan error, 1)
				go func() {
					for _, err := range s.ReadAll(ctx, s.target("configmaps", "default", "")) {
						if err != nil {
							done <- err
							return
						}
						if read++; read == 2 {
							cancel()
						}
					}
					done <- nil
				}()
				synctest.Wait()
				if waits := len(done) == 0; waits != (name == "large") {
					t.Errorf("it waits for another large request: %t", waits)
				}
				other.Release()
				if err := <-done; !errors.Is(err, context.Canceled) || read != 2 {
					t.Errorf("%d objects were read, error %v; want 2 and %v", read, err, context.Canceled)
				}
				own.Release()
			})
		})
	}
}
