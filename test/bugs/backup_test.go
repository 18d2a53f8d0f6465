package bugs

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Backup is a backup in several parts, which are ConfigMaps of another namespace. They cannot have the
// backup as owner, so a finalizer deletes them.
type Backup = Custom[BackupSpec, BackupStatus]

// BackupSpec is the desired state.
type BackupSpec struct {
	Parts int `json:"parts"`
	// KeepSeconds is how long the backup is kept when it is done; zero: forever.
	KeepSeconds int `json:"keepSeconds,omitempty"`
}

// BackupStatus is the observed state.
type BackupStatus struct {
	Phase string      `json:"phase,omitempty"`
	Done  metav1.Time `json:"done,omitzero"` // when the phase became Done
}

const (
	// Finalizer, intermediate state: the finalizer goes first. A crash before the cleanup leaves the parts.
	finalizerFirst bug = "the finalizer is removed before the cleanup"
	// Unobserved state: the cleanup is done when the deletion is seen as an event. After a restart there is no
	// such event: kubernetes-sigs/kwok#142.
	cleanupByEvent bug = "the cleanup needs to see the event of the deletion"
	// An error is logged and forgotten, and the work counts as done: Azure/azure-service-operator#167.
	errorSwallowed bug = "the error of a step is logged and forgotten"
	// Conflict: an update that a conflict rejects is forgotten, since the event of the other write is expected to wake
	// up the controller. The predicate drops that event: Azure/azure-service-operator#2719.
	conflictIgnored bug = "a conflict is taken for success"
	// An error of the cleanup does not keep the finalizer: openkube-hub/KubeUser#54, cert-manager/cert-manager#7286.
	cleanupErrorIgnored bug = "the finalizer is removed although the cleanup has failed"
	// Time: the branch for "not yet due" returns without RequeueAfter: bitwarden/sm-kubernetes#132.
	forgottenRequeue bug = "nothing wakes the controller when the time has come"
)

const (
	archive         = "archive"
	backupFinalizer = "example.com/backup"
	backupUID       = "example.com/backup-uid"
)

// backups is the operator of backups.
type backups struct {
	client.Client
	live    client.Reader
	bug     bug
	deleted map[types.NamespacedName]types.UID // with cleanupByEvent; the event handlers fill it before the queue
	events  chan deletion
}

// deletion is the event of the deletion of a backup.
type deletion struct {
	key types.NamespacedName
	uid types.UID
}

func (r *backups) setUp(m ctrl.Manager) error {
	r.Client, r.live = m.GetClient(), m.GetAPIReader()
	r.deleted, r.events = map[types.NamespacedName]types.UID{}, make(chan deletion, 100)
	observe := predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if r.bug == cleanupByEvent {
			r.events <- deletion{client.ObjectKeyFromObject(e.Object), e.Object.GetUID()}
		}
		return true
	}}
	return ctrl.NewControllerManagedBy(m).For(&Backup{}, builder.WithPredicates(observe, predicate.GenerationChangedPredicate{})).WithOptions(options()).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *backups) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	for len(r.events) > 0 {
		e := <-r.events
		r.deleted[e.key] = e.uid
	}
	var b Backup
	err := r.live.Get(ctx, q.NamespacedName, &b)
	if uid, ok := r.deleted[q.NamespacedName]; ok && apierrors.IsNotFound(err) {
		if err := r.cleanUp(ctx, uid); err != nil {
			return ctrl.Result{}, err
		}
		delete(r.deleted, q.NamespacedName)
	}
	if err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !b.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &b)
	}
	if r.bug != cleanupByEvent && controllerutil.AddFinalizer(&b, backupFinalizer) {
		if err := r.Update(ctx, &b); err != nil {
			return ctrl.Result{}, r.retry(err)
		}
	}
	if b.Status.Phase == "Done" {
		return r.expire(ctx, &b)
	}
	if err := r.copy(ctx, &b); err != nil && r.bug != errorSwallowed {
		return ctrl.Result{}, err
	}
	b.Status = BackupStatus{Phase: "Done", Done: metav1.Now()}
	if err := r.Status().Update(ctx, &b); err != nil {
		return ctrl.Result{}, r.retry(err)
	}
	return r.expire(ctx, &b)
}

// retry returns the error of an update, which leads to another try.
func (r *backups) retry(err error) error {
	if r.bug == conflictIgnored && apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// expire deletes a backup that has been kept long enough.
func (r *backups) expire(ctx context.Context, b *Backup) (ctrl.Result, error) {
	if b.Spec.KeepSeconds == 0 {
		return ctrl.Result{}, nil
	}
	left := time.Until(b.Status.Done.Add(time.Duration(b.Spec.KeepSeconds) * time.Second))
	if left <= 0 {
		return ctrl.Result{}, client.IgnoreNotFound(r.Delete(ctx, b, client.Preconditions{UID: &b.UID}))
	}
	if r.bug == forgottenRequeue {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{RequeueAfter: left}, nil
}

// copy creates the parts that do not exist.
func (r *backups) copy(ctx context.Context, b *Backup) error {
	parts, err := r.parts(ctx, b.UID)
	if err != nil {
		return err
	}
	done := map[string]bool{}
	for _, c := range parts.Items {
		done[c.Data["part"]] = true
	}
	for i := range b.Spec.Parts {
		part := fmt.Sprint(i)
		if done[part] {
			continue
		}
		c := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: archive, Name: b.Name + "-" + part, Labels: map[string]string{backupUID: string(b.UID)}},
			Data:       map[string]string{"part": part},
		}
		if err := r.Create(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (r *backups) finalize(ctx context.Context, b *Backup) error {
	if !controllerutil.ContainsFinalizer(b, backupFinalizer) {
		return nil
	}
	if r.bug != finalizerFirst {
		if err := r.cleanUp(ctx, b.UID); err != nil && r.bug != cleanupErrorIgnored {
			return err
		}
	}
	controllerutil.RemoveFinalizer(b, backupFinalizer)
	if err := r.Update(ctx, b); err != nil {
		return client.IgnoreNotFound(err)
	}
	if r.bug == finalizerFirst {
		return r.cleanUp(ctx, b.UID)
	}
	return nil
}

// cleanUp deletes the parts of a backup.
func (r *backups) cleanUp(ctx context.Context, uid types.UID) error {
	parts, err := r.parts(ctx, uid)
	if err != nil {
		return err
	}
	for i := range parts.Items {
		if err := r.Delete(ctx, &parts.Items[i]); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// parts returns the parts of a backup. They are read without a cache, which would have all ConfigMaps of
// the cluster.
func (r *backups) parts(ctx context.Context, uid types.UID) (list corev1.ConfigMapList, err error) {
	err = r.live.List(ctx, &list, client.InNamespace(archive), client.MatchingLabels{backupUID: string(uid)})
	return list, err
}
