package registry

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/store"
	"github.com/tidemark-dev/tidemark/internal/wire"
)

// Transaction is the write of a request with what has to be stored together with it, and
// what has to hold when it is stored.
type Transaction struct {
	*Attributes
	store.Txn
	own      int // the index of the request's own write
	registry *Registry

	// Room for the parts of most transactions.
	writes [1]store.Write
	needs  [1]store.Need
	guards [1]store.Guard
}

// Own is the request's own write. Its Value is nil if the object is removed: by a deletion,
// or by an update that takes off the last finalizer.
func (t *Transaction) Own() *store.Write { return &t.Writes[t.own] }

// Before adds a write that comes before the request's own.
func (t *Transaction) Before(w store.Write) {
	t.Writes = append(t.Writes, store.Write{})
	copy(t.Writes[t.own+1:], t.Writes[t.own:])
	t.Writes[t.own] = w
	t.own++
}

// After adds a write that comes after the request's own.
func (t *Transaction) After(w store.Write) { t.Writes = append(t.Writes, w) }

// Need requires that another object is still what it is in the state that the request is
// decided by.
func (t *Transaction) Need(collection, key string) {
	t.Needs = append(t.Needs, need(t.State, collection, key))
}

func need(s *store.State, collection, key string) store.Need {
	n := store.Need{Collection: collection, Key: key}
	if o := s.Get(collection, key); o != nil {
		n.Modified = o.Modified
	}
	return n
}

// Claim claims a name that only one of the transactions decided by the same state may
// have.
func (t *Transaction) Claim(name string) {
	t.Guards = append(t.Guards, store.Guard{Name: name, Seen: t.State.Revision(), Claim: true})
}

// Apply commits the transaction. A plugin with a Commit calls it, or adds the transaction to
// a larger one.
func (t *Transaction) Apply(ctx context.Context) ([]*store.Object, error) {
	return t.registry.Store.Apply(ctx, &t.Txn)
}

// Registry is the registry that the request was sent to.
func (t *Transaction) Registry() *Registry { return t.registry }

// Create makes the write of another new object, which the server itself creates.
func (t *Transaction) Create(ctx context.Context, at Target, object runtime.Object) (store.Write, error) {
	w := &write{Target: at, options: &WriteOptions{FieldManager: ServerManager}, source: fromServer}
	a := w.attributes(admissionv1.Create, t.State, nil, nil)
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

// ServerManager is the field manager of what the server itself writes.
const ServerManager = "kube-apiserver"

// NextStatus adds a second version of the request's own object, with another status. The
// second version has a revision of its own. Next is the object with the new status; it may
// lack what is neither metadata nor status. The target must be in the stored version.
//
// Both versions differ in their status alone, and in the managers that own it. So both are
// encoded and tracked without the rest of the object, and the outcome replaces the status in
// the bytes of the first version.
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
	made, same, err := r.encode(ctx, by, &existing{stored, plain.Bytes, before}, next)
	if err != nil || same {
		return err
	}
	second := replaced(e, statusMember, member(made.Bytes, statusMember))
	lean := wire.Encoded{Bytes: withoutManaged(second.Bytes, locateManaged(second.Bytes)), RevisionAt: e.RevisionAt}
	if second = withManaged(lean, managedFields(made.Bytes)); checkSize(second, nil) != nil {
		second = lean // an object of this size has no managed fields
		if err := checkSize(second, nil); err != nil {
			return err
		}
	}
	t.After(store.Write{Collection: t.Own().Collection, Key: t.Own().Key, Value: second.Bytes, RevisionAt: second.RevisionAt, Next: true})
	return nil
}

const statusMember = "status"

// replaced is an encoding with another value of a member that it has, behind the
// metadata.
func replaced(e wire.Encoded, name string, value []byte) wire.Encoded {
	old := locate(e.Bytes, name)
	out := make([]byte, 0, len(e.Bytes)+len(value)-(old.to-old.from))
	out = append(append(append(out, e.Bytes[:old.from]...), value...), e.Bytes[old.to:]...)
	return wire.Encoded{Bytes: out, RevisionAt: e.RevisionAt}
}

// commit makes the write of a request, with what plugins add to it. It returns
// store.ErrExists, ErrNotFound or ErrConflict if the request's own object is not what the
// request was decided by, and store.ErrStale if something else is not. A dry-run finds out
// whether the write could be made, and what the answer would be.
func (r *Registry) commit(ctx context.Context, a *Attributes, c store.Write) (*store.Object, error) {
	if err := c.Check(); err != nil {
		return nil, unfit(a.Target, err)
	}
	if a.DryRun {
		return r.dryRun(c)
	}
	t := &Transaction{Attributes: a, registry: r, writes: [1]store.Write{c}}
	t.Writes, t.Needs, t.Guards = t.writes[:], t.needs[:0], t.guards[:0]
	if c.If == 0 && a.Type.Namespaced {
		t.Need("namespaces", a.Namespace) // which checkNamespace has looked at
	}
	apply := func() ([]*store.Object, error) { return t.Apply(ctx) }
	for i := range r.Plugins {
		p := &r.Plugins[i]
		if p.Record == nil && p.Commit == nil || !p.handles(a.State, a.Target, a.Operation) {
			continue
		}
		if p.Record != nil {
			if err := p.Record(ctx, t); err != nil {
				return nil, err
			}
		}
		if p.Commit != nil {
			apply = func() ([]*store.Object, error) { return p.Commit(ctx, t) }
		}
	}
	made, err := apply()
	if err != nil {
		return nil, t.failed(err)
	}
	return made[t.own], nil
}

// failed is the error of a commit in terms of the request.
func (t *Transaction) failed(err error) error {
	var failed *store.TxnError
	switch {
	case !errors.As(err, &failed):
		return err
	case failed.Part == store.WritePart && failed.Index == t.own:
		return failed.Err
	}
	return store.ErrStale
}

func (r *Registry) dryRun(c store.Write) (*store.Object, error) {
	current := r.Store.Any().Get(c.Collection, c.Key)
	switch {
	case current == nil && c.If != 0:
		return nil, store.ErrNotFound
	case current != nil && c.If == 0:
		return nil, store.ErrExists
	case current != nil && c.If != current.Modified:
		return nil, store.ErrConflict
	case c.Value == nil:
		return current, nil
	case current == nil:
		return unversioned(c), nil
	}
	return asOf(c.Key, wire.Encoded{Bytes: c.Value, RevisionAt: c.RevisionAt}, current.Modified), nil
}

// PrepareEdit makes the write of an edit of a stored object by the server, for a
// transaction that the caller commits itself. Edit gets a copy of the object in its stored
// version. The write is zero if edit changes nothing. Admission plugins are not asked.
func (r *Registry) PrepareEdit(ctx context.Context, t Target, current *store.Object, manager string, edit func(o metav1.Object) error) (store.Write, error) {
	w := &write{Target: t, options: &WriteOptions{FieldManager: manager}, source: fromServer}
	v, err := w.existing(ctx, current, true)
	if err != nil {
		return store.Write{}, err
	}
	next := v.object.DeepCopyObject()
	if err := edit(next.(metav1.Object)); err != nil {
		return store.Write{}, err
	}
	if next, err = w.mergeStored(w.stored(), v.object, next); err != nil {
		return store.Write{}, err
	}
	if err := r.prepareUpdate(ctx, w, v, next); err != nil {
		return store.Write{}, err
	}
	e, same, err := r.encode(ctx, w, &v, next)
	if err != nil || same {
		return store.Write{}, err
	}
	return store.Write{Collection: t.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified}, checkSize(e, current)
}

// restarts reports whether a request has to start again: something that it was decided by
// has changed.
func restarts(err error) bool { return errors.Is(err, store.ErrStale) }
