package controller

import (
	"bytes"
	"container/heap"
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// garbage collects objects whose owners are gone, and completes the deletion of owners by
// its propagation policy:
//
//	background   the owner is removed at once; its dependents are deleted after it
//	foreground   the owner waits, with a finalizer, until the dependents that block
//	             its deletion are gone
//	orphan       the owner waits, with a finalizer, until no dependent names it
//
// Owners are looked up in the state of the store: unlike for a collector that watches from
// outside, there are no owners that it has not seen yet. A UID is never used again, so an
// owner that is absent in the state of its dependent stays absent. Each deletion
// names the version of the dependent that was examined, so a reference that was added
// meanwhile counts.
//
// Events are neither owners nor dependents.
type garbage struct {
	l     *Loops
	queue *queue
	index owners

	mu sync.Mutex
	// indexed is the revision up to which all references are in the index. A worker must
	// not decide by a newer state.
	indexed store.Revision
	// early are objects that were examined before the index had reached their version,
	// which is their revision here.
	early itemHeap
	// waiting are the owners that wait for their dependents, by the hash of the UID.
	waiting map[uint64]object
	// gone are the UIDs of the owners deleted last. They count also when their kind is no
	// longer served.
	gone recent
	// nowhere are owners that were looked for in all namespaces and not found.
	nowhere recent
	// unknown are dependents of a kind that the catalog seen does not serve.
	unknown map[object]struct{}
	seen    *resource.Catalog
}

func newGarbage(l *Loops, q *queue) loop {
	return &garbage{l: l, queue: q, waiting: map[uint64]object{}, unknown: map[object]struct{}{}}
}

// Finalizers of owners that wait.
var (
	foreground = []byte(`"` + metav1.FinalizerDeleteDependents + `"`)
	orphan     = []byte(`"` + metav1.FinalizerOrphanDependents + `"`)
)

func waitsForDependents(m registry.Metadata) bool {
	return m.Deleting && bytes.Contains(m.Finalizers, foreground)
}

func orphans(m registry.Metadata) bool {
	return m.Deleting && bytes.Contains(m.Finalizers, orphan)
}

func (g *garbage) begin(s *store.State) {
	g.index.reset()
	g.mu.Lock()
	clear(g.waiting)
	clear(g.unknown)
	g.indexed, g.seen = 0, g.l.c.Catalog()
	g.mu.Unlock()
	for collection := range s.Collections() {
		if collection == eventCollection {
			continue
		}
		for o := range s.Snapshot(collection).Scan("", "") {
			m := registry.MetadataOf(o)
			g.first(s, object{collection, o.Key}, m)
			if collection != namespaceCollection && m.HalfGone() {
				g.queue.add(item{object: object{collection, o.Key}, revision: o.Modified})
			}
		}
	}
	g.reached(s.Revision())
}

// reached sets how far the index is, and queues the objects that waited for it.
func (g *garbage) reached(r store.Revision) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.indexed = r
	for len(g.early) > 0 && g.early[0].revision <= r {
		g.queue.add(item{object: heap.Pop(&g.early).(item).object})
	}
	if len(g.early) == 0 {
		g.early = nil
	}
}

// tooEarly reports whether the index has not reached a version of an object yet. The object
// is then queued again when it has.
func (g *garbage) tooEarly(name object, o *store.Object) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.indexed >= o.Modified {
		return false
	}
	heap.Push(&g.early, item{name, o.Modified})
	return true
}

// first indexes an object at the start. Nothing more is to do for an object whose owners
// all exist, which is the usual case.
func (g *garbage) first(s *store.State, o object, m registry.Metadata) {
	if m.OwnerReferences != nil && !m.Deleting {
		all := owning(m)
		for _, r := range all {
			g.index.add(hashUID(r.UID), o)
		}
		if !g.allThere(s, o, all) {
			g.queue.add(item{object: o})
		}
		return
	}
	g.take(o, registry.Metadata{}, m)
}

// allThere reports whether all owners of an object exist in a state, and none waits for its
// dependents.
func (g *garbage) allThere(s *store.State, o object, references []metav1.OwnerReference) bool {
	served := g.l.served()
	for _, r := range references {
		t := served.byKind[schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)]
		if t == nil {
			return false
		}
		m := registry.MetadataOf(s.Get(t.Collection, ownerKey(t, o.key, r.Name)))
		if string(m.UID) != string(r.UID) || m.Deleting {
			return false
		}
	}
	return true
}

// observe updates the index, and queues the objects that a change affects.
func (g *garbage) observe(c *store.CollectionChange) {
	if now := g.l.c.Catalog(); now != g.seen {
		g.newKinds(now)
	}
	defer g.reached(c.Revision)
	if c.Collection == eventCollection {
		return
	}
	o, was := object{c.Collection, c.Key()}, registry.MetadataOf(c.Before)
	if c.After != nil {
		g.take(o, was, registry.MetadataOf(c.After))
		return
	}
	g.forget(o, was)
}

// newKinds queues the dependents whose kind was not served.
func (g *garbage) newKinds(now *resource.Catalog) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.seen = now
	for o := range g.unknown {
		g.queue.add(item{object: o})
	}
	clear(g.unknown)
}

// take indexes a new version of an object, given the one before.
func (g *garbage) take(o object, was, is registry.Metadata) {
	if !bytes.Equal(was.OwnerReferences, is.OwnerReferences) {
		old, now := owning(was), owning(is)
		stays := make(map[types.UID]bool, len(now)) // and whether it blocks the owner
		for _, r := range now {
			g.index.add(hashUID(r.UID), o)
			if _, ok := stays[r.UID]; !ok {
				stays[r.UID] = blocks(r)
			}
		}
		for _, r := range old {
			stillBlocks, ok := stays[r.UID]
			if !ok {
				g.index.remove(hashUID(r.UID), o)
			}
			if blocks(r) && !stillBlocks {
				g.released(r.UID)
			}
		}
		if len(now) > 0 {
			g.queue.add(item{object: o})
		}
	}
	switch {
	case orphans(is) && !orphans(was):
		g.queue.add(item{object: o})
	case waitsForDependents(is) && !waitsForDependents(was):
		g.wait(o, hashUID(is.UID), true)
		for _, d := range g.index.dependents(hashUID(is.UID)) {
			g.queue.add(item{object: d})
		}
		g.queue.add(item{object: o})
	case waitsForDependents(was) && !waitsForDependents(is):
		g.wait(o, hashUID(was.UID), false)
	}
}

// forget removes a deleted object.
func (g *garbage) forget(o object, was registry.Metadata) {
	for _, r := range owning(was) {
		g.index.remove(hashUID(r.UID), o)
		g.released(r.UID)
	}
	uid := hashUID(was.UID)
	g.wait(o, uid, false)
	if !g.index.has(uid) {
		return
	}
	g.mu.Lock()
	g.gone.add(string(was.UID))
	g.mu.Unlock()
	for _, d := range g.index.dependents(uid) {
		g.queue.add(item{object: d})
	}
}

// wait sets whether an owner waits for its dependents.
func (g *garbage) wait(o object, uid uint64, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if on {
		g.waiting[uid] = o
	} else {
		delete(g.waiting, uid)
	}
}

// released queues an owner that may have waited for a dependent.
func (g *garbage) released(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if o, waits := g.waiting[hashUID(string(uid))]; waits {
		g.queue.add(item{object: o})
	}
}

// owning returns the owners that an object names; none when they cannot be decoded.
func owning(m registry.Metadata) []metav1.OwnerReference {
	all, err := m.Owners()
	if err != nil {
		return nil
	}
	return all
}

func blocks(r metav1.OwnerReference) bool {
	return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion
}

// conflicts is how often an object that changed meanwhile is examined again at once.
const conflicts = 8

func (g *garbage) sync(ctx context.Context, i item) (err error) {
	if i.revision != 0 {
		return g.removeRest(ctx, i)
	}
	for range conflicts {
		if err = g.look(ctx, i.object); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

// removeRest completes a removal that a kill interrupted between its two steps.
func (g *garbage) removeRest(ctx context.Context, i item) error {
	o := g.l.store.Any().Get(i.collection, i.key)
	if o == nil || o.Modified != i.revision {
		return nil
	}
	err := g.l.remove(ctx, i.object, o, metav1.DeletePropagationBackground)
	if apierrors.IsConflict(err) {
		return nil // it has another owner again
	}
	return err
}

// look examines an object and acts on it.
func (g *garbage) look(ctx context.Context, name object) error {
	s := g.l.store.Any()
	o := s.Get(name.collection, name.key)
	if o == nil {
		return nil
	}
	if g.tooEarly(name, o) {
		return nil
	}
	m := registry.MetadataOf(o)
	switch {
	case orphans(m):
		return g.orphan(ctx, s, name, m)
	case waitsForDependents(m):
		return g.finish(ctx, s, name, m)
	case m.Deleting:
		return nil // on its way; owners of its finalizers act
	}
	references, err := m.Owners()
	if err != nil || len(references) == 0 {
		return err
	}
	found, err := g.classify(ctx, s, dependent{name, o, m}, references)
	if err != nil || found == nil {
		return err
	}
	return g.collect(ctx, s, dependent{name, o, m}, found)
}

// dependent is an object with owners, as it was read.
type dependent struct {
	name object
	o    *store.Object
	m    registry.Metadata
}

// collect deletes or edits a dependent, depending on the states of its owners.
func (g *garbage) collect(ctx context.Context, s *store.State, d dependent, found *ownerStates) error {
	switch {
	case len(found.solid) > 0:
		if gone := append(found.dangling, found.waiting...); len(gone) > 0 {
			return g.disown(ctx, d.name, gone)
		}
		return nil
	case len(found.waiting) > 0 && g.index.has(hashUID(d.m.UID)):
		// Its own dependents have to go first. Where these wait for dependents as well,
		// there may be a cycle: then no dependent blocks the object.
		if g.index.any(hashUID(d.m.UID), func(o object) bool { return waitsForDependents(registry.MetadataOf(s.Get(o.collection, o.key))) }) {
			var err error
			if d.o, err = g.unblock(ctx, d); d.o == nil {
				return err
			}
		}
		return g.l.remove(ctx, d.name, d.o, metav1.DeletePropagationForeground)
	}
	policy := metav1.DeletePropagationBackground
	switch { // the finalizers of an earlier request determine the policy
	case bytes.Contains(d.m.Finalizers, orphan):
		policy = metav1.DeletePropagationOrphan
	case bytes.Contains(d.m.Finalizers, foreground):
		policy = metav1.DeletePropagationForeground
	}
	return g.l.remove(ctx, d.name, d.o, policy)
}

// disown removes owners from an object's references.
func (g *garbage) disown(ctx context.Context, o object, owners []types.UID) error {
	return g.l.edit(ctx, o, "", func(m metav1.Object) error {
		gone := make(map[types.UID]bool, len(owners))
		for _, uid := range owners {
			gone[uid] = true
		}
		left := slices.DeleteFunc(slices.Clone(m.GetOwnerReferences()), func(r metav1.OwnerReference) bool { return gone[r.UID] })
		if len(left) == len(m.GetOwnerReferences()) {
			return errLeave
		}
		m.SetOwnerReferences(left)
		return nil
	})
}

// unblock clears blockOwnerDeletion in all references of an object, and returns the new
// version; nil when its owners have changed: that change queues it again.
func (g *garbage) unblock(ctx context.Context, d dependent) (*store.Object, error) {
	return g.l.editVersion(ctx, d.name, "", func(m metav1.Object) error {
		if m.GetUID() != types.UID(d.m.UID) || !equality.Semantic.DeepEqual(m.GetOwnerReferences(), owning(d.m)) {
			return errLeave
		}
		all := slices.Clone(m.GetOwnerReferences())
		for i := range all {
			if blocks(all[i]) {
				all[i].BlockOwnerDeletion = new(bool)
			}
		}
		m.SetOwnerReferences(all)
		return nil
	})
}

// finish removes the finalizer of an owner that no dependent blocks.
func (g *garbage) finish(ctx context.Context, s *store.State, name object, m registry.Metadata) error {
	if g.blocked(s, m) {
		return nil // each of them is in the queue, or its end will be seen
	}
	return g.l.removeFinalizer(ctx, name, types.UID(m.UID), metav1.FinalizerDeleteDependents)
}

// blocked reports whether a dependent blocks an owner's deletion. A dependent that waits
// for the owner in turn, in a cycle, does not count: both would wait forever.
func (g *garbage) blocked(s *store.State, m registry.Metadata) bool {
	var waiting []object
	if g.index.any(hashUID(m.UID), func(o object) bool {
		d := registry.MetadataOf(s.Get(o.collection, o.key))
		if waitsForDependents(d) {
			waiting = append(waiting, o)
			return false
		}
		return blocksOwner(d, m)
	}) {
		return true // as nearly always
	}
	if len(waiting) == 0 {
		return false
	}
	cycles := g.waitingFor(s, m)
	return slices.ContainsFunc(waiting, func(o object) bool {
		return !cycles[o] && blocksOwner(registry.MetadataOf(s.Get(o.collection, o.key)), m)
	})
}

// blocksOwner reports whether an object blocks the deletion of an owner.
func blocksOwner(m, owner registry.Metadata) bool {
	return slices.ContainsFunc(owning(m), func(r metav1.OwnerReference) bool { return string(r.UID) == string(owner.UID) && blocks(r) })
}

// longestCycle and mostReferences end the search for cycles, after so many objects or bytes of owner references. Dependents
// that it has not found block their owner.
const (
	longestCycle   = 1000
	mostReferences = 8 << 20
)

// waitingFor returns the objects that wait for the deletion of an object, directly or through others: the owners that it
// blocks, the owners that these block, and so on. It reads the references of each object once.
func (g *garbage) waitingFor(s *store.State, m registry.Metadata) map[object]bool {
	found := map[object]bool{}
	read := 0
	for next := []registry.Metadata{m}; len(next) > 0 && len(found) < longestCycle && read < mostReferences; {
		last := next[len(next)-1]
		next = next[:len(next)-1]
		read += len(last.OwnerReferences)
		for _, r := range owning(last) {
			if !blocks(r) {
				continue
			}
			if o, owner, ok := g.waitingOwner(s, r.UID); ok && !found[o] {
				found[o] = true
				next = append(next, owner)
			}
		}
	}
	return found
}

// waitingOwner returns the object with a UID if it waits for its dependents.
func (g *garbage) waitingOwner(s *store.State, uid types.UID) (o object, m registry.Metadata, ok bool) {
	g.mu.Lock()
	o, ok = g.waiting[hashUID(string(uid))]
	g.mu.Unlock()
	if !ok {
		return o, m, false
	}
	m = registry.MetadataOf(s.Get(o.collection, o.key))
	return o, m, string(m.UID) == string(uid) && waitsForDependents(m)
}

// orphanWidth is how many dependents of one owner are edited at once.
const orphanWidth = 16

// orphan removes the finalizer of an owner once no dependent names it.
func (g *garbage) orphan(ctx context.Context, s *store.State, name object, m registry.Metadata) error {
	uid := types.UID(m.UID)
	var wg sync.WaitGroup
	room := make(chan struct{}, g.l.c.Registry.Width(orphanWidth))
	var mu sync.Mutex
	var failed error
	dependents := g.index.dependents(hashUID(m.UID))
	slices.SortFunc(dependents, object.compare) // so that the order does not depend on the run
	for _, d := range dependents {
		if !slices.ContainsFunc(owning(registry.MetadataOf(s.Get(d.collection, d.key))), func(r metav1.OwnerReference) bool { return r.UID == uid }) {
			continue
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			if err := g.l.safely(func() error { return g.disown(ctx, d, []types.UID{uid}) }); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = fmt.Errorf("orphaning %s %s: %w", d.collection, d.key, err)
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	return g.l.removeFinalizer(ctx, name, uid, metav1.FinalizerOrphanDependents)
}
