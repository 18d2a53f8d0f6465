package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/resource"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// Delete removes an object, or begins to: rows D1 to D8. What holds a deletion
// back are finalizers, those that the propagation policy asks for among them, time
// to stop, and what a kind itself knows of (the content of a namespace). Then the
// object is marked, and goes when the last of them does (replace).
//
// By is the client, nil for the server itself.
func (r *Registry) Delete(ctx context.Context, t Target, o *metav1.DeleteOptions, by *authn.User) (Object, error) {
	w, err := newDeletion(t, o, by)
	if err != nil {
		return Object{}, err
	}
	return r.delete(ctx, w)
}

// newDeletion checks the options of a deletion; an empty dryRun means none.
func newDeletion(t Target, o *metav1.DeleteOptions, by *authn.User) (*write, error) {
	if o == nil {
		o = &metav1.DeleteOptions{}
	}
	checked := *o
	checked.DryRun = wanted(o.DryRun)
	if errs := metav1validation.ValidateDeleteOptions(&checked); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	w := &write{Target: t, deletion: &checked, by: by, dryRun: len(checked.DryRun) > 0}
	//lint:ignore SA1019 old clients send it
	if said := o.OrphanDependents != nil || o.PropagationPolicy != nil; t.Type.Strategy.Deletion.OrphanWarning != "" && !said {
		w.warnings = append(w.warnings, t.Type.Strategy.Deletion.OrphanWarning)
	}
	return w, nil
}

func (r *Registry) delete(ctx context.Context, w *write) (Object, error) {
	warned := len(w.warnings)
	for {
		if err := ctx.Err(); err != nil {
			return Object{}, status(err)
		}
		w.warnings = w.warnings[:warned]
		state := r.Store.Any()
		current := state.Get(w.Type.Collection, w.key())
		if current == nil {
			return Object{}, w.notFound()
		}
		if err := checkPreconditions(w.Target, current, w.deletion.Preconditions); err != nil {
			return Object{}, err
		}
		if err := checkImmortal(w.Target); err != nil {
			return Object{}, err
		}
		answer, err := r.deleteVersion(ctx, w, state, current)
		if conflicts(err) || restarts(err) {
			continue // look again at what is there now
		}
		answer.Warnings = w.warnings
		return answer, status(err)
	}
}

// deleteVersion deletes one version of an object.
func (r *Registry) deleteVersion(ctx context.Context, w *write, s *store.State, current *store.Object) (Object, error) {
	a, o := w.attributes(admissionv1.Delete, s, nil, nil), w.deletion
	if err := r.admitDelete(ctx, a, current); err != nil {
		return Object{}, err
	}
	if goesAtOnce(w.stored(), current, o) {
		return r.remove(ctx, a, current)
	}
	next, err := w.read(ctx, current)
	if err != nil {
		return Object{}, err
	}
	phase := mark(w.stored(), next, o, r.now())
	if phase == removed && !graceful(w.stored()) {
		return r.remove(ctx, a, current)
	}
	marked := current
	if phase != pending {
		e, err := w.encode(ctx, next)
		if err != nil {
			return Object{}, err
		}
		if !unchanged(current, e, nil) {
			c := store.Write{Collection: w.Type.Collection, Key: current.Key, Value: e.Bytes, RevisionAt: e.RevisionAt, If: current.Modified, Deleting: true}
			if marked, err = r.commit(ctx, a, c); err != nil {
				return Object{}, err
			}
		}
	}
	if phase == removed && w.dryRun {
		return deleted(w.Target, marked), nil
	}
	if phase == removed {
		return r.remove(ctx, a, marked)
	}
	//lint:ignore SA1019 old clients send it, and wait for 202
	accepted := o.OrphanDependents != nil && !*o.OrphanDependents
	return Object{Stored: marked, Accepted: accepted}, nil
}

// remove takes an object out of the store.
func (r *Registry) remove(ctx context.Context, a *Attributes, current *store.Object) (Object, error) {
	gone, err := r.commit(ctx, a, store.Write{Collection: a.Type.Collection, Key: current.Key, If: current.Modified})
	if err != nil {
		return Object{}, err
	}
	return deleted(a.Target, gone), nil
}

// deleted is the answer to an immediate deletion: row D1.
func deleted(t Target, gone *store.Object) Object {
	if t.Type.Strategy.Deletion.ReturnsObject {
		return Object{Stored: gone}
	}
	return Object{Status: &metav1.Status{
		Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{
			Name: t.Name, Group: t.Type.Group, Kind: t.Type.Resource,
			UID: types.UID(at(gone.Bytes(), []string{"metadata", "uid"})),
		},
	}}
}

// checkImmortal protects the namespaces that have to be there: row A9.
func checkImmortal(t Target) error {
	if t.Type.GroupResource() != schemaNamespaces {
		return nil
	}
	switch t.Name {
	case "default", "kube-system", "kube-public":
		return apierrors.NewForbidden(schemaNamespaces, t.Name, errors.New("this namespace may not be deleted"))
	}
	return nil
}

// checkPreconditions: row D6.
func checkPreconditions(t Target, current *store.Object, p *metav1.Preconditions) error {
	if p == nil {
		return nil
	}
	refuse := func(format string, args ...any) error {
		resource := schema.GroupResource{Group: t.Type.Group, Resource: t.Type.Kind}
		return apierrors.NewConflict(resource, t.Name, fmt.Errorf(format, args...))
	}
	uid := at(current.Bytes(), []string{"metadata", "uid"})
	version := strconv.FormatUint(uint64(current.Modified), 10)
	if t.Type.GroupResource() == schemaNamespaces || t.Type.Collection == definitionsCollection {
		return checkOwnPreconditions(t, p, uid, version)
	}
	if p.UID != nil && string(*p.UID) != uid {
		return refuse("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, uid)
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return refuse("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, version)
	}
	return nil
}

// definitionsCollection is where definitions of custom resources are.
const definitionsCollection = "customresourcedefinitions.apiextensions.k8s.io"

// checkOwnPreconditions is checkPreconditions of kinds that kube-apiserver deletes in two
// steps of their own, with words of their own.
func checkOwnPreconditions(t Target, p *metav1.Preconditions, uid, version string) error {
	if p.UID != nil && string(*p.UID) != uid {
		return conflict(t, otherThan("UID", string(*p.UID), uid))
	}
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return conflict(t, otherThan("ResourceVersion", *p.ResourceVersion, version))
	}
	return nil
}

func otherThan(what, sent, have string) error {
	return fmt.Errorf("%s: %s in precondition: %s, %[2]s in object meta: %[4]s", "Precondition failed", what, sent, have)
}

// goesAtOnce tells from the bytes alone that nothing holds the deletion of an
// object back, as nearly always.
func goesAtOnce(t *resource.Type, current *store.Object, o *metav1.DeleteOptions) bool {
	if graceful(t) || t.Strategy.Deletion.Blocked != nil {
		return false
	}
	if list := member(member(current.Bytes(), "metadata"), "finalizers"); len(list) > 2 {
		return false
	}
	return len(collectorFinalizers(t, nil, o)) == 0
}

// graceful tells whether objects of a kind get time to stop.
func graceful(t *resource.Type) bool { return t.Strategy.Deletion.GracePeriod != nil }

// phase is how far a deletion gets.
type phase uint8

const (
	// removed: nothing holds the object back.
	removed phase = iota
	// marked: the object is changed, and stays for now.
	marked
	// pending: it is on its way already, and the request changes nothing.
	pending
)

// mark writes into an object what a request for its deletion makes of it: rows
// D2, D4, D8.
func mark(t *resource.Type, object runtime.Object, o *metav1.DeleteOptions, now time.Time) phase {
	meta, blocked := object.(metav1.Object), t.Strategy.Deletion.Blocked
	first := meta.GetDeletionTimestamp() == nil
	grace := int64(0)
	if graceful(t) {
		var ok bool
		if grace, ok = giveTime(t, object, o.GracePeriodSeconds, now); !ok {
			return pending
		}
	}
	meta.SetFinalizers(collectorFinalizers(t, meta.GetFinalizers(), o))
	held := len(meta.GetFinalizers()) > 0 || blocked != nil && blocked(object)
	if !held && !graceful(t) {
		return removed
	}
	if !graceful(t) && first {
		stamp(meta, now, 0)
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
	if held || grace > 0 {
		return marked
	}
	return removed
}

func stamp(meta metav1.Object, now time.Time, grace int64) {
	at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second).UTC().Truncate(time.Second))
	meta.SetDeletionTimestamp(&at)
	meta.SetDeletionGracePeriodSeconds(&grace)
}

// giveTime sets how long an object may take to stop: row D8. The time can only
// become shorter; ok is false when the request does not make it so.
func giveTime(t *resource.Type, object runtime.Object, asked *int64, now time.Time) (seconds int64, ok bool) {
	if asked != nil && *asked < 0 {
		one := int64(1)
		asked = &one
	}
	meta := object.(metav1.Object)
	since, given := meta.GetDeletionTimestamp(), meta.GetDeletionGracePeriodSeconds()
	switch {
	case since == nil:
		seconds = max(t.Strategy.Deletion.GracePeriod(object, asked), 0)
		stamp(meta, now, seconds)
		return seconds, true
	case given == nil || *given == 0 && len(meta.GetFinalizers()) == 0:
		return 0, true // a server stopped between the two steps of its removal
	case asked == nil || *asked >= *given:
		return 0, false
	}
	began := since.Add(-time.Duration(*given) * time.Second)
	stamp(meta, began, *asked)
	return *asked, true
}

// collectorFinalizers are the finalizers of an object with those that make the
// garbage collector act first, as far as the request and the kind want it to: row
// D4. Each request decides anew.
func collectorFinalizers(t *resource.Type, have []string, o *metav1.DeleteOptions) []string {
	if t.Strategy.Deletion.Dependents == resource.NoDependents {
		return have
	}
	policy := propagation(t, have, o)
	next := slices.DeleteFunc(slices.Clone(have), isCollector)
	switch policy {
	case metav1.DeletePropagationOrphan:
		next = append(next, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationForeground:
		next = append(next, metav1.FinalizerDeleteDependents)
	}
	// All but the last of next are in have.
	if len(next) == len(have) && (len(next) == 0 || slices.Contains(have, next[len(next)-1])) {
		return have // in its order
	}
	return next
}

func isCollector(finalizer string) bool {
	return finalizer == metav1.FinalizerOrphanDependents || finalizer == metav1.FinalizerDeleteDependents
}

// propagation is the policy of a deletion: what the request says, or else what an
// earlier one left behind, or else what the kind does.
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

// nothingHolds tells whether an object whose deletion has begun can go: row D2.
func nothingHolds(t *resource.Type, object runtime.Object) bool {
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
