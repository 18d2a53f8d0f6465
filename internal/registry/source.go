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

// Source makes the objects of a kind that is read and never stored, whenever somebody
// reads them. They have no version. Its function is called by many goroutines at once.
type Source struct {
	// Names are those of all objects, in the order of a list.
	Names []string
	// Read makes some of them, in the same order.
	Read func(ctx context.Context, names []string) []runtime.Object
}

// Reads tells whether objects of the target are made by a Source.
func (r *Registry) Reads(t Target) bool {
	return t.Type.Collection == "" && r.Sources[t.Type.GroupResource()].Read != nil
}

// getSource reads one object of a Source.
func (r *Registry) getSource(ctx context.Context, t Target) (Object, error) {
	s := r.Sources[t.Type.GroupResource()]
	for _, name := range s.Names {
		if name == t.Name {
			made, err := madeOf(t, name, s.Read(ctx, []string{name})[0])
			return Object{Stored: made}, err
		}
	}
	return Object{}, apierrors.NewNotFound(schema.GroupResource{Group: t.Type.Group, Resource: t.Type.Singular}, t.Name)
}

// listSource reads the objects of a Source that are selected. Versions and limits mean
// nothing to it.
func (r *Registry) listSource(ctx context.Context, t Target, o *metainternal.ListOptions) (*List, error) {
	s, err := newSelector(ctx, t, o)
	if err != nil {
		return nil, err
	}
	source := r.Sources[t.Type.GroupResource()]
	var names []string
	for _, name := range source.Names {
		if s.key == "" || s.key == name {
			names = append(names, name)
		}
	}
	var items []*store.Object
	for i, object := range source.Read(ctx, names) {
		made, err := madeOf(t, names[i], object)
		if err != nil {
			return nil, err
		}
		if s.matches(made) {
			items = append(items, made)
		}
	}
	return &List{Type: t.Type, Close: func() {}, Items: func(yield func(*store.Object, error) bool) {
		for _, made := range items {
			if !yield(made, nil) {
				return
			}
		}
	}}, nil
}

// madeOf is an object that is not stored in the form of those that are.
func madeOf(t Target, name string, object runtime.Object) (*store.Object, error) {
	object.GetObjectKind().SetGroupVersionKind(t.Type.GroupVersionKind())
	value, err := json.Marshal(object)
	return &store.Object{Key: name, Held: value}, err
}
