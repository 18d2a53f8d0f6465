// Package controllers has controller-runtime as a client: its patch helpers,
// CreateOrUpdate, finalizers and owners, and a manager with a reconciler.
package controllers

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/tidemark-dev/tidemark/internal/tier"
	"github.com/tidemark-dev/tidemark/test/servers"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// bed is a client of a server.
type bed struct {
	t         *testing.T
	ctx       context.Context
	c         client.WithWatch
	namespace string
	server    servers.Server
}

// on runs a test by controller-runtime's client against each server.
func on(t *testing.T, test func(b *bed)) {
	servers.Each(t, func(t *testing.T, s servers.Server) {
		c, err := client.NewWithWatch(s.Config, client.Options{Scheme: scheme.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		test(&bed{t: t, ctx: t.Context(), c: c, namespace: s.Namespace, server: s})
	})
}

func (b *bed) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: b.namespace, Name: name, Labels: map[string]string{"app": "x"}}
}

func (b *bed) configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: b.meta(name), Data: data}
}

func (b *bed) deployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": "x"}
	return &appsv1.Deployment{ObjectMeta: b.meta(name), Spec: appsv1.DeploymentSpec{
		Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "web:1"}, {Name: "log", Image: "log:1"}}}},
	}}
}

// again reads an object anew.
func (b *bed) again(o client.Object) {
	b.t.Helper()
	b.must(b.c.Get(b.ctx, client.ObjectKeyFromObject(o), o))
}

// TestPatches checks the results of the patch helpers, and their conflicts.
func TestPatches(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		cm := b.configMap("a", map[string]string{"k": "1", "l": "1"})
		b.must(b.c.Create(b.ctx, cm))
		stale := cm.DeepCopy()

		base := cm.DeepCopy()
		cm.Data["k"] = "2"
		delete(cm.Data, "l")
		b.must(b.c.Patch(b.ctx, cm, client.MergeFrom(base)))
		if len(cm.Data) != 1 || cm.Data["k"] != "2" || cm.ResourceVersion == base.ResourceVersion {
			b.t.Errorf("MergeFrom made %v at %s", cm.Data, cm.ResourceVersion)
		}
		version := cm.ResourceVersion
		b.must(b.c.Patch(b.ctx, cm, client.MergeFrom(cm.DeepCopy())))
		if cm.ResourceVersion != version {
			b.t.Errorf("a patch of nothing made version %s of %s", cm.ResourceVersion, version)
		}
		late := stale.DeepCopy()
		late.Data["m"] = "1"
		err := b.c.Patch(b.ctx, late, client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{}))
		if !apierrors.IsConflict(err) {
			b.t.Errorf("a stale patch with a lock: %v", err)
		}
		late = stale.DeepCopy()
		late.Data["m"] = "1"
		b.must(b.c.Patch(b.ctx, late, client.MergeFrom(stale)))
		if late.Data["k"] != "2" || late.Data["m"] != "1" {
			b.t.Errorf("a stale patch without one made %v", late.Data)
		}
		if err := b.c.Update(b.ctx, stale); !apierrors.IsConflict(err) {
			b.t.Errorf("a stale update: %v", err)
		}

		d := b.deployment("d")
		b.must(b.c.Create(b.ctx, d))
		before := d.DeepCopy()
		d.Spec.Template.Spec.Containers[0].Image = "web:2"
		b.must(b.c.Patch(b.ctx, d, client.StrategicMergeFrom(before)))
		before = d.DeepCopy()
		d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[:1]
		b.must(b.c.Patch(b.ctx, d, client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})))
		if got := d.Spec.Template.Spec.Containers; len(got) != 1 || got[0].Image != "web:2" || d.Generation != 3 {
			b.t.Errorf("StrategicMergeFrom made %v, generation %d", got, d.Generation)
		}
		b.must(b.c.Patch(b.ctx, d, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/replicas","value":4}]`))))
		if *d.Spec.Replicas != 4 {
			b.t.Errorf("a JSON patch made %d replicas", *d.Spec.Replicas)
		}
	})
}

// TestApply: server-side apply by typed configurations.
func TestApply(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		config := func(data map[string]string) *corev1apply.ConfigMapApplyConfiguration {
			return corev1apply.ConfigMap("a", b.namespace).WithData(data)
		}
		b.must(b.c.Apply(b.ctx, config(map[string]string{"k": "1", "l": "1"}), client.FieldOwner("one")))
		err := b.c.Apply(b.ctx, config(map[string]string{"k": "2"}), client.FieldOwner("two"))
		if !apierrors.IsConflict(err) || !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
			b.t.Errorf("a conflict: %v", err)
		}
		b.must(b.c.Apply(b.ctx, config(map[string]string{"k": "2"}), client.FieldOwner("two"), client.ForceOwnership))
		b.must(b.c.Apply(b.ctx, config(nil), client.FieldOwner("one")))
		cm := b.configMap("a", nil)
		b.again(cm)
		if len(cm.Data) != 1 || cm.Data["k"] != "2" {
			b.t.Errorf("applied to %v", cm.Data)
		}
		extracted, err := corev1apply.ExtractConfigMap(cm, "two")
		if err != nil || extracted.Data["k"] != "2" {
			b.t.Errorf("extracted %v, %v", extracted, err)
		}
		version := cm.ResourceVersion
		b.must(b.c.Apply(b.ctx, extracted, client.FieldOwner("two")))
		if b.again(cm); cm.ResourceVersion != version {
			b.t.Errorf("applying what was extracted made version %s of %s", cm.ResourceVersion, version)
		}

		pod := &corev1.Pod{ObjectMeta: b.meta("p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		b.must(b.c.Create(b.ctx, pod))
		status := corev1apply.Pod("p", b.namespace).WithStatus(corev1apply.PodStatus().WithPhase(corev1.PodRunning).
			WithConditions(corev1apply.PodCondition().WithType(corev1.PodReady).WithStatus(corev1.ConditionTrue)))
		b.must(b.c.Status().Apply(b.ctx, status, client.FieldOwner("kubelet")))
		if b.again(pod); pod.Status.Phase != corev1.PodRunning || len(pod.Status.Conditions) == 0 {
			b.t.Errorf("the status was applied to %v", pod.Status)
		}
	})
}

// TestCreateOrUpdate checks the most common calls of controllers.
func TestCreateOrUpdate(t *testing.T) {
	tier.Full(t)
	type function func(context.Context, client.Client, client.Object, controllerutil.MutateFn) (controllerutil.OperationResult, error)
	for name, put := range map[string]function{"CreateOrUpdate": controllerutil.CreateOrUpdate, "CreateOrPatch": controllerutil.CreateOrPatch} {
		t.Run(name, func(t *testing.T) {
			on(t, func(b *bed) {
				for i, want := range []controllerutil.OperationResult{controllerutil.OperationResultCreated, controllerutil.OperationResultNone, controllerutil.OperationResultUpdated} {
					d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "d"}}
					got, err := put(b.ctx, b.c, d, func() error {
						made := b.deployment("d")
						d.Spec.Selector, d.Spec.Replicas = made.Spec.Selector, new(int32(1+i/2))
						if len(d.Spec.Template.Spec.Containers) == 0 {
							d.Spec.Template = made.Spec.Template
						}
						return nil
					})
					if err != nil || got != want {
						b.t.Errorf("step %d: %s, %v, want %s", i, got, err, want)
					}
				}
				d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "d"}}
				got, err := controllerutil.CreateOrPatch(b.ctx, b.c, d, func() error {
					d.Spec.Replicas = new(int32(7))
					d.Status.ObservedGeneration = d.Generation
					return nil
				})
				if b.again(d); err != nil || got != controllerutil.OperationResultUpdatedStatus || *d.Spec.Replicas != 7 || d.Status.ObservedGeneration != 2 {
					b.t.Errorf("both: %s, %v, %d replicas, observed %d", got, err, *d.Spec.Replicas, d.Status.ObservedGeneration)
				}
			})
		})
	}
}

// TestStatus: the status and the rest do not touch each other.
func TestStatus(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		d := b.deployment("d")
		d.Status.Replicas = 9
		b.must(b.c.Create(b.ctx, d))
		if d.Status.Replicas != 0 {
			b.t.Errorf("created with the status %v", d.Status)
		}
		d.Status.Replicas, d.Spec.Replicas = 2, new(int32(5))
		b.must(b.c.Status().Update(b.ctx, d))
		if d.Status.Replicas != 2 || *d.Spec.Replicas != 1 || d.Generation != 1 {
			b.t.Errorf("a status update made %d replicas of %d, generation %d", d.Status.Replicas, *d.Spec.Replicas, d.Generation)
		}
		base := d.DeepCopy()
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue}}
		b.must(b.c.Status().Patch(b.ctx, d, client.StrategicMergeFrom(base)))
		if len(d.Status.Conditions) != 1 || d.Status.Replicas != 2 {
			b.t.Errorf("a status patch made %v", d.Status)
		}
		d.Spec.Replicas, d.Status.Replicas = new(int32(3)), 0
		b.must(b.c.Update(b.ctx, d))
		if *d.Spec.Replicas != 3 || d.Status.Replicas != 2 || d.Generation != 2 {
			b.t.Errorf("an update made %d replicas of %d, generation %d", d.Status.Replicas, *d.Spec.Replicas, d.Generation)
		}
	})
}

// TestSubresources: those whose bodies are of another kind.
func TestSubresources(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		d := b.deployment("d")
		b.must(b.c.Create(b.ctx, d))
		scale := &autoscalingv1.Scale{}
		b.must(b.c.SubResource("scale").Get(b.ctx, d, scale))
		scale.Spec.Replicas = 4
		b.must(b.c.SubResource("scale").Update(b.ctx, d, client.WithSubResourceBody(scale)))
		if b.again(d); *d.Spec.Replicas != 4 || scale.ResourceVersion != d.ResourceVersion {
			b.t.Errorf("scaled to %d replicas at %s, responded %s", *d.Spec.Replicas, d.ResourceVersion, scale.ResourceVersion)
		}
		pod := &corev1.Pod{ObjectMeta: b.meta("p"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
		b.must(b.c.Create(b.ctx, pod))
		b.must(b.c.SubResource("eviction").Create(b.ctx, pod, &policyv1.Eviction{}))
		if err := b.c.Get(b.ctx, client.ObjectKeyFromObject(pod), pod); !apierrors.IsNotFound(err) {
			b.t.Errorf("after its eviction: %v", err)
		}
	})
}

// TestFinalizers: an object goes when the last of its finalizers does.
func TestFinalizers(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		cm := b.configMap("a", nil)
		controllerutil.AddFinalizer(cm, "example.com/one")
		controllerutil.AddFinalizer(cm, "example.com/two")
		b.must(b.c.Create(b.ctx, cm))
		b.must(b.c.Delete(b.ctx, cm, client.Preconditions{UID: &cm.UID, ResourceVersion: &cm.ResourceVersion}))
		b.again(cm)
		if cm.DeletionTimestamp.IsZero() || len(cm.Finalizers) != 2 {
			b.t.Fatalf("deleted to %v", cm.ObjectMeta)
		}
		base := cm.DeepCopy()
		controllerutil.RemoveFinalizer(cm, "example.com/one")
		b.must(b.c.Patch(b.ctx, cm, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})))
		controllerutil.AddFinalizer(cm, "example.com/three")
		if err := b.c.Update(b.ctx, cm); !apierrors.IsInvalid(err) {
			b.t.Errorf("a new finalizer: %v", err)
		}
		b.again(cm)
		controllerutil.RemoveFinalizer(cm, "example.com/two")
		b.must(b.c.Update(b.ctx, cm))
		if err := b.c.Get(b.ctx, client.ObjectKeyFromObject(cm), cm); !apierrors.IsNotFound(err) {
			b.t.Errorf("after the last finalizer: %v", err)
		}
		if err := b.c.Update(b.ctx, cm); !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			b.t.Errorf("an update of a deleted object: %v", err)
		}
	})
}

// TestOwners: helpers write owner references, and they are kept as they are.
func TestOwners(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		owner, other, child := b.configMap("owner", nil), b.configMap("other", nil), b.configMap("child", nil)
		b.must(b.c.Create(b.ctx, owner))
		b.must(b.c.Create(b.ctx, other))
		b.must(controllerutil.SetControllerReference(owner, child, scheme.Scheme))
		b.must(b.c.Create(b.ctx, child))
		if controllerutil.SetControllerReference(other, child, scheme.Scheme) == nil {
			b.t.Error("a child has two controllers")
		}
		b.must(controllerutil.SetOwnerReference(other, child, scheme.Scheme))
		b.must(b.c.Update(b.ctx, child))
		if b.again(child); len(child.OwnerReferences) != 2 || !*child.OwnerReferences[0].Controller || child.OwnerReferences[1].UID != other.UID {
			b.t.Errorf("the owners are %v", child.OwnerReferences)
		}
		base := child.DeepCopy()
		b.must(controllerutil.RemoveOwnerReference(other, child, scheme.Scheme))
		b.must(b.c.Patch(b.ctx, child, client.StrategicMergeFrom(base))) // by its key
		if b.again(child); len(child.OwnerReferences) != 1 || !metav1.IsControlledBy(child, owner) {
			b.t.Errorf("the owners are %v", child.OwnerReferences)
		}
	})
}

// TestWrappers: clients that run dry, that are strict, that have a name.
func TestWrappers(t *testing.T) {
	tier.Full(t)
	on(t, func(b *bed) {
		dry := client.NewDryRunClient(b.c)
		cm := b.configMap("a", map[string]string{"k": "1"})
		b.must(dry.Create(b.ctx, cm))
		if cm.UID == "" || cm.ResourceVersion != "" {
			b.t.Errorf("a dry-run made uid %q, version %q", cm.UID, cm.ResourceVersion)
		}
		named := client.WithFieldOwner(b.c, "me")
		cm = b.configMap("a", map[string]string{"k": "1"})
		b.must(named.Create(b.ctx, cm))
		if len(cm.ManagedFields) != 1 || cm.ManagedFields[0].Manager != "me" {
			b.t.Errorf("managed fields are %v", cm.ManagedFields)
		}
		base := cm.DeepCopy()
		cm.Data["k"] = "2"
		b.must(dry.Patch(b.ctx, cm, client.MergeFrom(base)))
		b.must(dry.Delete(b.ctx, cm))
		if b.again(cm); cm.Data["k"] != "1" || cm.ResourceVersion != base.ResourceVersion {
			b.t.Errorf("a dry-run wrote %v at %s", cm.Data, cm.ResourceVersion)
		}
		strict := client.WithFieldValidation(b.c, client.FieldValidation(metav1.FieldValidationStrict))
		err := strict.Patch(b.ctx, cm, client.RawPatch(types.MergePatchType, []byte(`{"dta":{}}`)))
		if err == nil || !strings.Contains(err.Error(), `unknown field "dta"`) {
			b.t.Errorf("a strict patch: %v", err)
		}
		for _, name := range []string{"b", "c"} {
			b.must(b.c.Create(b.ctx, b.configMap(name, nil)))
		}
		b.must(dry.DeleteAllOf(b.ctx, &corev1.ConfigMap{}, client.InNamespace(b.namespace), client.MatchingLabels{"app": "x"}))
		b.must(b.c.DeleteAllOf(b.ctx, &corev1.ConfigMap{}, client.InNamespace(b.namespace), client.MatchingFields{"metadata.name": "b"}))
		var left corev1.ConfigMapList
		b.must(b.c.List(b.ctx, &left, client.InNamespace(b.namespace), client.MatchingLabels{"app": "x"}))
		if len(left.Items) != 2 {
			b.t.Errorf("%d are left of three but one", len(left.Items))
		}
	})
}
