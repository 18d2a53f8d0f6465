package registry

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/store"
)

// lock is the UID and the resourceVersion in a body: the version of the object that the client
// wants to change.
type lock struct {
	version store.Revision // zero: any
	uid     string         // empty: any
}

func bodyLock(meta metav1.Object) (lock, error) {
	version, err := bodyVersion(meta)
	return lock{version, string(meta.GetUID())}, err
}

// check compares the lock with the stored object.
func (l lock) check(w *write, current *store.Object) error {
	if have := textAt(current.Bytes(), "metadata", "uid"); l.uid != "" && l.uid != have {
		return w.uidConflict(l.uid, have)
	}
	return l.checkVersion(w.Target, current)
}

// checkVersion compares the resourceVersion only.
func (l lock) checkVersion(t Target, current *store.Object) error {
	if s := t.subresource(); l.version == 0 && !t.Type.Strategy.AllowUnconditionalUpdate && (s == nil || s.Exchange == nil) {
		// This error has the resource where others have the kind.
		return apierrors.NewInvalid(schema.GroupKind{Group: t.Type.Group, Kind: t.Type.Resource}, t.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update"),
		})
	}
	if l.version != 0 && l.version != current.Modified {
		return conflict(t, errors.New(changedText))
	}
	return nil
}

// checkPatched checks the metadata that a patch or an apply must not change.
func (w *write) checkPatched(current *store.Object, meta metav1.Object) error {
	if err := w.checkURL(meta); err != nil {
		return err
	}
	l, err := bodyLock(meta)
	if err != nil {
		return err
	}
	have := textAt(current.Bytes(), "metadata", "uid")
	if s := w.subresource(); s != nil && s.Exchange != nil && l.uid != "" && l.uid != have {
		shown := schema.GroupResource{Group: w.Type.Group, Resource: w.Type.Resource + "/" + s.Name}
		return apierrors.NewConflict(shown, w.Name, preconditionFailed("UID", l.uid, have))
	}
	return l.checkVersion(w.Target, current)
}
