package bugs

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// Database is a database with a password, a volume and servers.
type Database = Custom[DatabaseSpec, DatabaseStatus]

// DatabaseSpec is the desired state.
type DatabaseSpec struct {
	Replicas int32  `json:"replicas"`
	Storage  string `json:"storage"`
}

// DatabaseStatus is the observed state.
type DatabaseStatus struct {
	Phase string `json:"phase,omitempty"`
	Ready int32  `json:"ready"`
}

const (
	// Intermediate state: the phase is written before the work is done, and the work is done only in the
	// first phase. A crash in between leaves the database without a volume.
	phaseBeforeWork bug = "the phase is written before the volume is created"
	// Intermediate state: the owner is written after the create, and an object that exists is left alone. A
	// crash in between leaves a StatefulSet that the garbage collector never deletes.
	ownerInSecondWrite bug = "the owner is set by a second write"
	// Stale state: the finalizer of a database that was deleted in the past deletes the volume of the database that
	// has its name now: instaclustr/cassandra-operator#402, datastax/cass-operator#412.
	volumeByName bug = "the finalizer finds the volume by its name"
)

const (
	databaseFinalizer = "example.com/database"
	databaseName      = "example.com/database-name"
	databaseUID       = "example.com/database-uid"
)

// databases is the operator of databases.
type databases struct {
	client.Client
	live client.Reader
	bug  bug
}

func (r *databases) setUp(m ctrl.Manager) error {
	r.Client, r.live = m.GetClient(), m.GetAPIReader()
	return ctrl.NewControllerManagedBy(m).For(&Database{}).Owns(&corev1.Secret{}).Owns(&appsv1.StatefulSet{}).WithOptions(options()).Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *databases) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	var db Database
	if err := r.Get(ctx, q.NamespacedName, &db); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !db.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.finalize(ctx, &db)
	}
	if controllerutil.AddFinalizer(&db, databaseFinalizer) {
		if err := r.Update(ctx, &db); err != nil {
			return ctrl.Result{}, err
		}
	}
	for _, step := range []func(context.Context, *Database) error{r.secret, r.volume, r.servers, r.status} {
		if err := step(ctx, &db); err != nil {
			return ctrl.Result{}, err
		}
	}
	return ctrl.Result{}, nil
}

// finalize deletes the volume, which has no owner: a database that is deleted by mistake keeps its
// data until its finalizer has run.
func (r *databases) finalize(ctx context.Context, db *Database) error {
	if !controllerutil.ContainsFinalizer(db, databaseFinalizer) {
		return nil
	}
	if r.bug == volumeByName {
		v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: volumeName(db)}}
		if err := r.Delete(ctx, v); client.IgnoreNotFound(err) != nil {
			return err
		}
		controllerutil.RemoveFinalizer(db, databaseFinalizer)
		return client.IgnoreNotFound(r.Update(ctx, db))
	}
	// The UID protects the volumes of a later database with this name.
	selected := client.MatchingLabels{databaseName: db.Name, databaseUID: string(db.UID)}
	var volumes corev1.PersistentVolumeClaimList
	if err := r.List(ctx, &volumes, client.InNamespace(db.Namespace), selected); err != nil {
		return err
	}
	for i := range volumes.Items {
		v := &volumes.Items[i]
		if err := r.Delete(ctx, v, client.Preconditions{UID: &v.UID}); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	controllerutil.RemoveFinalizer(db, databaseFinalizer)
	return client.IgnoreNotFound(r.Update(ctx, db))
}

func (r *databases) secret(ctx context.Context, db *Database) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name + "-password"}}
	_, err := controllerutil.CreateOrUpdate(ctx, r, s, func() error {
		if len(s.Data["password"]) == 0 {
			s.Data = map[string][]byte{"password": []byte("secret of " + db.Name)}
		}
		return controllerutil.SetControllerReference(db, s, scheme)
	})
	return err
}

func volumeName(db *Database) string { return db.Name + "-data" }

func (r *databases) volume(ctx context.Context, db *Database) error {
	if r.bug == phaseBeforeWork {
		if db.Status.Phase != "" {
			return nil
		}
		db.Status.Phase = "Provisioning"
		if err := r.Status().Update(ctx, db); err != nil {
			return err
		}
	}
	v := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: volumeName(db)}}
	// It has no owner, so it would stay if the database was gone.
	if err := newest(ctx, r.live, db); err != nil {
		return err
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r, v, func() error {
		if uid, ok := v.Labels[databaseUID]; ok && uid != string(db.UID) {
			return fmt.Errorf("the volume is still that of the former database with the UID %s", uid)
		}
		v.Labels = map[string]string{databaseName: db.Name, databaseUID: string(db.UID)}
		v.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		v.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(db.Spec.Storage)}
		return nil
	})
	return err
}

func (r *databases) servers(ctx context.Context, db *Database) error {
	s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: db.Namespace, Name: db.Name}}
	if r.bug == ownerInSecondWrite {
		if err := r.Get(ctx, client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
			return err
		}
		r.desired(db, s)
		if err := r.Create(ctx, s); err != nil {
			return err
		}
		base := s.DeepCopy()
		if err := controllerutil.SetControllerReference(db, s, scheme); err != nil {
			return err
		}
		return r.Patch(ctx, s, client.MergeFrom(base))
	}
	_, err := controllerutil.CreateOrUpdate(ctx, r, s, func() error {
		r.desired(db, s)
		return controllerutil.SetControllerReference(db, s, scheme)
	})
	return err
}

func (r *databases) desired(db *Database, s *appsv1.StatefulSet) {
	labels := map[string]string{databaseName: db.Name}
	s.Spec.Replicas, s.Spec.ServiceName = &db.Spec.Replicas, db.Name
	s.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	s.Spec.Template.Labels = labels
	if len(s.Spec.Template.Spec.Containers) == 0 {
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "server", Image: "database:1"}}
	}
}

func (r *databases) status(ctx context.Context, db *Database) error {
	var s appsv1.StatefulSet
	if err := r.Get(ctx, client.ObjectKeyFromObject(db), &s); err != nil {
		return client.IgnoreNotFound(err) // not yet in the cache: its event will come
	}
	want := DatabaseStatus{Phase: "Provisioning", Ready: s.Status.ReadyReplicas}
	if s.Status.ReadyReplicas == db.Spec.Replicas {
		want.Phase = "Ready"
	}
	if db.Status == want {
		return nil
	}
	db.Status = want
	return r.Status().Update(ctx, db)
}
