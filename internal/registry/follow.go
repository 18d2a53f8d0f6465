package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// ServerManager is the field manager of what the server itself writes.
const ServerManager = "kube-apiserver"

// follow makes the version that follows an object that is about to be stored as e, nil
// when there is none. Old is the object before it, nil for a new one.
//
// The two differ in their status alone, and in who owns it: so both are encoded and
// tracked without what else there may be of the object, and what comes out is put into
// the bytes of the first.
func (r *Registry) follow(ctx context.Context, w *write, e wire.Encoded, object, old runtime.Object) (*store.Version, error) {
	follow := r.Following[w.Type.Collection]
	if follow == nil {
		return nil, nil
	}
	if w.follows != nil { // of the attempt with another name
		w.follows()
		w.follows = nil
	}
	var then runtime.Object
	then, w.follows = follow(object, old)
	if then == nil {
		return nil, nil
	}
	to := w.Target
	to.Name, to.Subresource = object.(metav1.Object).GetName(), "status"
	by := &write{Target: to, options: &WriteOptions{FieldManager: ServerManager}}
	before := then.DeepCopyObject()
	by.stored().Parts().CopyStatus(before, object)
	plain, err := by.encode(ctx, before)
	if err != nil {
		return nil, err
	}
	plain = withManaged(plain, managedFields(e.Bytes))
	made, same, err := r.encode(ctx, by, &existing{&store.Object{Key: to.key(), Held: plain.Bytes, RevisionAt: int32(plain.RevisionAt)}, before}, then)
	if err != nil || same {
		return nil, err
	}
	next := replaced(e, statusMember, member(made.Bytes, statusMember))
	lean := wire.Encoded{Bytes: withoutManaged(next.Bytes, managedFields(next.Bytes)), RevisionAt: e.RevisionAt}
	if next = withManaged(lean, managedFields(made.Bytes)); checkSize(next, nil) != nil {
		next = lean // of an object so large nobody knows who owns what: row C19
		if err := checkSize(next, nil); err != nil {
			return nil, err
		}
	}
	return &store.Version{Value: next.Bytes, RevisionAt: next.RevisionAt}, nil
}

const statusMember = "status"

// replaced is an encoding with another value of a member that it has, behind the
// metadata.
func replaced(e wire.Encoded, name string, value []byte) wire.Encoded {
	old := member(e.Bytes, name)
	at := cap(e.Bytes) - cap(old)
	out := make([]byte, 0, len(e.Bytes)+len(value)-len(old))
	out = append(append(append(out, e.Bytes[:at]...), value...), e.Bytes[at+len(old):]...)
	return wire.Encoded{Bytes: out, RevisionAt: e.RevisionAt}
}
