package controller

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// ownerStates are the owners that an object names, by their state.
type ownerStates struct {
	solid    []types.UID // there, and they stay or do not wait
	waiting  []types.UID // there, and they wait for their dependents
	dangling []types.UID // absent
}

// classify looks up the owners of an object. Nil means that the object is left alone: an
// owner's kind is not served, so its state is unknown, or the reference is one that cannot
// exist.
func (g *garbage) classify(ctx context.Context, s *store.State, d dependent, references []metav1.OwnerReference) (*ownerStates, error) {
	var f ownerStates
	searches := mostSearches
	served := g.l.served()
	dependentType := served.byCollection[d.name.collection]
	if dependentType == nil {
		return nil, nil
	}
	for _, r := range references {
		if g.isGone(r.UID) {
			f.dangling = append(f.dangling, r.UID)
			continue
		}
		t := served.byKind[schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)]
		if t == nil {
			g.leave(d.name)
			return nil, nil
		}
		if t.Namespaced && !dependentType.Namespaced {
			return nil, g.reportElsewhere(ctx, s, d, ownerType{t, r}, &searches)
		}
		owner := s.Get(t.Collection, ownerKey(t, d.name.key, r.Name))
		if owner.Unreadable() != "" {
			return nil, fmt.Errorf("the owner %s %s of %s cannot be read", r.Kind, r.Name, d.name.key)
		}
		m := registry.MetadataOf(owner)
		switch {
		case string(m.UID) != string(r.UID):
			if err := g.reportElsewhere(ctx, s, d, ownerType{t, r}, &searches); err != nil {
				return nil, err
			}
			f.dangling = append(f.dangling, r.UID)
		case waitsForDependents(m):
			f.waiting = append(f.waiting, r.UID)
		default:
			f.solid = append(f.solid, r.UID)
		}
	}
	return &f, nil
}

// ownerKey returns the key of an owner, in the namespace of the dependent for a namespaced
// kind.
func ownerKey(t *resource.Type, dependent, name string) string {
	if !t.Namespaced {
		return name
	}
	namespace, _, _ := strings.Cut(dependent, "/")
	return namespace + "/" + name
}

// leave remembers to queue an object again when other kinds are served.
func (g *garbage) leave(o object) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unknown[o] = struct{}{}
}

// ownerType is a reference with the type that it names.
type ownerType struct {
	*resource.Type
	reference metav1.OwnerReference
}

// mostSearches is the maximum number of references of one dependent for which all namespaces are searched.
// An object can have tens of thousands of references, and a server thousands of namespaces.
const mostSearches = 64

// reportElsewhere creates an event when the owner exists in another namespace: references
// do not cross namespaces, and users may wonder why the dependent is deleted. Owners are
// looked up by the name in the reference. searches is the number of references of the dependent
// that may still be looked up.
func (g *garbage) reportElsewhere(ctx context.Context, s *store.State, d dependent, t ownerType, searches *int) error {
	g.mu.Lock()
	known := g.nowhere.has(t.identity())
	g.mu.Unlock()
	if known || !t.Namespaced || *searches == 0 {
		return nil
	}
	*searches--
	for namespace := range s.Snapshot(namespaceCollection).Scan("", "") {
		o := s.Get(t.Collection, namespace.Key+"/"+t.reference.Name)
		if o != nil && string(registry.MetadataOf(o).UID) == string(t.reference.UID) {
			return g.report(ctx, d, t)
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.nowhere.add(t.identity())
	return nil
}

// identity identifies an owner by all fields of a reference. The UID alone is not enough: a
// reference with a wrong name is not evidence about the owner.
func (t ownerType) identity() string {
	return strings.Join([]string{t.Collection, t.reference.Name, string(t.reference.UID)}, " ")
}

// eventNameBase is the most bytes of an object's name in the name of an event.
const eventNameBase = 200

// report creates the event, once for each pair of dependent and owner, which its name
// identifies.
func (g *garbage) report(ctx context.Context, d dependent, t ownerType) error {
	target, ok := g.l.served().target(d.name)
	if !ok {
		return nil
	}
	namespace := target.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	r, now := t.reference, metav1.NewTime(g.l.now())
	name := target.Name[:min(len(target.Name), eventNameBase)]
	identity := fmt.Sprintf("[%s/%s, namespace: %s, name: %s, uid: %s]", r.APIVersion, r.Kind, target.Namespace, r.Name, r.UID)
	err := g.l.create(ctx, eventCollection, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%016x", name, stableHash(string(d.m.UID)+string(r.UID)))},
		InvolvedObject: corev1.ObjectReference{
			Kind: target.Type.Kind, APIVersion: target.Type.GroupVersion().String(), Namespace: target.Namespace, Name: target.Name, UID: types.UID(d.m.UID),
		},
		Type: corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace",
		Message:        fmt.Sprintf("ownerRef %s does not exist in namespace %q", identity, target.Namespace),
		Source:         corev1.EventSource{Component: "garbage-collector-controller"},
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		ReportingController: "garbage-collector-controller",
	})
	if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil // it exists, or cannot be created
	}
	return err
}

// recent is a set of the strings that were added last.
type recent struct {
	set  map[string]struct{}
	row  []string // a ring
	next int
}

const mostRecent = 1024

func (n *recent) add(s string) {
	if n.has(s) {
		return
	}
	if n.set == nil {
		n.set = map[string]struct{}{}
	}
	if len(n.row) < mostRecent {
		n.row = append(n.row, s)
	} else {
		delete(n.set, n.row[n.next])
		n.row[n.next] = s
		n.next = (n.next + 1) % mostRecent
	}
	n.set[s] = struct{}{}
}

func (n *recent) has(s string) bool {
	_, there := n.set[s]
	return there
}

func (g *garbage) isGone(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gone.has(string(uid))
}
