package registry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/patch"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// TestNextStatus checks that the second version of an object equals the result of an update of its
// status.
func TestNextStatus(t *testing.T) {
	for name, bodies := range map[string][]string{
		"new":            {definitionOf(`"labels":{"a":"b"}`, `{"type":"object"}`)},
		"empty lists":    {definitionOf(`"labels":{},"finalizers":[]`, `{"type":"object","required":[],"properties":{}}`)},
		"status sent":    {definitionOf(`"annotations":{"a":"status"}`, `{"type":"object"}`, `,"status":{"acceptedNames":{"kind":"X","plural":"x"},"conditions":null,"storedVersions":["v1"]}`)},
		"update":         {definitionOf(`"labels":{"a":"b"}`, `{"type":"object"}`), definitionOf(`"labels":{"a":"c"}`, `{"type":"object","description":"status"}`)},
		"managed fields": {definitionOf(`"managedFields":[]`, `{"type":"object"}`), definitionOf(`"managedFields":[{}]`, `{"type":"object","description":"status"}`)},
	} {
		t.Run(name, func(t *testing.T) {
			edited := lastOf(t, bodies, func(s *server, at registry.Target) {
				at.Subresource = "status"
				if _, err := s.Edit(t.Context(), at, "kube-apiserver", func(o metav1.Object) error {
					establish(o.(*apiextensionsv1.CustomResourceDefinition))
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			})
			if followed := lastOf(t, bodies, nil); followed != edited {
				t.Errorf("what follows is\n%s\nand an edit makes\n%s", followed, edited)
			}
		})
	}
}

func establish(d *apiextensionsv1.CustomResourceDefinition) {
	d.Status.AcceptedNames = d.Spec.Names
	d.Status.Conditions = append(d.Status.Conditions, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Message: fmt.Sprint("at generation ", d.Generation),
	})
}

// lastOf stores the bodies one after the other, and edits each version; a nil edit leaves that to
// the next version. It returns the object that is stored at the end.
func lastOf(t *testing.T, bodies []string, edit func(s *server, at registry.Target)) string {
	t.Helper()
	s := newServer(t, store.Options{})
	s.Now = func() time.Time { return time.Unix(1_767_225_600, 0) }
	at := registry.Target{Type: kind(t, "apiextensions.k8s.io", "v1", "customresourcedefinitions"), Name: "things.example.com"}
	if edit == nil {
		follows(s)
	}
	stored := func() *store.Object { return s.Store.Any().Get(at.Type.Collection, at.Name) }
	for i, text := range bodies {
		options := registry.WriteOptions{FieldManager: "a"}
		var err error
		if i == 0 {
			_, err = s.Create(t.Context(), registry.Target{Type: at.Type}, body(text), options)
		} else {
			version := fmt.Sprintf(`"metadata":{"resourceVersion":"%d",`, stored().Modified)
			_, err = s.Update(t.Context(), at, body(strings.Replace(text, `"metadata":{`, version, 1)), options)
		}
		if err != nil {
			t.Fatal(err)
		}
		if edit != nil {
			edit(s, at)
		}
	}
	return uidIn.ReplaceAllString(revisionIn.ReplaceAllString(string(stored().Bytes()), ""), "")
}

// definitionOf is a definition with more in its metadata, a schema, and more members.
func definitionOf(metadata, schema string, more ...string) string {
	return fmt.Sprintf(`{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","metadata":{"name":"things.example.com",%s},
		"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":%s}}]}%s}`,
		metadata, schema, fmt.Sprint(append([]string{""}, more...)[len(more)]))
}

// follows has a second version follow each definition, in the same transaction.
func follows(s *server) {
	s.Plugins = append(s.Plugins, registry.Plugin{Record: func(ctx context.Context, tx *registry.Transaction) error {
		next := *tx.Object.(*apiextensionsv1.CustomResourceDefinition)
		next.Status = *next.Status.DeepCopy()
		establish(&next)
		next.Spec = apiextensionsv1.CustomResourceDefinitionSpec{}
		return tx.NextStatus(ctx, &next)
	}})
}

// TestNextStatusLimit checks that the second version of an object has the size limit of every
// object.
func TestNextStatusLimit(t *testing.T) {
	s := newServer(t, store.Options{})
	at := registry.Target{Type: kind(t, "apiextensions.k8s.io", "v1", "customresourcedefinitions"), Name: "things.example.com"}
	follows(s)
	refused := 0
	for less := int32(400); ; less += 50 {
		text := definitionOf(`"labels":{"a":"b"}`, `{"type":"object","description":"`+strings.Repeat("x", patch.MaxBytes-int(less))+`"}`)
		_, err := s.Create(t.Context(), registry.Target{Type: at.Type}, body(text), registry.WriteOptions{FieldManager: "a"})
		if err == nil {
			break
		}
		if refused++; !apierrors.IsRequestEntityTooLargeError(err) {
			t.Fatal(err)
		}
	}
	if o := s.Store.Any().Get(at.Type.Collection, at.Name); refused == 0 || patch.Size(o.Bytes()) > patch.MaxBytes {
		t.Errorf("%d were refused, and one of %d bytes is stored", refused, patch.Size(o.Bytes()))
	}
}
