package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// namespaces finishes the deletion of namespaces:
//
//	delete the pods, wait until they are gone
//	delete everything else, wait until it is gone
//	report in the conditions the remaining objects, and their finalizers
//	remove the finalizer "kubernetes"; with the last finalizer the namespace goes
//
// Each step looks at the stored objects, so it does not matter where an earlier attempt ended.
//
// A create in progress when its namespace began to terminate can be stored after the
// namespace is gone. Objects whose namespace does not exist are therefore deleted: new
// ones, and at the start all of them.
//
// Only objects of one state are deleted, a state in which the namespace is terminating or
// absent. The namespace may be created again at any time, and its new objects stay.
type namespaces struct {
	l     *Loops
	queue *queue

	mu sync.Mutex
	// terminating namespaces, with the collections that they wait for; nil before the first
	// sync.
	terminating map[string][]string
}

// pace is the least time between two syncs of a namespace that waits for its content,
// unless the last object goes: each sync counts what is left.
const pace = time.Second

func newNamespaces(l *Loops, q *queue) loop { return &namespaces{l: l, queue: q} }

func namespaceItem(name string) item { return item{object: object{namespaceCollection, name}} }

func (n *namespaces) begin(s *store.State) {
	n.mu.Lock()
	n.terminating = map[string][]string{}
	n.mu.Unlock()
	for o := range s.Snapshot(namespaceCollection).Scan("", "") {
		n.look(o)
	}
	for _, t := range n.l.served().namespaced {
		for namespace := range namespacesOf(s, t.Collection) {
			if s.Get(namespaceCollection, namespace) == nil {
				n.queue.add(namespaceItem(namespace))
			}
		}
	}
}

// namespacesOf yields the namespaces of a collection's objects, without a look at each
// object.
func namespacesOf(s *store.State, collection string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		snapshot := s.Snapshot(collection)
		for after := ""; ; {
			next := ""
			for o := range snapshot.Scan("", after) {
				next = o.Key
				break
			}
			namespace, _, ok := strings.Cut(next, "/")
			if !ok || !yield(namespace) {
				return
			}
			after = namespace + "0" // the byte behind the slash: beyond all its keys
		}
	}
}

// look queues a namespace that is terminating.
func (n *namespaces) look(o *store.Object) {
	if !registry.MetadataOf(o).Deleting {
		return
	}
	n.mu.Lock()
	if _, known := n.terminating[o.Key]; !known {
		n.terminating[o.Key] = nil
	}
	n.mu.Unlock()
	n.queue.add(namespaceItem(o.Key))
}

func (n *namespaces) observe(c *store.CollectionChange) {
	if c.Collection == namespaceCollection {
		if c.After != nil {
			n.look(c.After)
			return
		}
		n.mu.Lock()
		delete(n.terminating, c.Key())
		n.mu.Unlock()
		return
	}
	namespace, _, ok := strings.Cut(c.Key(), "/")
	if !ok {
		return
	}
	if c.Before == nil && n.l.store.Any().Get(namespaceCollection, namespace) == nil {
		n.queue.add(namespaceItem(namespace))
		return
	}
	n.mu.Lock()
	waits, going := n.terminating[namespace]
	n.mu.Unlock()
	switch {
	case !going:
	case c.Before == nil || waits == nil || n.empty(namespace, waits):
		n.queue.add(namespaceItem(namespace))
	default: // the conditions have to follow, in a while
		n.queue.addAfter(namespaceItem(namespace), pace, true)
	}
}

// empty reports whether the collections that a namespace waits for are empty.
func (n *namespaces) empty(namespace string, collections []string) bool {
	s := n.l.store.Any()
	return !slices.ContainsFunc(collections, func(c string) bool { return s.Snapshot(c).Count(namespace+"/", "") > 0 })
}

// waitFor sets the collections that a namespace waits for.
func (n *namespaces) waitFor(namespace string, collections []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, going := n.terminating[namespace]; going {
		n.terminating[namespace] = collections
	}
}

func (n *namespaces) sync(ctx context.Context, i item) error {
	// Until the sync ends, each change queues the namespace again.
	n.waitFor(i.key, nil)
	s := n.l.store.Any()
	o := s.Get(namespaceCollection, i.key)
	if o == nil {
		return n.clear(ctx, s, i.key)
	}
	namespace, err := registry.Decode[corev1.Namespace](o)
	if err != nil || namespace.DeletionTimestamp == nil || !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		return err
	}
	left := n.deleteContent(ctx, s, i.key)
	if err := ctx.Err(); err != nil {
		return err
	}
	now := registry.MetadataOf(n.l.store.Any().Get(namespaceCollection, i.key))
	if string(now.UID) != string(namespace.UID) { // another writer let it go
		return n.clear(ctx, s, i.key)
	}
	if err := n.setStatus(ctx, i.object, namespace, left.conditions(n.l.now())); err != nil {
		return err
	}
	switch {
	case len(left.failures) > 0:
		return errors.Join(left.failures...)
	case left.undeleted:
		return fmt.Errorf("new content appeared in the namespace %s while it was deleted", i.key)
	case left.any():
		if left.elsewhere || len(left.stale) > 0 {
			n.queue.addAfter(i, extensionPace, false)
		}
		n.waitFor(i.key, left.collections)
		if len(left.collections) > 0 && n.empty(i.key, left.collections) { // meanwhile
			n.queue.add(i)
		}
		return nil
	}
	return n.finalize(ctx, i.object, namespace)
}

// clear deletes the objects of a namespace that does not exist in a state.
func (n *namespaces) clear(ctx context.Context, s *store.State, namespace string) error {
	types := n.l.served().namespaced
	var failures []error
	for _, t := range types {
		if err := n.l.deleteAll(ctx, s, t, namespace+"/"); err != nil {
			failures = append(failures, err)
		}
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	now := n.l.store.Any()
	if now.Get(namespaceCollection, namespace) != nil {
		return nil // its objects are those of another namespace
	}
	var left remains
	for _, t := range types {
		left.count(now, t, namespace+"/")
	}
	if left.undeleted {
		return fmt.Errorf("objects appeared in the namespace %s, which is gone", namespace)
	}
	return nil
}

// deleteContent deletes the objects of a namespace in a state, pods first, and returns the
// remaining objects.
func (n *namespaces) deleteContent(ctx context.Context, s *store.State, namespace string) *remains {
	left := &remains{}
	types := n.l.served().namespaced
	step := func(pods bool) {
		for _, t := range types {
			if (t.Collection == podCollection) != pods || ctx.Err() != nil {
				continue
			}
			if err := n.l.deleteAll(ctx, s, t, namespace+"/"); err != nil {
				left.failures = append(left.failures, err)
			}
			left.count(n.l.store.Any(), t, namespace+"/")
		}
	}
	if step(true); !left.any() {
		step(false)
		n.deleteExtensions(ctx, namespace, left)
	}
	return left
}

// deletersPerType is how many objects of a type are deleted at once, so that many deletions
// share a sync of the log.
const deletersPerType = 256

// patience is how long the objects of a type are deleted after one could not be deleted.
const patience = time.Second

// deleteAll deletes the objects of a type with a key prefix in a state, and no others: each
// deletion names the version in the state. So objects of a namespace that was created again
// stay, as do those that changed; the caller that counts what is left sees them. An object that
// admission refuses to delete does not hold up the others, but a slow refusal does: the webhook
// that gave it may refuse all. Owner references do not matter: dependents are deleted as well. The
// error is the first one.
func (l *Loops) deleteAll(ctx context.Context, s *store.State, t *resource.Type, prefix string) error {
	var objects []*store.Object
	for o := range s.Snapshot(t.Collection).Scan(prefix, "") {
		if m := registry.MetadataOf(o); undeleted(m) {
			objects = append(objects, o)
		}
	}
	began := time.Now()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	for range min(l.c.Registry.Width(deletersPerType), len(objects)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(objects)) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if failed.Load() != nil && time.Since(began) > patience {
					return
				}
				o := objects[i]
				err := l.safely(func() error { return l.removeAt(ctx, targetOf(t, o.Key), o, metav1.DeletePropagationBackground) })
				if err != nil && !apierrors.IsConflict(err) {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return ctx.Err()
}

// undeleted reports whether an object has yet to be deleted: no deletion was requested, or
// a server was killed in the middle of one.
func undeleted(m registry.Metadata) bool { return !m.Deleting || m.HalfGone() }

// count adds the objects of a type in a namespace.
func (r *remains) count(s *store.State, t *resource.Type, prefix string) {
	n := 0
	for o := range s.Snapshot(t.Collection).Scan(prefix, "") {
		n++
		m := registry.MetadataOf(o)
		r.undeleted = r.undeleted || undeleted(m)
		names, err := m.FinalizerNames()
		if err != nil {
			continue // it remains all the same
		}
		for _, name := range names {
			if r.finalizers == nil {
				r.finalizers = map[string]int{}
			}
			r.finalizers[name]++
		}
	}
	if n == 0 {
		return
	}
	if r.objects == nil {
		r.objects = map[string]int{}
	}
	r.objects[t.Resource+"."+t.Group] = n
	r.collections = append(r.collections, t.Collection)
}

// setStatus writes the conditions and the phase.
func (n *namespaces) setStatus(ctx context.Context, o object, namespace *corev1.Namespace, conditions []corev1.NamespaceCondition) error {
	return n.l.edit(ctx, o, "status", func(m metav1.Object) error {
		now := m.(*corev1.Namespace)
		if now.UID != namespace.UID || now.DeletionTimestamp == nil {
			return errLeave
		}
		changed := setConditions(&now.Status, conditions)
		if !changed && now.Status.Phase == corev1.NamespaceTerminating {
			return errLeave
		}
		now.Status.Phase = corev1.NamespaceTerminating
		return nil
	})
}

// finalize removes the finalizer "kubernetes" from an empty namespace.
func (n *namespaces) finalize(ctx context.Context, o object, namespace *corev1.Namespace) error {
	return n.l.edit(ctx, o, "finalize", func(m metav1.Object) error {
		now := m.(*corev1.Namespace)
		if now.UID != namespace.UID || now.DeletionTimestamp == nil {
			return errLeave
		}
		now.Spec.Finalizers = slices.DeleteFunc(slices.Clone(now.Spec.Finalizers), func(f corev1.FinalizerName) bool { return f == corev1.FinalizerKubernetes })
		return nil
	})
}
