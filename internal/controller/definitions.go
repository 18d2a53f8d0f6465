package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tidemark-dev/tidemark/internal/crd"
	"github.com/tidemark-dev/tidemark/internal/registry"
	"github.com/tidemark-dev/tidemark/internal/store"
)

// definitions finishes the deletion of CustomResourceDefinitions, after their objects are
// deleted. It also gives definitions with conflicting names the names that became free.
//
// kube-apiserver itself does this, so the loop cannot be switched off.
type definitions struct{ follower }

func newDefinitions(l *Loops, q *queue) loop {
	return &definitions{follower{l: l, queue: q, collection: crd.Collection}}
}

func (d *definitions) observe(c *store.CollectionChange) {
	if c.Collection != crd.Collection {
		if c.After == nil { // the last object of a definition that waits for it, perhaps
			if o := d.l.store.Any().Get(crd.Collection, c.Collection); o != nil && registry.MetadataOf(o).Deleting {
				d.add(c.Collection)
			}
		}
		return
	}
	d.l.store.Wake(c.Key()) // watches of its objects: perhaps they are over
	if c.After != nil && registry.MetadataOf(c.After).Deleting {
		d.add(c.Key())
	}
	if c.Before == nil { // it takes names, and frees none
		if d.l.c.Definitions.Waits(c.Key()) { // for one that went meanwhile, perhaps
			d.add(c.Key())
		}
		return
	}
	_, group, _ := strings.Cut(c.Key(), ".")
	for _, key := range d.l.c.Definitions.Waiting(group) {
		d.add(key)
	}
}

func (d *definitions) sync(ctx context.Context, i item) error {
	s := d.l.store.Any()
	o := s.Get(crd.Collection, i.key)
	if o == nil {
		return nil
	}
	definition, err := registry.Decode[apiextensionsv1.CustomResourceDefinition](o)
	if err != nil {
		return err
	}
	switch {
	case definition.DeletionTimestamp == nil:
		return d.recheck(ctx, i.object, definition)
	case !apihelpers.CRDHasFinalizer(definition, apiextensionsv1.CustomResourceCleanupFinalizer):
		return nil
	}
	var left remains
	if t := d.l.c.Definitions.Own(i.key); t != nil {
		if err := d.l.deleteAll(ctx, s, t, ""); err != nil {
			return errors.Join(err, d.setProgress(ctx, i.object, "InstanceDeletionFailed", fmt.Sprintf("could not issue all deletes: %v", err)))
		}
		left.count(d.l.store.Any(), t, "")
	}
	switch {
	case left.undeleted:
		return fmt.Errorf("new objects of %s appeared while it was deleted", i.key)
	case left.any(), d.l.store.Any().Snapshot(i.key).Count("", "") > 0:
		return d.setProgress(ctx, i.object, "InstanceDeletionInProgress", "CustomResource deletion is in progress")
	}
	return d.finalize(ctx, i.object)
}

// setProgress sets the condition Terminating to how far the deletion is.
func (d *definitions) setProgress(ctx context.Context, o object, reason, message string) error {
	return d.edit(ctx, o, "status", func(c *apiextensionsv1.CustomResourceDefinition) error {
		if !d.terminating(c, apiextensionsv1.ConditionTrue, reason, message) {
			return errLeave
		}
		return nil
	})
}

// finalize removes the finalizer that waits for the objects. The definition stays while it
// has other finalizers.
func (d *definitions) finalize(ctx context.Context, o object) error {
	return d.edit(ctx, o, "status", func(c *apiextensionsv1.CustomResourceDefinition) error {
		if c.DeletionTimestamp == nil || !apihelpers.CRDHasFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer) {
			return errLeave
		}
		apihelpers.CRDRemoveFinalizer(c, apiextensionsv1.CustomResourceCleanupFinalizer)
		d.terminating(c, apiextensionsv1.ConditionFalse, "InstanceDeletionCompleted", "removed all instances")
		return nil
	})
}

// terminating sets the condition, and reports whether it has changed.
func (d *definitions) terminating(c *apiextensionsv1.CustomResourceDefinition, status apiextensionsv1.ConditionStatus, reason, message string) bool {
	next := apiextensionsv1.CustomResourceDefinitionCondition{Type: apiextensionsv1.Terminating, Status: status, Reason: reason, Message: message}
	if old := apihelpers.FindCRDCondition(c, next.Type); old != nil && apihelpers.IsCRDConditionEquivalent(old, &next) {
		return false
	}
	next.LastTransitionTime = metav1.NewTime(d.l.now().UTC().Truncate(time.Second))
	apihelpers.SetCRDCondition(c, next)
	return true
}

// recheck accepts the names of a definition that have become free.
func (d *definitions) recheck(ctx context.Context, o object, c *apiextensionsv1.CustomResourceDefinition) error {
	if apihelpers.IsCRDConditionTrue(c, apiextensionsv1.NamesAccepted) && apihelpers.IsCRDConditionTrue(c, apiextensionsv1.Established) {
		return nil
	}
	return d.edit(ctx, o, "status", func(c *apiextensionsv1.CustomResourceDefinition) error {
		next := d.l.c.Naming.Named(c)
		if next == nil {
			return errLeave
		}
		c.Status = next.Status
		return nil
	})
}

// edit changes a definition. A definition that does not exist is not an error.
func (d *definitions) edit(ctx context.Context, o object, subresource string, change func(*apiextensionsv1.CustomResourceDefinition) error) error {
	t, ok := d.l.served().target(o)
	if !ok {
		return nil
	}
	t.Subresource = subresource
	_, err := d.l.c.Registry.Edit(ctx, t, registry.ServerManager, func(o metav1.Object) error { return change(o.(*apiextensionsv1.CustomResourceDefinition)) })
	if apierrors.IsNotFound(err) || errors.Is(err, errLeave) {
		return nil
	}
	return err
}
