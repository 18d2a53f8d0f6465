package node

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/tidemark-dev/tidemark/internal/authz"
	"github.com/tidemark-dev/tidemark/internal/testrand"
)

// model is a cluster in a few maps, whose decisions search all of it.
type model struct {
	pods        map[string]*corev1.Pod
	volumes     map[string]*corev1.PersistentVolume
	attachments map[string]string
}

func (m *model) uses(p *corev1.Pod, claim *corev1.ObjectReference) bool {
	for _, v := range p.Spec.Volumes {
		if c := v.PersistentVolumeClaim; c != nil && claim != nil && p.Namespace == claim.Namespace && c.ClaimName == claim.Name {
			return true
		}
	}
	return false
}

// allowed decides without any index.
func (m *model) allowed(node, resource, namespace, name string) bool {
	for _, p := range m.pods {
		if p.Spec.NodeName != node {
			continue
		}
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		if resource == "pods" && p.Namespace == namespace && p.Name == name {
			return true
		}
		if mirror {
			continue
		}
		for _, s := range p.Spec.ImagePullSecrets {
			if resource == "secrets" && p.Namespace == namespace && s.Name == name {
				return true
			}
		}
		if resource == "persistentvolumeclaims" && m.uses(p, &corev1.ObjectReference{Namespace: namespace, Name: name}) {
			return true
		}
		for _, v := range m.volumes {
			if !m.uses(p, v.Spec.ClaimRef) {
				continue
			}
			s := v.Spec.CSI.NodeStageSecretRef
			if resource == "persistentvolumes" && v.Name == name || resource == "secrets" && s != nil && s.Namespace == namespace && s.Name == name {
				return true
			}
		}
	}
	return resource == "volumeattachments" && m.attachments[name] == node
}

// change makes a random change in the model and in the store.
func (m *model) change(w *world, chance *rand.Rand) {
	pick := func(kind string, n int) string { return fmt.Sprint(kind, chance.IntN(n)) }
	namespace, name := pick("ns", 2), pick("x", 8)
	gone := chance.IntN(4) == 0
	switch chance.IntN(6) {
	case 0:
		if gone {
			delete(m.volumes, name)
			w.put("persistentvolumes", name, nil)
			return
		}
		v := &corev1.PersistentVolume{ObjectMeta: meta("", name)}
		v.Spec.CSI = &corev1.CSIPersistentVolumeSource{}
		if chance.IntN(3) > 0 {
			v.Spec.CSI.NodeStageSecretRef = &corev1.SecretReference{Namespace: pick("ns", 2), Name: pick("s", 4)}
		}
		if chance.IntN(4) > 0 {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: namespace, Name: pick("c", 4)}
		}
		m.volumes[name] = v
		w.put("persistentvolumes", name, v)
	case 1:
		if gone {
			delete(m.attachments, name)
			w.put("volumeattachments.storage.k8s.io", name, nil)
			return
		}
		m.attachments[name] = pick("n", 3)
		w.put("volumeattachments.storage.k8s.io", name, &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{NodeName: m.attachments[name]}})
	default:
		if gone {
			delete(m.pods, namespace+"/"+name)
			w.put("pods", namespace+"/"+name, nil)
			return
		}
		p := &corev1.Pod{ObjectMeta: meta(namespace, name)}
		if chance.IntN(8) > 0 {
			p.Spec.NodeName = pick("n", 3)
		}
		if chance.IntN(8) == 0 {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "", "a": "b"}
		}
		for range chance.IntN(3) {
			p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: pick("s", 4)})
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pick("c", 4)},
			}})
		}
		m.pods[namespace+"/"+name] = p
		w.pod(p)
	}
}

// TestRandom changes Pods and volumes at random. Decisions are those of a model, and in the end
// the graph equals one that is made from nothing.
func TestRandom(t *testing.T) {
	chance := testrand.New(t)
	w := newWorld(t)
	m := &model{map[string]*corev1.Pod{}, map[string]*corev1.PersistentVolume{}, map[string]string{}}
	for step := range 3000 {
		m.change(w, chance)
		if chance.IntN(3) == 0 {
			continue // several changes between two requests
		}
		for range 4 {
			node, namespace := fmt.Sprint("n", chance.IntN(3)), fmt.Sprint("ns", chance.IntN(2))
			a := authz.Attributes{User: user(node), IsResource: true, Verb: "get", Namespace: namespace}
			switch chance.IntN(5) {
			case 0:
				a.Resource, a.Name = "secrets", fmt.Sprint("s", chance.IntN(4))
			case 1:
				a.Resource, a.Name = "persistentvolumeclaims", fmt.Sprint("c", chance.IntN(4))
			case 2:
				a.Resource, a.Name, a.Namespace = "persistentvolumes", fmt.Sprint("x", chance.IntN(8)), ""
			case 3:
				a.Resource, a.Name = "pods", fmt.Sprint("x", chance.IntN(8))
			case 4:
				a.Group, a.Resource, a.Name, a.Namespace = "storage.k8s.io", "volumeattachments", fmt.Sprint("x", chance.IntN(8)), ""
			}
			d, reason, _ := w.node.Authorize(t.Context(), &a)
			if want := m.allowed(node, a.Resource, a.Namespace, a.Name); (d == authz.Allow) != want {
				t.Fatalf("step %d: %s gets %s %s/%s: %v %s, want %v", step, node, a.Resource, a.Namespace, a.Name, d, reason, want)
			}
		}
	}
	wantAnew(w)
	for key := range m.pods {
		w.put("pods", key, nil)
	}
	wantAnew(w)
	if g := w.node.graph; len(g.grants)+len(g.users)+len(g.pods) > 0 {
		t.Errorf("without Pods there are %v %v", g.grants, g.users)
	}
}

// wantAnew compares the graph with one that is made from nothing.
func wantAnew(w *world) {
	w.Helper()
	state := w.Any()
	incremental, anew := w.node.graph, newGraph()
	tracker := incremental.tracker
	defer func() { incremental.tracker = tracker }()
	for _, g := range []*graph{incremental, anew} {
		g.tracker.RLock(state)
		g.tracker.RUnlock()
		g.tracker = nil
	}
	if !reflect.DeepEqual(incremental, anew) {
		w.Errorf("after all changes the graph is\n%+v\nmade anew it is\n%+v", incremental, anew)
	}
}
