package registry

import (
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// Source makes the objects of a kind that can be read and is never stored. It makes them anew for
// each read. They have no resource version.
type Source struct {
	// Names are the names of all objects, in the order of a list.
	Names []string
	// Read returns the objects with some of these names, in the same order. It is safe for
	// concurrent use.
	Read func(ctx context.Context, names []string) []runtime.Object
}

// ReadsVirtual reports whether the objects of the target come from a Source.
func (r *Registry) ReadsVirtual(t Target) bool { return r.source(t) != nil }

func (r *Registry) source(t Target) *Source {
	if t.Type.Collection != "" || r.Virtual == nil {
		return nil
	}
	return r.Virtual.Source(t)
}

// get returns one object.
func (s *Source) get(ctx context.Context, t Target) (Object, error) {
	for _, name := range s.Names {
		if name == t.Name {
			made, err := virtualObject(t, name, s.Read(ctx, []string{name})[0])
			return Object{Stored: made}, err
		}
	}
	return Object{}, apierrors.NewNotFound(schema.GroupResource{Group: t.Type.Group, Resource: t.Type.Singular}, t.Name)
}

// list returns the selected objects. It ignores versions and limits.
func (s *Source) list(ctx context.Context, t Target, o *metainternal.ListOptions) ([]*store.Object, error) {
	selected, err := newSelector(ctx, t, o)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range s.Names {
		if selected.key == "" || selected.key == name {
			names = append(names, name)
		}
	}
	var items []*store.Object
	for i, object := range s.Read(ctx, names) {
		made, err := virtualObject(t, names[i], object)
		if err != nil {
			return nil, err
		}
		if selected.matches(made) {
			items = append(items, made)
		}
	}
	return items, nil
}

// virtualObject returns a virtual object in the form of a stored one.
func virtualObject(t Target, name string, object runtime.Object) (*store.Object, error) {
	object.GetObjectKind().SetGroupVersionKind(t.Type.GroupVersionKind())
	value, err := json.Marshal(object)
	return &store.Object{Key: name, Held: value}, err
}
