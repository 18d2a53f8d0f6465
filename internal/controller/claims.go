package controller

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// newClaims protects PersistentVolumeClaims that pods use.
func newClaims(l *Loops, q *queue) loop {
	users := &claimUsers{store: l.store}
	p := newProtection(l, q, claimCollection, "kubernetes.io/pvc-protection")
	p.used, p.freed, p.idle = users.use, freedClaims, users.forget
	return p
}

// freedClaims yields the claims that a pod named and no longer needs.
func freedClaims(c *store.CollectionChange) iter.Seq[string] {
	return func(yield func(string) bool) {
		if c.Collection != podCollection || c.After != nil && !registry.MetadataOf(c.After).Deleting {
			return
		}
		namespace, _, _ := strings.Cut(c.Key(), "/")
		for name := range named(c.Before.Bytes(), claimMember) {
			if !yield(namespace + "/" + name) {
				return
			}
		}
		if !bytes.Contains(c.Before.Bytes(), []byte(`"ephemeral":{`)) {
			return
		}
		pod, err := registry.Decode[corev1.Pod](c.Before)
		if err != nil {
			return
		}
		for i := range pod.Spec.Volumes {
			if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil && !yield(namespace+"/"+ephemeralName(pod, v)) {
				return
			}
		}
	}
}

// claimMember begins the member of a pod's volume that names a claim.
const claimMember = `"claimName":"`

// claimUsers finds the pods that name a claim. It indexes the pods of a namespace at the
// first question about one of its claims, and reads the store's history for later ones:
// 10,000 questions read each pod once.
//
//	use:              index the namespace from the state s, unless it is indexed;
//	                  apply the changes since the index's revision, at least up to s
//	too many changes: start over from s
//
// A namespace that was indexed after the others gets some changes a second time. That is
// harmless, since the last change of a pod decides. So the index equals the
// state of the store at the index's revision. The zero value with a store is ready, and safe for
// concurrent use.
type claimUsers struct {
	store *store.Store

	mu       sync.Mutex
	revision store.Revision
	// pods that name a claim, by namespace, claim and key; nil: there is no index.
	pods map[string]map[string]map[string]*store.Object
}

// mostBehind is how many revisions the index catches up. Beyond that, reading all pods
// again is not slower.
const mostBehind = 16_384

// forget drops the index.
func (u *claimUsers) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pods = nil
}

// use reports whether a pod that is assigned to a node uses the claim. Other pods do not
// count: no kubelet starts them while the claim is terminating.
func (u *claimUsers) use(ctx context.Context, claim *store.Object) (bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	s := u.store.Any()
	namespace, name, _ := strings.Cut(claim.Key, "/")
	u.catchUp(ctx, s, namespace)
	for _, pod := range u.pods[namespace][name] {
		if used, err := usedBy(pod, claim); used || err != nil {
			return used, err
		}
	}
	// The claim of an ephemeral volume names its pod as owner. The state may be older than
	// the index: a pod that was deleted in between does not come back.
	owners, _ := registry.MetadataOf(claim).Owners() // an unreadable claim has no owners
	for _, r := range owners {
		if used, err := usedBy(s.Get(podCollection, namespace+"/"+r.Name), claim); used || err != nil {
			return used, err
		}
	}
	return false, nil
}

// catchUp brings a namespace of the index to a state or later. The caller holds mu.
func (u *claimUsers) catchUp(ctx context.Context, s *store.State, namespace string) {
	if u.pods != nil && s.Revision() <= u.revision+mostBehind {
		if u.pods[namespace] == nil {
			u.begin(s, namespace)
		}
		if u.readOn(ctx, s.Revision()) == nil {
			return
		}
	}
	u.pods, u.revision = map[string]map[string]map[string]*store.Object{}, s.Revision()
	u.begin(s, namespace)
}

func (u *claimUsers) begin(s *store.State, namespace string) {
	u.pods[namespace] = map[string]map[string]*store.Object{}
	for pod := range s.Snapshot(podCollection).Scan(namespace+"/", "") {
		u.apply(nil, pod)
	}
}

// readOn applies the history, at least up to a revision.
func (u *claimUsers) readOn(ctx context.Context, upTo store.Revision) error {
	if u.revision >= upTo {
		return nil
	}
	feed, err := u.store.Feed(u.revision)
	if err != nil {
		return err
	}
	defer feed.Close()
	buf := make([]store.CollectionChange, maxChanges)
	for u.revision < upTo {
		n, err := feed.TryNext(ctx, buf)
		if err != nil {
			return err
		}
		for _, c := range buf[:n] {
			if c.Collection == podCollection {
				u.apply(c.Before, c.After)
			}
		}
		u.revision = feed.Revision()
	}
	return nil
}

// apply applies a change of a pod to the index of its namespace.
func (u *claimUsers) apply(before, after *store.Object) {
	each := func(pod *store.Object, do func(of map[string]map[string]*store.Object, claim string)) {
		if pod == nil {
			return
		}
		namespace, _, _ := strings.Cut(pod.Key, "/")
		of := u.pods[namespace]
		if of == nil {
			return
		}
		for claim := range named(pod.Bytes(), claimMember) {
			do(of, claim)
		}
	}
	each(before, func(of map[string]map[string]*store.Object, claim string) {
		if delete(of[claim], before.Key); len(of[claim]) == 0 {
			delete(of, claim)
		}
	})
	each(after, func(of map[string]map[string]*store.Object, claim string) {
		if of[claim] == nil {
			of[claim] = map[string]*store.Object{}
		}
		of[claim][after.Key] = after
	})
}

// usedBy reports whether a pod is assigned to a node and uses a claim; a nil pod does not.
func usedBy(stored, claim *store.Object) (bool, error) {
	if stored == nil {
		return false, nil
	}
	pod, err := registry.Decode[corev1.Pod](stored)
	if err != nil || pod.Spec.NodeName == "" {
		return false, err
	}
	return slices.ContainsFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return usesClaim(pod, &v, claim) }), nil
}

func usesClaim(pod *corev1.Pod, v *corev1.Volume, claim *store.Object) bool {
	_, name, _ := strings.Cut(claim.Key, "/")
	if v.PersistentVolumeClaim != nil {
		return v.PersistentVolumeClaim.ClaimName == name
	}
	if v.Ephemeral == nil || ephemeralName(pod, v) != name || shutDown(pod) {
		return false
	}
	owners, err := registry.MetadataOf(claim).Owners()
	return err == nil && slices.ContainsFunc(owners, func(r metav1.OwnerReference) bool {
		return r.UID == pod.UID && r.Controller != nil && *r.Controller
	})
}

// ephemeralName returns the name of the claim made for an ephemeral volume.
func ephemeralName(pod *corev1.Pod, v *corev1.Volume) string { return pod.Name + "-" + v.Name }

// shutDown reports whether a pod has terminated. Its own ephemeral claims must not wait for
// it then, since it may wait for them.
func shutDown(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil && pod.DeletionGracePeriodSeconds != nil && *pod.DeletionGracePeriodSeconds == 0
}
