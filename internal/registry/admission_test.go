package registry_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestAttributes checks that plugins see the client, the request and its options.
func TestAttributes(t *testing.T) {
	alice := &authn.User{Name: "alice", Extra: map[string][]string{"team": {"a"}}}
	force, grace := true, int64(7)
	options := registry.WriteOptions{By: alice, FieldManager: "m", FieldValidation: "Warn"}
	applied := options
	applied.Force = &force
	deletion := &metav1.DeleteOptions{GracePeriodSeconds: &grace}
	configMaps := func(s *server) registry.Target { return s.target("configmaps", "default", "") }
	named := func(s *server) registry.Target { return s.target("configmaps", "default", "a") }
	create := func(s *server) error {
		_, err := s.Create(t.Context(), configMaps(s), body(`{"metadata":{"name":"a"}}`), options)
		return err
	}
	const deleted = `*v1.DeleteOptions{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","gracePeriodSeconds":7}`
	for _, c := range []struct {
		name, want string
		do         func(s *server) error
	}{
		{"create", `CREATE a *v1.CreateOptions{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m","fieldValidation":"Warn"}`, create},
		{"generated name", `CREATE g-fixed *v1.CreateOptions{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]} dry`, func(s *server) error {
			s.GenerateName = func(base string) string { return base + "fixed" }
			_, err := s.Create(t.Context(), configMaps(s), body(`{"metadata":{"generateName":"g-"}}`), registry.WriteOptions{By: alice, DryRun: []string{"All"}})
			return err
		}},
		{"update", `UPDATE a *v1.UpdateOptions{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m","fieldValidation":"Warn"}`, func(s *server) error {
			_, err := s.Update(t.Context(), named(s), body(`{"metadata":{"name":"a"},"data":{"a":"b"}}`), options)
			return err
		}},
		{"patch", `UPDATE a *v1.UpdateOptions{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m","fieldValidation":"Warn"}`, func(s *server) error {
			_, err := s.Patch(t.Context(), named(s), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"data":{"c":"d"}}`)}, options)
			return err
		}},
		{"apply", `UPDATE a *v1.UpdateOptions{"kind":"UpdateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m","fieldValidation":"Warn"}`, func(s *server) error {
			_, err := s.Patch(t.Context(), named(s), registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"e":"f"}}`)}, applied)
			return err
		}},
		{"apply that creates", `CREATE b *v1.CreateOptions{"kind":"CreateOptions","apiVersion":"meta.k8s.io/v1","fieldManager":"m","fieldValidation":"Warn"}`, func(s *server) error {
			_, err := s.Patch(t.Context(), s.target("configmaps", "default", "b"), registry.Patch{Type: types.ApplyYAMLPatchType, Bytes: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"b"}}`)}, applied)
			return err
		}},
		{"delete", `DELETE a ` + deleted, func(s *server) error {
			_, err := s.Delete(t.Context(), named(s), deletion, alice)
			return err
		}},
		{"deletecollection", `DELETE a ` + deleted, func(s *server) error {
			_, err := s.DeleteCollection(t.Context(), configMaps(s), deletion, &metainternal.ListOptions{}, alice)
			return err
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t, store.Options{})
			if c.name != "create" {
				if err := create(s); err != nil {
					t.Fatal(err)
				}
			}
			var seen []string
			s.Plugins = []registry.Plugin{{Validate: func(_ context.Context, a *registry.Attributes) error {
				o, err := json.Marshal(a.Options())
				if err != nil {
					return err
				}
				text := fmt.Sprintf("%s %s %T%s", a.Operation, a.Name, a.Options(), o)
				if a.DryRun {
					text += " dry"
				}
				seen = append(seen, text)
				if a.User != alice || a.Namespace != "default" || a.Kind.String() != "/v1, Kind=ConfigMap" || a.RequestedKind() != a.Kind ||
					a.RequestedResource().String() != "/v1, Resource=configmaps" || a.Resource() != a.RequestedResource() {
					t.Errorf("%+v", a)
				}
				a.Annotate("k", "first")
				a.Annotate("k", "second")
				if a.Annotations()["k"] != "first" {
					t.Errorf("the annotations are %v", a.Annotations())
				}
				return nil
			}}}
			if err := c.do(s); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(seen, "; "); got != c.want {
				t.Errorf("plugins saw\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestMutate checks that the changes of plugins are validated and owned by no manager, and that
// fields that the request cannot change are restored.
func TestMutate(t *testing.T) {
	s := newServer(t, store.Options{})
	s.Plugins = []registry.Plugin{{Mutate: func(_ context.Context, a *registry.Attributes) error {
		o := a.Object.(metav1.Object)
		if o.GetAnnotations()["invalid"] != "" {
			o.SetLabels(map[string]string{"not a label": "x"})
			return nil
		}
		o.SetLabels(map[string]string{"by": "plugin"})
		o.SetUID(o.GetUID() + "") // the server has set it before
		if a.Old != nil {
			o.SetCreationTimestamp(metav1.Time{})
			o.SetGeneration(9)
		}
		return nil
	}}}
	at := s.target("configmaps", "default", "a")
	made, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"a"},"data":{"a":"1"}}`), registry.WriteOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	next, err := s.Update(t.Context(), at, body(`{"metadata":{"name":"a"},"data":{"a":"2"}}`), registry.WriteOptions{FieldManager: "m"})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range []registry.Object{made, next} {
		text := string(o.Stored.Bytes())
		if !strings.Contains(text, `"labels":{"by":"plugin"}`) || strings.Contains(text, "f:labels") || strings.Contains(text, `"generation"`) {
			t.Errorf("stored %s", text)
		}
	}
	if first, second := meta(t, made.Stored), meta(t, next.Stored); first.UID != second.UID || !first.CreationTimestamp.Equal(&second.CreationTimestamp) {
		t.Errorf("the update made %v of %v", second, first)
	}
	for _, write := range []func() error{
		func() error {
			_, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"b","annotations":{"invalid":"x"}}}`), registry.WriteOptions{})
			return err
		},
		func() error {
			_, err := s.Update(t.Context(), at, body(`{"metadata":{"name":"a","annotations":{"invalid":"x"}}}`), registry.WriteOptions{})
			return err
		},
	} {
		if err := write(); !apierrors.IsInvalid(err) {
			t.Errorf("an invalid label of a plugin: %v", err)
		}
	}
}

// TestStartsAgain checks that a request starts again, from the body and by the newer state, if
// something changes that a plugin depends on.
func TestStartsAgain(t *testing.T) {
	for name, write := range map[string]func(s *server) error{
		"create": func(s *server) error {
			_, err := s.Create(t.Context(), s.target("configmaps", "default", ""), body(`{"metadata":{"name":"new"},"data":{}}`), registry.WriteOptions{})
			return err
		},
		"update": func(s *server) error {
			_, err := s.Update(t.Context(), s.target("configmaps", "default", "old"), body(`{"metadata":{"name":"old"}}`), registry.WriteOptions{})
			return err
		},
		"update of a version": func(s *server) error {
			o := meta(t, s.Store.Any().Get("configmaps", "default/old"))
			_, err := s.Update(t.Context(), s.target("configmaps", "default", "old"), body(fmt.Sprintf(`{"metadata":{"name":"old","resourceVersion":%q}}`, o.ResourceVersion)), registry.WriteOptions{})
			return err
		},
		"delete": func(s *server) error {
			_, err := s.Delete(t.Context(), s.target("configmaps", "default", "old"), nil, nil)
			return err
		},
		"apply that creates": func(s *server) error {
			_, err := s.applyAs("m", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, false)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, store.Options{})
			s.create("configmaps", "default", `{"metadata":{"name":"old"}}`)
			s.create("secrets", "default", `{"metadata":{"name":"s","labels":{"n":"0"}}}`)
			seen := 0
			s.Plugins = []registry.Plugin{{
				Handles: func(_ *store.State, t registry.Target, _ registry.Operation) bool {
					return t.Type.Resource == "configmaps"
				},
				Mutate: func(_ context.Context, a *registry.Attributes) error {
					seen++
					if a.Object != nil {
						label := meta(t, a.State.Get("secrets", "default/s")).Labels["n"]
						a.Object.(metav1.Object).SetLabels(map[string]string{"n" + label: "x"})
					}
					return nil
				},
				Validate: func(_ context.Context, a *registry.Attributes) error {
					if seen == 1 {
						_, err := s.Patch(t.Context(), s.target("secrets", "default", "s"), registry.Patch{Type: types.MergePatchType, Bytes: []byte(`{"metadata":{"labels":{"n":"1"}}}`)}, registry.WriteOptions{})
						return err
					}
					return nil
				},
				Record: func(_ context.Context, tx *registry.Transaction) error {
					tx.Need("secrets", "default/s")
					return nil
				},
			}}
			if err := write(s); err != nil || seen != 2 {
				t.Fatalf("the plugin was asked %d times: %v", seen, err)
			}
			for o := range s.Store.Any().Snapshot("configmaps").Scan("", "") {
				if labels := meta(t, o).Labels; labels["n0"] != "" {
					t.Errorf("%s has the labels %v", o.Key, labels)
				}
			}
		})
	}
}

// TestTerminatingNamespace checks that nothing is created in a namespace whose deletion begins
// during the request.
func TestTerminatingNamespace(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("namespaces", "", `{"metadata":{"name":"goes","finalizers":["example.com/hold"]}}`)
	once := true
	s.Plugins = []registry.Plugin{{Validate: func(_ context.Context, a *registry.Attributes) error {
		if once && a.Type.Resource == "configmaps" {
			once = false
			_, err := s.Delete(t.Context(), s.target("namespaces", "", "goes"), nil, nil)
			return err
		}
		return nil
	}}}
	_, err := s.Create(t.Context(), s.target("configmaps", "goes", ""), body(`{"metadata":{"name":"late"}}`), registry.WriteOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "it is being terminated") {
		t.Errorf("created in a terminating namespace: %v", err)
	}
	if n := s.Store.Any().Snapshot("configmaps").Count("goes/", ""); n != 0 {
		t.Errorf("%d objects are in the namespace", n)
	}
}

// TestBusyNamespace checks that a request does not start again when its namespace is changed and
// still exists.
func TestBusyNamespace(t *testing.T) {
	s := newServer(t, store.Options{})
	seen := 0
	s.Plugins = []registry.Plugin{{Validate: func(_ context.Context, a *registry.Attributes) error {
		if a.Type.Resource != "configmaps" {
			return nil
		}
		seen++
		_, err := s.Patch(t.Context(), s.target("namespaces", "", "default"), registry.Patch{Type: types.MergePatchType, Bytes: fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, seen)}, registry.WriteOptions{})
		return err
	}}}
	s.create("configmaps", "default", `{"metadata":{"name":"a"}}`)
	if seen != 1 {
		t.Errorf("the plugin was asked %d times", seen)
	}
}

// TestStartsAgainUntilTheDeadline checks that a request that cannot be decided in time is a
// timeout.
func TestStartsAgainUntilTheDeadline(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("secrets", "default", `{"metadata":{"name":"s"}}`)
	ctx, cancel := context.WithCancelCause(t.Context())
	seen := 0
	s.Plugins = []registry.Plugin{{
		Handles: func(_ *store.State, t registry.Target, _ registry.Operation) bool {
			return t.Type.Resource == "configmaps"
		},
		Record: func(_ context.Context, tx *registry.Transaction) error {
			tx.Need("secrets", "default/s")
			if seen++; seen == 5 {
				cancel(nil)
			}
			_, err := s.Patch(t.Context(), s.target("secrets", "default", "s"), registry.Patch{Type: types.MergePatchType, Bytes: fmt.Appendf(nil, `{"metadata":{"labels":{"n":"%d"}}}`, seen)}, registry.WriteOptions{})
			return err
		},
	}}
	_, err := s.Create(ctx, s.target("configmaps", "default", ""), body(`{"metadata":{"name":"a"}}`), registry.WriteOptions{})
	if !errors.Is(err, context.Canceled) || errors.Is(err, store.ErrStale) {
		t.Errorf("after %d attempts: %v", seen, err)
	}
}

// TestAdmissionTimeout checks that a request fails if its time ends in a plugin that ignores
// failures. Otherwise a client could bypass the plugin with a short timeout.
func TestAdmissionTimeout(t *testing.T) {
	s := newServer(t, store.Options{})
	s.create("configmaps", "default", `{"metadata":{"name":"a"}}`)
	before := s.Store.Any().Revision()
	at, named := s.target("configmaps", "default", ""), s.target("configmaps", "default", "a")
	for phase, plugin := range map[string]func(end func()) registry.Plugin{
		"mutating": func(end func()) registry.Plugin {
			return registry.Plugin{Mutate: func(context.Context, *registry.Attributes) error { end(); return nil }}
		},
		"validating": func(end func()) registry.Plugin {
			return registry.Plugin{Validate: func(context.Context, *registry.Attributes) error { end(); return nil }}
		},
	} {
		for verb, do := range map[string]func(ctx context.Context) error{
			"create": func(ctx context.Context) error {
				_, err := s.Create(ctx, at, body(`{"metadata":{"name":"b"}}`), registry.WriteOptions{})
				return err
			},
			"update": func(ctx context.Context) error {
				_, err := s.Update(ctx, named, body(`{"metadata":{"name":"a"},"data":{"a":"b"}}`), registry.WriteOptions{})
				return err
			},
			"delete": func(ctx context.Context) error {
				_, err := s.Delete(ctx, named, nil, nil)
				return err
			},
		} {
			ctx, end := context.WithCancel(t.Context())
			s.Plugins = []registry.Plugin{plugin(end)}
			if err := do(ctx); err == nil || s.Store.Any().Revision() != before {
				t.Errorf("%s, %s: %v, and the revision is %d, want an error and %d", phase, verb, err, s.Store.Any().Revision(), before)
			}
		}
	}
}
