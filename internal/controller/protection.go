package controller

import (
	"bytes"
	"context"
	"slices"
	"strings"
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

// protection keeps a finalizer on the objects of a collection, so that one that is
// deleted stays while others use it, and takes it off when nobody does. The
// finalizer is set when an object is created (package builtin); the loop sets it on
// those that lack it.
type protection struct {
	l          *Loops
	queue      *queue
	collection string
	finalizer  string
	// used tells whether an object is in use, in a state that has it.
	used func(s *store.State, o *store.Object) (bool, error)
	// frees tells whether a change may have ended the use of an object, given by its
	// key.
	frees func(c *store.CollectionChange, key string) bool

	mu   sync.Mutex
	held map[string]struct{} // keys of those that are deleted and were in use
}

func (p *protection) begin(s *store.State) {
	for o := range s.Snapshot(p.collection).Scan("", "") {
		p.look(o)
	}
}

// look puts an object into the queue when there is something to do about it.
func (p *protection) look(o *store.Object) {
	m := registry.MetadataOf(o)
	finalizers, err := m.FinalizerNames()
	if err != nil || slices.Contains(finalizers, p.finalizer) == m.Deleting {
		p.queue.add(item{object: object{p.collection, o.Key}})
	}
}

func (p *protection) observe(c *store.CollectionChange) {
	if c.Collection == p.collection && c.After != nil {
		p.look(c.After)
	}
	if c.Before == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.held {
		if p.frees(c, key) {
			p.queue.add(item{object: object{p.collection, key}})
		}
	}
}

func (p *protection) hold(key string, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if on {
		p.held[key] = struct{}{}
	} else {
		delete(p.held, key)
	}
}

func (p *protection) sync(ctx context.Context, i item) error {
	// Held first: what ends the use after the look below is seen by observe.
	p.hold(i.key, true)
	s := p.l.store.Any()
	o := s.Get(i.collection, i.key)
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
	used, err := p.used(s, o)
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

// newClaims protects claims that pods use.
func newClaims(l *Loops, q *queue) loop {
	return &protection{l: l, queue: q, collection: claimCollection, finalizer: "kubernetes.io/pvc-protection", held: map[string]struct{}{},
		used: claimUsed,
		frees: func(c *store.CollectionChange, key string) bool {
			namespace, name, _ := strings.Cut(key, "/")
			return c.Collection == podCollection && strings.HasPrefix(c.Key(), namespace+"/") &&
				(c.After == nil || registry.MetadataOf(c.After).Deleting) && mayUse(c.Before, name)
		}}
}

// mayUse tells whether a pod can use a claim, without decoding it: a volume names
// the claim, or an ephemeral volume makes its name of the pod's and its own.
func mayUse(pod *store.Object, claim string) bool {
	return bytes.Contains(pod.Value, []byte(claim)) || bytes.Contains(pod.Value, []byte(`"ephemeral":{`))
}

// claimUsed tells whether a pod that has a node uses the claim. One without a node
// does not count: no kubelet starts it while the claim is being deleted.
func claimUsed(s *store.State, o *store.Object) (bool, error) {
	namespace, name, _ := strings.Cut(o.Key, "/")
	for stored := range s.Snapshot(podCollection).Scan(namespace+"/", "") {
		if !mayUse(stored, name) {
			continue
		}
		pod, err := decode[corev1.Pod](stored)
		if err != nil {
			return false, err
		}
		if pod.Spec.NodeName == "" {
			continue
		}
		for i := range pod.Spec.Volumes {
			if usesClaim(pod, &pod.Spec.Volumes[i], o) {
				return true, nil
			}
		}
	}
	return false, nil
}

func usesClaim(pod *corev1.Pod, v *corev1.Volume, claim *store.Object) bool {
	_, name, _ := strings.Cut(claim.Key, "/")
	if v.PersistentVolumeClaim != nil {
		return v.PersistentVolumeClaim.ClaimName == name
	}
	if v.Ephemeral == nil || pod.Name+"-"+v.Name != name || shutDown(pod) {
		return false
	}
	owners, err := registry.MetadataOf(claim).Owners()
	return err == nil && slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool {
		return r.UID == pod.UID && r.Controller != nil && *r.Controller
	})
}

// shutDown tells whether nothing of a pod runs any more, or nobody waits for it.
// Its own ephemeral claims must not wait for it then: it may wait for them.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}

// newVolumes protects volumes that are bound.
func newVolumes(l *Loops, q *queue) loop {
	return &protection{l: l, queue: q, collection: volumeCollection, finalizer: "kubernetes.io/pv-protection", held: map[string]struct{}{},
		used: func(_ *store.State, o *store.Object) (bool, error) {
			v, err := decode[corev1.PersistentVolume](o)
			return err == nil && v.Status.Phase == corev1.VolumeBound, err
		},
		frees: func(*store.CollectionChange, string) bool { return false }, // its own change does
	}
}

// newClasses protects classes of volume attributes that claims or volumes name.
func newClasses(l *Loops, q *queue) loop {
	return &protection{l: l, queue: q, collection: classCollection, finalizer: "kubernetes.io/vac-protection", held: map[string]struct{}{},
		used: classUsed,
		frees: func(c *store.CollectionChange, key string) bool {
			return (c.Collection == claimCollection || c.Collection == volumeCollection) && bytes.Contains(c.Before.Value, []byte(key))
		}}
}

func classUsed(s *store.State, o *store.Object) (bool, error) {
	named := func(name *string) bool { return name != nil && *name == o.Key }
	for stored := range s.Snapshot(claimCollection).Scan("", "") {
		if !bytes.Contains(stored.Value, []byte(o.Key)) {
			continue
		}
		c, err := decode[corev1.PersistentVolumeClaim](stored)
		if err != nil {
			return false, err
		}
		if named(c.Spec.VolumeAttributesClassName) || named(c.Status.CurrentVolumeAttributesClassName) ||
			c.Status.ModifyVolumeStatus != nil && c.Status.ModifyVolumeStatus.TargetVolumeAttributesClassName == o.Key {
			return true, nil
		}
	}
	for stored := range s.Snapshot(volumeCollection).Scan("", "") {
		if !bytes.Contains(stored.Value, []byte(o.Key)) {
			continue
		}
		v, err := decode[corev1.PersistentVolume](stored)
		if err != nil {
			return false, err
		}
		if named(v.Spec.VolumeAttributesClassName) {
			return true, nil
		}
	}
	return false, nil
}
