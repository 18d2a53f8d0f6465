package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/tidemark-dev/tidemark/internal/builtin/check"
)

// ValidatePodTemplate checks a PodTemplate.
func ValidatePodTemplate(t *corev1.PodTemplate) field.ErrorList {
	var f Faults
	f.Template(&t.Template, field.NewPath("template"))
	return f.List()
}

// ValidatePodTemplateUpdate checks an update of a PodTemplate.
func ValidatePodTemplateUpdate(t, _ *corev1.PodTemplate) field.ErrorList {
	return ValidatePodTemplate(t)
}

// Template checks the template of a workload. It has its defaults.
func (f *Faults) Template(t *corev1.PodTemplateSpec, at *field.Path) {
	f.templateMeta(t, at)
	r := podRules{spec: &t.Spec, Faults: *f}
	r.check(at.Child("spec"))
	r.seccompMatches(t.Annotations, at.Child("spec"))
	r.appArmorMatches(t.Annotations, at.Child("spec"))
	if len(t.Spec.EphemeralContainers) > 0 {
		r.Forbidden(at.Child("spec"), "ephemeralContainers", "ephemeral containers not allowed in pod template")
	}
	*f = r.Faults
}

func (f *Faults) templateMeta(t *corev1.PodTemplateSpec, at *field.Path) {
	if len(t.Labels) > 0 {
		f.Add(check.Labels(t.Labels, at.Child("labels"))...)
	}
	if len(t.Annotations) > 0 {
		f.Add(apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
		f.podAnnotations(t.Annotations, &t.Spec, at.Child("annotations"))
	}
}

// TemplateMeta checks the metadata of a template again, as kube-apiserver does it
// for some kinds.
func (f *Faults) TemplateMeta(t *corev1.PodTemplateSpec, at *field.Path) { f.templateMeta(t, at) }

// RunsForever checks that the Pods of a template are to run until they are deleted;
// kind is that of the workload.
func (f *Faults) RunsForever(t *corev1.PodTemplateSpec, at *field.Path, kind string) {
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		f.Add(field.NotSupported(at.Child("spec", "restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		f.Forbidden(at.Child("spec"), "activeDeadlineSeconds", "activeDeadlineSeconds in "+kind+" is not Supported")
	}
}

// Selects checks that a selector selects the Pods of a template. It reports whether
// the selector can be one at all.
func (f *Faults) Selects(s *metav1.LabelSelector, t *corev1.PodTemplateSpec, at *field.Path) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return false
	}
	if !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		f.Invalid(at.Child("metadata"), "labels", t.Labels, "`selector` does not match template `labels`")
	}
	return true
}
