package registry

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/authn"
	"github.com/tidemark-dev/tidemark/internal/fairness"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// deletersPerCollection is how many objects of a collection are deleted at once, so that many
// deletions share a sync: 10,000 objects take 160 syncs.
const deletersPerCollection = 256

// DeleteCollection deletes the objects that a list with the same parameters returns, and returns
// that list as it was before. Each object is deleted as Delete does it; an object that is gone
// already is no error. After another error the remaining objects stay, and the list has nothing but
// Annotations.
func (r *Registry) DeleteCollection(ctx context.Context, t Target, o *metav1.DeleteOptions, lo *metainternal.ListOptions, by *authn.User) (*List, error) {
	w, err := r.newDeletion(t, o, by)
	if err != nil {
		return nil, err
	}
	if IgnoresReadErrors(w.deletion) {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", field.ErrorList{
			field.Invalid(field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option"),
		})
	}
	defer r.Turn()()
	l, err := r.List(ctx, t, lo)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	var objects []*store.Object
	for object, err := range l.Items {
		if err != nil {
			return nil, status(err)
		}
		objects = append(objects, object)
	}
	notes, err := r.deleteAll(ctx, w, objects)
	if err != nil {
		return &List{Annotations: notes}, err
	}
	return &List{
		Type: l.Type, Revision: l.Revision, Continue: l.Continue, Remaining: l.Remaining, Warnings: w.warnings, Annotations: notes, Close: func() {},
		Items: listed(objects),
	}, nil
}

// deleteAll deletes objects in parallel. It returns the audit annotations of all deletions.
func (r *Registry) deleteAll(ctx context.Context, w *write, objects []*store.Object) (notes map[string]string, err error) {
	var next atomic.Int64
	var wg sync.WaitGroup
	var mu sync.Mutex // guards notes and err
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	end := func(response Object, failed error) {
		mu.Lock()
		defer mu.Unlock()
		for key, value := range response.Annotations {
			annotate(&notes, key, value)
		}
		if err == nil && failed != nil && !apierrors.IsNotFound(failed) {
			err = failed
			stop()
		}
	}
	for range min(r.Width(deletersPerCollection), len(objects)) {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(objects) {
					return
				}
				if fairness.Yield(ctx) != nil {
					return // ctx has ended
				}
				one := &write{Target: w.Target, verb: store.VerbDeleteCollection, deletion: w.deletion, by: w.by, dryRun: w.dryRun, collection: true}
				one.Namespace, one.Name = one.split(objects[i].Key)
				end(r.deleteOne(ctx, one))
			}
		})
	}
	wg.Wait()
	if err == nil {
		err = status(ctx.Err())
	}
	return notes, err
}

// deleteOne deletes an object in a goroutine of its own, where a panic would end the server.
func (r *Registry) deleteOne(ctx context.Context, w *write) (_ Object, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = apierrors.NewInternalError(fmt.Errorf("the deletion of %s %q has panicked: %v", w.Type.GroupResource(), w.Name, p))
		}
	}()
	return r.delete(ctx, w)
}
