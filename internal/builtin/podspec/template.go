package podspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// ValidateTemplate checks the template of a workload, which has its defaults.
func ValidateTemplate(errs *check.Errors, t *corev1.PodTemplateSpec, at *field.Path) {
	ValidateTemplateMeta(errs, t, at)
	at = at.Child("spec")
	r := rules{Errors: errs, spec: &t.Spec}
	r.check(at)
	r.profileAnnotations(t.Annotations, at)
	if len(t.Spec.EphemeralContainers) > 0 {
		r.Forbidden(at, "ephemeralContainers", "ephemeral containers not allowed in pod template")
	}
}

// ValidateTemplateMeta checks the labels and annotations of a template. ValidateTemplate
// does so, too; for some kinds kube-apiserver reports them twice.
func ValidateTemplateMeta(errs *check.Errors, t *corev1.PodTemplateSpec, at *field.Path) {
	if len(t.Labels) > 0 {
		errs.Add(check.Labels(t.Labels, at.Child("labels"))...)
	}
	if len(t.Annotations) > 0 {
		errs.Add(apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
		ValidateAnnotations(errs, t.Annotations, &t.Spec, at.Child("annotations"))
	}
}

// RequireRestartAlways checks that the Pods of a template run until they are deleted.
// Kind is the kind of the workload.
func RequireRestartAlways(errs *check.Errors, t *corev1.PodTemplateSpec, at *field.Path, kind string) {
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs.Add(field.NotSupported(at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs.Forbidden(at.Child("spec"), "activeDeadlineSeconds", "activeDeadlineSeconds in "+kind+" is not Supported")
	}
}
