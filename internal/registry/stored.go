package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// currentObject is the stored object that a write changes. It is converted once for all steps of
// the write, since a webhook may convert it.
type currentObject struct {
	stored *store.Object
	// value is the object as JSON in the version of the request.
	value []byte
	// object is the object in the version of the strategy. It must not be changed, and may
	// lack its managed fields.
	object runtime.Object
}

// readCurrent reads the stored object of a write. Only admission plugins need its managed fields
// decoded.
func (w *write) readCurrent(ctx context.Context, current *store.Object, managed bool) (v currentObject, err error) {
	v = currentObject{stored: current, value: current.Bytes()}
	lean := v.value
	if !managed {
		lean = withoutManaged(v.value, w.owners.locate(current))
	}
	switch c := w.Type.Conversion; {
	case c == nil || !c.PerRequest:
		if v.object, err = w.readValue(ctx, current.Key, lean); err == nil {
			v.value, err = wire.As(ctx, w.Type, v.value)
		}
	case c.AlreadyCurrent != nil && c.AlreadyCurrent(lean):
		v.object, err = wire.Unmarshal(lean, w.Type.New)
	default:
		if v.object, err = w.read(ctx, current); err != nil {
			return v, err
		}
		if v.value, err = json.Marshal(v.object); !managed {
			v.object.(metav1.Object).SetManagedFields(nil)
		}
	}
	return v, err
}

// show returns the JSON that a patch or an apply of the target changes.
func (w *write) show(v currentObject, of resource.Purpose) ([]byte, error) {
	if s := w.subresource(); s != nil && s.View != nil {
		return wire.View(s, v.object.DeepCopyObject(), of)
	}
	return v.value, nil
}

// Show returns the JSON that a GET or a write of the target returns for a stored object. It is the
// stored bytes themselves if they need no conversion.
func (t Target) Show(ctx context.Context, o *store.Object, of resource.Purpose) ([]byte, error) {
	if s := t.subresource(); s != nil && s.View != nil {
		stored, err := t.read(ctx, o)
		if err != nil {
			return nil, err
		}
		return wire.View(s, stored, of)
	}
	return wire.As(ctx, t.Type, o.Bytes())
}

// read decodes a stored object into the version of the strategy. The caller owns the result.
func (t Target) read(ctx context.Context, o *store.Object) (runtime.Object, error) {
	return t.readValue(ctx, o.Key, o.Bytes())
}

// readValue is read for a value, which may lack parts of the stored object.
func (t Target) readValue(ctx context.Context, key string, value []byte) (runtime.Object, error) {
	var object runtime.Object
	var err error
	if t.Type.ConvertsPerRequest() {
		object, err = wire.Read(ctx, t.Type, value)
	} else {
		object, err = wire.Unmarshal(value, t.stored().New)
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s: %w", t.Type.Collection, key, err)
	}
	return object, nil
}

// readOrRescue is read for a deletion. An object whose stored form does not fit its kind was not written through the API,
// and must be deletable all the same. For such an object, rescued is true, and the result has the metadata that a deletion
// needs. It has no finalizers: an update that removes them would not pass validation.
func (t Target) readOrRescue(ctx context.Context, o *store.Object) (_ runtime.Object, rescued bool, _ error) {
	object, err := t.read(ctx, o)
	if err == nil || t.Type.ConvertsPerRequest() {
		return object, false, err
	}
	var m metav1.ObjectMeta
	if json.Unmarshal(member(o.Bytes(), "metadata"), &m) != nil {
		m = metav1.ObjectMeta{UID: types.UID(textAt(o.Bytes(), "metadata", "uid"))}
	}
	m = metav1.ObjectMeta{Name: t.Name, Namespace: t.Namespace, UID: m.UID, Labels: m.Labels, CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp}
	value, err := json.Marshal(map[string]*metav1.ObjectMeta{"metadata": &m})
	if err != nil {
		return nil, false, err
	}
	object, err = wire.Unmarshal(value, t.stored().New)
	if n, ok := object.(*corev1.Namespace); ok { // its objects are deleted first
		n.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	}
	return object, true, err
}

// encode encodes an object in the version of the strategy for the store.
func (t Target) encode(ctx context.Context, o runtime.Object) (wire.Encoded, error) {
	stored := o
	if t.Type.ConvertsPerRequest() {
		var err error
		if stored, err = t.Type.Conversion.ToStored(ctx, o.DeepCopyObject()); err != nil {
			return wire.Encoded{}, err
		}
	}
	e, err := wire.Encode(t.Type.StoredVersion(), stored)
	return e, unencodable(err)
}

// unencodable returns the error for a client's object that cannot be encoded, such as one with a time
// after the year 9999. It is not for errors of conversions, which are not the client's fault.
func unencodable(err error) error {
	if err == nil {
		return nil
	}
	return apierrors.NewBadRequest(err.Error())
}

// toStored sets the defaults of the version that the client sent, and converts the object to the
// version of the strategy.
func toStored(ctx context.Context, t *resource.Type, o runtime.Object) (runtime.Object, error) {
	if t.Strategy.Default != nil {
		t.Strategy.Default(o)
	}
	if t.Conversion == nil || t.Conversion.PerRequest {
		return o, nil
	}
	return t.Conversion.ToStored(ctx, o)
}

// clientBytes returns an object in the version of the strategy as JSON in the version t.
func clientBytes(ctx context.Context, t *resource.Type, stored runtime.Object) ([]byte, error) {
	o, err := clientObject(ctx, t, stored)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(o)
	return b, unencodable(err)
}

// clientObject returns an object in the version of the strategy in the version t.
func clientObject(ctx context.Context, t *resource.Type, stored runtime.Object) (o runtime.Object, err error) {
	o = stored
	if c := t.Conversion; c != nil && !c.PerRequest {
		if o, err = c.FromStored(ctx, stored.DeepCopyObject()); err != nil {
			return nil, err
		}
	}
	o.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind())
	return o, nil
}

// sentBytes is clientBytes for an object as the client sent it. As in kube-apiserver, field management
// also sees empty lists and maps in elements of atomic lists, although they are not stored.
func (r *Registry) sentBytes(ctx context.Context, t *resource.Type, sent runtime.Object) ([]byte, error) {
	o, err := clientObject(ctx, t, sent)
	if err != nil {
		return nil, err
	}
	s, err := r.schema(ctx, t)
	if err != nil {
		return nil, err
	}
	b, err := wire.MarshalSent(o, s.ComparesWhole)
	return b, unencodable(err)
}

// withRevision returns an object that is not stored, with a resource version.
func withRevision(key string, e wire.Encoded, at store.Revision) *store.Object {
	value := make([]byte, 0, len(e.Bytes)+20)
	value = append(value, e.Bytes[:e.RevisionAt]...)
	value = strconv.AppendUint(value, uint64(at), 10)
	value = append(value, e.Bytes[e.RevisionAt:]...)
	return &store.Object{Key: key, Held: value, Modified: at, RevisionAt: int32(e.RevisionAt)}
}

// withoutRevision returns an encoded object without the member for the resource version.
func withoutRevision(e wire.Encoded) []byte {
	const before, behind = `"resourceVersion":"`, `",`
	return slices.Concat(e.Bytes[:e.RevisionAt-len(before)], e.Bytes[e.RevisionAt+len(behind):])
}
