package registry

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// removableAtOnce reports whether nothing delays the deletion of an object. It looks at the bytes
// alone, and suffices for most objects.
func removableAtOnce(t *resource.Type, current *store.Object, o *metav1.DeleteOptions) bool {
	if graceful(t) || t.Strategy.Deletion.Blocked != nil {
		return false
	}
	if list := member(member(current.Bytes(), "metadata"), "finalizers"); len(list) > 2 {
		return false
	}
	return len(propagationFinalizers(t, nil, o)) == 0
}

// graceful reports whether objects of a kind have a grace period.
func graceful(t *resource.Type) bool { return t.Strategy.Deletion.GracePeriod != nil }

// phase is the effect of a deletion.
type phase uint8

const (
	// phaseRemoved: nothing delays the removal.
	phaseRemoved phase = iota
	// phaseMarked: the object changes, and stays for now.
	phaseMarked
	// phasePending: an earlier request has begun the deletion, and this one changes nothing.
	phasePending
)

// mark changes an object as a request for its deletion does.
func mark(t *resource.Type, object runtime.Object, o *metav1.DeleteOptions, now time.Time) phase {
	meta, blocked := object.(metav1.Object), t.Strategy.Deletion.Blocked
	first := meta.GetDeletionTimestamp() == nil
	grace := int64(0)
	if graceful(t) {
		var ok bool
		if grace, ok = setGracePeriod(t, object, o.GracePeriodSeconds, now); !ok {
			return phasePending
		}
	}
	policy := o
	if p := t.Strategy.Deletion.Policy; p != nil {
		policy = p(object, o)
	}
	if policy != nil {
		meta.SetFinalizers(propagationFinalizers(t, meta.GetFinalizers(), policy))
	}
	delayed := len(meta.GetFinalizers()) > 0 || blocked != nil && blocked(object)
	if !delayed && !graceful(t) {
		return phaseRemoved
	}
	if !graceful(t) && first {
		setDeletion(meta, now, 0)
		if blocked != nil {
			meta.SetDeletionGracePeriodSeconds(nil)
		}
	}
	if prepare := t.Strategy.Deletion.Prepare; prepare != nil {
		prepare(object)
	}
	if first && blocked == nil && meta.GetGeneration() > 0 {
		meta.SetGeneration(meta.GetGeneration() + 1)
	}
	if delayed || grace > 0 {
		return phaseMarked
	}
	return phaseRemoved
}

func setDeletion(meta metav1.Object, now time.Time, grace int64) {
	at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second).UTC().Truncate(time.Second))
	meta.SetDeletionTimestamp(&at)
	meta.SetDeletionGracePeriodSeconds(&grace)
}

// setGracePeriod sets the grace period of an object, and its deletionTimestamp accordingly. A later
// request can only shorten the period; ok is false if it does not.
func setGracePeriod(t *resource.Type, object runtime.Object, asked *int64, now time.Time) (seconds int64, ok bool) {
	if asked != nil && *asked < 0 {
		one := int64(1)
		asked = &one
	}
	meta := object.(metav1.Object)
	since, given := meta.GetDeletionTimestamp(), meta.GetDeletionGracePeriodSeconds()
	switch {
	case since == nil:
		seconds = max(t.Strategy.Deletion.GracePeriod(object, asked), 0)
		setDeletion(meta, now, seconds)
		return seconds, true
	case given == nil || *given == 0 && len(meta.GetFinalizers()) == 0:
		return 0, true // the server stopped between the two steps of a removal
	case asked == nil || *asked >= *given:
		return 0, false
	}
	began := since.Add(-time.Duration(*given) * time.Second)
	setDeletion(meta, began, *asked)
	return *asked, true
}

// propagationFinalizers returns the finalizers of an object with the one of its propagation policy,
// which the garbage collector removes. Each deletion request decides anew.
func propagationFinalizers(t *resource.Type, have []string, o *metav1.DeleteOptions) []string {
	if t.Strategy.Deletion.Dependents == resource.NoDependents {
		return have
	}
	policy := propagation(t, have, o)
	next := slices.DeleteFunc(slices.Clone(have), isPropagationFinalizer)
	switch policy {
	case metav1.DeletePropagationOrphan:
		next = append(next, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		next = append(next, metav1.FinalizerDeleteDependents)
	}
	// Except for the last, all of next are in have.
	if len(next) == len(have) && (len(next) == 0 || slices.Contains(have, next[len(next)-1])) {
		return have // keep its order
	}
	return next
}

func isPropagationFinalizer(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// propagation returns the policy of a deletion: the request's, else the one of an earlier request,
// else the kind's default.
func propagation(t *resource.Type, have []string, o *metav1.DeleteOptions) metav1.DeletionPropagation {
	//lint:ignore SA1019 old clients send it
	orphan := o.OrphanDependents
	switch {
	case orphan != nil && *orphan:
		return metav1.DeletePropagationOrphan
	case orphan != nil:
		return metav1.DeletePropagationBackground
	case o.PropagationPolicy != nil:
		return *o.PropagationPolicy
	case slices.Contains(have, metav1.FinalizerOrphanDependents):
		return metav1.DeletePropagationOrphan
	case slices.Contains(have, metav1.FinalizerDeleteDependents):
		return metav1.DeletePropagationForeground
	case t.Strategy.Deletion.Dependents == resource.OrphanDependents:
		return metav1.DeletePropagationOrphan
	}
	return metav1.DeletePropagationBackground
}

// removable reports whether an object is being deleted and nothing blocks its removal.
func removable(t *resource.Type, object runtime.Object) bool {
	meta := object.(metav1.Object)
	if meta.GetDeletionTimestamp() == nil || len(meta.GetFinalizers()) > 0 {
		return false
	}
	if grace := meta.GetDeletionGracePeriodSeconds(); grace != nil && *grace != 0 {
		return false
	}
	blocked := t.Strategy.Deletion.Blocked
	return blocked == nil || !blocked(object)
}
