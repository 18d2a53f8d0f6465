package bugs

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Credential is a password that is rotated. Each version is a Secret, which an issuer fills.
type Credential = Custom[CredentialSpec, CredentialStatus]

// CredentialSpec is the desired state.
type CredentialSpec struct {
	// Rotation asks for a new version when it grows.
	Rotation int `json:"rotation"`
}

// CredentialStatus is the observed state.
type CredentialStatus struct {
	Phase    string `json:"phase,omitempty"`
	Rotation int    `json:"rotation"` // that Version was made for
	Version  int    `json:"version"`
}

const (
	// Intermediate state: the next version is the one after the newest Secret. A crash after the Secret
	// and before the status rotates twice.
	rotateTwice bug = "the next version is counted from what an unfinished rotation has left"
	// Lost response: a Secret that exists is taken for that of another owner, which is a permanent failure. It is the
	// controller's own, whose create had no response: tektoncd/pipeline#4741.
	existsIsFatal bug = "an object that exists is a permanent failure"
	// The watch ends permanently with the first 410 or broken connection: dotnet/dotnet-operator-sdk#735, obmarg/kazan#45.
	goneEndsWatch bug = "the watch is not started again"
)

const (
	credentialName = "example.com/credential"
	// watchPause is the time between two watches.
	watchPause = 10 * time.Millisecond
)

// credentials is the operator of credentials.
type credentials struct {
	client.Client
	live   client.WithWatch
	bug    bug
	issued chan event.GenericEvent
}

func (r *credentials) setUp(m ctrl.Manager) error {
	r.Client, r.issued = m.GetClient(), make(chan event.GenericEvent)
	var err error
	if r.live, err = client.NewWithWatch(m.GetConfig(), client.Options{Scheme: scheme, Mapper: mapper, HTTPClient: m.GetHTTPClient()}); err != nil {
		return err
	}
	if err := m.Add(manager.RunnableFunc(r.watchSecrets)); err != nil {
		return err
	}
	changed := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	issued := source.Channel(r.issued, &handler.EnqueueRequestForObject{})
	return ctrl.NewControllerManagedBy(m).For(&Credential{}, changed).WatchesRawSource(issued).WithOptions(options()).Complete(r)
}

// watchSecrets sends an event for each Secret of a credential that changes. The operator does not cache
// Secrets.
func (r *credentials) watchSecrets(ctx context.Context) error {
	for ctx.Err() == nil {
		r.watchOnce(ctx)
		if r.bug == goneEndsWatch {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(watchPause):
		}
	}
	return nil
}

// watchOnce lists and watches, until the watch ends.
func (r *credentials) watchOnce(ctx context.Context) {
	var list corev1.SecretList
	if err := r.live.List(ctx, &list, client.HasLabels{credentialName}); err != nil {
		return
	}
	for i := range list.Items {
		r.notify(ctx, &list.Items[i])
	}
	w, err := r.live.Watch(ctx, &corev1.SecretList{}, client.HasLabels{credentialName}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	if err != nil {
		return
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return
		}
		if s, ok := e.Object.(*corev1.Secret); ok {
			r.notify(ctx, s)
		}
	}
}

// notify wakes up the credential of a Secret.
func (r *credentials) notify(ctx context.Context, s *corev1.Secret) {
	c := &Credential{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Labels[credentialName]}}
	select {
	case r.issued <- event.GenericEvent{Object: c}:
	case <-ctx.Done():
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *credentials) Reconcile(ctx context.Context, q ctrl.Request) (ctrl.Result, error) {
	var c Credential
	if err := r.live.Get(ctx, q.NamespacedName, &c); err != nil || !c.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if c.Status.Rotation != c.Spec.Rotation {
		if err := r.rotate(ctx, &c); err != nil {
			return ctrl.Result{}, err
		}
	}
	var s corev1.Secret
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: secretName(&c, c.Status.Version)}, &s); err != nil {
		return ctrl.Result{}, err
	}
	if len(s.Data["password"]) == 0 {
		return ctrl.Result{}, r.setPhase(ctx, &c, "Waiting") // the watch reports when it is issued
	}
	if err := r.publish(ctx, &c); err != nil {
		return ctrl.Result{}, err
	}
	old := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: secretName(&c, c.Status.Version-1)}}
	if err := r.live.Delete(ctx, old); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.setPhase(ctx, &c, "Ready")
}

func (r *credentials) setPhase(ctx context.Context, c *Credential, phase string) error {
	if c.Status.Phase == phase {
		return nil
	}
	c.Status.Phase = phase
	return r.Status().Update(ctx, c)
}

func secretName(c *Credential, version int) string { return fmt.Sprintf("%s-v%d", c.Name, version) }

// rotate creates the Secret of the next version, which the status records. A second try finds the same
// Secret.
func (r *credentials) rotate(ctx context.Context, c *Credential) error {
	version := c.Status.Version + 1
	if r.bug == rotateTwice {
		for version = 1; ; version++ {
			err := r.live.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: secretName(c, version)}, &corev1.Secret{})
			if apierrors.IsNotFound(err) && version > c.Status.Version {
				break
			}
			if client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: secretName(c, version), Labels: map[string]string{credentialName: c.Name}}}
	if err := controllerutil.SetControllerReference(c, s, scheme); err != nil {
		return err
	}
	err := r.live.Create(ctx, s)
	if apierrors.IsAlreadyExists(err) && r.bug == existsIsFatal {
		return reconcile.TerminalError(errors.Join(err, r.setPhase(ctx, c, "Failed")))
	}
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	c.Status = CredentialStatus{Phase: "Rotating", Rotation: c.Spec.Rotation, Version: version}
	return r.Status().Update(ctx, c)
}

// publish lets the users of the credential know the Secret that is valid.
func (r *credentials) publish(ctx context.Context, c *Credential) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, r.live, m, func() error {
		m.Data = map[string]string{"secret": secretName(c, c.Status.Version)}
		return controllerutil.SetControllerReference(c, m, scheme)
	})
	return err
}
