package registry

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// ServerManager is the field manager of the server's own writes.
const ServerManager = "kube-apiserver"

// Edit changes an object on behalf of the server itself, as the given field manager. Edit gets a
// copy of the current object in its stored version, and is called again after a conflict. At a
// subresource, only the fields that the subresource can change are stored.
func (r *Registry) Edit(ctx context.Context, t Target, manager string, edit func(o metav1.Object) error) (Object, error) {
	w := &write{Target: t, verb: store.VerbUpdate, options: &WriteOptions{FieldManager: manager}}
	made, err := r.modify(ctx, w, objectChange{next: func(v currentObject) (runtime.Object, error) {
		next := v.object.DeepCopyObject()
		return next, edit(next.(metav1.Object))
	}})
	return w.response(made, false, err)
}

// PrepareEdit returns the write of an edit by the server, for a transaction that the caller
// commits. Edit gets a copy of the object in its stored version. The write is zero if edit changes
// nothing. Admission plugins are not called.
func (r *Registry) PrepareEdit(ctx context.Context, t Target, current *store.Object, manager string, edit func(o metav1.Object) error) (store.Write, error) {
	w := &write{Target: t, verb: store.VerbUpdate, options: &WriteOptions{FieldManager: manager}, source: fromServer}
	v, err := w.readCurrent(ctx, current, true)
	if err != nil {
		return store.Write{}, err
	}
	next := v.object.DeepCopyObject()
	if err := edit(next.(metav1.Object)); err != nil {
		return store.Write{}, err
	}
	if next, err = w.merge(v.object, next); err != nil {
		return store.Write{}, err
	}
	if err := r.prepareUpdate(ctx, &Attributes{Target: t, w: w, registry: r}, v, next); err != nil {
		return store.Write{}, err
	}
	e, same, err := r.encode(ctx, w, &v, next)
	if err != nil || same {
		return store.Write{}, err
	}
	made := store.Write{Collection: t.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified, Origin: w.origin(ctx)}
	return made, checkSize(e, current)
}

// Create returns the write of another new object, which the server creates itself.
func (t *Transaction) Create(ctx context.Context, at Target, object runtime.Object) (store.Write, error) {
	w := &write{Target: at, options: &WriteOptions{FieldManager: ServerManager}, source: fromServer}
	a := t.registry.attributes(w, admissionv1.Create, t.State, nil, nil)
	object, err := t.registry.prepareCreate(ctx, w, a, object)
	if err != nil {
		return store.Write{}, err
	}
	e, _, err := t.registry.encode(ctx, w, nil, object)
	if err != nil {
		return store.Write{}, err
	}
	at.Name = object.(metav1.Object).GetName()
	return store.Write{Collection: at.Type.Collection, Key: at.key(), Value: e.Bytes, RevisionAt: e.RevisionAt}, nil
}

// NextStatus adds a second version of the request's own object, with another status and its own
// revision. Next is the object with the new status; only its metadata and status are used. The
// target must be in the stored version.
//
// The two versions differ only in the status and in its managers. So both are encoded and tracked
// without the rest of the object, and the result replaces the status in the bytes of the first
// version.
func (t *Transaction) NextStatus(ctx context.Context, next runtime.Object) error {
	r, e := t.registry, wire.Encoded{Bytes: t.Own().Value, RevisionAt: t.Own().RevisionAt}
	to := t.Target
	to.Name, to.Subresource = t.Object.(metav1.Object).GetName(), "status"
	by := &write{Target: to, options: &WriteOptions{FieldManager: ServerManager}, source: fromServer}
	before := next.DeepCopyObject()
	by.stored().Parts().CopyStatus(before, t.Object)
	plain, err := by.encode(ctx, before)
	if err != nil {
		return err
	}
	plain = withManaged(plain, managedFields(e.Bytes))
	stored := &store.Object{Key: to.key(), Held: plain.Bytes, RevisionAt: int32(plain.RevisionAt)}
	made, same, err := r.encode(ctx, by, &currentObject{stored, plain.Bytes, before}, next)
	if err != nil || same {
		return err
	}
	second := replaced(e, statusMember, member(made.Bytes, statusMember))
	lean := wire.Encoded{Bytes: withoutManaged(second.Bytes, locateManaged(second.Bytes)), RevisionAt: e.RevisionAt}
	if second = withManaged(lean, managedFields(made.Bytes)); checkSize(second, nil) != nil {
		second = lean // too large with managed fields
		if err := checkSize(second, nil); err != nil {
			return err
		}
	}
	t.After(store.Write{Collection: t.Own().Collection, Key: t.Own().Key, Value: second.Bytes, RevisionAt: second.RevisionAt, Next: true})
	return nil
}

const statusMember = "status"

// replaced returns an encoding with another value of an existing member that follows the
// metadata.
func replaced(e wire.Encoded, name string, value []byte) wire.Encoded {
	old := locate(e.Bytes, name)
	out := make([]byte, 0, len(e.Bytes)+len(value)-(old.to-old.from))
	out = append(append(append(out, e.Bytes[:old.from]...), value...), e.Bytes[old.to:]...)
	return wire.Encoded{Bytes: out, RevisionAt: e.RevisionAt}
}
