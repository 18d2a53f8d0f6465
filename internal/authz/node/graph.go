package node

import (
	"cmp"
	"slices"

	"github.com/tidemark-dev/tidemark/internal/derived"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// kind is a kind of objects that Pods and volumes name.
type kind uint8

const (
	secrets kind = iota
	configMaps
	claims // PersistentVolumeClaims
	resourceClaims
	accounts
)

// object is an object that Pods or volumes name.
type object struct {
	kind            kind
	namespace, name string
}

// grant allows a node to read an object.
type grant struct {
	node string
	object
}

// graph is what the stored objects allow to each node:
//
//	Pod              -> its node
//	Secret, ConfigMap, ServiceAccount, ResourceClaim, PersistentVolumeClaim -> Pods that name it
//	PersistentVolume -> the claim that it is bound to
//	Secret           -> PersistentVolumes that name it
//	VolumeAttachment, ResourceSlice -> the node that it names
//
// A path along the arrows from an object to a node is a grant. Each is counted, so that a change
// of a Pod costs O(what the Pod and the volumes of its claims name), and a decision is a lookup.
// For a Secret of a volume, there is one path for each volume that names it and is bound to a
// claim that Pods of the node use, however many Pods.
//
// The tracker guards all fields.
type graph struct {
	tracker *derived.Tracker

	grants  map[grant]int32
	pods    map[string]assigned // by their keys
	volumes map[string]bound    // PersistentVolumes with a claim, by name
	// users are the Pods that use a claim, counted by their nodes.
	users map[fullName]map[string]int32
	// volumesOf are the names of the volumes that are bound to a claim.
	volumesOf map[fullName]map[string]struct{}
	// attachments, slices and requests are the nodes that VolumeAttachments, ResourceSlices and PodCertificateRequests
	// name, by the keys of those.
	attachments, slices, requests map[string]string
}

// assigned is a Pod that has a node.
type assigned struct {
	node    string
	objects []object
}

// bound is a PersistentVolume that has a claim.
type bound struct {
	claim   fullName
	secrets []fullName
}

func newGraph() *graph {
	g := &graph{
		grants: map[grant]int32{}, pods: map[string]assigned{}, volumes: map[string]bound{},
		users: map[fullName]map[string]int32{}, volumesOf: map[fullName]map[string]struct{}{},
		attachments: map[string]string{}, slices: map[string]string{}, requests: map[string]string{},
	}
	sets := [...]func(key string, o *store.Object){
		g.setPod, g.setVolume,
		func(name string, o *store.Object) { setNode(g.attachments, name, o) },
		func(name string, o *store.Object) { setNode(g.slices, name, o) },
		func(key string, o *store.Object) { setNode(g.requests, key, o) },
	}
	g.tracker = derived.NewTracker(func(i int, key string, o *store.Object) { sets[i](key, o) },
		"pods", "persistentvolumes", "volumeattachments.storage.k8s.io", "resourceslices.resource.k8s.io",
		"podcertificaterequests.certificates.k8s.io")
	return g
}

// setPod replaces the grants of a Pod; o is nil for a deleted one. Most changes of Pods are changes
// of their status, which change no grant.
func (g *graph) setPod(key string, o *store.Object) {
	next := podOf(key, o)
	last := g.pods[key]
	if last.node == next.node && slices.Equal(last.objects, next.objects) {
		return
	}
	g.count(last, -1)
	g.count(next, 1)
	if next.node == "" {
		delete(g.pods, key)
	} else {
		g.pods[key] = next
	}
}

// podOf reads a Pod; the result has no node if o is nil or has none.
func podOf(key string, o *store.Object) (a assigned) {
	if o == nil {
		return a
	}
	p := read[pod](o)
	if p.Spec.Node == "" {
		return a
	}
	a.node = p.Spec.Node
	namespace, name := split(key)
	p.named(name, func(k kind, of string) {
		if of != "" {
			a.objects = append(a.objects, object{k, namespace, of})
		}
	})
	slices.SortFunc(a.objects, func(x, y object) int { return cmp.Or(cmp.Compare(x.kind, y.kind), cmp.Compare(x.name, y.name)) })
	a.objects = slices.Clip(slices.Compact(a.objects))
	return a
}

// count adds or removes the grants of a Pod.
func (g *graph) count(p assigned, by int32) {
	for _, o := range p.objects {
		g.add(grant{p.node, o}, by)
		if o.kind != claims {
			continue
		}
		claim := fullName{o.namespace, o.name}
		users := g.users[claim]
		if users == nil {
			users = map[string]int32{}
			g.users[claim] = users
		}
		was := users[p.node]
		if users[p.node] = was + by; was+by == 0 {
			delete(users, p.node)
		}
		if len(users) == 0 {
			delete(g.users, claim)
		}
		if was == 0 || was+by == 0 { // the first user of the node, or the last
			for v := range g.volumesOf[claim] {
				g.addSecrets(p.node, g.volumes[v].secrets, by)
			}
		}
	}
}

// setVolume replaces the grants of a PersistentVolume; o is nil for a deleted one.
func (g *graph) setVolume(name string, o *store.Object) {
	if last, ok := g.volumes[name]; ok {
		for node := range g.users[last.claim] {
			g.addSecrets(node, last.secrets, -1)
		}
		delete(g.volumes, name)
		delete(g.volumesOf[last.claim], name)
		if len(g.volumesOf[last.claim]) == 0 {
			delete(g.volumesOf, last.claim)
		}
	}
	if o == nil {
		return
	}
	v := read[persistentVolume](o)
	if v.Spec.Claim == nil {
		return
	}
	next := bound{*v.Spec.Claim, v.secrets()}
	g.volumes[name] = next
	if g.volumesOf[next.claim] == nil {
		g.volumesOf[next.claim] = map[string]struct{}{}
	}
	g.volumesOf[next.claim][name] = struct{}{}
	for node := range g.users[next.claim] {
		g.addSecrets(node, next.secrets, 1)
	}
}

func (g *graph) addSecrets(node string, all []fullName, by int32) {
	for _, s := range all {
		g.add(grant{node, object{secrets, s.Namespace, s.Name}}, by)
	}
}

func (g *graph) add(to grant, by int32) {
	if n := g.grants[to] + by; n != 0 {
		g.grants[to] = n
	} else {
		delete(g.grants, to)
	}
}

// setNode replaces the node that an object names; o is nil for a deleted one.
func setNode(nodes map[string]string, name string, o *store.Object) {
	node := ""
	if o != nil {
		node = read[onNode](o).Spec.Node
	}
	if node == "" {
		delete(nodes, name)
	} else {
		nodes[name] = node
	}
}

// granted reports whether a node may read an object in a state.
func (g *graph) granted(s *store.State, to grant) bool {
	g.tracker.RLock(s)
	defer g.tracker.RUnlock()
	return g.grants[to] > 0
}

// runs reports whether a Pod is assigned to a node.
func (g *graph) runs(s *store.State, node, namespace, name string) bool {
	g.tracker.RLock(s)
	defer g.tracker.RUnlock()
	return g.pods[namespace+"/"+name].node == node
}

// mounts reports whether Pods of a node use the claim of a PersistentVolume.
func (g *graph) mounts(s *store.State, node, volume string) bool {
	g.tracker.RLock(s)
	defer g.tracker.RUnlock()
	v, ok := g.volumes[volume]
	return ok && g.users[v.claim][node] > 0
}

// names reports whether a VolumeAttachment or ResourceSlice names a node.
func (g *graph) names(s *store.State, node string, nodes map[string]string, name string) bool {
	g.tracker.RLock(s)
	defer g.tracker.RUnlock()
	return nodes[name] == node
}
