package builtin

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// tolerateOld removes the errors of an update about volumes that 1.36 accepted in the templates of workloads: images without
// a reference, if the stored object has any.
func tolerateOld(errs field.ErrorList, old runtime.Object) field.ErrorList {
	if len(errs) == 0 {
		return errs
	}
	t := templateOf(old)
	if t == nil || !slices.ContainsFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.Image != nil && v.Image.Reference == "" }) {
		return errs
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return e.Type == field.ErrorTypeRequired && strings.Contains(e.Field, "template.spec.volumes[") && strings.HasSuffix(e.Field, "].image.reference")
	})
}

// templateOf returns the template of Pods of a workload, nil for other kinds.
func templateOf(o runtime.Object) *corev1.PodTemplateSpec {
	switch o := o.(type) {
	case *appsv1.DaemonSet:
		return &o.Spec.Template
	case *appsv1.Deployment:
		return &o.Spec.Template
	case *appsv1.ReplicaSet:
		return &o.Spec.Template
	case *appsv1.StatefulSet:
		return &o.Spec.Template
	case *batchv1.Job:
		return &o.Spec.Template
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template
	case *corev1.PodTemplate:
		return &o.Template
	case *corev1.ReplicationController:
		return o.Spec.Template
	}
	return nil
}
