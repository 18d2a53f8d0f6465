package controller

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

const (
	podCollection    = "pods"
	claimCollection  = "persistentvolumeclaims"
	volumeCollection = "persistentvolumes"
	classCollection  = "volumeattributesclasses.storage.k8s.io"
)

// protection keeps a finalizer on the objects of a collection, so that a deleted object
// stays while others use it, and removes it when none does. The finalizer is set when an
// object is created (package builtin); the loop adds it where it is missing.
type protection struct {
	follower
	finalizer string
	// used reports whether a terminating object is in use now.
	used func(ctx context.Context, o *store.Object) (bool, error)
	// freed yields the keys of the objects whose use a change of another object may have ended. It
	// is called for updates and deletions only.
	freed func(c *store.CollectionChange) iter.Seq[string]
	// idle is called when no object is held.
	idle func()

	mu   sync.Mutex
	held map[string]struct{} // keys of those that are deleted and were in use
}

// newProtection returns a protection without its function used. It looks at the objects that lack the
// finalizer, and at those that are terminating and have it.
func newProtection(l *Loops, q *queue, collection, finalizer string) *protection {
	return &protection{
		follower: follower{l: l, queue: q, collection: collection, selects: func(o *store.Object) bool {
			m := registry.MetadataOf(o)
			finalizers, err := m.FinalizerNames()
			return err != nil || slices.Contains(finalizers, finalizer) == m.Deleting
		}},
		finalizer: finalizer,
		freed:     func(*store.CollectionChange) iter.Seq[string] { return func(func(string) bool) {} },
		idle:      func() {},
		held:      map[string]struct{}{},
	}
}

func (p *protection) observe(c *store.CollectionChange) {
	p.follower.observe(c)
	if c.Before == nil {
		return
	}
	p.mu.Lock()
	none := len(p.held) == 0
	p.mu.Unlock()
	if none {
		return
	}
	for key := range p.freed(c) {
		if p.holds(key) {
			p.add(key)
		}
	}
}

func (p *protection) holds(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, held := p.held[key]
	return held
}

func (p *protection) hold(key string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.held[key] = struct{}{}
	} else {
		delete(p.held, key)
	}
	if len(p.held) == 0 {
		p.idle()
	}
}

func (p *protection) sync(ctx context.Context, i item) error {
	// Held first: observe then sees each change that ends the use after the check below.
	p.hold(i.key, true)
	o := p.l.store.Any().Get(i.collection, i.key)
	m := registry.MetadataOf(o)
	finalizers, err := m.FinalizerNames()
	if err != nil {
		return err
	}
	has := slices.Contains(finalizers, p.finalizer)
	if o == nil || !m.Deleting || !has {
		p.hold(i.key, false)
		if o != nil && !m.Deleting && !has {
			return p.protect(ctx, i.object, types.UID(m.UID))
		}
		return nil
	}
	used, err := p.used(ctx, o)
	if used || err != nil {
		return err
	}
	p.hold(i.key, false)
	return p.l.removeFinalizer(ctx, i.object, types.UID(m.UID), p.finalizer)
}

func (p *protection) protect(ctx context.Context, o object, uid types.UID) error {
	return p.l.edit(ctx, o, "", func(m metav1.Object) error {
		if m.GetUID() != uid || m.GetDeletionTimestamp() != nil || slices.Contains(m.GetFinalizers(), p.finalizer) {
			return errLeave
		}
		m.SetFinalizers(append(slices.Clone(m.GetFinalizers()), p.finalizer))
		return nil
	})
}

// newVolumes protects PersistentVolumes that are bound.
func newVolumes(l *Loops, q *queue) loop {
	p := newProtection(l, q, volumeCollection, "kubernetes.io/pv-protection")
	p.used = func(_ context.Context, o *store.Object) (bool, error) {
		v, err := registry.Decode[corev1.PersistentVolume](o)
		return err == nil && v.Status.Phase == corev1.VolumeBound, err
	}
	return p
}

// newClasses protects VolumeAttributesClasses that claims or volumes name.
func newClasses(l *Loops, q *queue) loop {
	p := newProtection(l, q, classCollection, "kubernetes.io/vac-protection")
	p.used = func(_ context.Context, o *store.Object) (bool, error) { return classUsed(l.store.Any(), o) }
	p.freed = func(c *store.CollectionChange) iter.Seq[string] {
		if c.Collection != claimCollection && c.Collection != volumeCollection {
			return func(func(string) bool) {}
		}
		return named(c.Before.Bytes(), classMember)
	}
	return p
}

// classMember is the end of each member that names a class.
const classMember = `olumeAttributesClassName":"`

// named yields the values of the members with a name, or the end of one, without decoding
// the object. Object names contain no escape sequences.
func named(value []byte, member string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := value; ; {
			_, after, found := bytes.Cut(rest, []byte(member))
			name, behind, ends := bytes.Cut(after, []byte{'"'})
			if !found || !ends || !yield(string(name)) {
				return
			}
			rest = behind
		}
	}
}

func classUsed(s *store.State, o *store.Object) (bool, error) {
	is := func(name *string) bool { return name != nil && *name == o.Key }
	for stored := range s.Snapshot(claimCollection).Scan("", "") {
		if !bytes.Contains(stored.Bytes(), []byte(o.Key)) {
			continue
		}
		c, err := registry.Decode[corev1.PersistentVolumeClaim](stored)
		if err != nil {
			return false, err
		}
		if is(c.Spec.VolumeAttributesClassName) || is(c.Status.CurrentVolumeAttributesClassName) ||
			c.Status.ModifyVolumeStatus != nil && c.Status.ModifyVolumeStatus.TargetVolumeAttributesClassName == o.Key {
			return true, nil
		}
	}
	for stored := range s.Snapshot(volumeCollection).Scan("", "") {
		if !bytes.Contains(stored.Bytes(), []byte(o.Key)) {
			continue
		}
		v, err := registry.Decode[corev1.PersistentVolume](stored)
		if err != nil {
			return false, err
		}
		if is(v.Spec.VolumeAttributesClassName) {
			return true, nil
		}
	}
	return false, nil
}
