package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// The loops write with the verbs of the registry, as clients do.

// errLeave ends an edit that is no longer needed.
var errLeave = errors.New("the object is not what it was")

// create creates an object of the collection.
func (l *Loops) create(ctx context.Context, collection string, o metav1.Object) error {
	t, ok := l.served().target(object{collection, o.GetName()})
	if !ok {
		return fmt.Errorf("%s are not served", collection)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	t.Name, t.Namespace = "", o.GetNamespace()
	_, err = l.c.Registry.Create(ctx, t, registry.Body{Media: wire.JSON, Bytes: body}, registry.WriteOptions{FieldManager: manager})
	return err
}

// edit changes an object. It writes nothing, and returns no error, when the object does not
// exist or change returns errLeave.
func (l *Loops) edit(ctx context.Context, o object, subresource string, change func(metav1.Object) error) error {
	_, err := l.editVersion(ctx, o, subresource, change)
	return err
}

// editVersion is edit, and returns the new version; nil when nothing was written.
func (l *Loops) editVersion(ctx context.Context, o object, subresource string, change func(metav1.Object) error) (*store.Object, error) {
	return l.editVersionAs(ctx, manager, o, subresource, change)
}

// editAs is edit for another field manager.
func (l *Loops) editAs(ctx context.Context, by string, o object, subresource string, change func(metav1.Object) error) error {
	_, err := l.editVersionAs(ctx, by, o, subresource, change)
	return err
}

func (l *Loops) editVersionAs(ctx context.Context, by string, o object, subresource string, change func(metav1.Object) error) (*store.Object, error) {
	t, ok := l.served().target(o)
	if !ok {
		return nil, nil
	}
	t.Subresource = subresource
	made, err := l.c.Registry.Edit(ctx, t, by, change)
	if apierrors.IsNotFound(err) || errors.Is(err, errLeave) {
		return nil, nil
	}
	return made.Stored, err
}

// removeFinalizer removes a finalizer from a terminating object with the UID.
func (l *Loops) removeFinalizer(ctx context.Context, o object, uid types.UID, finalizer string) error {
	return l.edit(ctx, o, "", func(m metav1.Object) error {
		all := m.GetFinalizers()
		if m.GetUID() != uid || m.GetDeletionTimestamp() == nil || !slices.Contains(all, finalizer) {
			return errLeave
		}
		m.SetFinalizers(slices.DeleteFunc(slices.Clone(all), func(f string) bool { return f == finalizer }))
		return nil
	})
}

// remove deletes exactly this version of an object. A deleted object is not an error; a
// changed one is a conflict.
func (l *Loops) remove(ctx context.Context, name object, o *store.Object, policy metav1.DeletionPropagation) error {
	t, ok := l.served().target(name)
	if !ok {
		return nil
	}
	return l.removeAt(ctx, t, o, policy)
}

// removeAt is remove for the object of a target.
func (l *Loops) removeAt(ctx context.Context, t registry.Target, o *store.Object, policy metav1.DeletionPropagation) error {
	uid, version := types.UID(registry.MetadataOf(o).UID), strconv.FormatUint(uint64(o.Modified), 10)
	_, err := l.c.Registry.Delete(ctx, t, &metav1.DeleteOptions{
		Preconditions:     &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		PropagationPolicy: &policy,
	}, nil)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
