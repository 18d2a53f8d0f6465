package builtin

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/podspec"
)

// tolerateOld removes the errors of an update about the template of a workload if the stored template has the same: images of
// volumes without a reference, which 1.36 accepted, and containers that add CAP_SYS_ADMIN without privilege escalation.
func tolerateOld(errs field.ErrorList, old runtime.Object) field.ErrorList {
	if len(errs) == 0 {
		return errs
	}
	t := templateOf(old)
	if t == nil {
		return errs
	}
	if slices.ContainsFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.Image != nil && v.Image.Reference == "" }) {
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool {
			return e.Type == field.ErrorTypeRequired && strings.Contains(e.Field, "template.spec.volumes[") && strings.HasSuffix(e.Field, "].image.reference")
		})
	}
	if podspec.AddsSysAdmin(&t.Spec) {
		errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return e.Detail == podspec.SysAdminEscalates })
	}
	return errs
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
